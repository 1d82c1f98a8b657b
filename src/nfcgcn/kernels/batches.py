"""What a mini-batch needs of a graph, from lists that may lie in files: by Numba, or by formulas without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nfcgcn.graph import Floats, Ints
from nfcgcn.kernels.choice import numba_refusal


def _ways() -> Any:
    if numba_refusal():
        from nfcgcn.kernels.reference import batches as reference

        return reference
    from nfcgcn.kernels.cpu import batches as cpu

    return cpu


def draw_table(starts: Ints, neighbours: Ints, nodes: Ints, *, size: int, seed: int) -> Ints:
    """Return the rows `nodes` of the neighbour table; see :mod:`nfcgcn.kernels.reference.batches`."""
    table: Ints = _ways().draw_table(_plain(starts), _plain(neighbours), nodes, size=size, seed=seed)
    return table


def draw_hop(
    starts: Ints,
    neighbours: Ints,
    weights: Floats | None,
    nodes: Ints,
    *,
    size: int | None,
    seed: int,
    self_weight: float,
) -> tuple[Ints, Ints, Floats]:
    """Return some rows of the normalised adjacency, of at most `size` neighbours each; None: of all."""
    size = np.iinfo(np.int64).max if size is None else size
    lists = (_plain(starts), _plain(neighbours), None if weights is None else _plain(weights))
    hop: tuple[Ints, Ints, Floats] = _ways().draw_hop(*lists, nodes, size=size, seed=seed, self_weight=self_weight)
    return hop


def renumber(first: Ints, others: Ints) -> tuple[Ints, Ints]:
    """Return the nodes of `first` and, behind them, the new ones of `others`; and the places of `others` there."""
    numbers: tuple[Ints, Ints] = _ways().renumber(first, others)
    return numbers


def take_rows(
    starts: Ints, indices: Ints, data: Floats, rows: Ints, *, empty: Callable[[int, Any], Any] = np.empty
) -> tuple[Ints, Ints, Floats]:
    """Return some rows of a CSR matrix: row starts, columns and values; `empty` may give memory for large results."""
    parts: tuple[Ints, Ints, Floats] = _ways().take_rows(_plain(starts), _plain(indices), _plain(data), rows, empty)
    return parts


def _plain(array: Any) -> Any:
    """Return an array without the class of a memory map, for which Numba has no type; nothing is read."""
    return np.asarray(array)
