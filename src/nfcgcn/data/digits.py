"""Scikit-learn's handwritten digits as a graph: an image is a node, and similar images are neighbours."""

from __future__ import annotations

from importlib.metadata import distribution

import numpy as np

from nfcgcn.data.options import check_integer
from nfcgcn.graph import Graph, Ints

NUM_IMAGES = 1797


def read(*, neighbours: int = 8) -> Graph:
    """Return the digits; two images are joined if one is among the ``neighbours`` nearest images of the other.

    Distances are Euclidean over the 64 pixels; of equally near images, the first is taken. Features are the brightness
    of pixels from 0 to 1. Rows and columns are counted from 1, from the top left.
    """
    count = check_integer("neighbours", neighbours, low=1, high=NUM_IMAGES - 1)
    images, labels = _images()
    nearest = nearest_rows(images, count)
    return Graph.from_edges(
        np.stack([np.repeat(np.arange(NUM_IMAGES), count), nearest.ravel()]),
        images / 16,
        labels=labels,
        name="digits",
        feature_names=[f"row {row}, column {column}" for row in range(1, 9) for column in range(1, 9)],
        class_names=[str(digit) for digit in range(10)],
    )


def _images() -> tuple[np.ndarray, Ints]:
    """Read the file that scikit-learn brings, ``[1797, 64]`` and ``[1797]``; importing scikit-learn takes seconds."""
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(str(file), delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(np.int64)


def nearest_rows(points: np.ndarray, count: int) -> Ints:
    """Return the ``count`` nearest other rows of each row of whole numbers, ``[N, count]``, in no particular order."""
    n = len(points)
    # Pixels are whole numbers, so these distances are exact in any order of summation: the graph is always the same.
    squares = (points**2).sum(axis=1)
    distances = (squares[:, None] + squares[None, :] - 2 * points @ points.T).astype(np.int64)
    rank = distances * n + np.arange(n)
    np.fill_diagonal(rank, np.iinfo(np.int64).max)
    return np.argpartition(rank, count - 1, axis=1)[:, :count].astype(np.int64)
