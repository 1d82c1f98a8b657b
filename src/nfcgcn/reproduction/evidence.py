"""How each of the paper's claims is checked on stored results: one function per claim, one part per dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nfcgcn.evaluation import Estimate, paired
from nfcgcn.reproduction.comparison import (
    Cell,
    Comparison,
    axis_point_name,
    baseline_rows,
    estimate_lead_growth,
    estimate_slope,
    estimate_spread_difference,
    is_ours,
    our_rows,
    spread,
    title,
)

Comparisons = Mapping[str, Comparison]
"""The experiments that have been run, by name."""

MIN_SEEDS = 5
"""With fewer seeds, intervals are so wide that a claim would fail for lack of runs: it stays undecided."""
MAX_DEPTH_CHANGE = 3.5
"""The paper's accuracy changes by fewer percentage points than that between one and five GCN layers."""
COMPETITIVE_MARGIN = 1.0
"""Percentage points: about the standard error of an accuracy on 1,000 test nodes."""
MUCH_SLOWER = 2.0
"""An epoch that takes this many times as long as GCN's counts as "much more"."""


@dataclass(frozen=True)
class Part:
    """A claim on one dataset, and perhaps against one baseline."""

    holds: bool | None
    """None if there are too few results."""
    evidence: str


def signed(value: float, digits: int = 2) -> str:
    """Write a difference with its sign."""
    text = f"{value:+.{digits}f}"
    return text[1:] if not text.strip("+-0.") else text.replace("-", "\u2212")


def with_interval(difference: Estimate, digits: int = 2) -> str:
    """Write a difference with its 95 % interval."""
    mean, low, high = (signed(value, digits) for value in (difference.mean, difference.low, difference.high))
    return f"{mean} ({low} to {high})"


def outperforms(comparisons: Comparisons) -> Iterable[Part]:
    """On each dataset: is 1D significantly above every baseline?"""
    comparison = comparisons["accuracy"]
    for dataset in comparison.experiment.datasets:
        tests = _against_baselines(comparison, dataset)
        if not tests:
            yield _too_few(dataset)
            continue
        nearest = min(tests, key=lambda baseline: tests[baseline].mean)
        above = sum(test.is_above for test in tests.values())
        below = [baseline for baseline, test in tests.items() if test.is_below]
        evidence = f"{title(dataset)}: above {above} of {len(tests)} baselines"
        evidence += f", below {', '.join(below)}" if below else ""
        evidence += f"; smallest difference: {with_interval(tests[nearest])} against {nearest}"
        yield Part(above == len(tests), evidence)


def converges(comparisons: Comparisons) -> Iterable[Part]:
    """On each dataset, against each baseline: does NFC-GCN need significantly fewer epochs?"""
    comparison = comparisons["convergence"]
    for dataset in comparison.experiment.datasets:
        ours = _cell(comparison, _first(our_rows(comparison, dataset)), dataset)
        for baseline in baseline_rows(comparison, dataset):
            theirs = _cell(comparison, baseline, dataset)
            test = paired(ours.epochs_to_99, theirs.epochs_to_99) if ours and theirs else None
            if ours is None or theirs is None or test is None or test.num < MIN_SEEDS:
                yield _too_few(f"{title(dataset)}, {baseline}")
                continue
            our_epochs, their_epochs = _mean(ours.epochs_to_99), _mean(theirs.epochs_to_99)
            yield Part(
                test.is_below,
                f"{title(dataset)}: {our_epochs:.1f} epochs, {baseline} {their_epochs:.1f}; "
                f"difference {with_interval(test, 1)}",
            )


def steadier(comparisons: Comparisons) -> Iterable[Part]:
    """On each dataset: is the spread over the depths, computed per seed, significantly smaller than GCN's?"""
    comparison = comparisons["depth-planetoid"]
    for dataset in comparison.experiment.datasets:
        ours = _line(comparison, _first(our_rows(comparison, dataset)), dataset)
        theirs = _line(comparison, _row_of(comparison, "gcn", dataset), dataset)
        test = estimate_spread_difference(ours, theirs)
        if test is None or test.num < MIN_SEEDS:
            yield _too_few(dataset)
            continue
        our_spread, their_spread = (spread([_mean(c.scores) for c in line]) for line in (ours, theirs))
        yield Part(
            test.is_below,
            f"{title(dataset)}: our means are {our_spread:.2f} points apart, GCN's {their_spread:.2f}; "
            f"difference per seed {with_interval(test)}",
        )


