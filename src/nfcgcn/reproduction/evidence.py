"""What each of the paper's claims asks of stored results: a rule a claim, a part for every place where it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nfcgcn.evaluation import Estimate, paired
from nfcgcn.reproduction.comparison import (
    Cell,
    Comparison,
    growth,
    is_ours,
    leads,
    place_name,
    rise,
    rivals,
    spread,
    steadiness,
    title,
)

Found = Mapping[str, Comparison]
"""Experiments that have been run, by name."""

LEAST = 5
"""Seeds below which nothing is said: with fewer, intervals are so wide that a claim would fail for want of runs."""
STEADY = 3.5
"""Points by which the paper's accuracy changes at most between one and five GCN layers."""
NEAR = 1.0
"""Points: about the standard error of an accuracy on 1,000 test nodes."""
MUCH = 2.0
"""Times GCN's epoch that count as much more."""


@dataclass(frozen=True)
class Part:
    """One of the places where a sentence is looked at."""

    holds: bool | None
    """None where there are too few results."""
    evidence: str


def signed(value: float, digits: int = 2) -> str:
    """Write a difference with its sign."""
    text = f"{value:+.{digits}f}"
    return text[1:] if not text.strip("+-0.") else text.replace("-", "\u2212")


def with_interval(found: Estimate, digits: int = 2) -> str:
    """Write a difference with its 95 % interval."""
    return f"{signed(found.mean, digits)} ({signed(found.low, digits)} to {signed(found.high, digits)})"


def outperforms(found: Found) -> Iterable[Part]:
    """On each dataset: is 1D significantly above every baseline?"""
    comparison = found["accuracy"]
    for dataset in comparison.experiment.datasets:
        known = _against_rivals(comparison, dataset)
        if not known:
            yield _too_few(dataset)
            continue
        nearest = min(known, key=lambda rival: known[rival].mean)
        above = sum(test.is_above for test in known.values())
        below = [rival for rival, test in known.items() if test.is_below]
        said = f"{title(dataset)}: above {above} of {len(known)}"
        said += f", below {', '.join(below)}" if below else ""
        yield Part(above == len(known), f"{said}; least against {nearest}, {with_interval(known[nearest])}")


def converges(found: Found) -> Iterable[Part]:
    """On each dataset, against each other model: are its epochs significantly fewer?"""
    comparison = found["convergence"]
    for dataset in comparison.experiment.datasets:
        mine = _cell(comparison, _first(leads(comparison, dataset)), dataset)
        for rival in rivals(comparison, dataset):
            theirs = _cell(comparison, rival, dataset)
            test = paired(mine.epochs, theirs.epochs) if mine and theirs else None
            if mine is None or theirs is None or test is None or test.num < LEAST:
                yield _too_few(f"{title(dataset)}, {rival}")
                continue
            ours, other = _mean(mine.epochs), _mean(theirs.epochs)
            yield Part(
                test.is_below,
                f"{title(dataset)} {ours:.1f} epochs, {rival} {other:.1f}: {with_interval(test, 1)}",
            )


def steadier(found: Found) -> Iterable[Part]:
    """On each dataset: is the spread over the depths, a seed at a time, significantly smaller than GCN's?"""
    comparison = found["depth-planetoid"]
    for dataset in comparison.experiment.datasets:
        mine = _line(comparison, _first(leads(comparison, dataset)), dataset)
        theirs = _line(comparison, _row_of(comparison, "gcn", dataset), dataset)
        test = steadiness(mine, theirs)
        if test is None or test.num < LEAST:
            yield _too_few(dataset)
            continue
        ours, other = (spread([_mean(c.scores) for c in line]) for line in (mine, theirs))
        yield Part(
            test.is_below,
            f"{title(dataset)}: means {ours:.2f} points apart, GCN's {other:.2f}; within a seed {with_interval(test)}",
        )


def steady(found: Found) -> Iterable[Part]:
    """On each dataset: are the means over the depths less than 3.50 points apart?"""
    comparison = found["depth"]
    for dataset in comparison.experiment.datasets:
        line = _line(comparison, _first(leads(comparison, dataset)), dataset)
        if not line or any(len(cell.records) < LEAST for cell in line):
            yield _too_few(dataset)
            continue
        printed = [cell.entry.paper for cell in line if cell.entry.paper is not None]
        ours = spread([_mean(cell.scores) for cell in line])
        told = f" (paper {spread(printed):.2f})" if printed else ""
        yield Part(ours < STEADY, f"{title(dataset)} {ours:.2f}{told}")


def rises(found: Found) -> Iterable[Part]:
    """On each dataset: is the slope over the paper's bandwidths significantly positive?"""
    comparison = found["bandwidth"]
    for dataset in comparison.experiment.datasets:
        line = _line(comparison, _first(leads(comparison, dataset)), dataset)
        printed = [cell for cell in line if cell.entry.paper is not None]
        slope = rise(printed)
        if slope is None or slope.num < LEAST:
            yield _too_few(dataset)
            continue
        said = f"{title(dataset)}: {with_interval(slope)} a slot"
        last = line[-1]
        further = paired(last.scores, printed[-1].scores)
        if last is not printed[-1] and further is not None:
            on = "further up" if further.is_above else "down" if further.is_below else "no further"
            step = f"{place_name(comparison, printed[-1].entry.x)} to {last.entry.x}"
            said += f", and {on} from {step}, {with_interval(further)}"
        yield Part(slope.is_above, said)


