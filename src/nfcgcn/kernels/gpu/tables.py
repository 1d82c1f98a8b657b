"""What the GPU programs read: a graph's features and neighbour tables, sorted once for products and sums."""

from __future__ import annotations

from collections.abc import Callable
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
"""Nonzeros of a column that one program adds up if there are few: all programs wait for the longest piece."""
PIECES = 2**15
"""Approximate number of pieces if there are many nonzeros: each piece of a longer column takes memory."""


class Pieces(NamedTuple):
    """The nonzeros of some columns of the features, cut into pieces: one program per piece, slot and run."""

    jobs: Tensor
    """For each piece: its column, where it begins and ends among the nonzeros by column, and the row in which a piece
    of a longer column stores its sums (-1 for a column of one piece)."""
    longer: Tensor
    """The columns of several pieces."""
    starts: Tensor
    """The first row of each longer column, and at the end the number of rows."""
    num_spare: int
    first: int
    """The number of the first piece among those of all columns."""

    @classmethod
    def cut(cls, counts: Tensor, size: int, first_column: int, last_column: int) -> Pieces:
        """Cut some columns, given how many nonzeros each column has."""
        device = counts.device
        ends, pieces = counts.cumsum(0), (counts + size - 1) // size
        before = int(pieces[:first_column].sum())
        columns = torch.arange(first_column, last_column, device=device)
        pieces = pieces[first_column:last_column]
        column = torch.repeat_interleave(columns, pieces)
        number = torch.arange(len(column), device=device) - (pieces.cumsum(0) - pieces)[column - first_column]
        begin = (ends - counts)[column] + number * size
        end = torch.minimum(begin + size, ends[column])
        longer = pieces > 1
        rows = torch.where(longer, pieces, 0)
        last_rows = rows.cumsum(0)
        spare = torch.where(longer[column - first_column], (last_rows - rows)[column - first_column] + number, -1)
        starts = torch.cat([rows.new_zeros(1), last_rows[longer]])
        jobs = torch.stack([column, begin, end, spare], 1)
        return cls(jobs, columns[longer], starts, int(starts[-1]), before)

    def join(self, parts: Tensor, out: Tensor, num_columns: int) -> None:
        """Add the stored sums of the pieces of longer columns to `out`; `parts` are ``[S n, rows, ...]``."""
        width = parts[:1, :1].numel()
        if self.num_spare:
            block = min(1024, int(triton.next_power_of_2(width)))
            grid = (len(self.longer), triton.cdiv(width, block), len(parts))
            list_programs.add_pieces[grid](
                parts, self.longer, self.starts, out, self.num_spare, num_columns, width, WIDTH=block, num_warps=1
            )


class Lists:
    """For each run, slot and column, the nodes whose map has a nonzero there; sums over nodes read these lists.

    A column's list is that of the nodes that hold each row with a nonzero in it, one row after the other. It is cut
    where the column is cut. Lists of one piece of a column stand side by side for all runs and slots.
    """

    def __init__(self, tables: Tables) -> None:
        features, table = tables.features, tables.table
        by_column = features.by_column
        self.num_slots = num_slots = tables.num_runs * tables.bandwidth
        num_nodes = tables.num_nodes
        # The nodes in the order of the rows that they hold in a slot.
        slot = torch.arange(num_slots, device=table.device)[:, None] * num_nodes
        held, order = torch.sort((slot + table.mT.reshape(num_slots, num_nodes)).flatten(), stable=True)
        holders = (order % num_nodes).int()
        bounds = torch.arange(num_slots * num_nodes + 1, device=table.device)
        starts = torch.searchsorted(held, bounds).int()
        cut = tables.pieces(0, features.shape[1])
        lengths = torch.empty(len(cut.jobs), num_slots, dtype=torch.int32, device=table.device)
        total = tables.room(0, features.shape[1])
        self.nodes = torch.empty(total, dtype=_small(num_nodes), device=table.device)
        """For each nonzero, the node whose map it is in."""
        self.places = torch.empty(total, dtype=_small(features.longest), device=table.device)
        """The place of each nonzero in its row, from which its mask is drawn."""
        self.values = features.values.new_empty(total)
        grid, shape = (len(cut.jobs), num_slots), {"ENTRIES": 32, "num_warps": 1}
        if len(cut.jobs):
            list_programs.count_holders[grid](by_column.rows, starts, cut.jobs, lengths, num_nodes, **shape)
        self.starts = torch.cat([bounds[:1], lengths.flatten().cumsum(0)])
        """``[pieces * S n + 1]``: where the list of each piece, run and slot begins."""
        if len(cut.jobs):
            list_programs.fill_lists[grid](
                *by_column, holders, starts, cut.jobs, self.starts, *self.parts, num_nodes, **shape
            )

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.nodes, self.places, self.values

    def starts_of(self, cut: Pieces) -> Tensor:
        """Return where the lists of some pieces begin."""
        return self.starts[cut.first * self.num_slots :]


