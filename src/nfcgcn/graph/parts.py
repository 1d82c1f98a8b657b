"""What a graph is made of, from what a user has: node pairs, weights, features and labels, each checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.errors import GraphError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
MOST_WEIGHT = float(np.finfo(np.float32).max) / 4
"""The weights of a node's edges add up to at most this; a model adds the weight of the node itself."""

DIRECTIONS = "directions, as every model reads an edge both ways"
"""What is reported as unused where edges come in one direction."""


def as_pairs(edges: npt.ArrayLike, n: int) -> Ints:
    """Return node pairs ``[2, E]`` of a graph of `n` nodes, or say which one is wrong."""
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = np.zeros((2, 0), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        turned = "; give its transpose" if pairs.ndim == 2 and pairs.shape[1] == 2 else ""
        raise GraphError(f"`edges` must have shape [2, number of edges], got {list(pairs.shape)}{turned}")
    if not np.issubdtype(pairs.dtype, np.integer):
        raise GraphError(f"`edges` must hold integer node ids, got {pairs.dtype}")
    outside = (pairs < 0) | (pairs >= n)
    if outside.any():
        where = int(outside.any(axis=0).argmax())
        culprit = int(pairs[:, where][outside[:, where]][0])
        raise GraphError(
            f"edge {where} names node {culprit}, but the graph has {n} nodes (ids 0 to {n - 1}); "
            "correct the edge or add the node's features"
        )
    return pairs.astype(np.int64)


def as_weights(weights: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
    """Return one finite weight per edge, 0 or more."""
    values = np.asarray(weights)
    if values.shape != (count,) or values.dtype.kind not in "biuf":
        raise GraphError(f"`weights` must be {count} numbers, one per edge, got {values.dtype} {list(values.shape)}")
    values = values.astype(np.float64)
    bad = np.flatnonzero(~((values >= 0) & (values <= np.finfo(np.float32).max)))
    if len(bad):
        raise GraphError(
            f"`weights` must be finite and at least 0, got {values[bad[0]]:g} for edge {bad[0]}; correct {len(bad)} of "
            f"{count} weights"
        )
    return values


def undirected(pairs: Ints, n: int, weights: npt.NDArray[np.float64] | None = None) -> sp.csr_array:
    """Return the adjacency matrix of an undirected graph, without loops and duplicates."""
    keep = pairs[0] != pairs[1]
    if weights is not None:
        one_way = sp.csr_array((weights[keep], (pairs[0, keep], pairs[1, keep])), shape=(n, n))
        one_way.sum_duplicates()
        with np.errstate(over="ignore"):  # which `check_adjacency` finds
            matrix = sp.csr_array(one_way.maximum(one_way.T), dtype=np.float32)
        matrix.eliminate_zeros()  # also what rounds to 0
        return matrix
    pairs = pairs[:, keep]
    rows, cols = np.concatenate([pairs, pairs[::-1]], axis=1)
    matrix = sp.csr_array((np.ones(len(rows), np.float32), (rows, cols)), shape=(n, n))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def have_directions(pairs: Ints, n: int, weights: npt.NDArray[Any] | None = None) -> bool:
    """Return whether some edge is there in one direction only or has, with `weights`, another one in the other."""
    keep = pairs[0] != pairs[1]
    values = np.ones(int(keep.sum())) if weights is None else weights[keep]
    one_way = sp.csr_array((values, (pairs[0, keep], pairs[1, keep])), shape=(n, n))
    one_way.sum_duplicates()
    if weights is None:
        one_way.data[:] = 1
    return bool((one_way != one_way.T).nnz)


def as_features(features: Any) -> sp.csr_array | Floats:
    """Return features ``[N, D]`` as float32, dense or SciPy CSR."""
    if sp.issparse(features):
        matrix = sp.csr_array(features, dtype=np.float32)
        matrix.sum_duplicates()
        return matrix
    try:
        dense = np.ascontiguousarray(features, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise GraphError(
            f"`features` must hold numbers: {error}; nfcgcn.from_frames(nodes, edges) reads frames with text and dates"
        ) from error
    if dense.ndim != 2:
        raise GraphError(f"`features` must have two dimensions [nodes, features], got {dense.ndim}")
    return dense


def names_of(features: Any) -> tuple[str, ...] | None:
    """Return the names of the features if these are a data frame whose columns have names."""
    names = list(getattr(features, "columns", ()))
    return tuple(names) if names and all(isinstance(name, str) for name in names) else None


def as_labels(labels: npt.ArrayLike, n: int, names: Sequence[str] | None) -> tuple[Ints, Sequence[str] | None]:
    """Return the class numbers of `n` nodes, -1 for none, and the names of the classes, which labels may be, too."""
    array = np.asarray(labels)
    if array.shape != (n,):
        several = "; a node has one class: train one model per column" if array.ndim == 2 and array.shape[1] > 1 else ""
        raise GraphError(f"`labels` must be one per node: {n} nodes, got shape {list(array.shape)}{several}")
    if np.issubdtype(array.dtype, np.integer):
        return array.astype(np.int64), names
    if array.dtype.kind in "fOUT":
        from pandas import isna

        known = ~np.asarray(isna(array), bool)
        given = array[known].tolist()
        numbers = np.full(len(array), -1, np.int64)
        if all(isinstance(label, str) for label in given):
            names = sorted(set(given)) if names is None else names
            place = {name: number for number, name in enumerate(names)}
            if strange := sorted(set(given) - set(place)):
                raise GraphError(f"`labels` holds '{strange[0]}', which is not among `class_names`; add it")
            numbers[known] = [place[label] for label in given]
            return numbers, names
        if all(isinstance(label, int | float | np.number) and label == int(label) for label in given):
            numbers[known] = given
            return numbers, names
    raise GraphError(f"`labels` must be whole numbers or class names, one class per node, got {array.dtype}")


def check_adjacency(a: sp.csr_array) -> None:
    """Refuse a matrix that is not what a graph promises of its adjacency."""
    if a.shape[0] != a.shape[1]:
        raise GraphError(f"`adjacency` must be square, got {a.shape[0]} x {a.shape[1]}")
    if a.nnz and (a.indices.min() < 0 or a.indices.max() >= a.shape[0]):
        raise GraphError(f"`adjacency` names a node outside 0 to {a.shape[0] - 1}")
    sums = np.asarray(a.sum(axis=1, dtype=np.float64)).ravel()
    if sums.max(initial=0) > MOST_WEIGHT:
        raise GraphError(
            f"the weights of the edges of node {sums.argmax()} add up to {sums.max():g}, more than float32 can hold; "
            "divide all weights by the same number"
        )
    sound = a.has_canonical_format and bool(((a.data > 0) & (a.data <= np.finfo(np.float32).max)).all())
    if not sound or a.diagonal().any() or (a != a.T).nnz:
        raise GraphError(
            "`adjacency` must be symmetric, of weights above 0, without loops or duplicates; "
            "`Graph.from_edges` makes it so"
        )


def check_finite(features: sp.csr_array | Floats) -> None:
    """Refuse features that are not float32 or not finite, and name the first such cell."""
    values = features if isinstance(features, np.ndarray) else features.data
    if values.dtype != np.float32:
        raise GraphError(f"`features` must be float32, got {values.dtype}")
    bad = np.flatnonzero(~np.isfinite(values).ravel())
    if len(bad):
        if isinstance(features, np.ndarray):
            row, column = divmod(int(bad[0]), features.shape[1])
        else:
            row = int(np.searchsorted(features.indptr, bad[0], side="right")) - 1
            column = int(features.indices[bad[0]])
        value = values.ravel()[bad[0]]
        raise GraphError(
            f"feature {column} of node {row} is {value}; {len(bad)} values are not finite: fill in or drop them first"
        )
