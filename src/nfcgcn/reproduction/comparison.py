"""Stored results beside the paper's figures: means, intervals, verdicts and paired tests. Nothing is trained here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from nfcgcn.errors import ConfigError
from nfcgcn.evaluation import Estimate, Summary, estimate, paired, summarise
from nfcgcn.reproduction.experiment import Entry, Experiment, entries
from nfcgcn.reproduction.ledger import Record

Verdict = Literal["within", "above", "below"]


@dataclass(frozen=True)
class Results:
    """What is set beside each other: the scores of one device and one pair of versions, and the costs of one."""

    where: Mapping[str, str]
    """Of the scores."""
    records: tuple[Record, ...]
    left_out: int
    """Records made elsewhere."""


def select(records: Sequence[Record], *, device: str | None = None) -> Results:
    """Take the scores of the place that has most of them, and the costs of the one that has most of those.

    Only places on `device` count where one is named.
    """
    allowed = [record for record in records if device in (None, record["where"]["device"])]
    if not allowed:
        known = ", ".join(sorted({str(record["where"]["device"]) for record in records})) or "none"
        raise ConfigError(f"there are no results of device '{device}'; results are of: {known}")
    costs = [record for record in allowed if record["kind"] == "cost"]
    chosen = _fullest([record for record in allowed if record["kind"] != "cost"] or allowed)
    of_costs = _fullest(costs, rather=chosen) if costs else chosen
    kept = tuple(r for r in records if _place(r) == (of_costs if r["kind"] == "cost" else chosen))
    return Results(json.loads(chosen), kept, len(records) - len(kept))


def _fullest(records: Sequence[Record], *, rather: str = "") -> str:
    places = Counter(map(_place, records))
    return max(sorted(places), key=lambda place: (places[place], place == rather))


def _place(record: Record) -> str:
    return json.dumps(record["where"], sort_keys=True)


@dataclass(frozen=True)
class Cell:
    """One entry of an experiment and the runs there are of it, by seed."""

    entry: Entry
    records: tuple[Record, ...]
    digits: int
    """Decimals that the paper prints."""
    pace: float | None = None
    """Seconds of an epoch, where the cost of the same setup was measured."""

    @property
    def scores(self) -> dict[int, float]:
        """Test accuracy in % by seed."""
        return {record["seed"]: 100 * record["test_accuracy"] for record in self.records}

    @property
    def epochs(self) -> dict[int, float]:
        """Epochs until 99 % of the last validation accuracy, by seed."""
        return {record["seed"]: float(record["reach99"]) for record in self.records}

    @property
    def summary(self) -> Summary | None:
        """Test accuracy in %."""
        return summarise(list(self.scores.values())) if self.records else None

    @property
    def difference(self) -> float | None:
        """Our mean less the paper's figure, in points."""
        if self.summary is None or self.entry.paper is None:
            return None
        return self.summary["mean"] - float(self.entry.paper)

    @property
    def verdict(self) -> Verdict | None:
        """Where our mean stands: `within` if the paper's figure may be a rounded one of our 95 % interval."""
        if self.summary is None or self.summary["ci95"] is None or self.entry.paper is None:
            return None
        low, high = self.summary["ci95"]
        rounding = 0.5 * 10.0**-self.digits
        # The paper's own seed noise is not printed and not counted; it would only make more cells `within`.
        if self.entry.paper > high + rounding:
            return "below"
        return "above" if self.entry.paper < low - rounding else "within"


