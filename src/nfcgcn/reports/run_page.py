"""One run as one HTML page. It has no scripts and loads nothing, so it can be mailed, printed and archived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.data.splits import RANDOM
from nfcgcn.errors import counted
from nfcgcn.reports.figures import confusion, curves, representation
from nfcgcn.reports.html import fill, image, percent, write_score
from nfcgcn.reports.plane import plane
from nfcgcn.reports.reliability import reliability
from nfcgcn.training.scores import SCORES
from nfcgcn.training.values import Stopping

Array = npt.NDArray[Any]
EXPLORED = "explore.html"
"""What `nfcgcn explore RUN --out RUN/explore.html` writes into a run folder; other pages of the run link to it."""


@dataclass(frozen=True, eq=False)
class Page:
    """What a page shows: the result of the run and, for the best seed, its predictions."""

    summary: Mapping[str, Any]
    """The result of the run, as stored in its JSON file."""
    histories: Sequence[Sequence[Mapping[str, float]]]
    """One history per seed, with one record per epoch."""
    confusion: Array | None
    """``[C, C]``: counts of test nodes for the shown seed; rows are true classes, columns predicted ones. None for too
    many classes."""
    class_names: Sequence[str]
    per_class: Sequence[Mapping[str, Any]]
    """``name``, ``precision``, ``recall``, ``f1`` (0 to 1) and ``support`` of each class, for the shown seed."""
    shown_seed: int
    """The seed whose best epoch is the best, by the same measure that chose each seed's epoch."""
    embedding: Array
    """``[M, H]``: outputs of the last hidden layer for (at most some 1500) test nodes of the shown seed."""
    labels: Array
    """``[M]``"""
    predictions: Array
    """``[M]``"""
    explore: str | None = None
    """The address of the page that `nfcgcn explore` wrote beside this one, if it is there."""
    reliability: tuple[Array, Array, Array] | None = None
    """Number of test nodes, accuracy and mean confidence in each range of confidence; None if they are not known."""

    @property
    def temperature(self) -> float:
        """What the scores of the shown seed are divided by before the softmax."""
        fitted = dict(zip(self.summary["seeds"], self.summary.get("temperatures", ()), strict=False))
        return float(fitted.get(self.shown_seed, 1.0))

    @property
    def best_is(self) -> str:
        """What the best epoch has, by the setting that chose it."""
        return Stopping(self.summary["config"]["monitor"]).best_is


def render(page: Page) -> str:
    """Return the page as HTML."""
    summary = page.summary
    test, val = summary["test_accuracy"], summary["val_accuracy"]
    points = plane(page.embedding)
    return fill(
        "run.html",
        page=page,
        summary=summary,
        test=test,
        num_runs=len(test["runs"]),
        shares_nodes=summary["split"] in RANDOM and len(summary["seeds"]) > 1,
        best_is=page.best_is,
        # An interrupted run may have fewer results than seeds.
        runs=list(zip(summary["seeds"], test["runs"], val["runs"], summary["epochs"], strict=False)),
        curves=image(curves(page.histories, summary["epochs"])),
        curves_text=_describe_curves(page),
        confusion=None if page.confusion is None else image(confusion(page.confusion, page.class_names)),
        confusion_text="" if page.confusion is None else _describe_confusion(page.confusion, page.class_names),
        representation=image(representation(points, page.labels, page.predictions, page.class_names)),
        representation_text=_describe_representation(page),
        scores=_scores(page),
        reliability=None if page.reliability is None else image(reliability(*page.reliability)),
        reliability_text="" if page.reliability is None else _describe_reliability(*page.reliability),
    )


def _describe_curves(page: Page) -> str:
    epochs = page.summary["epochs"]
    text = f"Loss and accuracy over the epochs, training and validation, {counted(len(page.histories), 'seed')}"
    if len(epochs):
        text += f"; {'best' if len(epochs) == 1 else 'median best'} epoch {np.median(epochs):g} ({page.best_is})"
    mean = page.summary["val_accuracy"]["mean"]
    return f"{text}, with validation accuracy {percent(mean)}% at the best epoch."


def _describe_confusion(matrix: Array, class_names: Sequence[str]) -> str:
    counts = np.asarray(matrix)
    right, total = np.trace(counts), counts.sum()
    text = f"Confusion matrix of {counted(len(counts), 'class', 'classes')}: "
    text += f"{right:,} of {total:,} test nodes are predicted correctly"
    errors = counts - np.diag(np.diag(counts))
    if errors.any():
        true, predicted = np.unravel_index(errors.argmax(), errors.shape)
        often = counted(int(errors.max()), "time")
        text += f"; the most frequent error is {class_names[true]} taken for {class_names[predicted]}, {often}"
    return text + "."


BASELINES = {
    "majority class": "always the class most frequent in training, with the shares of the classes as probabilities",
    "mlp": "a perceptron that does not see the edges, with the same seeds and splits",
}
"""What the simple models are that stand beside the result, by their names in the stored result."""


def _scores(page: Page) -> dict[str, Any] | None:
    """Return the table of scores: its columns, one per model, and its rows; None for runs that stored none."""
    measured = page.summary.get("test_scores")
    if not measured:
        return None
    models = {page.summary["model"]: measured, **page.summary.get("baselines", {})}
    known = {name: score for name, score in SCORES.items() if name in measured}
    rows = [
        (score.title, score.best, score.meaning, [write_score(name, scores.get(name)) for scores in models.values()])
        for name, score in known.items()
    ]
    notes = [(name, BASELINES[name]) for name in models if name in BASELINES]
    return {"models": list(models), "rows": rows, "notes": notes}


def _describe_reliability(counts: Array, right: Array, sure: Array) -> str:
    used = np.flatnonzero(counts)
    parts = [f"{counted(int(counts[b]), 'node')} at {percent(sure[b])}%: {percent(right[b])}% right" for b in used]
    return f"Share of right predictions by confidence. {'; '.join(parts)}."


def _describe_representation(page: Page) -> str:
    wrong = int((np.asarray(page.labels) != np.asarray(page.predictions)).sum())
    num_classes = len(np.unique(page.labels))
    return (
        f"Hidden representation of {counted(len(page.labels), 'test node')} in a plane, coloured by "
        f"{counted(num_classes, 'true class', 'true classes')}; {wrong:,} with a wrong prediction have a ring."
    )
