"""The reproduction of the paper as one HTML page and as Markdown, from stored results; nothing is trained here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfcgcn import files
from nfcgcn.errors import ConfigError, counted
from nfcgcn.reports import duration, fill, image
from nfcgcn.reproduction.claims import Claim, claims
from nfcgcn.reproduction.comparison import Cell, Comparison, Results, compare, missing, select, title
from nfcgcn.reproduction.experiment import EXPERIMENTS, Experiment, load_experiment
from nfcgcn.reproduction.figures import describe, draw
from nfcgcn.reproduction.ledger import Record, read
from nfcgcn.reproduction.tables import Table, markdown, plain, tables

MOST_MISSING = 8
"""Incomplete cells that are named; the others are only counted."""

READING = (
    "“Ours” is the mean test accuracy in % ± its standard deviation over seeds. Each run is scored on the test nodes "
    "once, at the epoch that was best on the validation nodes.",
    "The verdict is “within” if the paper's number, allowing for the rounding of its last digit, lies in the 95 % "
    "interval of our mean (Student's t over seeds). Otherwise our mean is “above” or “below” the paper's number. The "
    "paper does not print how its own runs vary, so that is not counted; with it, more numbers would be “within”.",
    "Paired tests compare runs with the same seed (t-test on the difference per seed). They are not corrected for the "
    "number of tests: of twenty tests without a true difference, about one is significant by chance.",
    "Seeds are not the only source of chance. A dataset always has the same 1,000 test nodes, and this choice alone "
    "gives an accuracy a standard error of about one point, which more seeds do not reduce.",
)


@dataclass(frozen=True)
class Section:
    """One experiment on the page."""

    comparison: Comparison
    tables: list[Table]
    svg: str | None
    alt: str
    notes: list[str]

    @property
    def experiment(self) -> Experiment:
        """The experiment that the section shows."""
        return self.comparison.experiment


@dataclass(frozen=True)
class Reproduction:
    """Everything that the page shows."""

    results: Results
    sections: list[Section]
    absent: list[Experiment]
    """Experiments without a single run."""
    claims: list[Claim]

    @property
    def counts(self) -> dict[str, int]:
        """How many of the paper's numbers have each verdict."""
        verdicts = [cell.verdict for section in self.sections for cell in _judged(section.comparison)]
        return {verdict: verdicts.count(verdict) for verdict in ("within", "above", "below")}

    @property
    def facts(self) -> list[tuple[str, str]]:
        """On which machine and with which versions the results were made."""
        records, machine = self.results.records, dict(self.results.machine)
        versions: dict[str, set[str]] = {}
        for record in records:
            for package, version in record.get("versions", {}).items():
                versions.setdefault(package, set()).add(str(version))
        spent = sum(record.get("seconds", 0.0) for record in records)
        return [
            (
                "Device",
                f"{machine.pop('device')}; {', '.join(f'{name} {value}' for name, value in sorted(machine.items()))}",
            ),
            ("Hardware", _several(record["hardware"] for record in records)),
            ("Versions", ", ".join(f"{package} {_several(used)}" for package, used in sorted(versions.items()))),
            ("Commit", _several(record.get("commit") or "not recorded" for record in records)),
            ("Runs", f"{len(records):,}, with {duration(spent)} of training in all"),
        ]


def _several(values: Any) -> str:
    return ", ".join(sorted({str(value) for value in values}))


def _judged(comparison: Comparison) -> list[Cell]:
    return [cell for cell in comparison.cells if cell.verdict] if comparison.experiment.kind == "train" else []


def reproduce_page(
    records: Sequence[Record], *, experiments: Sequence[Experiment] | None = None, device: str | None = None
) -> Reproduction:
    """Compute everything that the page shows of `records`."""
    results = select(records, device=device)
    wanted = [load_experiment(name) for name in EXPERIMENTS] if experiments is None else experiments
    comparisons = [compare(experiment, results.records) for experiment in wanted]
    shown = [comparison for comparison in comparisons if comparison.num_runs]
    return Reproduction(
        results,
        [_section(comparison) for comparison in shown],
        [comparison.experiment for comparison in comparisons if not comparison.num_runs],
        claims({comparison.experiment.name: comparison for comparison in shown}),
    )


def _section(comparison: Comparison) -> Section:
    svg = draw(comparison)
    notes = [f"{row.label}: {row.note}" for row in comparison.experiment.rows if row.note]
    incomplete = missing(comparison)
    if incomplete:
        more = f" and {len(incomplete) - MOST_MISSING} more" if len(incomplete) > MOST_MISSING else ""
        runs = counted(comparison.most_seeds, "run")
        listed = f"{'; '.join(incomplete[:MOST_MISSING])}{more}"
        command = f"nfcgcn reproduce {comparison.experiment.name}"
        notes.append(f"Not complete (others have {runs}): {listed}. Run the missing ones with {command}.")
    return Section(comparison, tables(comparison), svg, describe(comparison) if svg else "", notes)


