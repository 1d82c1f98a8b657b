"""Cross-entropy and accuracy in Triton: losses and their gradient in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nfcgcn.kernels.gpu.launch import Program
from nfcgcn.kernels.gpu.product import add_up

TILE = 2048


@Program
def _cross_entropy(
    scores, nodes, labels, losses, hits, grad, num_nodes, num_picked, num_classes,
    GRAD: tl.constexpr, NODES: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    part, run = tl.program_id(0), tl.program_id(1).to(tl.int64)
    t = part * NODES + tl.arange(0, NODES)
    inside = t < num_picked
    node = tl.load(nodes + run * num_picked + t, mask=inside, other=0)
    label = tl.load(labels + run * num_picked + t, mask=inside, other=0)
    c = tl.arange(0, CLASSES)
    at = (run * num_nodes + node[:, None]) * num_classes + c[None]
    there = inside[:, None] & (c < num_classes)[None]
    score = tl.load(scores + at, mask=there, other=-float("inf"))
    score = tl.where(inside[:, None], score, tl.where(c[None] == 0, 0.0, -float("inf")))
    own = c[None] == label[:, None]
    highest = tl.max(score, 1)
    e = tl.exp(score - highest[:, None])
    norm = tl.sum(e, 1)
    loss = tl.log(norm) + highest - tl.sum(tl.where(own, score, 0.0), 1)
    first = tl.min(tl.where(score == highest[:, None], c[None], CLASSES), 1)
    tl.store(losses + part * tl.num_programs(1) + run, tl.sum(tl.where(inside, loss, 0.0), 0))
    tl.store(hits + part * tl.num_programs(1) + run, tl.sum((inside & (first == label)).to(tl.float32), 0))
    if GRAD:
        tl.store(grad + at, (e / norm[:, None] - tl.where(own, 1.0, 0.0)) / num_picked, mask=there)


def cross_entropy(scores: Tensor, nodes: Tensor, labels: Tensor, *, grad: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """See the reference; the gradient is None if it is not requested."""
    scores = scores.detach().contiguous()
    runs, num_nodes, num_classes = scores.shape
    classes = int(triton.next_power_of_2(num_classes))
    per_program = max(1, TILE // classes)
    parts = triton.cdiv(nodes.shape[1], per_program)
    losses, hits = scores.new_empty(2, parts, runs)
    out = torch.zeros_like(scores) if grad else None
    _cross_entropy[(parts, runs)](
        scores, nodes, labels, losses, hits, out if grad else scores, num_nodes, nodes.shape[1], num_classes,
        GRAD=grad, NODES=per_program, CLASSES=classes,
    )  # fmt: skip
    return add_up(losses) / nodes.shape[1], add_up(hits).double() / nodes.shape[1], out
