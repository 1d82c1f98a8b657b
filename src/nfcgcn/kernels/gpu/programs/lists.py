"""Sums over nodes, along the lists of the nonzeros by slot and column."""

from __future__ import annotations

from functools import partial

import triton
import triton.language as tl

from nfcgcn.kernels.gpu.launch import Program
from nfcgcn.kernels.gpu.masks import kept, key_of
from nfcgcn.kernels.gpu.programs.maps import number_of, pack, value_of

JOB = tl.constexpr(4)
"""How many numbers describe a piece: see `Pieces`."""


@Program
def count_holders(rows, holder_starts, jobs, lengths, num_nodes, ENTRIES: tl.constexpr):
    """Write how long the list of one piece is in one slot of one run: how many nodes hold its rows there."""
    piece, slot = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    first, last = tl.load(jobs + piece * JOB + 1), tl.load(jobs + piece * JOB + 2)
    total = tl.zeros([ENTRIES], tl.int32)
    for start in range(first, last, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        at = holder_starts + slot * num_nodes + tl.load(rows + e, mask=e < last, other=0)
        total += tl.where(e < last, tl.load(at + 1) - tl.load(at), 0)
    tl.store(lengths + piece * tl.num_programs(1) + slot, tl.sum(total, 0))


@Program
def fill_lists(
    rows, row_places, row_values, holders, holder_starts, jobs, list_starts, nodes, places, values, num_nodes,
    ENTRIES: tl.constexpr,
):  # fmt: skip
    """Write the list of one piece in one slot of one run: the nodes that hold each of its rows there."""
    piece, slot = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    first, last = tl.load(jobs + piece * JOB + 1), tl.load(jobs + piece * JOB + 2)
    to = tl.load(list_starts + piece * tl.num_programs(1) + slot)
    for start in range(first, last, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        row = tl.load(rows + e, mask=e < last, other=0)
        place = tl.load(row_places + e, mask=e < last, other=0)
        value = tl.load(row_values + e, mask=e < last, other=0.0)
        begin = tl.load(holder_starts + slot * num_nodes + row)
        count = tl.where(e < last, tl.load(holder_starts + slot * num_nodes + row + 1) - begin, 0)
        mine = to + tl.cumsum(count, 0) - count
        for turn in range(0, tl.max(count, 0)):
            there = turn < count
            tl.store(nodes + mine + turn, tl.load(holders + begin + turn, mask=there, other=0), mask=there)
            tl.store(places + mine + turn, place, mask=there)
            tl.store(values + mine + turn, value, mask=there)
        to += tl.sum(count, 0)


@triton.jit
def _entry(nodes, places, values, e, last):
    """Return node, place and value of some entries of a list."""
    node = tl.load(nodes + e, mask=e < last, other=0).to(tl.int32)
    place = tl.load(places + e, mask=e < last, other=0).to(tl.int32)
    return node, place, tl.load(values + e, mask=e < last, other=0.0)


@partial(Program, sizes=("num_spare",))
def gather_backward(
    nodes, places, values, jobs, list_starts, seeds, grad, out, parts, num_nodes, num_columns, num_spare, hidden,
    below, scale, RATE: tl.constexpr, BANDWIDTH: tl.constexpr, ENTRIES: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Write one piece of the slots' gradient, ``sum value * grad[node]`` over the piece's list: see `_put`."""
    piece, slot_of_run = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    run, slot = slot_of_run // BANDWIDTH, slot_of_run % BANDWIDTH
    number = list_starts + piece * tl.num_programs(1) + slot_of_run
    first, last = tl.load(number), tl.load(number + 1)
    column, spare = tl.load(jobs + piece * JOB), tl.load(jobs + piece * JOB + 3)
    seed = tl.load(seeds + run)
    k = tl.arange(0, HIDDEN)
    mine = grad + run * num_nodes * hidden
    total = tl.zeros([ENTRIES, HIDDEN], tl.float32)
    e = first + tl.arange(0, ENTRIES)
    node, place, value = _entry(nodes, places, values, e, last)
    for _ in range(first, last, ENTRIES):
        # Loaded one round ahead, so that a round waits for memory once and not twice.
        next_node, next_place, next_value = _entry(nodes, places, values, e + ENTRIES, last)
        stays = e < last
        if RATE > 0:
            stays = stays & kept(key_of(seed, node * BANDWIDTH + slot), place, below, RATE)
        at = (node * hidden)[:, None] + k[None]
        total += value[:, None] * tl.load(mine + at, mask=stays[:, None] & (k < hidden)[None], other=0.0)
        node, place, value = next_node, next_place, next_value
        e += ENTRIES
    spare = tl.where(spare < 0, spare, slot_of_run * num_spare + spare)
    _put(out, parts, slot_of_run * num_columns + column, spare, hidden, k, scale * tl.sum(total, 0))


@Program
def keep_in_list(
    nodes, places, values, list_starts, seeds, kept_nodes, counts, below, scale,
    RATE: tl.constexpr, BANDWIDTH: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """Write what dropout leaves of one piece's list, without gaps, and how much that is."""
    piece, slot_of_run = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    run, slot = slot_of_run // BANDWIDTH, slot_of_run % BANDWIDTH
    number = piece * tl.num_programs(1) + slot_of_run
    first, last = tl.load(list_starts + number), tl.load(list_starts + number + 1)
    to = first - tl.load(list_starts)
    seed = tl.load(seeds + run)
    count = 0
    for start in range(first, last, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        stays = e < last
        node = tl.load(nodes + e, mask=stays, other=0).to(tl.int64)
        value = tl.load(values + e, mask=stays, other=0.0)
        if RATE > 0:
            place = tl.load(places + e, mask=stays, other=0).to(tl.int32)
            stays = stays & kept(key_of(seed, node * BANDWIDTH + slot), place, below, RATE)
        one = stays.to(tl.int32)
        tl.store(kept_nodes + to + count + tl.cumsum(one, 0) - one, pack(scale * value, node), mask=stays)
        count += tl.sum(one, 0)
    tl.store(counts + number, count)


@partial(Program, sizes=("first_piece", "num_spare", "chunk_start", "chunk_size"))
def convolve_backward(
    kept_nodes, counts, list_starts, first_piece, jobs, grad_conv, out, parts, num_nodes, num_columns, num_spare,
    chunk_start, chunk_size, filters, stride, windows,
    BANDWIDTH: tl.constexpr, WIDTH: tl.constexpr, ENTRIES: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """Write one piece of what a column of a slot adds to the filters' gradient, ``[step, window, c]``: see `_put`.

    A nonzero at column ``d`` meets the windows at places ``d // s - windows + 1`` to ``d // s``, one run of numbers, of
    which a chunk of places holds some.
    """
    steps = BANDWIDTH - WIDTH + 1
    piece, slot_of_run = tl.program_id(0).to(tl.int64), (tl.program_id(1) // steps).to(tl.int64)
    step = tl.program_id(1) % steps
    run, turn = slot_of_run // BANDWIDTH, (slot_of_run % BANDWIDTH).to(tl.int32) - step
    number = (first_piece + piece) * (tl.num_programs(1) // steps) + slot_of_run
    column, spare = tl.load(jobs + piece * JOB).to(tl.int32), tl.load(jobs + piece * JOB + 3)
    first = tl.load(list_starts + number) - tl.load(list_starts)
    last = first + tl.load(counts + number)
    width, of_step = windows * filters, chunk_size * filters
    r = tl.program_id(2) * RUN + tl.arange(0, RUN)
    at = (column // stride - windows + 1 - chunk_start) * filters + r
    seen = (r < tl.where((turn >= 0) & (turn < WIDTH), width, 0)) & (at >= 0) & (at < of_step)
    mine = grad_conv + (run * num_nodes * steps + step) * of_step
    total = tl.zeros([ENTRIES, RUN], tl.float32)
    e = first + tl.arange(0, ENTRIES)
    entry = tl.load(kept_nodes + e, mask=e < last, other=0)
    for _ in range(first, last, ENTRIES):
        # Loaded one round ahead, so that a round waits for memory once and not twice.
        following = tl.load(kept_nodes + e + ENTRIES, mask=e + ENTRIES < last, other=0)
        row = number_of(entry).to(tl.int64) * (steps * of_step)
        part = tl.load(mine + row[:, None] + at[None], mask=(e < last)[:, None] & seen[None], other=0.0)
        total += value_of(entry)[:, None] * part
        entry = following
        e += ENTRIES
    spare = tl.where(spare < 0, spare, (slot_of_run * num_spare + spare) * steps + step)
    _put(out, parts, (slot_of_run * num_columns + column) * steps + step, spare, width, r, tl.sum(total, 0))


@triton.jit
def _put(out, parts, group, spare, width, k, sums):
    """Add a piece's sums to its column's row of `out` if it is the only one, else store them in row `spare`."""
    alone = k < tl.where(spare < 0, width, 0)
    before = tl.load(out + group * width + k, mask=alone, other=0.0)
    tl.store(out + group * width + k, before + sums, mask=alone)
    tl.store(parts + spare * width + k, sums, mask=k < tl.where(spare < 0, 0, width))


@partial(Program, sizes=("num_spare", "width"))
def add_pieces(parts, columns, first, out, num_spare, num_columns, width, WIDTH: tl.constexpr):
    """Add the stored sums of a column's pieces, in their order, to its row of `out`, in one slot of one run."""
    slot, number = tl.program_id(2).to(tl.int64), tl.program_id(0)
    group = slot * num_columns + tl.load(columns + number)
    k = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.load(out + group * width + k, mask=k < width, other=0.0)
    for piece in range(tl.load(first + number), tl.load(first + number + 1)):
        total += tl.load(parts + (slot * num_spare + piece) * width + k, mask=k < width, other=0.0)
    tl.store(out + group * width + k, total, mask=k < width)
