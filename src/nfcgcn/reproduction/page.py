"""The paper's reproduction as one HTML page and as Markdown, from stored results alone: nothing is trained here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfcgcn import files
from nfcgcn.errors import ConfigError
from nfcgcn.reports.run_page import counted, duration, fill, image
from nfcgcn.reproduction import ledger
from nfcgcn.reproduction.claims import Claim, claims
from nfcgcn.reproduction.comparison import Cell, Comparison, Results, compare, missing, select, title
from nfcgcn.reproduction.experiment import EXPERIMENTS, Experiment, load_experiment
from nfcgcn.reproduction.figures import describe, draw
from nfcgcn.reproduction.ledger import Record
from nfcgcn.reproduction.tables import Sheet, markdown, plain, sheets

MOST_MISSING = 8
"""Cells without their runs that are named; more are counted."""

READING = (
    "Ours is the mean of test accuracies in % ± their standard deviation over seeds; each run is scored once, at the "
    "epoch that was best on the validation nodes.",
    "A verdict is “within” where the paper's figure, give or take half a unit of its last digit, lies in the 95 % "
    "interval of our mean (Student's t over seeds), else “above” or “below”: where ours stands. The paper's own seed "
    "noise is not printed and not counted; with it, more would be “within”.",
    "Paired tests compare runs that share a seed (t-test on the differences of the seeds). They are not corrected for "
    "their number: of twenty without a true difference about one falls outside by chance.",
    "Seeds are not all: the test nodes of a dataset are the same 1,000 each time, and that choice alone gives an "
    "accuracy a standard error of about one point, which no number of seeds makes smaller.",
)


@dataclass(frozen=True)
class Section:
    """One experiment on the page."""

    comparison: Comparison
    sheets: list[Sheet]
    svg: str | None
    alt: str
    notes: list[str]

    @property
    def experiment(self) -> Experiment:
        """What is shown."""
        return self.comparison.experiment


@dataclass(frozen=True)
class Reproduction:
    """All that a page says."""

    results: Results
    sections: list[Section]
    absent: list[Experiment]
    """Experiments without a single run."""
    claims: list[Claim]

    @property
    def counts(self) -> dict[str, int]:
        """How many of the paper's printed figures have each verdict."""
        verdicts = [cell.verdict for section in self.sections for cell in _judged(section.comparison)]
        return {verdict: verdicts.count(verdict) for verdict in ("within", "above", "below")}

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Where and by what the results were made."""
        records, where = self.results.records, dict(self.results.where)
        versions: dict[str, set[str]] = {}
        for record in records:
            for package, version in record.get("versions", {}).items():
                versions.setdefault(package, set()).add(str(version))
        spent = sum(record.get("seconds", 0.0) for record in records)
        return [
            (
                "Device",
                f"{where.pop('device')}; {', '.join(f'{name} {value}' for name, value in sorted(where.items()))}",
            ),
            ("Hardware", _several(record["hardware"] for record in records)),
            ("Versions", ", ".join(f"{package} {_several(found)}" for package, found in sorted(versions.items()))),
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
    """Compute all that a page says of `records`."""
    results = select(records, device=device)
    wanted = [load_experiment(name) for name in EXPERIMENTS] if experiments is None else experiments
    found = [compare(experiment, results.records) for experiment in wanted]
    shown = [comparison for comparison in found if comparison.num_runs]
    return Reproduction(
        results,
        [_section(comparison) for comparison in shown],
        [comparison.experiment for comparison in found if not comparison.num_runs],
        claims({comparison.experiment.name: comparison for comparison in shown}),
    )


def _section(comparison: Comparison) -> Section:
    svg = draw(comparison)
    notes = [f"{row.label}: {row.note}" for row in comparison.experiment.rows if row.note]
    lacking = missing(comparison)
    if lacking:
        more = f" and {len(lacking) - MOST_MISSING} more" if len(lacking) > MOST_MISSING else ""
        runs = counted(comparison.most_seeds, "run")
        listed = f"{'; '.join(lacking[:MOST_MISSING])}{more}"
        command = f"nfcgcn reproduce {comparison.experiment.name}"
        notes.append(f"Not complete (others have {runs}): {listed}. {command} runs them.")
    return Section(comparison, sheets(comparison), svg, describe(comparison) if svg else "", notes)


def write_report(folder: Path, *, experiments: Sequence[Experiment] | None = None, device: str | None = None) -> Path:
    """Write report.html, report.md and figures/ into a folder of results, from these alone; return the page's path."""
    records = ledger.read(folder)
    if not records:
        raise ConfigError(f"{folder} holds no results; run `nfcgcn reproduce all --out {folder}` first")
    page = reproduce_page(records, experiments=experiments, device=device)
    drawn = {f"{section.experiment.name}.svg": section.svg for section in page.sections if section.svg}
    figures = folder / "figures"
    for name, svg in drawn.items():
        files.write_text(figures / name, svg)
    files.write_text(folder / "report.md", to_markdown(page))
    files.write_text(folder / "report.html", render(page))
    for old in figures.glob("*.svg"):
        if old.name not in drawn:
            old.unlink()
    return folder / "report.html"


