"""The neighbour draw in Triton: the formula's steps, some nodes at a time; the table is the same."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nfcgcn.kernels.gpu.masks import key_of, number

NODES = 128


@triton.jit
def _position(key, degree, step):
    """Return which position a step draws from those not yet passed."""
    return step + ((number(key, step).to(tl.int64) * (degree - step)) >> 32)


@triton.jit
def _draw(starts, neighbours, seeds, table, num_nodes, size, NODES: tl.constexpr):
    node = tl.program_id(0).to(tl.int64) * NODES + tl.arange(0, NODES)
    inside = node < num_nodes
    first = tl.load(starts + node, mask=inside, other=0)
    degree = tl.load(starts + node + 1, mask=inside, other=0) - first
    key = key_of(tl.load(seeds), node)
    tl.store(table + node * (size + 1), node, mask=inside)
    for step in range(0, size):
        has = degree > step
        now = tl.full([NODES], step, tl.int64)
        position = _position(key, degree, now)
        for back in range(1, step + 1):
            earlier = now - back
            position = tl.where(position == _position(key, degree, earlier), earlier, position)
        drawn = tl.load(neighbours + first + position, mask=has, other=0)
        tl.store(table + node * (size + 1) + step + 1, tl.where(has, drawn, node), mask=inside)


def draw_rows(starts: Tensor, neighbours: Tensor, *, size: int, seed: int) -> Tensor:
    """See the formula."""
    num_nodes = len(starts) - 1
    table = torch.empty(num_nodes, size + 1, dtype=torch.int64, device=starts.device)
    seeds = torch.tensor([seed], device=starts.device)
    if num_nodes:
        _draw[(triton.cdiv(num_nodes, NODES),)](
            starts, neighbours, seeds, table, num_nodes, size, NODES=NODES, num_warps=4
        )
    return table
