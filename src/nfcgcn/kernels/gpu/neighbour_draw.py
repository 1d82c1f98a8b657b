"""The neighbour draw in Triton: the formula's steps, some nodes at a time; the table is the same."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nfcgcn.kernels.gpu.masks import key_of, number
from nfcgcn.kernels.gpu.tables import Tables

NODES = 128


@triton.jit
def _position(key, degree, step):
    """Return which position a step draws from those not yet passed."""
    return step + ((number(key, step).to(tl.int64) * (degree - step)) >> 32)


@triton.jit(do_not_specialize=["num_nodes", "size"])
def _draw(starts, neighbours, seeds, table, num_nodes, size, NODES: tl.constexpr):
    run = tl.program_id(1).to(tl.int64)
    node = tl.program_id(0).to(tl.int64) * NODES + tl.arange(0, NODES)
    inside = node < num_nodes
    first = tl.load(starts + node, mask=inside, other=0)
    degree = tl.load(starts + node + 1, mask=inside, other=0) - first
    key = key_of(tl.load(seeds + run), node)
    row = table + (run * num_nodes + node) * (size + 1)
    tl.store(row, node, mask=inside)
    for step in range(0, size):
        has = degree > step
        now = tl.full([NODES], step, tl.int64)
        position = _position(key, degree, now)
        for back in range(1, step + 1):
            earlier = now - back
            position = tl.where(position == _position(key, degree, earlier), earlier, position)
        drawn = tl.load(neighbours + first + position, mask=has, other=0)
        tl.store(row + step + 1, tl.where(has, drawn, node), mask=inside)


def draw_tables(starts: Tensor, neighbours: Tensor, *, size: int, seeds: Tensor) -> Tensor:
    """Return a table per seed, ``[S, N, size + 1]``; see the formula."""
    num_nodes = len(starts) - 1
    table = torch.empty(len(seeds), num_nodes, size + 1, dtype=torch.int64, device=starts.device)
    if num_nodes:
        grid = (triton.cdiv(num_nodes, NODES), len(seeds))
        _draw[grid](starts, neighbours, seeds, table, num_nodes, size, NODES=NODES, num_warps=4)
    return table


def draw_rows(starts: Tensor, neighbours: Tensor, *, size: int, seed: int) -> Tensor:
    """See the formula."""
    return draw_tables(starts, neighbours, size=size, seeds=torch.tensor([seed], device=starts.device))[0]


class Source:
    """What a stack of runs draws its neighbours from, again for every step and without the host: adjacency lists.

    With `ranks` of the neighbours, from 1 up, each row is sorted by them; copies of the node stay last.
    """

    def __init__(self, tables: Tables, starts: Tensor, neighbours: Tensor, ranks: Tensor | None = None) -> None:
        self.tables, self.starts, self.neighbours = tables, starts, neighbours
        self.ranked = None if ranks is None else (ranks << 32) + neighbours
        self._rooms: dict[tuple[int, int], int] = {}
        if tables.is_sparse:
            tables.features.kept = True

    def draw(self, seeds: Tensor) -> Tables:
        """Draw the tables of all runs, each with its own seed."""
        like = self.tables
        lists = self.neighbours if self.ranked is None else self.ranked
        drawn = draw_tables(self.starts, lists, size=like.bandwidth - 1, seeds=seeds)
        if self.ranked is not None:
            rank = drawn[:, :, 1:] >> 32
            order = torch.where(rank > 0, rank, 2**31).argsort(dim=2, stable=True)
            drawn = torch.cat([drawn[:, :, :1], drawn[:, :, 1:].gather(2, order) & 2**32 - 1], 2)
        return Tables(like.x, drawn, features=like.features if like.is_sparse else None, room=self._room)

    def _room(self, first_column: int, last_column: int) -> int:
        wanted = (first_column, last_column)
        if wanted not in self._rooms:
            counts = self.tables.features.count_between(*wanted)
            most = most_entries(self.starts, self.neighbours, counts, size=self.tables.bandwidth - 1)
            self._rooms[wanted] = self.tables.num_runs * most
        return self._rooms[wanted]


def most_entries(starts: Tensor, neighbours: Tensor, counts: Tensor, *, size: int) -> int:
    """Return the most nonzeros that any draw gives all maps, if row ``i`` of the features has ``counts[i]``.

    That is reached where every node draws those of its neighbours that have most.
    """
    degrees = starts.diff()
    node = torch.repeat_interleave(torch.arange(len(degrees), device=starts.device), degrees)
    largest = int(counts.max()) if len(counts) else 0
    missing = torch.sort(node * (largest + 1) + largest - counts[neighbours]).values - node * (largest + 1)
    drawn = torch.arange(len(node), device=starts.device) - starts[node] < size
    copies = 1 + (size - degrees).clamp(min=0)
    return int((largest - missing)[drawn].sum() + (copies * counts).sum())
