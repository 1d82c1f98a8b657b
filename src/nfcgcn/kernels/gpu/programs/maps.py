"""What dropout leaves of a node's feature map."""

from __future__ import annotations

import triton
import triton.language as tl

from nfcgcn.kernels.gpu.launch import Program
from nfcgcn.kernels.gpu.masks import kept, key_of


@triton.jit
def pack(value, number):
    """Return a float32 and an int32 as one number, which takes a single read."""
    return (number.to(tl.int64) << 32) | value.to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def value_of(packed):
    """Return the float32 of what `pack` made."""
    return (packed & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def number_of(packed):
    """Return the int32 of what `pack` made."""
    return (packed >> 32).to(tl.int32)


@triton.jit
def _count_before(columns, first, count, limit, halvings):
    """Return how many of `count` ascending columns, from `first` on, are below a limit."""
    low = tl.zeros_like(count + limit)
    high = low + count
    for _ in range(0, halvings):
        searching = low < high
        middle = (low + high) // 2
        below = searching & (tl.load(columns + first + middle, mask=searching, other=0) < limit)
        low = tl.where(below, middle + 1, low)
        high = tl.where(searching & (below == 0), middle, high)
    return low


@Program
def merge_rows(
    starts, columns, places, table, map_starts, cells, num_nodes, halvings,
    BANDWIDTH: tl.constexpr, SLOTS: tl.constexpr, COLUMN_BITS: tl.constexpr, PLACE_BITS: tl.constexpr,
    ENTRIES: tl.constexpr,
):  # fmt: skip
    """Write the nonzeros of one node's map in the order of their columns, those in one column by slot.

    Each finds its place by counting, in every other slot, the nonzeros that come before it.
    """
    row = tl.program_id(1).to(tl.int64) * num_nodes + tl.program_id(0)
    origin = tl.load(map_starts + row)
    others = tl.arange(0, SLOTS)
    held = tl.load(table + row * BANDWIDTH + others, mask=others < BANDWIDTH, other=0)
    first_of_other = tl.load(starts + held)
    degree = tl.where(others < BANDWIDTH, (tl.load(starts + held + 1) - first_of_other).to(tl.int32), 0)
    for slot in range(0, BANDWIDTH):
        here = tl.load(table + row * BANDWIDTH + slot)
        first = tl.load(starts + here)
        count = (tl.load(starts + here + 1) - first).to(tl.int32)
        for start in range(0, count, ENTRIES):
            e = start + tl.arange(0, ENTRIES)
            column = tl.load(columns + first + e, mask=e < count, other=0)
            place = tl.load(places + first + e, mask=e < count, other=0)
            # In earlier slots the same column comes before, in later ones after.
            limit = column[:, None] + tl.where(others < slot, 1, 0)[None]
            length = tl.where(others == slot, 0, degree)[None] + tl.zeros_like(limit)
            rank = e + tl.sum(_count_before(columns, first_of_other[None], length, limit, halvings), 1)
            wide = tl.zeros_like(column).to(cells.dtype.element_ty) + slot
            cell = (((wide << PLACE_BITS) + place) << COLUMN_BITS) + column
            tl.store(cells + origin + rank, cell, mask=e < count)


@Program
def find_windows(
    starts, columns, table, map_starts, begins, ends, num_nodes, size, stride, num_places, halvings,
    BANDWIDTH: tl.constexpr, SLOTS: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """Write where the nonzeros of one node's map begin and end in each window."""
    row = tl.program_id(1).to(tl.int64) * num_nodes + tl.program_id(0)
    origin = tl.load(map_starts + row)
    slots = tl.arange(0, SLOTS)
    held = tl.load(table + row * BANDWIDTH + slots, mask=slots < BANDWIDTH, other=0)
    first = tl.load(starts + held)
    degree = tl.where(slots < BANDWIDTH, (tl.load(starts + held + 1) - first).to(tl.int32), 0)
    for start in range(0, num_places, PLACES):
        p = start + tl.arange(0, PLACES)
        limit = (p * stride)[:, None] + tl.zeros_like(degree)[None]
        length = degree[None] + tl.zeros_like(limit)
        begin = tl.sum(_count_before(columns, first[None], length, limit, halvings), 1)
        end = tl.sum(_count_before(columns, first[None], length, limit + size, halvings), 1)
        at = row * num_places + p
        tl.store(begins + at, (origin + begin).to(tl.int32), mask=p < num_places)
        tl.store(ends + at, (origin + end).to(tl.int32), mask=p < num_places)


@Program
def keep_in_map(
    map_starts, cells, firsts, values, seeds, begins, ends, kept_cells, ranks, kept_begins, kept_ends,
    num_nodes, size, places, below, scale,
    RATE: tl.constexpr, BANDWIDTH: tl.constexpr, COLUMN_BITS: tl.constexpr, PLACE_BITS: tl.constexpr,
    ENTRIES: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """Write what dropout leaves of one node's map, without gaps, and where its windows begin and end there.

    A cell's number is ``slot k + column``; minus the window's number, it is the place of the cell's filter weights.
    """
    node, run = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    seed = tl.load(seeds + run)
    row = run * num_nodes + node
    origin, last = tl.load(map_starts + row), tl.load(map_starts + row + 1)
    count = 0
    for start in range(origin, last, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        stays = e < last
        cell = tl.load(cells + e, mask=stays, other=0)
        slot = (cell >> (COLUMN_BITS + PLACE_BITS)).to(tl.int32)
        place = ((cell >> COLUMN_BITS) & ((1 << PLACE_BITS) - 1)).to(tl.int32)
        column = (cell & ((1 << COLUMN_BITS) - 1)).to(tl.int32)
        first = tl.load(firsts + row * BANDWIDTH + slot, mask=stays, other=0)
        value = tl.load(values + first + place, mask=stays, other=0.0)
        if RATE > 0:
            stays = stays & kept(key_of(seed, node * BANDWIDTH + slot), place, below, RATE)
        one = stays.to(tl.int32)
        rank = count + tl.cumsum(one, 0) - one
        tl.store(ranks + e, rank, mask=e < last)
        tl.store(kept_cells + origin + rank, pack(scale * value, slot * size + column), mask=stays)
        count += tl.sum(one, 0)
    # From here on, ranks that other threads have written are read.
    tl.debug_barrier()
    for start in range(0, places, PLACES):
        p = start + tl.arange(0, PLACES)
        window = row * places + p
        begin = tl.load(begins + window, mask=p < places, other=0)
        end = tl.load(ends + window, mask=p < places, other=0)
        before = tl.load(ranks + begin, mask=(p < places) & (begin < last), other=0)
        until = tl.load(ranks + end, mask=(p < places) & (end < last), other=0)
        tl.store(kept_begins + window, (origin + tl.where(begin < last, before, count)).to(tl.int32), mask=p < places)
        tl.store(kept_ends + window, (origin + tl.where(end < last, until, count)).to(tl.int32), mask=p < places)


@Program
def dense_map(
    x, table, seeds, out, first_node, num_nodes, num_features, below, scale,
    RATE: tl.constexpr, BANDWIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write some columns of one slot of one node's map, of dense features."""
    local, run = tl.program_id(0).to(tl.int64), tl.program_id(2).to(tl.int64)
    node = first_node + local // BANDWIDTH
    slot = local % BANDWIDTH
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.load(table + (run * num_nodes + node) * BANDWIDTH + slot).to(tl.int64)
    value = tl.load(x + row * num_features + column, mask=column < num_features, other=0.0)
    if RATE > 0:
        stays = kept(key_of(tl.load(seeds + run), node * BANDWIDTH + slot), column, below, RATE)
        value = tl.where(stays, scale * value, 0.0)
    at = (run * (tl.num_programs(0).to(tl.int64)) + local) * num_features + column
    tl.store(out + at, value, mask=column < num_features)
