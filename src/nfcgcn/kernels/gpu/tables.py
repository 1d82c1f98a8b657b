"""What the GPU programs read: a graph's features and neighbour tables, sorted once for products and sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from nfcgcn.kernels.choice import Precision
from nfcgcn.kernels.gpu.masks import rate_of
from nfcgcn.kernels.gpu.product import MODES
from nfcgcn.kernels.gpu.programs import lists as list_programs
from nfcgcn.kernels.gpu.programs import maps as map_programs

PIECE = 128
"""Nonzeros of a list that one program adds up if there are few: all programs wait for the longest piece."""
PIECES = 2**15
"""Approximate number of pieces if there are many nonzeros: each piece of a longer list takes memory."""
SORTED = 2**17
"""Smallest number of nonzeros that are sorted at a time."""


class Pieces(NamedTuple):
    """Lists cut into pieces, one piece per program."""

    jobs: Tensor
    """For each piece: its list, where it begins and ends, the row in which a piece of a longer list stores its sums (-1
    for a list of one piece), run, slot, column, and how many nonzeros the pieces before it hold."""
    longer: Tensor
    """The lists of several pieces."""
    starts: Tensor
    """The first row of each longer list, and at the end the number of rows."""
    num_spare: int
    num_entries: int

    @classmethod
    def cut(cls, groups: Tensor, first: Tensor, last: Tensor, size: int, *, bandwidth: int, num_columns: int) -> Pieces:
        """Cut the lists of `groups`, each a number for ``(run, slot, column)``, which lie from `first` to `last`."""
        counts = (last - first + size - 1) // size
        which = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
        number = torch.arange(len(which), device=counts.device) - (counts.cumsum(0) - counts)[which]
        begin = first[which] + number * size
        end = torch.minimum(begin + size, last[which])
        rows = torch.where(counts > 1, counts, 0)
        ends = rows.cumsum(0)
        spare = torch.where(counts[which] > 1, (ends - rows)[which] + number, -1)
        longer = counts > 1
        starts = torch.cat([rows.new_zeros(1), ends[longer]])
        group, before = groups[which], (end - begin).cumsum(0) - (end - begin)
        slot = group // num_columns
        jobs = [group, begin, end, spare, slot // bandwidth, slot % bandwidth, group % num_columns, before]
        return cls(torch.stack(jobs, 1), groups[longer], starts, int(starts[-1]), int((last - first).sum()))

    def join(self, parts: Tensor, out: Tensor) -> None:
        """Add the stored sums of the pieces of longer lists to `out`."""
        width = parts[:1].numel()
        if self.num_spare:
            block = min(1024, int(triton.next_power_of_2(width)))
            grid = (len(self.longer), triton.cdiv(width, block))
            list_programs.add_pieces[grid](parts, self.longer, self.starts, out, width, WIDTH=block, num_warps=1)


class Lists:
    """For each run, slot and column, the nodes whose map has a nonzero there; sums over nodes read these lists."""

    def __init__(self, features: Features, table: Tensor) -> None:
        self.num_columns, self.bandwidth = features.shape[1], table.shape[2]
        degrees = features.starts.diff()
        slots = table.mT.flatten(0, 1).long()
        device, total = table.device, int(degrees[slots].sum())
        self.nodes = torch.empty(total, dtype=_small(table.shape[1]), device=device)
        """For each nonzero, the node whose map it is in."""
        self.places = torch.empty(total, dtype=_small(int(degrees.max())), device=device)
        """The place of each nonzero in its row, from which its mask is drawn."""
        self.values = features.values.new_empty(total)
        all_counts, begin = [_counts(features, rows) for rows in slots], 0
        for rows, counts in zip(slots, all_counts, strict=True):
            # To save memory, some nodes are sorted at a time; in each column their nonzeros follow the earlier nodes'.
            free = begin + counts.cumsum(0) - counts
            begin += (num_entries := int(counts.sum()))
            for first in range(0, len(rows), step := at_a_time(len(rows), num_entries)):
                free += self._sort_in(features, rows[first : first + step], first, free)
        self._counts = torch.cat(all_counts)
        # The same for every run, so that its bits do not depend on the other runs.
        self._piece = max(PIECE, 1 << (len(features.values) * self.bandwidth // PIECES).bit_length())
        self._pieces: dict[tuple[int, int], Pieces] = {}

    def _sort_in(self, features: Features, rows: Tensor, first: int, free: Tensor) -> Tensor:
        """Store the nonzeros of some rows, which nodes from `first` on have in a slot, in each column's free places.

        Returns how many each column got. It is a method so that its memory is free again before the next call.
        """
        node, place, entry = expand(features, rows)
        column, order = torch.sort(features.columns[entry], stable=True)
        to = free[column] + torch.arange(len(column), device=column.device) - torch.searchsorted(column, column)
        self.nodes[to] = (first + node[order]).to(self.nodes.dtype)
        self.places[to] = place[order].to(self.places.dtype)
        self.values[to] = features.values[entry[order]]
        return torch.bincount(column, minlength=self.num_columns)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.nodes, self.places, self.values

    def pieces(self, first_column: int, last_column: int) -> Pieces:
        """Return the pieces of the lists of some columns, made once."""
        wanted = (first_column, last_column)
        if wanted not in self._pieces:
            groups = torch.arange(len(self._counts), device=self._counts.device)
            groups = groups.view(-1, self.num_columns)[:, first_column:last_column].flatten()
            ends = self._counts.cumsum(0)
            self._pieces[wanted] = Pieces.cut(
                groups,
                (ends - self._counts)[groups],
                ends[groups],
                self._piece,
                bandwidth=self.bandwidth,
                num_columns=self.num_columns,
            )
        return self._pieces[wanted]


def _counts(features: Features, rows: Tensor) -> Tensor:
    """Count the nonzeros of rows by column; a row that is listed twice counts twice."""
    times = torch.bincount(rows, minlength=features.shape[0]).double()
    weights = torch.repeat_interleave(times, features.starts.diff())
    return torch.bincount(features.columns, weights, features.shape[1]).long()


def expand(features: Features, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """List the nonzeros of rows: for each, its row's place in `rows`, its place in the row, and its place among all."""
    counts = features.starts.diff()[rows]
    number = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
    place = torch.arange(len(number), device=rows.device) - (counts.cumsum(0) - counts)[number]
    return number, place, features.starts[rows][number] + place


