"""The figures by which predictions are judged, each computed from true classes and class probabilities.

They are scikit-learn's, written out: to load it takes as long as to train on Cora.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from nfcgcn.graph import Ints

Doubles = npt.NDArray[np.float64]
BINS = 15
"""Ranges of confidence, all of the same width, in which confidence and accuracy are compared."""


@dataclass(frozen=True)
class Score:
    """One figure: its name in words, which end is good, and how it is computed."""

    title: str
    best: Literal["highest", "lowest"]
    is_share: bool
    """Whether it is written in percent."""
    meaning: str
    measure: Callable[[Ints, Doubles], float]
    """From the true classes ``[M]`` and the class probabilities ``[M, C]``; NaN if these nodes do not define it."""


def accuracy(labels: Ints, probabilities: Doubles) -> float:
    """Return the share of nodes whose most probable class is their own."""
    return float(np.mean(probabilities.argmax(1) == labels))


def macro_f1(labels: Ints, probabilities: Doubles) -> float:
    """Return the mean F1 of all classes that occur among labels or predictions, with equal weight."""
    right, own, predicted = _counts(labels, probabilities)
    occurs = own + predicted > 0
    return float(np.mean(2 * right[occurs] / (own + predicted)[occurs]))


def balanced_accuracy(labels: Ints, probabilities: Doubles) -> float:
    """Return the mean, over the classes of the nodes, of the share of a class that is recognised."""
    right, own, _ = _counts(labels, probabilities)
    return float(np.mean(right[own > 0] / own[own > 0]))


def _counts(labels: Ints, probabilities: Doubles) -> tuple[Ints, Ints, Ints]:
    """Return per class how many nodes are recognised, are of it, and are predicted to be."""
    predictions, size = probabilities.argmax(1), probabilities.shape[1]
    each = (labels[predictions == labels], labels, predictions)
    right, own, predicted = (np.bincount(nodes, minlength=size) for nodes in each)
    return right, own, predicted


def roc_auc(labels: Ints, probabilities: Doubles) -> float:
    """Return the area under the ROC curve of each class against all others, as a mean over the classes of the nodes."""
    present = np.unique(labels)
    if len(present) < 2:
        return math.nan
    areas = [area_under_roc(probabilities[labels == c, c], probabilities[labels != c, c]) for c in present]
    return float(np.mean(areas))


def area_under_roc(ours: Doubles, others: Doubles) -> float:
    """Return how often one of `ours` is above one of the `others`; ties count half."""
    _, places, counts = np.unique(np.concatenate([ours, others]), return_inverse=True, return_counts=True)
    ranks = counts.cumsum() - (counts - 1) / 2
    above = ranks[places[: len(ours)]].sum() - len(ours) * (len(ours) + 1) / 2
    return float(above / (len(ours) * len(others)))


def log_loss(labels: Ints, probabilities: Doubles) -> float:
    """Return the mean of minus the logarithm of the probability that a node's own class was given."""
    given = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.clip(given, np.finfo(given.dtype).eps, 1)).mean())


def reliability(correct: npt.NDArray[np.bool_], confidence: Doubles) -> tuple[Ints, Doubles, Doubles]:
    """Return the number of nodes, the accuracy and the mean confidence in each of ``BINS`` ranges of confidence.

    A range holds its upper end. Accuracy and confidence of an empty range are 0.
    """
    bins = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    sums = (np.bincount(bins, weights=values, minlength=BINS) for values in (correct.astype(np.float64), confidence))
    right, sure = (total / np.maximum(counts, 1) for total in sums)
    return counts, right, sure


def calibration_error(labels: Ints, probabilities: Doubles) -> float:
    """Return the expected calibration error: the gap between confidence and accuracy, averaged over the nodes."""
    counts, right, sure = reliability(probabilities.argmax(1) == labels, probabilities.max(1))
    return float(np.sum(counts * np.abs(right - sure)) / max(1, counts.sum()))


SCORES: Mapping[str, Score] = {
    "accuracy": Score("accuracy", "highest", True, "share of nodes that are recognised", accuracy),
    "macro-f1": Score("macro-F1", "highest", True, "F1, each class counting the same", macro_f1),
    "balanced-accuracy": Score(
        "balanced accuracy",
        "highest",
        True,
        "share recognised, each class counting the same",
        balanced_accuracy,
    ),
    "roc-auc": Score(
        "ROC-AUC", "highest", False, "how well probabilities sort each class from all others; 0.5 is chance", roc_auc
    ),
    "log-loss": Score("log loss", "lowest", False, "cost of the probabilities given to the true classes", log_loss),
    "calibration-error": Score(
        "calibration error", "lowest", False, "mean gap between confidence and accuracy", calibration_error
    ),
}
"""All scores by name, in the order to show them."""


def measure_all(labels: Ints, probabilities: Doubles) -> dict[str, float | None]:
    """Return every score; None where these nodes do not define it."""
    measured = {name: score.measure(labels, probabilities) for name, score in SCORES.items()}
    return {name: value if math.isfinite(value) else None for name, value in measured.items()}