@dataclass(frozen=True)
class Comparison:
    """An experiment with what has been run of it."""

    experiment: Experiment
    cells: tuple[Cell, ...]

    @property
    def num_runs(self) -> int:
        """Finished runs, each counted once."""
        return len({(cell.entry.setup.id, record["seed"]) for cell in self.cells for record in cell.records})

    @property
    def most_seeds(self) -> int:
        """Seeds of the cell that has most."""
        return max((len(cell.records) for cell in self.cells), default=0)

    def find(self, *, row: str | None = None, dataset: str | None = None, model: str | None = None) -> list[Cell]:
        """Return the cells of a row, dataset or model, in file order."""
        return [
            cell
            for cell in self.cells
            if row in (None, cell.entry.row)
            and dataset in (None, cell.entry.dataset)
            and model in (None, cell.entry.setup.model)
        ]

    def line(self, row: str, dataset: str) -> dict[Any, Cell]:
        """Return the cells of a row by their place on the axis."""
        return {cell.entry.x: cell for cell in self.find(row=row, dataset=dataset)}


def compare(experiment: Experiment, records: Iterable[Record]) -> Comparison:
    """Put each record where its setup stands in the experiment."""
    by_setup: dict[str, dict[int, Record]] = {}
    for record in sorted(records, key=lambda record: record["seed"]):
        by_setup.setdefault(record["setup"], {}).setdefault(record["seed"], record)
    found = entries(experiment)
    printed: dict[tuple[str, str], list[float]] = {}
    for entry in found:
        if experiment.kind == "train" and entry.paper is not None:
            printed.setdefault((entry.row, entry.dataset), []).append(entry.paper)
    cells = []
    for entry in found:
        # 88.30 in a column of two decimals is read as 88.3: the column says how it was rounded.
        digits = decimals(printed.get((entry.row, entry.dataset), ()))
        cost = next(iter(by_setup.get(replace(entry.setup, kind="cost").id, {}).values()), None)
        pace = None if cost is None else float(cost["seconds_per_epoch"])
        cells.append(Cell(entry, tuple(by_setup.get(entry.setup.id, {}).values()), digits, pace))
    return Comparison(experiment, tuple(cells))


def decimals(printed: Sequence[float]) -> int:
    """Return how many decimals figures were printed with, the longest deciding."""
    return max((max(0, -int(Decimal(str(figure)).as_tuple().exponent)) for figure in printed), default=0)


def across(figure: Callable[..., float], *lines: Sequence[Mapping[int, float]]) -> Estimate | None:
    """Estimate a figure that each seed has over whole lines: `figure` gets a list of values a line."""
    if any(not line for line in lines):
        return None
    shared = set.intersection(*(set(values) for line in lines for values in line))
    return estimate([figure(*([values[seed] for values in line] for line in lines)) for seed in sorted(shared)])


def spread(values: Sequence[float]) -> float:
    """Return by how much `values` differ at most."""
    return max(values) - min(values)


def slope(places: Sequence[float], values: Sequence[float]) -> float:
    """Return the rise of the straight line through `values` at `places` (least squares)."""
    away = np.asarray(places, dtype=np.float64) - np.mean(places)
    return float(away @ np.asarray(values) / (away @ away))


def rise(line: Sequence[Cell]) -> Estimate | None:
    """Estimate the slope of the accuracy along an axis, in points a unit of it."""
    return across(partial(slope, [cell.entry.x for cell in line]), [cell.scores for cell in line])


def steadiness(ours: Sequence[Cell], theirs: Sequence[Cell]) -> Estimate | None:
    """Estimate by how much less (below 0) a seed's accuracy varies along an axis than another model's."""
    return across(lambda a, b: spread(a) - spread(b), [c.scores for c in ours], [c.scores for c in theirs])


def growth(ours: Sequence[Cell], theirs: Sequence[Cell]) -> Estimate | None:
    """Estimate by how much a model's lead over another grows from the first place of an axis to the last."""
    ends = [[line[0].scores, line[-1].scores] for line in (ours, theirs)]
    return across(lambda a, b: (a[1] - b[1]) - (a[0] - b[0]), *ends)


@dataclass(frozen=True)
class Contrast:
    """Two models, or two places on an axis, run with the same seeds."""

    label: str
    dataset: str
    estimate: Estimate | None


def is_ours(cell: Cell) -> bool:
    """Tell the paper's own models from those it is compared with."""
    return cell.entry.setup.model.startswith("nfc")


