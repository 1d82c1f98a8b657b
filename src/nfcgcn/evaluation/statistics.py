"""Statistics over repeated runs, paired comparison, and scores by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from scipy.special import stdtr, stdtrit

from nfcgcn.graph import Ints


class Summary(TypedDict):
    """A figure over several runs; deviation and interval are None for a single run."""

    mean: float
    std: float | None
    ci95: tuple[float, float] | None
    runs: list[float]


class ClassScore(TypedDict):
    """How well one class is recognised."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, unbiased standard deviation and the 95 % interval of the mean (Student's t).

    >>> summary = summarise([0.8, 0.9])
    >>> f"{summary['mean']:.2f} ± {summary['std']:.2f}"
    '0.85 ± 0.07'
    """
    runs = [float(v) for v in values]
    mean = float(np.mean(runs))
    if len(runs) < 2:
        return {"mean": mean, "std": None, "ci95": None, "runs": runs}
    std = float(np.std(runs, ddof=1))
    reach = float(stdtrit(len(runs) - 1, 0.975)) * std / len(runs) ** 0.5
    return {"mean": mean, "std": std, "ci95": (mean - reach, mean + reach), "runs": runs}


@dataclass(frozen=True)
class Estimate:
    """The mean of a figure over seeds, its 95 % interval and the two-sided p-value for a mean of 0 (Student's t)."""

    num: int
    mean: float
    low: float
    high: float
    p: float

    @property
    def is_above(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0

    @property
    def is_below(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.high < 0


def estimate(values: Sequence[float]) -> Estimate | None:
    """Estimate the mean of `values`, one per seed; return None for fewer than two."""
    # Accuracies are counts out of 1,000 nodes: smaller differences than this come from rounding in sums.
    summary = summarise([round(value, 9) for value in values]) if values else None
    if summary is None or summary["std"] is None or summary["ci95"] is None:
        return None
    mean, error = summary["mean"], summary["std"] / len(values) ** 0.5
    p = 2 * float(stdtr(len(values) - 1, -abs(mean) / error)) if error else float(mean == 0)
    return Estimate(len(values), mean, *summary["ci95"], p)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """Estimate the mean difference of two models over the seeds they share."""
    return estimate([ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())])


def confusion(labels: Ints, predictions: Ints, num_classes: int) -> Ints:
    """Count nodes by true class (row) and predicted class (column)."""
    # By NumPy: loading scikit-learn for it takes longer than a run of Cora.
    pairs = labels * num_classes + predictions
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def class_scores(labels: Ints, predictions: Ints, class_names: Sequence[str]) -> list[ClassScore]:
    """Return precision, recall and F1 of each class; an empty ratio counts as 0."""
    count = len(class_names)
    right = np.bincount(labels[labels == predictions], minlength=count)
    true, predicted = (np.bincount(classes, minlength=count) for classes in (labels, predictions))
    precision, recall, f1 = (
        np.divide(part, whole, out=np.zeros(count), where=whole > 0).tolist()
        for part, whole in ((right, predicted), (right, true), (2 * right, true + predicted))
    )
    return [
        {"name": name, "precision": precision[c], "recall": recall[c], "f1": f1[c], "support": int(true[c])}
        for c, name in enumerate(class_names)
    ]
