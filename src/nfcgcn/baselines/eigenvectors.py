"""Leading eigenvectors of symmetric matrices: the same bits for any number of threads, for matrices of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.errors import GraphError

Doubles = npt.NDArray[np.float64]
SMALL = 64
"""Matrices up to this size, or of which half of the vectors are wanted, are decomposed as a whole."""


def leading_eigenvectors(matrix: sp.csr_array, count: int, *, which: str) -> tuple[Doubles, Doubles]:
    """Return the `count` leading eigenvalues, the first the most leading, and their vectors, ``[N, count]``.

    Leading are the largest (``which="LA"``) or those of largest magnitude (``"LM"``). If there are fewer, all are
    returned. Of a vector and its negative, the one whose largest number is above 0 is taken.
    """
    from scipy.sparse.linalg import ArpackError, eigsh
    from threadpoolctl import threadpool_limits

    size = matrix.shape[0]
    if not size:
        return np.zeros(0), np.zeros((0, 0))
    count = min(count, size)
    with threadpool_limits(1, user_api="blas"):  # the order of a BLAS's sums depends on its threads
        if size <= SMALL or 2 * count >= size:
            values, vectors = np.linalg.eigh(matrix.toarray().astype(np.float64))
        else:
            start = np.random.default_rng(0).standard_normal(size)
            try:
                values, vectors = eigsh(matrix.astype(np.float64), k=count, which=which, v0=start)
            except ArpackError as error:
                raise GraphError(
                    f"the first {count} eigenvectors of the graph's {size} nodes cannot be found; "
                    "lower `hidden_channels`"
                ) from error
    rank: Any = -values if which == "LA" else -np.abs(values)
    order = np.argsort(rank, kind="stable")[:count]
    values, vectors = values[order], vectors[:, order]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], axis=0)
    return values, vectors * np.where(largest < 0, -1.0, 1.0)
