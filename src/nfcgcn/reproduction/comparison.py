"""Stored results beside the paper's numbers: means, intervals, verdicts and paired tests. Nothing is trained here."""

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
    """The results to compare: all scores come from one machine with one set of versions, and so do all costs."""

    machine: Mapping[str, str]
    """Where the scores were made: device, processor and versions."""
    records: tuple[Record, ...]
    left_out: int
    """How many records were made elsewhere."""


def select(records: Sequence[Record], *, device: str | None = None) -> Results:
    """Return the scores of the machine that has most of them, and the costs of the machine that has most of those.

    If a `device` is named, only machines with that device count.
    """
    allowed = [record for record in records if device in (None, record["where"]["device"])]
    if not allowed:
        known = ", ".join(sorted({str(record["where"]["device"]) for record in records})) or "none"
        raise ConfigError(f"there are no results from device '{device}'; there are results from: {known}")
    costs = [record for record in allowed if record["kind"] == "cost"]
    chosen = _most_used_machine([record for record in allowed if record["kind"] != "cost"] or allowed)
    chosen_for_costs = _most_used_machine(costs, preferred=chosen) if costs else chosen
    kept = tuple(r for r in records if _machine_of(r) == (chosen_for_costs if r["kind"] == "cost" else chosen))
    return Results(json.loads(chosen), kept, len(records) - len(kept))


def _most_used_machine(records: Sequence[Record], *, preferred: str = "") -> str:
    counts = Counter(map(_machine_of, records))
    return max(sorted(counts), key=lambda machine: (counts[machine], machine == preferred))


def _machine_of(record: Record) -> str:
    return json.dumps(record["where"], sort_keys=True)


@dataclass(frozen=True)
class Cell:
    """One entry of an experiment and its stored runs, one per seed."""

    entry: Entry
    records: tuple[Record, ...]
    digits: int
    """How many decimals the paper prints."""
    seconds_per_epoch: float | None = None
    """Measured cost of the same setup; None if it was not measured."""

    @property
    def scores(self) -> dict[int, float]:
        """Test accuracy in % by seed."""
        return {record["seed"]: 100 * record["test_accuracy"] for record in self.records}

    @property
    def epochs_to_99(self) -> dict[int, float]:
        """Epochs until 99 % of the last validation accuracy, by seed."""
        return {record["seed"]: float(record["reach99"]) for record in self.records}

    @property
    def summary(self) -> Summary | None:
        """Test accuracy in %."""
        return summarise(list(self.scores.values())) if self.records else None

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's number, in percentage points."""
        if self.summary is None or self.entry.paper is None:
            return None
        return self.summary["mean"] - float(self.entry.paper)

    @property
    def verdict(self) -> Verdict | None:
        """How our mean compares: `within` if the paper's number, before rounding, may lie in our 95 % interval."""
        if self.summary is None or self.summary["ci95"] is None or self.entry.paper is None:
            return None
        low, high = self.summary["ci95"]
        rounding = 0.5 * 10.0**-self.digits
        # The paper does not print how its own runs vary. Counting that too would only make more cells `within`.
        if self.entry.paper > high + rounding:
            return "below"
        return "above" if self.entry.paper < low - rounding else "within"


@dataclass(frozen=True)
class Comparison:
    """An experiment with all of its stored runs."""

    experiment: Experiment
    cells: tuple[Cell, ...]

    @property
    def num_runs(self) -> int:
        """Finished runs, each counted once."""
        return len({(cell.entry.setup.id, record["seed"]) for cell in self.cells for record in cell.records})

    @property
    def most_seeds(self) -> int:
        """The number of seeds of the cell that has most."""
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

    def along_axis(self, row: str, dataset: str) -> dict[Any, Cell]:
        """Return the cells of a row by their value on the axis."""
        return {cell.entry.x: cell for cell in self.find(row=row, dataset=dataset)}


def compare(experiment: Experiment, records: Iterable[Record]) -> Comparison:
    """Give each record to the cell of the experiment that has its setup."""
    by_setup: dict[str, dict[int, Record]] = {}
    for record in sorted(records, key=lambda record: record["seed"]):
        by_setup.setdefault(record["setup"], {}).setdefault(record["seed"], record)
    declared = entries(experiment)
    printed: dict[tuple[str, str], list[float]] = {}
    for entry in declared:
        if experiment.kind == "train" and entry.paper is not None:
            printed.setdefault((entry.row, entry.dataset), []).append(entry.paper)
    cells = []
    for entry in declared:
        # TOML reads 88.30 as 88.3: the other numbers of the column show how it was rounded.
        digits = decimals(printed.get((entry.row, entry.dataset), ()))
        cost = next(iter(by_setup.get(replace(entry.setup, kind="cost").id, {}).values()), None)
        seconds_per_epoch = None if cost is None else float(cost["seconds_per_epoch"])
        cells.append(Cell(entry, tuple(by_setup.get(entry.setup.id, {}).values()), digits, seconds_per_epoch))
    return Comparison(experiment, tuple(cells))


def decimals(printed: Sequence[float]) -> int:
    """Return how many decimals numbers were printed with: as many as the longest of them has."""
    return max((max(0, -int(Decimal(str(number)).as_tuple().exponent)) for number in printed), default=0)


def estimate_per_seed(statistic: Callable[..., float], *lines: Sequence[Mapping[int, float]]) -> Estimate | None:
    """Compute a statistic per seed and estimate its mean.

    A line is a list of cells, each with its values by seed. `statistic` gets one list of values per line.
    """
    if any(not line for line in lines):
        return None
    shared = set.intersection(*(set(values) for line in lines for values in line))
    return estimate([statistic(*([values[seed] for values in line] for line in lines)) for seed in sorted(shared)])


