"""The GPU's programs for node-feature convolution, in Triton.

Every array has a leading dimension of runs that train together, with tables, weights and seeds of their own on shared
features. Nothing is added by atomics: sums over nodes follow lists of the nonzeros by slot and column
(:class:`~nfcgcn.kernels.node_feature_conv.gpu.Lists`), so the same call gives the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nfcgcn.kernels.masks.gpu import kept, key_of
from nfcgcn.kernels.product.gpu import dot

UNROLL = tl.constexpr(4)
"""Steps of a walk that are begun before the first has ended: each waits for memory."""


@triton.jit
def _slot_of(cell, COLUMN_BITS: tl.constexpr, PLACE_BITS: tl.constexpr):
    return (cell >> (COLUMN_BITS + PLACE_BITS)).to(tl.int32)


@triton.jit
def _place_of(cell, COLUMN_BITS: tl.constexpr, PLACE_BITS: tl.constexpr):
    return ((cell >> COLUMN_BITS) & ((1 << PLACE_BITS) - 1)).to(tl.int32)


@triton.jit
def _column_of(cell, COLUMN_BITS: tl.constexpr):
    return (cell & ((1 << COLUMN_BITS) - 1)).to(tl.int32)


@triton.jit
def gather(
    map_starts, cells, values, seeds, slots, out, num_nodes, num_features, hidden, below, scale,
    RATE: tl.constexpr, BANDWIDTH: tl.constexpr, COLUMN_BITS: tl.constexpr, PLACE_BITS: tl.constexpr,
    ENTRIES: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Write ``sum_j dropout(x[table[i, j]]) @ slots[j]`` for one node, along the nonzeros of its map."""
    node, run = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    seed = tl.load(seeds + run)
    k = tl.arange(0, HIDDEN)
    last = tl.load(map_starts + run * num_nodes + node + 1)
    total = tl.zeros([ENTRIES, HIDDEN], tl.float32)
    for start in range(tl.load(map_starts + run * num_nodes + node), last, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        stays = e < last
        cell = tl.load(cells + e, mask=stays, other=0)
        slot = _slot_of(cell, COLUMN_BITS, PLACE_BITS)
        value = tl.load(values + e, mask=stays, other=0.0)
        if RATE > 0:
            key = key_of(seed, node * BANDWIDTH + slot)
            stays = stays & kept(key, _place_of(cell, COLUMN_BITS, PLACE_BITS), below, RATE)
        at = ((run * BANDWIDTH + slot) * num_features + _column_of(cell, COLUMN_BITS)) * hidden
        part = tl.load(slots + at[:, None] + k[None], mask=stays[:, None] & (k < hidden)[None], other=0.0)
        total += value[:, None] * part
    tl.store(out + (run * num_nodes + node) * hidden + k, scale * tl.sum(total, 0), mask=k < hidden)


@triton.jit
def gather_backward(
    nodes, places, entry_values, group, first, last, spare, seeds, grad, out, parts, num_nodes, num_features, hidden,
    below, scale,
    RATE: tl.constexpr, BANDWIDTH: tl.constexpr, ENTRIES: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Write one piece of the slots' gradient, ``sum value * grad[node]`` over a piece of a list: see `_put`."""
    piece = tl.program_id(0).to(tl.int64)
    which = tl.load(group + piece)
    slot = (which // num_features) % BANDWIDTH
    run = which // num_features // BANDWIDTH
    seed = tl.load(seeds + run)
    end = tl.load(last + piece)
    k = tl.arange(0, HIDDEN)
    total = tl.zeros([ENTRIES, HIDDEN], tl.float32)
    for start in range(tl.load(first + piece), end, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        stays = e < end
        node = tl.load(nodes + e, mask=stays, other=0).to(tl.int64)
        if RATE > 0:
            place = tl.load(places + e, mask=stays, other=0).to(tl.int32)
            stays = stays & kept(key_of(seed, node * BANDWIDTH + slot), place, below, RATE)
        value = tl.load(entry_values + e, mask=stays, other=0.0)
        at = (run * num_nodes + node) * hidden
        part = tl.load(grad + at[:, None] + k[None], mask=stays[:, None] & (k < hidden)[None], other=0.0)
        total += value[:, None] * part
    _put(out, parts, which, tl.load(spare + piece), hidden, k, scale * tl.sum(total, 0))


@triton.jit
def _put(out, parts, group, spare, width, k, sums):
    """Add a piece's sums to its list's row of `out` if it is the only one, else lay them aside in row `spare`."""
    alone = k < tl.where(spare < 0, width, 0)
    before = tl.load(out + group * width + k, mask=alone, other=0.0)
    tl.store(out + group * width + k, before + sums, mask=alone)
    tl.store(parts + spare * width + k, sums, mask=k < tl.where(spare < 0, 0, width))


@triton.jit
def add_pieces(parts, groups, first, out, width, WIDTH: tl.constexpr):
    """Add what the pieces of a list laid aside, in their order, to its row of `out`."""
    number = tl.program_id(0).to(tl.int64)
    group = tl.load(groups + number)
    k = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.load(out + group * width + k, mask=k < width, other=0.0)
    for piece in range(tl.load(first + number), tl.load(first + number + 1)):
        total += tl.load(parts + piece * width + k, mask=k < width, other=0.0)
    tl.store(out + group * width + k, total, mask=k < width)


@triton.jit
def compose(
    weight, matrix, out, num_features, filters, width, size, stride, steps, places, hidden,
    MODE: tl.constexpr, COLUMNS: tl.constexpr, FILTERS: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Write some columns of the one map a slot that convolution and matrix are together: see `collapse`."""
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


@triton.jit
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


@triton.jit
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


@triton.jit
def mask_values(
    map_starts, cells, values, seeds, out, num_nodes, below, scale,
    RATE: tl.constexpr, BANDWIDTH: tl.constexpr, COLUMN_BITS: tl.constexpr, PLACE_BITS: tl.constexpr,
    ENTRIES: tl.constexpr,
):  # fmt: skip
    """Write what dropout leaves of the nonzeros of one node's map."""
    node, run = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    seed = tl.load(seeds + run)
    last = tl.load(map_starts + run * num_nodes + node + 1)
    for start in range(tl.load(map_starts + run * num_nodes + node), last, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        cell = tl.load(cells + e, mask=e < last, other=0)
        value = scale * tl.load(values + e, mask=e < last, other=0.0)
        key = key_of(seed, node * BANDWIDTH + _slot_of(cell, COLUMN_BITS, PLACE_BITS))
        stays = kept(key, _place_of(cell, COLUMN_BITS, PLACE_BITS), below, RATE)
        tl.store(out + e, tl.where(stays, value, 0.0), mask=e < last)


@triton.jit
def _convolved(
    cells, masked, first, last, filters_of_run, step, place, filters, size, stride,
    WIDTH: tl.constexpr, BANDWIDTH: tl.constexpr, COLUMN_BITS: tl.constexpr, PLACE_BITS: tl.constexpr,
    NODES: tl.constexpr, FILTERS: tl.constexpr,
):  # fmt: skip
    """Return the convolution of some nodes at one step and place, ``[NODES, FILTERS]``.

    Each node walks through the nonzeros of its map inside the window, which stand in a row.
    """
    f = tl.arange(0, FILTERS)
    total = tl.zeros([NODES, FILTERS], tl.float32)
    for walked in tl.range(0, tl.max(last - first, 0), loop_unroll_factor=UNROLL):
        e = first + walked
        value = tl.load(masked + e, mask=e < last, other=0.0)
        cell = tl.load(cells + e, mask=e < last, other=0)
        turn = _slot_of(cell, COLUMN_BITS, PLACE_BITS) - step
        stays = value != 0
        if WIDTH < BANDWIDTH:
            stays = stays & (turn >= 0) & (turn < WIDTH)
        at = (turn * size + _column_of(cell, COLUMN_BITS) - place * stride) * filters
        part = tl.load(filters_of_run + at[:, None] + f[None], mask=stays[:, None] & (f < filters)[None], other=0.0)
        total += value[:, None] * part
    return total


@triton.jit
def _activated(h, ACTIVATION: tl.constexpr):
    if ACTIVATION == "tanh":
        # Near 0 the quotient would cancel; there the series is exact to rounding.
        e = tl.exp(-2 * tl.abs(h))
        far = (1 - e) / (1 + e)
        s = h * h
        near = tl.abs(h) * (1 - s * (1 / 3 - s * (2 / 15 - s * (17 / 315 - s * 62 / 2835))))
        size = tl.where(tl.abs(h) < 0.25, near, far)
        return tl.where(h < 0, -size, size)
    if ACTIVATION == "relu":
        return tl.maximum(h, 0.0)
    return h


@triton.jit
def convolve(
    cells, masked, begins, ends, runs, out, num_nodes, filters, size, stride, places,
    BANDWIDTH: tl.constexpr, WIDTH: tl.constexpr, COLUMN_BITS: tl.constexpr, PLACE_BITS: tl.constexpr,
    NODES: tl.constexpr, FILTERS: tl.constexpr,
):  # fmt: skip
    """Write the convolution of some nodes at one step and place, ``[run, node, step, place, filter]``."""
    run = tl.program_id(2).to(tl.int64)
    steps = BANDWIDTH - WIDTH + 1
    step, place = tl.program_id(1) // places, tl.program_id(1) % places
    node = tl.program_id(0).to(tl.int64) * NODES + tl.arange(0, NODES)
    inside = node < num_nodes
    f = tl.arange(0, FILTERS)
    window = (run * num_nodes + node) * places + place
    first = tl.load(begins + window, mask=inside, other=0)
    last = tl.load(ends + window, mask=inside, other=0)
    weight = runs + run * WIDTH * size * filters
    h = _convolved(
            cells, masked, first, last, weight, step, place, filters, size, stride, WIDTH, BANDWIDTH, COLUMN_BITS,
            PLACE_BITS, NODES, FILTERS,
        )  # fmt: skip
    at = (((run * num_nodes + node[:, None]) * steps + step) * places + place) * filters + f[None]
    tl.store(out + at, h, mask=inside[:, None] & (f < filters)[None])


@triton.jit
def project(
    cells, masked, begins, ends, runs, matrix, out, num_nodes, filters, size, stride, places, hidden, per_program,
    MODE: tl.constexpr, ACTIVATION: tl.constexpr, BANDWIDTH: tl.constexpr, WIDTH: tl.constexpr,
    COLUMN_BITS: tl.constexpr, PLACE_BITS: tl.constexpr, NODES: tl.constexpr, FILTERS: tl.constexpr,
    HIDDEN: tl.constexpr,
):  # fmt: skip
    """Write what some steps and places add to ``activation(conv) @ matrix`` of some nodes: ``[part, run, node, H]``."""
    part, run = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    steps = BANDWIDTH - WIDTH + 1
    node = tl.program_id(0).to(tl.int64) * NODES + tl.arange(0, NODES)
    inside = node < num_nodes
    f, k = tl.arange(0, FILTERS), tl.arange(0, HIDDEN)
    weight = runs + run * WIDTH * size * filters
    total = tl.zeros([NODES, HIDDEN], tl.float32)
    for turn in range(part * per_program, tl.minimum((part + 1) * per_program, steps * places)):
        step, place = (turn // places).to(tl.int32), (turn % places).to(tl.int32)
        window = (run * num_nodes + node) * places + place
        first = tl.load(begins + window, mask=inside, other=0)
        last = tl.load(ends + window, mask=inside, other=0)
        h = _convolved(
            cells, masked, first, last, weight, step, place, filters, size, stride, WIDTH, BANDWIDTH, COLUMN_BITS,
            PLACE_BITS, NODES, FILTERS,
        )  # fmt: skip
        right = tl.load(
            matrix + (((run * steps + step) * filters + f[:, None]) * places + place) * hidden + k[None],
            mask=(f < filters)[:, None] & (k < hidden)[None],
            other=0.0,
        )
        total = dot(_activated(h, ACTIVATION), right, total, MODE)
    at = ((part * tl.num_programs(2) + run) * num_nodes + node[:, None]) * hidden + k[None]
    tl.store(out + at, total, mask=inside[:, None] & (k < hidden)[None])


@triton.jit
def project_backward(
    cells, masked, begins, ends, runs, matrix, grad, grad_conv, grad_matrix, chunk_start, chunk_size, num_nodes,
    filters, size, stride, places, hidden, per_program,
    MODE: tl.constexpr, ACTIVATION: tl.constexpr, BANDWIDTH: tl.constexpr, WIDTH: tl.constexpr,
    COLUMN_BITS: tl.constexpr, PLACE_BITS: tl.constexpr, NODES: tl.constexpr, FILTERS: tl.constexpr,
    HIDDEN: tl.constexpr,
):  # fmt: skip
    """Take some nodes back through matrix and activation, at one step and one place of a chunk of places.

    Writes the convolution's gradient ``[run, node, step, chunk place, c]`` and these nodes' part of the matrix's,
    ``[part, run, step, filter, chunk place, H]``.
    """
    part, run = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    steps = BANDWIDTH - WIDTH + 1
    step, local = tl.program_id(0) // chunk_size, tl.program_id(0) % chunk_size
    place = chunk_start + local
    f, k = tl.arange(0, FILTERS), tl.arange(0, HIDDEN)
    weight = runs + run * WIDTH * size * filters
    matrix_at = (((run * steps + step) * filters + f[None]) * places + place) * hidden + k[:, None]
    across = tl.load(matrix + matrix_at, mask=(f < filters)[None] & (k < hidden)[:, None], other=0.0)
    total = tl.zeros([FILTERS, HIDDEN], tl.float32)
    start = part * per_program
    stop = tl.minimum(start + per_program, num_nodes)
    for begin in range(start, stop, NODES):
        node = begin + tl.arange(0, NODES)
        inside = node < stop
        window = (run * num_nodes + node) * places + place
        first = tl.load(begins + window, mask=inside, other=0)
        last = tl.load(ends + window, mask=inside, other=0)
        h = _convolved(
            cells, masked, first, last, weight, step, place, filters, size, stride, WIDTH, BANDWIDTH, COLUMN_BITS,
            PLACE_BITS, NODES, FILTERS,
        )  # fmt: skip
        h = _activated(h, ACTIVATION)
        g = tl.load(
            grad + (run * num_nodes + node[:, None]) * hidden + k[None],
            mask=inside[:, None] & (k < hidden)[None],
            other=0.0,
        )
        slope = 1 - h * h if ACTIVATION == "tanh" else tl.where(h > 0, 1.0, 0.0)
        back = slope * dot(g, across, tl.zeros([NODES, FILTERS], tl.float32), MODE)
        conv_at = (((run * num_nodes + node[:, None]) * steps + step) * chunk_size + local) * filters + f[None]
        tl.store(grad_conv + conv_at, back, mask=inside[:, None] & (f < filters)[None])
        total = dot(tl.trans(h), g, total, MODE)
    out = ((((part * tl.num_programs(2) + run) * steps + step) * filters + f[:, None]) * chunk_size + local) * hidden
    tl.store(grad_matrix + out + k[None], total, mask=(f < filters)[:, None] & (k < hidden)[None])


@triton.jit
def convolve_backward(
    nodes, places_in_row, entry_values, group, first, last, spare, seeds, grad_conv, out, parts, chunk_start,
    chunk_size, num_nodes, num_features, filters, stride, windows, below, scale,
    RATE: tl.constexpr, BANDWIDTH: tl.constexpr, WIDTH: tl.constexpr, ENTRIES: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """Write one piece of what a column of a slot adds to the filters' gradient, ``[step, window, c]``: see `_put`.

    A nonzero at column ``d`` meets the windows at places ``d // s - windows + 1`` to ``d // s``, one run of numbers, of
    which a chunk of places holds some.
    """
    piece, step = tl.program_id(0).to(tl.int64), tl.program_id(1)
    steps = BANDWIDTH - WIDTH + 1
    which = tl.load(group + piece)
    column, slot = which % num_features, (which // num_features) % BANDWIDTH
    run = which // num_features // BANDWIDTH
    turn = slot - step
    seed = tl.load(seeds + run)
    width = windows * filters
    r = tl.program_id(2) * RUN + tl.arange(0, RUN)
    place = column // stride - windows + 1 + r // filters - chunk_start
    reach = tl.where((turn >= 0) & (turn < WIDTH), width, 0)
    seen = (r < reach) & (place >= 0) & (place < chunk_size)
    end = tl.load(last + piece)
    total = tl.zeros([ENTRIES, RUN], tl.float32)
    for start in range(tl.load(first + piece), end, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        stays = e < end
        node = tl.load(nodes + e, mask=stays, other=0).to(tl.int64)
        if RATE > 0:
            in_row = tl.load(places_in_row + e, mask=stays, other=0).to(tl.int32)
            stays = stays & kept(key_of(seed, node * BANDWIDTH + slot), in_row, below, RATE)
        value = tl.load(entry_values + e, mask=stays, other=0.0)
        start_of = ((run * num_nodes + node) * steps + step) * chunk_size
        at = (start_of[:, None] + place[None]) * filters + (r % filters)[None]
        part = tl.load(grad_conv + at, mask=stays[:, None] & seen[None], other=0.0)
        total += value[:, None] * part
    row = tl.load(spare + piece)
    row = tl.where(row < 0, row, row * steps + step)
    _put(out, parts, which * steps + step, row, width, r, scale * tl.sum(total, 0))


@triton.jit
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