def leads(comparison: Comparison, dataset: str) -> list[str]:
    """Return the first row of each of the paper's own models on a dataset."""
    first: dict[str, str] = {}
    for cell in comparison.find(dataset=dataset):
        if is_ours(cell):
            first.setdefault(cell.entry.setup.model, cell.entry.row)
    return list(first.values())


def rivals(comparison: Comparison, dataset: str) -> list[str]:
    """Return the rows of all other models on a dataset."""
    return list(dict.fromkeys(c.entry.row for c in comparison.find(dataset=dataset) if not is_ours(c)))


def contrasts(comparison: Comparison) -> list[Contrast]:
    """Return the paired tests of an experiment: ours against every other model, and along what the paper prints."""
    show = comparison.experiment.show
    if show not in ("table", "lines", "convergence"):
        return []
    found: list[Contrast] = []
    for dataset in comparison.experiment.datasets:
        for lead in leads(comparison, dataset):
            mine = comparison.line(lead, dataset)
            for rival in rivals(comparison, dataset):
                theirs = comparison.line(rival, dataset)
                for x in (x for x in mine if x in theirs):
                    label = f"{lead} against {rival}{_at(comparison, x)}"
                    found.append(Contrast(label, dataset, _test(mine[x], theirs[x], show)))
                if len(mine) > 1 and mine.keys() == theirs.keys():
                    lines = [list(mine.values()), list(theirs.values())]
                    found.append(Contrast(f"{lead} against {rival}, highest less lowest", dataset, steadiness(*lines)))
                    found.append(Contrast(f"{lead} against {rival}, last less first", dataset, growth(*lines)))
            found += _steps(comparison, mine, dataset)
    return found


def _test(ours: Cell, theirs: Cell, show: str) -> Estimate | None:
    return paired(ours.epochs, theirs.epochs) if show == "convergence" else paired(ours.scores, theirs.scores)


def _steps(comparison: Comparison, line: Mapping[Any, Cell], dataset: str) -> Iterator[Contrast]:
    """Compare the ends of the stretch of the axis for which the paper has figures, and of the one beyond."""
    printed = [x for x, cell in line.items() if cell.entry.paper is not None]
    if comparison.experiment.axis is None or len(printed) < 2:
        return
    label = f"rise a unit from {place_name(comparison, printed[0])} to {printed[-1]}"
    yield Contrast(label, dataset, rise([line[x] for x in printed]))
    stops = [printed[0], printed[-1], *([last] if (last := list(line)[-1]) != printed[-1] else [])]
    for start, end in pairwise(stops):
        label = f"{place_name(comparison, end)} against {place_name(comparison, start)}"
        yield Contrast(label, dataset, paired(line[end].scores, line[start].scores))


def place_name(comparison: Comparison, x: Any) -> str:
    """Name a place on the axis, by the letter that its label ends with if there is one."""
    label = comparison.experiment.axis.label if comparison.experiment.axis else ""
    letter = label.split()[-1]
    return f"{letter} = {value_name(x)}" if len(letter) == 1 else f"{value_name(x)} {label}"


def value_name(x: Any) -> str:
    """Write a value of an axis; what has no limit is all."""
    return "all" if x == "none" else str(x)


def _at(comparison: Comparison, x: Any) -> str:
    return "" if comparison.experiment.axis is None else f", {place_name(comparison, x)}"


def missing(comparison: Comparison) -> list[str]:
    """Say which cells have no run, and which have fewer seeds than others of the experiment."""
    most = comparison.most_seeds
    return [
        f"{cell.entry.row} on {title(cell.entry.dataset)}{_at(comparison, cell.entry.x)}: "
        f"{len(cell.records) or 'no'} run{'' if len(cell.records) == 1 else 's'}"
        for cell in comparison.cells
        if len(cell.records) < most
    ]


def title(dataset: str) -> str:
    """Write a dataset as its authors do."""
    return {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}.get(dataset, dataset)