def spread(values: Sequence[float]) -> float:
    """Return the highest of `values` minus the lowest."""
    return max(values) - min(values)


def slope(x: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the straight line through `values` at `x` (least squares)."""
    centred = np.asarray(x, dtype=np.float64) - np.mean(x)
    return float(centred @ np.asarray(values) / (centred @ centred))


def estimate_slope(line: Sequence[Cell]) -> Estimate | None:
    """Estimate the slope of the accuracy along an axis, in percentage points per unit of the axis."""
    return estimate_per_seed(partial(slope, [cell.entry.x for cell in line]), [cell.scores for cell in line])


def estimate_spread_difference(ours: Sequence[Cell], theirs: Sequence[Cell]) -> Estimate | None:
    """Estimate how much more (above 0) or less (below 0) our accuracy varies along an axis than another model's."""
    return estimate_per_seed(lambda a, b: spread(a) - spread(b), [c.scores for c in ours], [c.scores for c in theirs])


def estimate_lead_growth(ours: Sequence[Cell], theirs: Sequence[Cell]) -> Estimate | None:
    """Estimate how much our lead over another model grows from the first value of an axis to the last."""
    ends = [[line[0].scores, line[-1].scores] for line in (ours, theirs)]
    return estimate_per_seed(lambda a, b: (a[1] - b[1]) - (a[0] - b[0]), *ends)


@dataclass(frozen=True)
class PairedTest:
    """The difference between two models, or between two values on an axis, run with the same seeds."""

    label: str
    dataset: str
    estimate: Estimate | None


def is_ours(cell: Cell) -> bool:
    """Return whether the model is the paper's own, rather than one that it is compared with."""
    return cell.entry.setup.model.startswith("nfc")


def our_rows(comparison: Comparison, dataset: str) -> list[str]:
    """Return the first row of each of the paper's own models on a dataset."""
    first: dict[str, str] = {}
    for cell in comparison.find(dataset=dataset):
        if is_ours(cell):
            first.setdefault(cell.entry.setup.model, cell.entry.row)
    return list(first.values())


def baseline_rows(comparison: Comparison, dataset: str) -> list[str]:
    """Return the rows of all other models on a dataset."""
    return list(dict.fromkeys(c.entry.row for c in comparison.find(dataset=dataset) if not is_ours(c)))


def paired_tests(comparison: Comparison) -> list[PairedTest]:
    """Return the paired tests of an experiment: our models against every baseline, and the ends of the axis."""
    show = comparison.experiment.show
    if show not in ("table", "lines", "convergence"):
        return []
    tests: list[PairedTest] = []
    for dataset in comparison.experiment.datasets:
        for row in our_rows(comparison, dataset):
            ours = comparison.along_axis(row, dataset)
            for baseline in baseline_rows(comparison, dataset):
                theirs = comparison.along_axis(baseline, dataset)
                pair = f"{row} against {baseline}"
                for x in (x for x in ours if x in theirs):
                    label = f"{pair}{_at(comparison, x)}"
                    tests.append(PairedTest(label, dataset, _test(ours[x], theirs[x], show)))
                if len(ours) > 1 and ours.keys() == theirs.keys():
                    lines = [list(ours.values()), list(theirs.values())]
                    spreads, grown = estimate_spread_difference(*lines), estimate_lead_growth(*lines)
                    tests.append(PairedTest(f"{pair}, highest minus lowest", dataset, spreads))
                    tests.append(PairedTest(f"{pair}, last minus first", dataset, grown))
            tests += _test_axis(comparison, ours, dataset)
    return tests


def _test(ours: Cell, theirs: Cell, show: str) -> Estimate | None:
    return (
        paired(ours.epochs_to_99, theirs.epochs_to_99) if show == "convergence" else paired(ours.scores, theirs.scores)
    )


def _test_axis(comparison: Comparison, line: Mapping[Any, Cell], dataset: str) -> Iterator[PairedTest]:
    """Test the slope and the ends of the part of the axis that the paper covers, and of the part beyond it."""
    printed = [x for x, cell in line.items() if cell.entry.paper is not None]
    if comparison.experiment.axis is None or len(printed) < 2:
        return
    label = f"slope per unit from {axis_point_name(comparison, printed[0])} to {printed[-1]}"
    yield PairedTest(label, dataset, estimate_slope([line[x] for x in printed]))
    stops = [printed[0], printed[-1], *([last] if (last := list(line)[-1]) != printed[-1] else [])]
    for start, end in pairwise(stops):
        label = f"{axis_point_name(comparison, end)} against {axis_point_name(comparison, start)}"
        yield PairedTest(label, dataset, paired(line[end].scores, line[start].scores))


def axis_point_name(comparison: Comparison, x: Any) -> str:
    """Name a value on the axis: "n = 2" if the axis's label ends with a letter, else "5 labels per class"."""
    label = comparison.experiment.axis.label if comparison.experiment.axis else ""
    letter = label.split()[-1]
    if len(letter) == 1:
        return f"{letter} = {value_name(x)}"
    return f"{value_name(x)} {label.partition(' per ')[0] if x == 'none' else label}"


def value_name(x: Any) -> str:
    """Write a value of an axis; "none", which means no limit, is "all"."""
    return "all" if x == "none" else str(x)


def _at(comparison: Comparison, x: Any) -> str:
    return "" if comparison.experiment.axis is None else f", {axis_point_name(comparison, x)}"


def missing(comparison: Comparison) -> list[str]:
    """List the cells with fewer runs than other cells of the experiment, or with none."""
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