def competitive(found: Found) -> Iterable[Part]:
    """On each dataset: is it at most one point below the best other method, as printed and as run here?"""
    comparison, full = found["no-gcn"], found.get("accuracy")
    for dataset in comparison.experiment.datasets:
        mine = _cell(comparison, _first(leads(comparison, dataset)), dataset)
        others = [c for c in full.find(dataset=dataset) if not is_ours(c)] if full else []
        whole = _cell(full, _first(leads(full, dataset)), dataset) if full else None
        layers = paired(mine.scores, whole.scores) if mine and whole else None
        printed = max((c.entry.paper for c in others if c.entry.paper is not None), default=None)
        few = layers is None or layers.num < LEAST or any(len(c.records) < LEAST for c in others)
        if mine is None or layers is None or printed is None or few:
            yield _too_few(dataset)
            continue
        mean = _mean(mine.scores)
        best = max(others, key=lambda c: _mean(c.scores))
        here = _mean(best.scores)
        yield Part(
            mean >= max(printed, here) - NEAR,
            f"{title(dataset)} {mean:.2f}: {signed(mean - printed)} to the paper's best other method, "
            f"{signed(mean - here)} to ours ({best.entry.row}), {with_interval(layers)} to NFC-GCN with GCN layers",
        )


def aggregates_better(found: Found) -> Iterable[Part]:
    """On each dataset: is it significantly above the other ways to use five neighbours?"""
    comparison = found["no-gcn"]
    for dataset in comparison.experiment.datasets:
        known = _against_rivals(comparison, dataset)
        if not known:
            yield _too_few(dataset)
            continue
        said = ", ".join(f"{with_interval(test)} to {rival}" for rival, test in known.items())
        mine = _cell(comparison, _first(leads(comparison, dataset)), dataset)
        printed = [c.entry.paper for c in comparison.find(dataset=dataset) if not is_ours(c) and c.entry.paper]
        if mine and mine.entry.paper is not None and printed:
            said += f"; paper {signed(mine.entry.paper - max(printed), 1)} to the better"
        yield Part(all(test.is_above for test in known.values()), f"{title(dataset)}: {said}")


def needs_labels(found: Found) -> Iterable[Part]:
    """On each dataset: does its lead over GCN grow significantly from the fewest labels to the most?"""
    comparison = found["label-rate"]
    for dataset in comparison.experiment.datasets:
        mine = _line(comparison, _first(leads(comparison, dataset)), dataset)
        theirs = _line(comparison, _row_of(comparison, "gcn", dataset), dataset)
        if len(mine) < 2 or len(mine) != len(theirs):
            yield _too_few(dataset)
            continue
        grown = growth(mine, theirs)
        few, many = (paired(mine[end].scores, theirs[end].scores) for end in (0, -1))
        if grown is None or few is None or many is None or grown.num < LEAST:
            yield _too_few(dataset)
            continue
        first, last = (place_name(comparison, cell.entry.x) for cell in (mine[0], mine[-1]))
        yield Part(
            grown.is_above,
            f"{title(dataset)}: {with_interval(few)} to GCN at {first}, {with_interval(many)} at {last}; "
            f"grows by {with_interval(grown)}",
        )


def slower(found: Found) -> Iterable[Part]:
    """On each dataset: does an epoch take at least twice GCN's time?"""
    comparison = found["cost"]
    for dataset in comparison.experiment.datasets:
        gcn = _cell(comparison, _row_of(comparison, "gcn", dataset), dataset)
        ours = [cell for cell in comparison.find(dataset=dataset, model="nfc-gcn") if cell.records]
        lead = next((cell for cell in ours if not is_plain(cell)), None)
        if lead is None or gcn is None or not gcn.records or not seconds(gcn):
            yield Part(None, f"{title(dataset)}: not measured")
            continue
        times = "; ".join(f"{cell.entry.row} {seconds(cell) / seconds(gcn):.1f}" for cell in ours)
        yield Part(
            seconds(lead) >= MUCH * seconds(gcn),
            f"{title(dataset)}, times GCN's {1000 * seconds(gcn):.2f} ms: {times}",
        )


def is_plain(cell: Cell) -> bool:
    """Tell runs of the plain formulas from those of the fast kernels."""
    return cell.entry.setup.values.get("backend") == "reference"


def seconds(cell: Cell) -> float:
    """Return the seconds that an epoch takes."""
    return _mean({record["seed"]: record["seconds_per_epoch"] for record in cell.records})


def _too_few(what: str) -> Part:
    return Part(None, f"{title(what)}: too few runs, {LEAST} shared seeds are needed")


def _first(rows: Sequence[str]) -> str:
    return rows[0] if rows else ""


def _row_of(comparison: Comparison, model: str, dataset: str) -> str:
    return _first([cell.entry.row for cell in comparison.find(dataset=dataset, model=model)])


def _cell(comparison: Comparison, row: str, dataset: str) -> Cell | None:
    return next(iter(comparison.find(row=row, dataset=dataset)), None)


def _line(comparison: Comparison, row: str, dataset: str) -> list[Cell]:
    return comparison.find(row=row, dataset=dataset)


def _against_rivals(comparison: Comparison, dataset: str) -> dict[str, Estimate]:
    """Test the first of our models against every other one; nothing where one of the tests has too few runs."""
    ours, tests = _cell(comparison, _first(leads(comparison, dataset)), dataset), {}
    for rival in rivals(comparison, dataset):
        theirs = _cell(comparison, rival, dataset)
        test = paired(ours.scores, theirs.scores) if ours and theirs else None
        if test is None or test.num < LEAST:
            return {}
        tests[rival] = test
    return tests


def _mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)
