"""Without an activation: convolution and matrix as one map per slot, and its product with features."""

from __future__ import annotations

import triton.language as tl

from nfcgcn.kernels.gpu.launch import Program
from nfcgcn.kernels.gpu.masks import kept, key_of
from nfcgcn.kernels.gpu.product import dot


@Program
def gather(
    starts, columns, values, table, seeds, slots, out, num_nodes, num_features, hidden, below, scale,
    RATE: tl.constexpr, BANDWIDTH: tl.constexpr, ENTRIES: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Write ``sum_j dropout(x[table[i, j]]) @ slots[j]`` for one node, one slot after the other."""
    node, run = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    seed = tl.load(seeds + run)
    k = tl.arange(0, HIDDEN)
    total = tl.zeros([ENTRIES, HIDDEN], tl.float32)
    mine = slots + run * BANDWIDTH * num_features * hidden
    held = table + (run * num_nodes + node) * BANDWIDTH
    row = tl.load(held)
    first, last = tl.load(starts + row), tl.load(starts + row + 1)
    for slot in tl.static_range(BANDWIDTH):
        count = (last - first).to(tl.int32)
        here = first
        if slot + 1 < BANDWIDTH:
            # Loaded one slot ahead, so that a slot does not wait for where its row is.
            row = tl.load(held + slot + 1)
            first, last = tl.load(starts + row), tl.load(starts + row + 1)
        key = key_of(seed, node * BANDWIDTH + slot)
        for start in range(0, count, ENTRIES):
            place = start + tl.arange(0, ENTRIES)
            stays = place < count
            column = tl.load(columns + here + place, mask=stays, other=0)
            value = tl.load(values + here + place, mask=stays, other=0.0)
            if RATE > 0:
                stays = stays & kept(key, place, below, RATE)
            at = (column * hidden)[:, None] + k[None]
            part = tl.load(mine + at, mask=stays[:, None] & (k < hidden)[None], other=0.0)
            total += value[:, None] * part
        mine += num_features * hidden
    tl.store(out + (run * num_nodes + node) * hidden + k, scale * tl.sum(total, 0), mask=k < hidden)


@Program
def compose(
    weight, matrix, out, num_features, filters, width, size, stride, steps, places, hidden,
    MODE: tl.constexpr, COLUMNS: tl.constexpr, FILTERS: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Write some columns of the one map per slot that replaces convolution and matrix: see `collapse`."""
    slot, run = tl.program_id(1), tl.program_id(2).to(tl.int64)
    start = tl.program_id(0) * COLUMNS
    column = start + tl.arange(0, COLUMNS)
    f, k = tl.arange(0, FILTERS), tl.arange(0, HIDDEN)
    total = tl.zeros([COLUMNS, HIDDEN], tl.float32)
    for step in range(tl.maximum(0, slot - width + 1), tl.minimum(slot + 1, steps)):
        # Rounded up without a negative number, which a GPU divides towards 0.
        lowest = (tl.maximum(start - size + 1, 0) + stride - 1) // stride
        for place in range(lowest, tl.minimum((start + COLUMNS - 1) // stride + 1, places)):
            offset = column - place * stride
            seen = (offset >= 0) & (offset < size)
            left = tl.load(
                weight + ((run * filters + f[None]) * width + slot - step) * size + offset[:, None],
                mask=seen[:, None] & (f < filters)[None],
                other=0.0,
            )
            right = tl.load(
                matrix + (((run * steps + step) * filters + f[:, None]) * places + place) * hidden + k[None],
                mask=(f < filters)[:, None] & (k < hidden)[None],
                other=0.0,
            )
            total = dot(left, right, total, MODE)
    at = ((run * tl.num_programs(1) + slot) * num_features + column[:, None]) * hidden + k[None]
    tl.store(out + at, total, mask=(column < num_features)[:, None] & (k < hidden)[None])


@Program
def compose_backward_weight(
    grad, matrix, out, num_features, bandwidth, filters, width, size, stride, steps, places, hidden, per_program,
    MODE: tl.constexpr, OFFSETS: tl.constexpr, FILTERS: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Write the part of the filters' gradient that comes from some places: ``[part, run, w, k, c]``."""
    part, run = tl.program_id(0).to(tl.int64), tl.program_id(2).to(tl.int64)
    across = tl.cdiv(size, OFFSETS)
    turn = tl.program_id(1) // across
    offset = (tl.program_id(1) % across) * OFFSETS + tl.arange(0, OFFSETS)
    f, k = tl.arange(0, FILTERS), tl.arange(0, HIDDEN)
    total = tl.zeros([OFFSETS, FILTERS], tl.float32)
    for step in range(0, steps):
        for place in range(part * per_program, tl.minimum((part + 1) * per_program, places)):
            at = ((run * bandwidth + turn + step) * num_features + place * stride + offset[:, None]) * hidden + k[None]
            left = tl.load(grad + at, mask=(offset < size)[:, None] & (k < hidden)[None], other=0.0)
            right = tl.load(
                matrix + (((run * steps + step) * filters + f[None]) * places + place) * hidden + k[:, None],
                mask=(f < filters)[None] & (k < hidden)[:, None],
                other=0.0,
            )
            total = dot(left, right, total, MODE)
    at = (((part * tl.num_programs(2) + run) * width + turn) * size + offset[:, None]) * filters + f[None]
    tl.store(out + at, total, mask=(offset < size)[:, None] & (f < filters)[None])


@Program
def compose_backward_matrix(
    grad, weight, out, num_features, bandwidth, filters, width, size, stride, steps, places, hidden,
    MODE: tl.constexpr, OFFSETS: tl.constexpr, FILTERS: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Write the matrix's gradient at one step and place."""
    step, place, run = tl.program_id(0) // places, tl.program_id(0) % places, tl.program_id(1).to(tl.int64)
    f, k = tl.arange(0, FILTERS), tl.arange(0, HIDDEN)
    total = tl.zeros([FILTERS, HIDDEN], tl.float32)
    for turn in range(0, width):
        for start in range(0, size, OFFSETS):
            offset = start + tl.arange(0, OFFSETS)
            left = tl.load(
                weight + ((run * filters + f[:, None]) * width + turn) * size + offset[None],
                mask=(f < filters)[:, None] & (offset < size)[None],
                other=0.0,
            )
            at = ((run * bandwidth + turn + step) * num_features + place * stride + offset[:, None]) * hidden + k[None]
            right = tl.load(grad + at, mask=(offset < size)[:, None] & (k < hidden)[None], other=0.0)
            total = dot(left, right, total, MODE)
    at = (((run * steps + step) * filters + f[:, None]) * places + place) * hidden + k[None]
    tl.store(out + at, total, mask=(f < filters)[:, None] & (k < hidden)[None])
