"""Sums over nodes, along the lists of the nonzeros by slot and column."""

from __future__ import annotations

import triton
import triton.language as tl

from nfcgcn.kernels.gpu.masks import kept, key_of
from nfcgcn.kernels.gpu.programs.maps import number_of, pack, value_of

JOB = tl.constexpr(8)
"""How many numbers describe a piece: see `Pieces`."""


@triton.jit
def gather_backward(
    nodes, places, values, jobs, seeds, grad, out, parts, num_nodes, hidden, below, scale,
    RATE: tl.constexpr, BANDWIDTH: tl.constexpr, ENTRIES: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Write one piece of the slots' gradient, ``sum value * grad[node]`` over a piece of a list: see `_put`."""
    job = jobs + tl.program_id(0).to(tl.int64) * JOB
    group, first, last, spare = tl.load(job), tl.load(job + 1), tl.load(job + 2), tl.load(job + 3)
    run, slot = tl.load(job + 4), tl.load(job + 5)
    seed = tl.load(seeds + run)
    k = tl.arange(0, HIDDEN)
    mine = grad + run * num_nodes * hidden
    total = tl.zeros([ENTRIES, HIDDEN], tl.float32)
    for start in range(first, last, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        stays = e < last
        node = tl.load(nodes + e, mask=stays, other=0).to(tl.int32)
        value = tl.load(values + e, mask=stays, other=0.0)
        if RATE > 0:
            place = tl.load(places + e, mask=stays, other=0).to(tl.int32)
            stays = stays & kept(key_of(seed, node * BANDWIDTH + slot), place, below, RATE)
        at = (node * hidden)[:, None] + k[None]
        total += value[:, None] * tl.load(mine + at, mask=stays[:, None] & (k < hidden)[None], other=0.0)
    _put(out, parts, group, spare, hidden, k, scale * tl.sum(total, 0))


@triton.jit
def keep_in_list(
    nodes, places, values, jobs, seeds, kept_nodes, counts, below, scale,
    RATE: tl.constexpr, BANDWIDTH: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """Write what dropout leaves of a piece of a list, without gaps, and how much that is."""
    piece = tl.program_id(0).to(tl.int64)
    job = jobs + piece * JOB
    first, last, run, slot, to = (
        tl.load(job + 1),
        tl.load(job + 2),
        tl.load(job + 4),
        tl.load(job + 5),
        tl.load(job + 7),
    )
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
    tl.store(counts + piece, count)


@triton.jit
def convolve_backward(
    kept_nodes, counts, jobs, grad_conv, out, parts, num_nodes, chunk_start, chunk_size, filters, stride, windows,
    BANDWIDTH: tl.constexpr, WIDTH: tl.constexpr, ENTRIES: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """Write one piece of what a column of a slot adds to the filters' gradient, ``[step, window, c]``: see `_put`.

    A nonzero at column ``d`` meets the windows at places ``d // s - windows + 1`` to ``d // s``, one run of numbers, of
    which a chunk of places holds some.
    """
    piece, step = tl.program_id(0).to(tl.int64), tl.program_id(1)
    steps = BANDWIDTH - WIDTH + 1
    job = jobs + piece * JOB
    group, spare, run = tl.load(job), tl.load(job + 3), tl.load(job + 4)
    turn, column, first = tl.load(job + 5) - step, tl.load(job + 6).to(tl.int32), tl.load(job + 7)
    last = first + tl.load(counts + piece)
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
    row = tl.where(spare < 0, spare, spare * steps + step)
    _put(out, parts, group * steps + step, row, width, r, tl.sum(total, 0))


@triton.jit
def _put(out, parts, group, spare, width, k, sums):
    """Add a piece's sums to its list's row of `out` if it is the only one, else store them in row `spare`."""
    alone = k < tl.where(spare < 0, width, 0)
    before = tl.load(out + group * width + k, mask=alone, other=0.0)
    tl.store(out + group * width + k, before + sums, mask=alone)
    tl.store(parts + spare * width + k, sums, mask=k < tl.where(spare < 0, 0, width))


@triton.jit
def add_pieces(parts, groups, first, out, width, WIDTH: tl.constexpr):
    """Add the stored sums of a list's pieces, in their order, to its row of `out`."""
    number = tl.program_id(0).to(tl.int64)
    group = tl.load(groups + number)
    k = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.load(out + group * width + k, mask=k < width, other=0.0)
    for piece in range(tl.load(first + number), tl.load(first + number + 1)):
        total += tl.load(parts + piece * width + k, mask=k < width, other=0.0)
    tl.store(out + group * width + k, total, mask=k < width)