def write_report(folder: Path, *, experiments: Sequence[Experiment] | None = None, device: str | None = None) -> Path:
    """Write report.html, report.md and figures/ into a folder of results; return the path of the HTML page."""
    records = read(folder)
    if not records:
        raise ConfigError(f"{folder} has no results; run `nfcgcn reproduce all --out {folder}` first")
    page = reproduce_page(records, experiments=experiments, device=device)
    drawn = {f"{section.experiment.name}.svg": section.svg for section in page.sections if section.svg}
    figures = files.in_folder(folder, "figures")
    for name, svg in drawn.items():
        files.write_text(files.in_folder(figures, name), svg)
    files.write_text(files.in_folder(folder, "report.md"), to_markdown(page))
    files.write_text(files.in_folder(folder, "report.html"), render(page))
    for old in figures.glob("*.svg"):
        if old.name not in drawn:
            old.unlink()
    return folder / "report.html"


def render(page: Reproduction) -> str:
    """Return the HTML page; it has no scripts and loads nothing from the network."""
    return fill(
        "reproduction.html",
        page=page,
        summary=_summary(page.counts),
        images={s.experiment.name: image(s.svg) for s in page.sections if s.svg},
        shown=[s.experiment.name for s in page.sections],
        reading=READING,
    )


def to_markdown(page: Reproduction) -> str:
    """Return the page as Markdown for GitHub, with its figures in figures/."""
    lines = ["# The paper, reproduced", "", _summary(page.counts), "", "## Claims", ""]
    for claim in page.claims:
        shown = any(section.experiment.name == claim.experiment for section in page.sections)
        link = f" [Evidence](#{claim.experiment})." if shown else f" Run it with `nfcgcn reproduce {claim.experiment}`."
        lines.append(
            f"- **{plain(claim.name)}: {claim.verdict}.** “{plain(claim.sentence)}.” {plain(claim.criterion)}{link}"
        )
        lines += [f"  - {_mark(part.holds)} {plain(part.evidence)}" for part in claim.parts]
    lines += ["", *(f"{plain(text)}\n" for text in READING)]
    for section in page.sections:
        lines += _markdown_section(section)
    if page.absent:
        lines += ["## Not run yet", "", *(f"- {plain(e.title)}: `nfcgcn reproduce {e.name}`" for e in page.absent), ""]
    lines += ["## How it was run", "", *(f"- {name}: {plain(value)}" for name, value in page.facts)]
    if page.results.left_out:
        lines.append(f"- Left out: {counted(page.results.left_out, 'run')} from another device or version")
    lines += ["", "To run it again: `nfcgcn reproduce all`. To write only this page again: `nfcgcn report`."]
    return "\n".join(lines) + "\n"


def _mark(holds: bool | None) -> str:
    return {True: "yes:", False: "no:", None: "undecided:"}[holds]


def _summary(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    if not total:
        return "None of the paper's numbers has two runs to compare with yet."
    return (
        f"We compare {total} of our results with numbers that the paper prints. {counts['within']} agree within the "
        f"95 % interval over seeds, {counts['above']} are above the paper's number and {counts['below']} are below it."
    )


def _markdown_section(section: Section) -> list[str]:
    experiment = section.experiment
    source = f" ({plain(experiment.source)})" if experiment.source else ""
    lines = [f'## <a id="{experiment.name}"></a>{plain(experiment.title)}{source}', "", plain(experiment.about), ""]
    first, *others = section.tables
    lines += [f"{plain(first.caption)}:", "", markdown(first)]
    if section.svg:
        lines += [f"![{plain(section.alt)}](figures/{experiment.name}.svg)", ""]
    lines += [f"- {plain(note)}" for note in section.notes] + ([""] if section.notes else [])
    for table in others:
        lines += [f"{plain(table.caption)}:", "", markdown(table)]
    return lines


def main_table(records: Sequence[Record], *, device: str | None = None) -> str:
    """Return the README's table as Markdown: our results beside the paper's, for rows of `accuracy` on all datasets."""
    comparison = compare(load_experiment("accuracy"), select(records, device=device).records)
    datasets = comparison.experiment.datasets
    lines = [["ours / published", *map(title, datasets)], ["---"] * (1 + len(datasets))]
    for row in comparison.experiment.rows:
        if row.datasets:
            continue
        cells = [next(iter(comparison.find(row=row.label, dataset=dataset)), None) for dataset in datasets]
        lines.append([plain(row.label), *map(_main_cell, cells)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _main_cell(cell: Cell | None) -> str:
    if cell is None or cell.summary is None:
        return ""
    deviation = "" if cell.summary["std"] is None else f" ± {cell.summary['std']:.1f}"
    published = "" if cell.entry.paper is None else f" / {cell.entry.paper:.1f}"
    return f"{cell.summary['mean']:.1f}{deviation}{published}"