def steady(comparisons: Comparisons) -> Iterable[Part]:
    """On each dataset: are the means over the depths less than 3.50 points apart?"""
    comparison = comparisons["depth"]
    for dataset in comparison.experiment.datasets:
        line = _line(comparison, _first(our_rows(comparison, dataset)), dataset)
        if not line or any(len(cell.records) < MIN_SEEDS for cell in line):
            yield _too_few(dataset)
            continue
        printed = [cell.entry.paper for cell in line if cell.entry.paper is not None]
        our_spread = spread([_mean(cell.scores) for cell in line])
        paper = f" (paper {spread(printed):.2f})" if printed else ""
        yield Part(our_spread < MAX_DEPTH_CHANGE, f"{title(dataset)}: {our_spread:.2f} points apart{paper}")


def rises(comparisons: Comparisons) -> Iterable[Part]:
    """On each dataset: is the slope over the paper's bandwidths significantly positive?"""
    comparison = comparisons["bandwidth"]
    for dataset in comparison.experiment.datasets:
        line = _line(comparison, _first(our_rows(comparison, dataset)), dataset)
        printed = [cell for cell in line if cell.entry.paper is not None]
        slope = estimate_slope(printed)
        if slope is None or slope.num < MIN_SEEDS:
            yield _too_few(dataset)
            continue
        evidence = f"{title(dataset)}: {with_interval(slope)} per slot"
        last = line[-1]
        beyond = paired(last.scores, printed[-1].scores)
        if last is not printed[-1] and beyond is not None:
            change = "it rises further" if beyond.is_above else "it falls" if beyond.is_below else "no clear change"
            step = f"{axis_point_name(comparison, printed[-1].entry.x)} to {last.entry.x}"
            evidence += f"; from {step} {change}, {with_interval(beyond)}"
        yield Part(slope.is_above, evidence)


def competitive(comparisons: Comparisons) -> Iterable[Part]:
    """On each dataset: is NFC at most one point below the best other method, as printed and as run here?"""
    comparison, full = comparisons["no-gcn"], comparisons.get("accuracy")
    for dataset in comparison.experiment.datasets:
        ours = _cell(comparison, _first(our_rows(comparison, dataset)), dataset)
        others = [c for c in full.find(dataset=dataset) if not is_ours(c)] if full else []
        whole = _cell(full, _first(our_rows(full, dataset)), dataset) if full else None
        layers = paired(ours.scores, whole.scores) if ours and whole else None
        printed = max((c.entry.paper for c in others if c.entry.paper is not None), default=None)
        few = layers is None or layers.num < MIN_SEEDS or any(len(c.records) < MIN_SEEDS for c in others)
        if ours is None or layers is None or printed is None or few:
            yield _too_few(dataset)
            continue
        mean = _mean(ours.scores)
        best = max(others, key=lambda c: _mean(c.scores))
        here = _mean(best.scores)
        yield Part(
            mean >= max(printed, here) - COMPETITIVE_MARGIN,
            f"{title(dataset)}: {mean:.2f}; {signed(mean - printed)} against the best other method in the paper, "
            f"{signed(mean - here)} against the best one run here ({best.entry.row}), "
            f"{with_interval(layers)} against NFC-GCN with GCN layers",
        )


def aggregates_better(comparisons: Comparisons) -> Iterable[Part]:
    """On each dataset: is NFC significantly above the other ways to use five neighbours?"""
    comparison = comparisons["no-gcn"]
    for dataset in comparison.experiment.datasets:
        tests = _against_baselines(comparison, dataset)
        if not tests:
            yield _too_few(dataset)
            continue
        differences = [f"{with_interval(test)} against {baseline}" for baseline, test in tests.items()]
        evidence = f"{title(dataset)}: {', '.join(differences)}"
        ours = _cell(comparison, _first(our_rows(comparison, dataset)), dataset)
        printed = [c.entry.paper for c in comparison.find(dataset=dataset) if not is_ours(c) and c.entry.paper]
        if ours and ours.entry.paper is not None and printed:
            evidence += f"; paper: {signed(ours.entry.paper - max(printed), 1)} against the better one"
        yield Part(all(test.is_above for test in tests.values()), evidence)


