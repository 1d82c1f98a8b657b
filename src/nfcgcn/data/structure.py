"""Features of nodes from the edges alone, for graphs whose nodes have no columns of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.errors import ConfigError, GraphError, option, unknown
from nfcgcn.graph import Floats

Structure = Literal["degree", "one-hot", "spectral", "walk"]
STRUCTURES: tuple[str, ...] = get_args(Structure)
DEFAULT: Structure = "spectral"
"""For graphs without any other feature: neighbours get similar values, which is what most labels follow."""
OF_ONE_GRAPH = ("one-hot", "spectral")
"""These mean something else on a graph with other edges; the others are computed in the same way for any graph."""
MOST_VECTORS = 16
STEPS = range(2, 10)
"""The lengths of the walks; after one step nobody is back."""
DENSE_UP_TO = 400
"""Parts of the graph with so many nodes have all of their eigenvectors computed, larger ones only the first."""
BLOCK = 256
"""Walks start at so many nodes at a time."""
MOST_WORK = 2**37
"""Walks that need more multiplications than this are refused: they would take many minutes."""
DEGREES = ("own", "least", "most", "mean", "deviation")

Doubles = npt.NDArray[np.float64]


def structural_features(adjacency: Any, features: Structure = DEFAULT) -> sp.csr_array | Floats:
    r"""Return features of the nodes of a graph that follow from its edges: ``[N, D]``, float32.

    `adjacency` is a SciPy matrix ``[N, N]`` whose entries are weights of edges, such as ``Graph.adjacency``. Where the
    two directions of an edge differ, the larger weight counts; loops do not. With :math:`d` the sums of its rows,
    ``features`` is one of

    - "spectral": the first eigenvectors of :math:`D^{-1/2} A D^{-1/2}`, at most 16, without the very first, which only
      repeats the degrees. Each connected part has its own, and zeros in the columns that it is too small for. A vector
      has mean square 1, and its largest entry is positive.
    - "walk": the probability of a random walk to be back after 2, 3, ... 9 steps.
    - "degree": the logarithm of 1 + the number of neighbours, of the node itself and, of its neighbours, the least, the
      largest, the mean and the standard deviation.
    - "one-hot": one column per node.

    "degree" and "walk" can be computed for any graph in the same way. "spectral" and "one-hot" belong to one graph.
    Cost: "walk" takes time in proportion to nodes times edges, "spectral" roughly to edges; both on one thread, so that
    the bits do not depend on the number of threads.

    >>> structural_features(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]), "walk")[:, :2].tolist()
    [[0.5, 0.0], [1.0, 0.0], [0.5, 0.0]]
    """
    if features not in STRUCTURES:
        raise ConfigError(unknown("kind of features", features, STRUCTURES))
    if not sp.issparse(adjacency) or adjacency.shape[0] != adjacency.shape[1]:
        remedy = f"{type(adjacency).__name__}; scipy.sparse.csr_array makes one of an array"
        got = list(adjacency.shape) if sp.issparse(adjacency) else remedy
        raise GraphError(f"`adjacency` must be a square SciPy matrix, got {got}")
    matrix = sp.csr_array(adjacency, dtype=np.float64)
    if (matrix.data < 0).any() or not np.isfinite(matrix.data).all():
        raise GraphError("`adjacency` must hold finite weights from 0 up; `adjacency != 0` has only the edges")
    matrix = sp.csr_array(matrix.maximum(matrix.T))
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    if features == "one-hot":
        return sp.eye_array(matrix.shape[0], dtype=np.float32, format="csr")
    make: dict[str, Callable[[sp.csr_array], Doubles]] = {"degree": _degrees, "spectral": _spectral, "walk": _walks}
    return np.ascontiguousarray(make[features](matrix), dtype=np.float32)


def structural_names(features: str, num_columns: int, node_names: Sequence[str]) -> list[str]:
    """Return the names of the columns of :func:`structural_features`."""
    if features == "one-hot":
        return [f"node={name}" for name in node_names]
    if features == "degree":
        return [f"degree: {what}" for what in DEGREES]
    if features == "walk":
        return [f"back after {steps} steps" for steps in STEPS]
    return [f"spectral {number}" for number in range(1, num_columns + 1)]


def _degrees(a: sp.csr_array) -> Doubles:
    counts = np.diff(a.indptr)
    own = np.log1p(counts.astype(np.float64))
    of_neighbours = own[a.indices]
    filled = counts > 0
    columns = np.zeros((len(own), len(DEGREES)))
    columns[:, 0] = own
    starts = a.indptr[:-1][filled]
    if len(starts):
        columns[filled, 1] = np.minimum.reduceat(of_neighbours, starts)
        columns[filled, 2] = np.maximum.reduceat(of_neighbours, starts)
        columns[filled, 3] = np.add.reduceat(of_neighbours, starts) / counts[filled]
        from_mean = of_neighbours - np.repeat(columns[:, 3], counts)
        columns[filled, 4] = np.sqrt(np.add.reduceat(from_mean**2, starts) / counts[filled])
    return columns


def _symmetric(a: sp.csr_array) -> sp.csr_array:
    """Return ``D^-1/2 A D^-1/2``; rows without edges stay empty."""
    sums = np.asarray(a.sum(axis=1)).ravel()
    scale = sp.diags_array(np.where(sums > 0, np.where(sums > 0, sums, 1) ** -0.5, 0))
    return sp.csr_array(scale @ a @ scale)


def _spectral(a: sp.csr_array) -> Doubles:
    from scipy.sparse.csgraph import connected_components
    from threadpoolctl import threadpool_limits

    _, part_of = connected_components(a, directed=False)
    sizes = np.bincount(part_of)
    width = min(MOST_VECTORS, int(sizes.max(initial=1)) - 1)
    if width < 1:
        raise GraphError("spectral features need edges, and there are none; give the nodes a column of their own")
    columns = np.zeros((a.shape[0], width))
    by_part = np.argsort(part_of, kind="stable")
    ends = sizes.cumsum()
    ordered = _symmetric(a)[by_part][:, by_part]
    with threadpool_limits(1):  # a BLAS adds in another order on several threads
        for part in np.flatnonzero(sizes > 1):
            rows = slice(ends[part] - sizes[part], ends[part])
            vectors = _first_vectors(ordered[rows, rows], width)
            columns[by_part[rows], : vectors.shape[1]] = vectors * float(sizes[part]) ** 0.5
    return columns


def _first_vectors(s: sp.csr_array, count: int) -> Doubles:
    """Return the eigenvectors after the first, largest eigenvalue first; the largest entry of each is positive."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    if s.shape[0] <= max(DENSE_UP_TO, 2 * count + 2):
        values, vectors = eigh(s.toarray())
    else:
        start = np.random.default_rng(0).uniform(0.5, 1.5, s.shape[0])
        try:
            values, vectors = eigsh(s, k=count + 1, which="LA", v0=start)
        except ArpackNoConvergence as error:
            raise GraphError(
                f"the spectral features of {s.shape[0]:,} nodes did not converge; choose "
                f"{option('features', 'walk', 'degree')}"
            ) from error
    ordered: Doubles = vectors[:, np.argsort(-values, kind="stable")[1 : count + 1]]
    sizes = np.abs(ordered)
    # Of entries that are equal but for rounding, the first decides.
    place = (sizes >= sizes.max(axis=0) * (1 - 1e-6)).argmax(axis=0)
    signs: Doubles = np.sign(ordered[place, np.arange(ordered.shape[1])])
    return ordered * signs


def _walks(a: sp.csr_array) -> Doubles:
    """Return how probable it is to be back: the diagonals of the powers of ``D^-1 A``.

    They are those of ``S = D^-1/2 A D^-1/2``, which is symmetric: with ``v_t = S^t e``, ``e S^(t + u) e = v_t v_u``.
    """
    n, half = a.shape[0], (max(STEPS) + 1) // 2
    if half * float(n) * a.nnz > MOST_WORK:
        raise GraphError(
            f"walk features would take too long on {n:,} nodes and {a.nnz // 2:,} edges; choose degree or spectral"
        )
    s = _symmetric(a)
    columns = np.empty((n, len(STEPS)))
    for start in range(0, n, BLOCK):
        nodes = np.arange(start, min(start + BLOCK, n))
        walkers = np.zeros((n, len(nodes)))
        walkers[nodes, nodes - start] = 1
        for steps in range(1, half + 1):
            further = s @ walkers
            for total, both in ((2 * steps - 1, walkers * further), (2 * steps, further * further)):
                if total in STEPS:
                    columns[nodes, STEPS.index(total)] = both.sum(axis=0)
            walkers = further
    return columns
