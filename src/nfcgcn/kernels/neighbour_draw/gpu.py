"""The neighbour draw in Triton: the reference's steps, some nodes at a time; the same table to the bit."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

NODES = 128


@triton.jit
def _position(uniforms, node, has, degree, step, num_nodes):
    """Return which position a step draws from those not yet passed."""
    uniform = tl.load(uniforms + step * num_nodes + node, mask=has, other=0.0)
    return step + (uniform * (degree - step).to(tl.float64)).to(tl.int64)


@triton.jit
def _draw(starts, neighbours, uniforms, table, num_nodes, bandwidth, NODES: tl.constexpr):
    node = tl.program_id(0).to(tl.int64) * NODES + tl.arange(0, NODES)
    inside = node < num_nodes
    first = tl.load(starts + node, mask=inside, other=0)
    degree = tl.load(starts + node + 1, mask=inside, other=0) - first
    tl.store(table + node * bandwidth, node, mask=inside)
    for step in range(0, bandwidth - 1):
        has = degree > step
        position = _position(uniforms, node, has, degree, step, num_nodes)
        for back in range(1, step + 1):
            earlier = step - back
            drawn = _position(uniforms, node, has, degree, earlier, num_nodes)
            position = tl.where(position == drawn, earlier, position)
        found = tl.load(neighbours + first + position, mask=has, other=0)
        tl.store(table + node * bandwidth + step + 1, tl.where(has, found, node), mask=inside)


def draw(starts: Tensor, neighbours: Tensor, uniforms: Tensor, *, bandwidth: int) -> Tensor:
    """See the reference; the table has ``bandwidth`` slots, of which those without a uniform hold the node itself."""
    num_nodes = len(starts) - 1
    table = torch.empty(num_nodes, bandwidth, dtype=torch.int64, device=starts.device)
    if num_nodes:
        _draw[(triton.cdiv(num_nodes, NODES),)](
            starts, neighbours, uniforms, table, num_nodes, bandwidth, NODES=NODES, num_warps=4
        )
    return table
