"""One run as one HTML page. It has no scripts and loads nothing, so it can be mailed, printed and archived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.randomness import generator
from nfcgcn.reports.figures import confusion, curves, representation
from nfcgcn.reports.html import counted, fill, image, percent
from nfcgcn.training.values import Stopping

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Page:
    """What a page shows: the result of the run and, for the best seed, its predictions."""

    summary: Mapping[str, Any]
    """The result of the run, as stored in its JSON file."""
    histories: Sequence[Sequence[Mapping[str, float]]]
    """One history per seed, with one record per epoch."""
    confusion: Array
    """``[C, C]``: counts of test nodes for the shown seed; rows are true classes, columns predicted ones."""
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

    @property
    def best_is(self) -> str:
        """What the best epoch has, by the setting that chose it."""
        return Stopping(self.summary["config"]["monitor"]).best_is


def render(page: Page) -> str:
    """Return the page as HTML. Most of the time goes to t-SNE: some seconds for 1500 nodes."""
    summary = page.summary
    test, val = summary["test_accuracy"], summary["val_accuracy"]
    points = plane(page.embedding, seed=page.shown_seed)
    return fill(
        "run.html",
        page=page,
        summary=summary,
        test=test,
        num_runs=len(test["runs"]),
        best_is=page.best_is,
        # An interrupted run may have fewer results than seeds.
        runs=list(zip(summary["seeds"], test["runs"], val["runs"], summary["epochs"], strict=False)),
        curves=image(curves(page.histories, summary["epochs"])),
        curves_text=_describe_curves(page),
        confusion=image(confusion(page.confusion, page.class_names)),
        confusion_text=_describe_confusion(page.confusion, page.class_names),
        representation=image(representation(points, page.labels, page.predictions, page.class_names)),
        representation_text=_describe_representation(page),
    )


def plane(embedding: Array, seed: int = 0) -> Array:
    """Arrange ``[M, H]`` vectors in a plane ``[M, 2]`` by t-SNE.

    With fewer than five distinct vectors, or fewer than two columns, principal components are used instead. Values that
    are not finite, such as those of a diverged model, count as 0.
    """
    vectors = np.nan_to_num(np.asarray(embedding, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    if not vectors.size:
        return np.zeros((len(vectors), 2))
    vectors = vectors / (np.abs(vectors).max() or 1.0)
    vectors = vectors - vectors.mean(axis=0)
    if vectors.shape[1] < 2 or len(np.unique(vectors.round(9), axis=0)) < 5:
        return _principal(vectors)

    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    # The threads of t-SNE wait for each other at every step. On two cores that were busy, 600 nodes took 39 s with two
    # threads and 3 s with one; the points were the same.
    with threadpool_limits(limits=1):
        start = _principal(vectors)
        tsne = TSNE(
            perplexity=min(30.0, (len(vectors) - 1) / 3),
            init=(start / start[:, 0].std() * 1e-4).astype(np.float32),
            learning_rate="auto",
            random_state=int(generator(seed, "picture").integers(2**31)),
        )
        points = np.asarray(tsne.fit_transform(vectors.astype(np.float32)), dtype=np.float64)
        # The directions of t-SNE mean nothing: turn the longest one horizontal, because pages are wider than high.
        return _principal(points - points.mean(axis=0))


def _principal(centred: Array) -> Array:
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    scores = left[:, :2] * scale[:2]
    # The sign of a singular vector is arbitrary; fix it, so that the picture is the same with another LAPACK.
    scores = scores * np.where(np.take_along_axis(scores, np.abs(scores).argmax(axis=0)[None], axis=0) < 0, -1, 1)
    return np.pad(scores, ((0, 0), (0, 2 - scores.shape[1])))


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


def _describe_representation(page: Page) -> str:
    wrong = int((np.asarray(page.labels) != np.asarray(page.predictions)).sum())
    num_classes = len(np.unique(page.labels))
    return (
        f"Hidden representation of {counted(len(page.labels), 'test node')} in a plane, coloured by "
        f"{counted(num_classes, 'true class', 'true classes')}; {wrong:,} with a wrong prediction have a ring."
    )