def _small(largest: int) -> torch.dtype:
    return torch.int16 if largest < 2**15 else torch.int32


class Maps:
    """The nonzeros of each node's map in the order of their columns, as convolutions read them."""

    def __init__(self, tables: Tables) -> None:
        features, rows = tables.features, tables.table.flatten(0, 1)
        bandwidth, num_features = tables.bandwidth, features.shape[1]
        self.column_bits, self.place_bits = num_features.bit_length(), features.longest.bit_length()
        bits = self.column_bits + self.place_bits + bandwidth.bit_length()
        counts = features.degrees[rows].sum(1)
        self.starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        """``[S N + 1]``: where the nonzeros of each node begin."""
        self.cells = torch.empty(
            tables.room(0, num_features), dtype=torch.int32 if bits < 32 else torch.int64, device=rows.device
        )
        """For each nonzero, in one number: slot, place in its row (from which its mask is drawn) and column."""
        self.firsts = features.starts[rows]
        """``[S N, n]``: where the nonzeros of the node in each slot begin among those of all nodes."""
        self.rank_type = _small(bandwidth * features.longest)
        """The type that holds the number of a nonzero in its map."""
        map_programs.merge_rows[(tables.num_nodes, tables.num_runs)](
            features.starts, *features.in_order, tables.table, self.starts, self.cells, tables.num_nodes,
            **tables.search, **self.bits, ENTRIES=32,
        )  # fmt: skip

    @property
    def bits(self) -> dict[str, int]:
        return {"COLUMN_BITS": self.column_bits, "PLACE_BITS": self.place_bits}


class ByColumn(NamedTuple):
    """The nonzeros of the features, column after column."""

    rows: Tensor
    places: Tensor
    values: Tensor


class Features:
    """CSR features as the programs take them."""

    def __init__(self, x: Tensor) -> None:
        self.shape = x.shape
        self.starts, self.values = x.crow_indices().long(), x.values().contiguous()
        self.columns = x.col_indices().int()
        self.degrees = self.starts.diff()
        self.longest = int(self.degrees.max()) if len(self.degrees) else 0
        self.kept = False
        """Whether tables will be built again and again."""
        self._pieces: dict[tuple[int, int, int], Pieces] = {}

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.starts, self.columns, self.values

    def _rows(self) -> Tensor:
        return torch.repeat_interleave(torch.arange(self.shape[0], device=self.starts.device), self.degrees)

    def _places(self) -> Tensor:
        number = torch.arange(len(self.values), device=self.starts.device)
        return (number - self.starts[self._rows()]).to(_small(self.longest))

    @cached_property
    def in_order(self) -> tuple[Tensor, Tensor]:
        """Columns and places of each row's nonzeros, sorted by column."""
        order = torch.argsort(self._rows() * self.shape[1] + self.columns, stable=True)
        return self.columns[order], self._places()[order]

    @cached_property
    def by_column(self) -> ByColumn:
        order = torch.argsort(self.columns, stable=True)
        return ByColumn(self._rows()[order].int(), self._places()[order], self.values[order])

    def forget(self, name: str) -> None:
        """Free what lists or maps were built from, unless others will be built."""
        if not self.kept:
            self.__dict__.pop(name, None)

    def count_between(self, first_column: int, last_column: int) -> Tensor:
        """Count each row's nonzeros in some columns."""
        inside = (self.columns >= first_column) & (self.columns < last_column)
        return torch.bincount(self._rows(), inside.double(), self.shape[0]).long()

    def pieces(self, first_column: int, last_column: int, size: int) -> Pieces:
        """Cut some columns into pieces of at most `size` nonzeros; done once."""
        wanted = (first_column, last_column, size)
        if wanted not in self._pieces:
            counts = torch.bincount(self.columns, minlength=self.shape[1])
            self._pieces[wanted] = Pieces.cut(counts, size, first_column, last_column)
        return self._pieces[wanted]


