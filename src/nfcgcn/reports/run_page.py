"""One run as one HTML page: no request to anywhere, no script, fit to be mailed, printed and kept."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.randomness import generator
from nfcgcn.reports import figures

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Page:
    """What a page shows: the run's result and, of the seed with the best validation accuracy, its predictions."""

    summary: Mapping[str, Any]
    """The run's result, as it stands in its JSON file."""
    histories: Sequence[Sequence[Mapping[str, float]]]
    """One a seed; a record an epoch."""
    confusion: Array
    """``[C, C]`` test counts of the shown seed: rows true, columns predicted."""
    class_names: Sequence[str]
    per_class: Sequence[Mapping[str, Any]]
    """``name``, ``precision``, ``recall``, ``f1`` (0 to 1) and ``support`` of each class, for the shown seed."""
    shown_seed: int
    embedding: Array
    """``[M, H]``: the last hidden layer at test nodes of the shown seed, at most some 1500 of them."""
    labels: Array
    """``[M]``"""
    predictions: Array
    """``[M]``"""


def render(page: Page) -> str:
    """Return the whole page. t-SNE takes most of the time: some seconds for 1500 nodes."""
    summary = page.summary
    test, val = summary["test_accuracy"], summary["val_accuracy"]
    points = plane(page.embedding, seed=page.shown_seed)
    return fill(
        "run.html",
        page=page,
        summary=summary,
        test=test,
        num_runs=len(test["runs"]),
        # An interrupted run may have fewer results than seeds.
        runs=list(zip(summary["seeds"], test["runs"], val["runs"], summary["epochs"], strict=False)),
        curves=image(figures.curves(page.histories, summary["epochs"])),
        curves_text=_describe_curves(page),
        confusion=image(figures.confusion(page.confusion, page.class_names)),
        confusion_text=_describe_confusion(page.confusion, page.class_names),
        representation=image(figures.representation(points, page.labels, page.predictions, page.class_names)),
        representation_text=_describe_representation(page),
    )


def fill(template: str, **values: Any) -> str:
    """Fill in one of the package's templates; whatever is put in is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("nfcgcn.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=_percent, duration=duration, setting=_setting, count=_count, counted=counted, interval=_interval
    )
    return environment.get_template(template).render(**values)


def plane(embedding: Array, seed: int = 0) -> Array:
    """Lay ``[M, H]`` vectors out in a plane ``[M, 2]`` by t-SNE, or by principal components where t-SNE has no sense.

    That is the case with fewer than five distinct vectors or fewer than two columns. Values that are not finite, as a
    diverged model has them, count as 0.
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

    # t-SNE's threads meet at every step and wait for each other where cores are busy: on two loaded ones 600 nodes took
    # 39 s with two threads, 3 s with one. The points were the same.
    with threadpool_limits(limits=1):
        start = _principal(vectors)
        tsne = TSNE(
            perplexity=min(30.0, (len(vectors) - 1) / 3),
            init=(start / start[:, 0].std() * 1e-4).astype(np.float32),
            learning_rate="auto",
            random_state=int(generator(seed, "picture").integers(2**31)),
        )
        points = np.asarray(tsne.fit_transform(vectors.astype(np.float32)), dtype=np.float64)
        # t-SNE knows no directions: lay the longest one level, as pages are wider than high.
        return _principal(points - points.mean(axis=0))


def _principal(centred: Array) -> Array:
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    scores = left[:, :2] * scale[:2]
    # A singular vector's sign is arbitrary; fix it, so that the picture is the same on another LAPACK.
    scores = scores * np.where(np.take_along_axis(scores, np.abs(scores).argmax(axis=0)[None], axis=0) < 0, -1, 1)
    return np.pad(scores, ((0, 0), (0, 2 - scores.shape[1])))


def image(svg: str) -> dict[str, Any]:
    """Return what an `<img>` needs; its size in pixels lets the page stand still while it loads."""
    width, height = svg.partition('viewBox="0 0 ')[2].partition('"')[0].split()
    return {
        "source": "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode(),
        "width": round(float(width) * 4 / 3),
        "height": round(float(height) * 4 / 3),
    }


def _describe_curves(page: Page) -> str:
    epochs = page.summary["epochs"]
    text = f"Loss and accuracy over the epochs, training and validation, {counted(len(page.histories), 'seed')}"
    if len(epochs):
        text += f"; {'best' if len(epochs) == 1 else 'median best'} epoch {np.median(epochs):g}"
    mean = page.summary["val_accuracy"]["mean"]
    return f"{text}, validation accuracy {_percent(mean)}% at the best epoch."


def _describe_confusion(matrix: Array, class_names: Sequence[str]) -> str:
    counts = np.asarray(matrix)
    right, total = np.trace(counts), counts.sum()
    text = f"Confusion matrix of {counted(len(counts), 'class', 'classes')}: {right:,} of {total:,} test nodes right"
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
        f"Hidden representation of {counted(len(page.labels), 'test node')} laid out in a plane, coloured by "
        f"{counted(num_classes, 'true class', 'true classes')}; {wrong:,} wrongly predicted ones are ringed."
    )


def _percent(value: float | None) -> str:
    return "n/a" if value is None or not math.isfinite(value) else f"{100 * value:.1f}"


def _interval(accuracy: Mapping[str, Any]) -> str | None:
    ends = accuracy["ci95"]
    return None if ends is None else f"{_percent(ends[0])} to {_percent(ends[1])}"


def _count(value: int) -> str:
    return f"{value:,}"


def counted(value: int, noun: str, plural: str | None = None) -> str:
    """Write a number with what it counts."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """Write seconds as people say them."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _setting(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value)) or "none"
    return str(value)