def needs_labels(comparisons: Comparisons) -> Iterable[Part]:
    """On each dataset: does the lead over GCN grow significantly from the fewest labels to the most?"""
    comparison = comparisons["label-rate"]
    for dataset in comparison.experiment.datasets:
        ours = _line(comparison, _first(our_rows(comparison, dataset)), dataset)
        theirs = _line(comparison, _row_of(comparison, "gcn", dataset), dataset)
        if len(ours) < 2 or len(ours) != len(theirs):
            yield _too_few(dataset)
            continue
        grown = estimate_lead_growth(ours, theirs)
        few, many = (paired(ours[end].scores, theirs[end].scores) for end in (0, -1))
        if grown is None or few is None or many is None or grown.num < MIN_SEEDS:
            yield _too_few(dataset)
            continue
        first, last = (axis_point_name(comparison, cell.entry.x) for cell in (ours[0], ours[-1]))
        yield Part(
            grown.is_above,
            f"{title(dataset)}: {with_interval(few)} against GCN with {first}, {with_interval(many)} with {last}; "
            f"the difference changes by {with_interval(grown)}",
        )


def slower(comparisons: Comparisons) -> Iterable[Part]:
    """On each dataset: does an epoch take at least `MUCH_SLOWER` times as long as GCN's?"""
    comparison = comparisons["cost"]
    for dataset in comparison.experiment.datasets:
        gcn = _cell(comparison, _row_of(comparison, "gcn", dataset), dataset)
        ours = [cell for cell in comparison.find(dataset=dataset, model="nfc-gcn") if cell.records]
        fast = next((cell for cell in ours if not is_plain(cell)), None)
        if fast is None or gcn is None or not gcn.records or not seconds(gcn):
            yield Part(None, f"{title(dataset)}: not measured")
            continue
        times = "; ".join(f"{cell.entry.row} {seconds(cell) / seconds(gcn):.1f}" for cell in ours)
        yield Part(
            seconds(fast) >= MUCH_SLOWER * seconds(gcn),
            f"{title(dataset)}, as a multiple of GCN's {1000 * seconds(gcn):.2f} ms per epoch: {times}",
        )


def is_plain(cell: Cell) -> bool:
    """Return whether the cell was run in plain PyTorch, without the fast kernels."""
    return cell.entry.setup.values.get("backend") == "reference"


def seconds(cell: Cell) -> float:
    """Return how many seconds an epoch takes."""
    return _mean({record["seed"]: record["seconds_per_epoch"] for record in cell.records})


def _too_few(what: str) -> Part:
    return Part(None, f"{title(what)}: too few runs; {MIN_SEEDS} shared seeds are needed")


def _first(rows: Sequence[str]) -> str:
    return rows[0] if rows else ""


def _row_of(comparison: Comparison, model: str, dataset: str) -> str:
    return _first([cell.entry.row for cell in comparison.find(dataset=dataset, model=model)])


def _cell(comparison: Comparison, row: str, dataset: str) -> Cell | None:
    return next(iter(comparison.find(row=row, dataset=dataset)), None)


def _line(comparison: Comparison, row: str, dataset: str) -> list[Cell]:
    return comparison.find(row=row, dataset=dataset)


def _against_baselines(comparison: Comparison, dataset: str) -> dict[str, Estimate]:
    """Test the first of our models against every baseline; return nothing if one of the tests has too few runs."""
    ours, tests = _cell(comparison, _first(our_rows(comparison, dataset)), dataset), {}
    for baseline in baseline_rows(comparison, dataset):
        theirs = _cell(comparison, baseline, dataset)
        test = paired(ours.scores, theirs.scores) if ours and theirs else None
        if test is None or test.num < MIN_SEEDS:
            return {}
        tests[baseline] = test
    return tests


def _mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)