def at_a_time(num_nodes: int, num_entries: int) -> int:
    """Return how many nodes to sort at a time, so that the memory for it is small compared with the result."""
    most = max(SORTED, num_entries // 32)
    return max(1, most * num_nodes // max(1, num_entries))


def _small(largest: int) -> torch.dtype:
    return torch.int16 if largest < 2**15 else torch.int32


class Maps:
    """The nonzeros of each node's map in the order of their columns, as convolutions read them."""

    def __init__(self, features: Features, table: Tensor) -> None:
        self.num_features, bandwidth = features.shape[1], table.shape[2]
        self.shape = table.shape[:2]
        degrees = features.starts.diff()
        self.column_bits, self.place_bits = self.num_features.bit_length(), int(degrees.max()).bit_length()
        bits = self.column_bits + self.place_bits + bandwidth.bit_length()
        rows = table.flatten(0, 1).long()
        counts = degrees[rows].sum(1)
        self.starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        """``[S N + 1]``: where the nonzeros of each node begin."""
        self.cells = torch.empty(
            int(self.starts[-1]), dtype=torch.int32 if bits < 32 else torch.int64, device=table.device
        )
        """For each nonzero, in one number: slot, place in its row (from which its mask is drawn) and column."""
        self.firsts = features.starts[rows]
        """``[S N, n]``: where the nonzeros of the node in each slot begin among those of all nodes."""
        self.rank_type = _small(int(counts.max()))
        """The type that holds the number of a nonzero in its map."""
        self._step = at_a_time(len(rows), len(self.cells))
        for begin in range(0, len(rows), self._step):
            some = rows[begin : begin + self._step]
            cell_row, place, entry = expand(features, some.flatten())
            column = features.columns[entry]
            order = torch.argsort(cell_row // bandwidth * self.num_features + column, stable=True)
            cell = ((cell_row % bandwidth << self.place_bits) + place << self.column_bits) + column
            start = int(self.starts[begin])
            self.cells[start : start + len(order)] = cell[order]
        self._windows: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    @property
    def bits(self) -> dict[str, int]:
        return {"COLUMN_BITS": self.column_bits, "PLACE_BITS": self.place_bits}

    def windows(self, size: int, stride: int) -> tuple[Tensor, Tensor]:
        """Return where each node's nonzeros inside each window begin and end, both ``[S, N, D']``; made once."""
        if (size, stride) not in self._windows:
            device = self.cells.device
            places = torch.arange((self.num_features - size) // stride + 1, device=device) * stride
            parts = []
            for begin in range(0, len(self.starts) - 1, self._step):
                starts = self.starts[begin : begin + self._step + 1]
                node = torch.repeat_interleave(torch.arange(len(starts) - 1, device=device), starts.diff())
                columns = self.cells[int(starts[0]) : int(starts[-1])] & (1 << self.column_bits) - 1
                key = node * self.num_features + columns
                first = torch.arange(len(starts) - 1, device=device)[:, None] * self.num_features + places
                found = (torch.searchsorted(key, edge) for edge in (first, first + size))
                parts.append([(starts[0] + at).int() for at in found])
            begins, ends = (torch.cat(kind).view(*self.shape, -1) for kind in zip(*parts, strict=True))
            self._windows[size, stride] = begins, ends
        return self._windows[size, stride]


class Features:
    """CSR features as the programs take them."""

    def __init__(self, x: Tensor) -> None:
        self.shape = x.shape
        self.starts, self.values = x.crow_indices().long(), x.values().contiguous()
        self.columns = x.col_indices().int()

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.starts, self.columns, self.values


class Tables:
    """The neighbour tables ``[S, N, n]`` of a stack of runs over one graph's features, dense or CSR."""

    def __init__(self, x: Tensor, neighbours: Tensor) -> None:
        self.x = x.detach()
        self.table = neighbours.int().contiguous()
        self.num_runs, self.num_nodes, self.bandwidth = neighbours.shape

    @cached_property
    def features(self) -> Features:
        return Features(self.x)

    def sizes(self, shape: torch.Size, stride: int) -> tuple[int, int, int, int, int]:
        """Return number, width and size of filters of a shape, and at how many steps and places they stand."""
        _, filters, width, size = shape
        return filters, width, size, self.bandwidth - width + 1, (self.x.shape[1] - size) // stride + 1

    @property
    def is_sparse(self) -> bool:
        return self.x.layout == torch.sparse_csr

    @cached_property
    def lists(self) -> Lists:
        return Lists(self.features, self.table)

    @cached_property
    def maps(self) -> Maps:
        return Maps(self.features, self.table)

    def kept(self, seeds: Tensor, dropout: float, size: int, stride: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return what dropout leaves of the maps' nonzeros, and where each window's begin and end, ``[S, N, D']``."""
        maps, (begins, ends) = self.maps, self.maps.windows(size, stride)
        cells = torch.empty(len(maps.cells), dtype=torch.int64, device=begins.device)
        ranks = torch.empty(len(maps.cells), dtype=maps.rank_type, device=begins.device)
        kept_begins, kept_ends = torch.empty_like(begins), torch.empty_like(ends)
        rate, below, scale = rate_of(dropout)
        map_programs.keep_in_map[(self.num_nodes, self.num_runs)](
            maps.starts, maps.cells, maps.firsts, self.features.values, seeds, begins, ends, cells, ranks,
            kept_begins, kept_ends, self.num_nodes, size, begins.shape[2], below, scale, RATE=rate,
            BANDWIDTH=self.bandwidth, ENTRIES=128, PLACES=128, **maps.bits, num_warps=1,
        )  # fmt: skip
        return cells, kept_begins, kept_ends


@dataclass(frozen=True)
class Options:
    """The arguments of a call that are not tensors."""

    stride: int
    activation: str
    dropout: float
    precision: Precision = "float32"

    @property
    def mode(self) -> str:
        return MODES[self.precision]
