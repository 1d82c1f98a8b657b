"""With an activation: convolutions that walk along what is left of each node's map, one window at a time."""

from __future__ import annotations

from functools import partial

import triton
import triton.language as tl

from nfcgcn.kernels.gpu.launch import Program
from nfcgcn.kernels.gpu.product import dot
from nfcgcn.kernels.gpu.programs.maps import number_of, value_of

UNROLL = tl.constexpr(4)
"""Steps of a walk that are in flight at the same time, because each waits for memory."""


@triton.jit
def _convolved(
    kept_cells, first, last, filters_of_run, step, place, filters, size, stride,
    WIDTH: tl.constexpr, BANDWIDTH: tl.constexpr, NODES: tl.constexpr, FILTERS: tl.constexpr,
):  # fmt: skip
    """Return the convolution of some nodes at one step and place, ``[NODES, FILTERS]``.

    Each node walks through what is left of its map inside the window, which stands in a row.
    """
    f = tl.arange(0, FILTERS)
    total = tl.zeros([NODES, FILTERS], tl.float32)
    for walked in tl.range(0, tl.max(last - first, 0), loop_unroll_factor=UNROLL):
        e = first + walked
        stays = e < last
        cell = tl.load(kept_cells + e, mask=stays, other=0)
        offset = number_of(cell) - (step * size + place * stride)
        if WIDTH < BANDWIDTH:
            stays = stays & (offset >= 0) & (offset < WIDTH * size)
        at = (offset * filters)[:, None] + f[None]
        part = tl.load(filters_of_run + at, mask=stays[:, None] & (f < filters)[None], other=0.0)
        total += value_of(cell)[:, None] * part
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


@Program
def convolve(
    kept_cells, begins, ends, runs, out, num_nodes, filters, size, stride, places,
    BANDWIDTH: tl.constexpr, WIDTH: tl.constexpr, NODES: tl.constexpr, FILTERS: tl.constexpr,
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
            kept_cells, first, last, weight, step, place, filters, size, stride, WIDTH, BANDWIDTH, NODES, FILTERS,
        )  # fmt: skip
    at = (((run * num_nodes + node[:, None]) * steps + step) * places + place) * filters + f[None]
    tl.store(out + at, h, mask=inside[:, None] & (f < filters)[None])


@partial(Program, sizes=("per_program",))
def project(
    kept_cells, begins, ends, runs, matrix, out, num_nodes, filters, size, stride, places, hidden, per_program,
    MODE: tl.constexpr, ACTIVATION: tl.constexpr, BANDWIDTH: tl.constexpr, WIDTH: tl.constexpr,
    NODES: tl.constexpr, FILTERS: tl.constexpr, HIDDEN: tl.constexpr,
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
            kept_cells, first, last, weight, step, place, filters, size, stride, WIDTH, BANDWIDTH, NODES, FILTERS,
        )  # fmt: skip
        right = tl.load(
            matrix + (((run * steps + step) * filters + f[:, None]) * places + place) * hidden + k[None],
            mask=(f < filters)[:, None] & (k < hidden)[None],
            other=0.0,
        )
        total = dot(_activated(h, ACTIVATION), right, total, MODE)
    at = ((part * tl.num_programs(2) + run) * num_nodes + node[:, None]) * hidden + k[None]
    tl.store(out + at, total, mask=inside[:, None] & (k < hidden)[None])


@partial(Program, sizes=("chunk_start", "chunk_size", "per_program"))
def project_backward(
    kept_cells, begins, ends, runs, matrix, grad, grad_conv, grad_matrix, chunk_start, chunk_size, num_nodes,
    filters, size, stride, places, hidden, per_program,
    MODE: tl.constexpr, ACTIVATION: tl.constexpr, BANDWIDTH: tl.constexpr, WIDTH: tl.constexpr,
    NODES: tl.constexpr, FILTERS: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Go back through matrix and activation for some nodes, at one step and one place of a chunk of places.

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
            kept_cells, first, last, weight, step, place, filters, size, stride, WIDTH, BANDWIDTH, NODES, FILTERS,
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