class Tables:
    """The neighbour tables ``[S, N, n]`` of a stack of runs over one graph's features, dense or CSR.

    Without a `room` the nonzeros of all maps are counted, for which the host waits.
    """

    def __init__(
        self,
        x: Tensor,
        neighbours: Tensor,
        *,
        features: Features | None = None,
        room: Callable[[int, int], int] | None = None,
    ) -> None:
        self.x = x.detach()
        self.table = neighbours.int().contiguous()
        self.num_runs, self.num_nodes, self.bandwidth = neighbours.shape
        if features is not None:
            self.features = features
        self._room, self._counts = room, dict[tuple[int, int], int]()
        self._windows: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    @cached_property
    def features(self) -> Features:
        return Features(self.x)

    def copy(self) -> Tables:
        """Return the same tables, of which nothing has been derived yet."""
        return Tables(self.x, self.table, features=self.features if self.is_sparse else None, room=self._room)

    def room(self, first_column: int, last_column: int) -> int:
        """Return how many nonzeros of some columns all maps have at most."""
        if self._room is not None:
            return self._room(first_column, last_column)
        wanted = (first_column, last_column)
        if wanted not in self._counts:
            self._counts[wanted] = int(self.features.count_between(*wanted)[self.table].sum())
        return self._counts[wanted]

    def sizes(self, shape: torch.Size, stride: int) -> tuple[int, int, int, int, int]:
        """Return number, width and size of filters of a shape, and at how many steps and places they stand."""
        _, filters, width, size = shape
        return filters, width, size, self.bandwidth - width + 1, (self.x.shape[1] - size) // stride + 1

    def pieces(self, first_column: int, last_column: int) -> Pieces:
        """Return the pieces of some columns."""
        # Their size is the same for every run, so that its bits do not depend on the other runs.
        size = max(PIECE, 1 << (len(self.features.values) * self.bandwidth // PIECES).bit_length())
        return self.features.pieces(first_column, last_column, size)

    @property
    def is_sparse(self) -> bool:
        return self.x.layout == torch.sparse_csr

    @cached_property
    def lists(self) -> Lists:
        made = Lists(self)
        self.features.forget("by_column")
        return made

    @cached_property
    def maps(self) -> Maps:
        return Maps(self)

    @property
    def search(self) -> dict[str, int]:
        """The arguments with which programs search all slots of a node at the same time."""
        slots = int(triton.next_power_of_2(self.bandwidth))
        return {
            "halvings": self.features.longest.bit_length(),
            "BANDWIDTH": self.bandwidth,
            "SLOTS": slots,
            "num_warps": 1 if slots < 16 else 4,
        }

    def windows(self, size: int, stride: int) -> tuple[Tensor, Tensor]:
        """Return where each node's nonzeros inside each window begin and end, both ``[S, N, D']``; made once."""
        if (size, stride) not in self._windows:
            features, maps = self.features, self.maps
            shape = (self.num_runs, self.num_nodes, (features.shape[1] - size) // stride + 1)
            begins, ends = (torch.empty(shape, dtype=torch.int32, device=self.table.device) for _ in range(2))
            map_programs.find_windows[(self.num_nodes, self.num_runs)](
                features.starts, features.in_order[0], self.table, maps.starts, begins, ends, self.num_nodes, size,
                stride, shape[2], **self.search, PLACES=16,
            )  # fmt: skip
            self._windows[size, stride] = begins, ends
            features.forget("in_order")
        return self._windows[size, stride]

    def kept(self, seeds: Tensor, dropout: float, size: int, stride: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return what dropout leaves of the maps' nonzeros, and where each window's begin and end, ``[S, N, D']``."""
        maps, (begins, ends) = self.maps, self.windows(size, stride)
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