def render(page: Reproduction) -> str:
    """Return the HTML page: no request to anywhere, no script."""
    return fill(
        "reproduction.html",
        page=page,
        summary=_summary(page.counts),
        images={s.experiment.name: image(s.svg) for s in page.sections if s.svg},
        shown=[s.experiment.name for s in page.sections],
        reading=READING,
    )


def to_markdown(page: Reproduction) -> str:
    """Return the same as Markdown for GitHub, its figures in figures/."""
    lines = ["# The paper, reproduced", "", _summary(page.counts), "", "## Claims", ""]
    for claim in page.claims:
        shown = any(section.experiment.name == claim.experiment for section in page.sections)
        link = f" [Evidence](#{claim.experiment})." if shown else f" `nfcgcn reproduce {claim.experiment}` runs it."
        lines.append(
            f"- **{plain(claim.name)}: {claim.verdict}.** “{plain(claim.sentence)}.” {plain(claim.rule)}{link}"
        )
        lines += [f"  - {_mark(part.holds)} {plain(part.evidence)}" for part in claim.parts]
    lines += ["", *(f"{plain(text)}\n" for text in READING)]
    for section in page.sections:
        lines += _markdown_section(section)
    if page.absent:
        lines += ["## Not run yet", "", *(f"- {plain(e.title)}: `nfcgcn reproduce {e.name}`" for e in page.absent), ""]
    lines += ["## How it was run", "", *(f"- {name}: {plain(value)}" for name, value in page.facts)]
    if page.results.left_out:
        lines.append(f"- {counted(page.results.left_out, 'run')} of another device or version left out")
    lines += ["", "Again: `nfcgcn reproduce all`; only this page: `nfcgcn report`."]
    return "\n".join(lines) + "\n"


def _mark(holds: bool | None) -> str:
    return {True: "yes:", False: "no:", None: "open:"}[holds]


def _summary(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    if not total:
        return "No figure that the paper prints has two runs beside it yet."
    return (
        f"Figures of ours that stand beside one that the paper prints: {total}. Of these {counts['within']} agree "
        f"within the seeds' 95 % interval, {counts['above']} of ours are above and {counts['below']} below."
    )


def _markdown_section(section: Section) -> list[str]:
    experiment = section.experiment
    source = f" ({plain(experiment.source)})" if experiment.source else ""
    lines = [f'## <a id="{experiment.name}"></a>{plain(experiment.title)}{source}', "", plain(experiment.about), ""]
    first, *others = section.sheets
    lines += [f"{plain(first.caption)}:", "", markdown(first)]
    if section.svg:
        lines += [f"![{plain(section.alt)}](figures/{experiment.name}.svg)", ""]
    lines += [f"- {plain(note)}" for note in section.notes] + ([""] if section.notes else [])
    for sheet in others:
        lines += [f"{plain(sheet.caption)}:", "", markdown(sheet)]
    return lines


def main_table(records: Sequence[Record], *, device: str | None = None) -> str:
    """Return the README's table: the rows of `accuracy` on all datasets, ours beside the paper's, as Markdown."""
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
