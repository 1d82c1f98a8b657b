r"""Vectors arranged in a plane by t-SNE (van der Maaten and Hinton, 2008), for a few hundred of them.

Written out here because loading a library for it takes longer than the arranging: all pairs of 400 points are few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
PERPLEXITY = 30.0
"""About how many neighbours of a point matter."""
ROUNDS, EARLY = 400, 120
"""Steps in all, and how many of them pull neighbours together harder, so that groups form."""


def plane(embedding: Array) -> Array:
    """Arrange ``[M, H]`` vectors in a plane ``[M, 2]`` so that near ones stay near.

    It starts from the principal components, so nothing is drawn by chance. With fewer than five distinct vectors, or
    fewer than two columns, these components are the result. Values that are not finite, such as those of a diverged
    model, count as 0.
    """
    vectors = np.nan_to_num(np.asarray(embedding, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    if not vectors.size:
        return np.zeros((len(vectors), 2))
    vectors = vectors / (np.abs(vectors).max() or 1.0)
    vectors = vectors - vectors.mean(axis=0)
    start = _principal(vectors)
    if vectors.shape[1] < 2 or len(np.unique(vectors.round(9), axis=0)) < 5:
        return start
    points = _descend(_affinities(vectors), start / (start[:, 0].std() or 1.0) * 1e-2)
    # The directions mean nothing: turn the longest one horizontal, because pages are wider than high.
    return _principal(points - points.mean(axis=0))


def _affinities(vectors: Array) -> Array:
    """Return how near each pair is, a distribution over pairs; each point's width is set by the perplexity."""
    squares = (vectors**2).sum(1)
    distances = np.maximum(squares[:, None] + squares - 2 * vectors @ vectors.T, 0)
    np.fill_diagonal(distances, np.inf)
    distances -= distances.min(axis=1, keepdims=True)
    wanted = np.log(min(PERPLEXITY, (len(vectors) - 1) / 3))
    low, high = np.full(len(vectors), -30.0), np.full(len(vectors), 60.0)  # logarithms of the precision
    for _ in range(50):
        middle = (low + high) / 2
        precision = np.exp(middle)[:, None]
        near = np.exp(-precision * distances)
        total = near.sum(axis=1, keepdims=True)
        entropy = np.log(total[:, 0]) + (near * np.where(near > 0, precision * distances, 0)).sum(1) / total[:, 0]
        low, high = np.where(entropy > wanted, middle, low), np.where(entropy > wanted, high, middle)
    near /= total
    return np.asarray((near + near.T) / (2 * len(vectors)))


def _descend(affinities: Array, points: Array) -> Array:
    """Move the points so that near ones in the plane are near ones in the affinities."""
    # Written out, in place: a library's product would share so little work among threads that wait for each other.
    aim = affinities.astype(np.float32)
    harder = 12 * aim
    points = points.astype(np.float32)
    near, pull, other = (np.empty_like(aim) for _ in range(3))
    rate = np.float32(max(len(points) / 12 / 4, 50.0))
    speed, gain = np.zeros_like(points), np.ones_like(points)
    for step in range(ROUNDS):
        x, y = points.T.copy()
        np.square(np.subtract.outer(x, x, out=near), out=near)
        near += np.square(np.subtract.outer(y, y, out=other), out=other)
        near += 1
        np.reciprocal(near, out=near)
        np.fill_diagonal(near, 0)
        np.multiply(near, -1 / near.sum(), out=pull)
        pull += harder if step < EARLY else aim
        pull *= near
        pulled = np.stack([np.einsum("ij,j->i", pull, column) for column in (x, y)], axis=1)
        slope = 4 * (pull.sum(1)[:, None] * points - pulled)
        gain = np.maximum(np.where(slope * speed < 0, gain + 0.2, gain * 0.8), 0.01).astype(np.float32)
        speed = (0.5 if step < EARLY else 0.8) * speed - rate * gain * slope
        points = points + speed
    return points.astype(np.float64)


def _principal(centred: Array) -> Array:
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    scores = left[:, :2] * scale[:2]
    # The sign of a singular vector is arbitrary; fix it, so that the picture is the same with another LAPACK.
    scores = scores * np.where(np.take_along_axis(scores, np.abs(scores).argmax(axis=0)[None], axis=0) < 0, -1, 1)
    return np.pad(scores, ((0, 0), (0, 2 - scores.shape[1])))
