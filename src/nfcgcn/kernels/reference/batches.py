"""What a mini-batch needs of a graph, by formulas: drawn neighbours, new numbers for nodes, rows of features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from nfcgcn.method.sampling import draw_rows


def draw_table(starts: Any, neighbours: Any, nodes: Any, *, size: int, seed: int) -> Any:
    """Return the rows `nodes` of the neighbour table, ``[M, size + 1]``: see :func:`nfcgcn.method.sampling.draw_rows`.

    ``starts`` and ``neighbours`` are the lists of all nodes.
    """
    new, listed, _ = take_rows(starts, neighbours, None, nodes)
    lists = torch.from_numpy(new), torch.from_numpy(listed)
    formula = draw_rows.formula  # type: ignore[attr-defined]
    return formula(*lists, size=size, seed=seed, nodes=torch.from_numpy(nodes)).numpy()


def draw_hop(
    starts: Any, neighbours: Any, weights: Any, nodes: Any, *, size: int, seed: int, self_weight: float
) -> tuple[Any, Any, Any]:
    r"""Return the rows `nodes` of :math:`\hat A` as CSR: row starts, columns and values; each row begins with its loop.

    Of a node with more than ``size`` neighbours, that many are drawn uniformly, without replacement, and their values
    are multiplied by the number of neighbours per drawn one. So each row is that of :math:`\hat A` in the mean. With
    ``weights`` None every edge has weight 1.
    """
    degrees = starts[nodes + 1].astype(np.int64) - starts[nodes]
    counts = np.minimum(degrees, size)
    rows = np.concatenate([[0], (counts + 1).cumsum()])
    new, places, _ = take_rows(starts, np.arange(len(neighbours)), None, nodes)
    drawn = draw_rows.formula(  # type: ignore[attr-defined]
        torch.from_numpy(new), torch.from_numpy(places), size=int(counts.max(initial=0)), seed=seed,
        nodes=torch.from_numpy(nodes),
    ).numpy()  # fmt: skip
    whole = degrees <= size
    ordered = np.sort(np.where(np.arange(drawn.shape[1]) > degrees[:, None], len(neighbours), drawn)[:, 1:], axis=1)
    picked = np.where(whole[:, None], ordered, drawn[:, 1:])[np.arange(drawn.shape[1] - 1) < counts[:, None]]
    owner = np.repeat(np.arange(len(nodes)), counts)
    all_strengths = np.diff(starts) if weights is None else np.add.reduceat(np.append(weights, 0.0), starts[:-1])
    scale = 1 / np.sqrt(np.where(np.diff(starts) > 0, all_strengths, 0) + self_weight)
    others, own = neighbours[picked].astype(np.int64), scale[nodes]
    factors = degrees / np.maximum(counts, 1)
    along = factors[owner] * own[owner] * scale[others] * (1.0 if weights is None else weights[picked])
    columns, values = np.empty(rows[-1], np.int64), np.empty(rows[-1], np.float32)
    inside = np.ones(rows[-1], bool)
    inside[rows[:-1]] = False
    columns[rows[:-1]], values[rows[:-1]] = nodes, self_weight * own**2
    columns[inside], values[inside] = others, along
    return rows, columns, values


def renumber(first: Any, others: Any) -> tuple[Any, Any]:
    """Number nodes in the order of their appearance, those of `first`, all different, before `others`.

    Returns the nodes by their new numbers, and the new numbers of `others`.
    """
    known, index, inverse = np.unique(np.concatenate([first, others]), return_index=True, return_inverse=True)
    order = index.argsort()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return known[order].astype(np.int64), rank[inverse[len(first) :]]


def take_rows(starts: Any, indices: Any, data: Any, rows: Any, empty: Any = np.empty) -> tuple[Any, Any, Any]:  # noqa: ARG001
    """Return some rows of a CSR matrix: row starts, columns, and values, which are None without ``data``.

    ``empty``, called as NumPy's, may give the memory for columns and values; this formula makes its own.
    """
    counts = starts[rows + 1].astype(np.int64) - starts[rows]
    new = np.concatenate([[0], counts.cumsum()])
    places = np.arange(new[-1]) + np.repeat(starts[rows] - new[:-1], counts)
    return new, indices[places].astype(np.int64), None if data is None else data[places].astype(np.float32)
