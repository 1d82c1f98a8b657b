"""Attention over the neighbours in Numba, without one row of channels per edge.

Rows are laid out by channel, ``[channels, heads]``, so that a vector holds the heads, whose weights differ, and no sum
runs across one. Forward goes by target and keeps the softmax's weights; backward goes by source, where an edge needs
one other row, its target's gradient. Every row is written by one task, so that bits do not depend on the threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import uint32
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.cpu.compiler import compiled, inlined, take
from nfcgcn.kernels.cpu.masks import kept_bits, key_of
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.cpu.product import add_up
from nfcgcn.kernels.cpu.vectors import add_inner, add_weighted
from nfcgcn.kernels.reference.attention import SLOPE, Edges
from nfcgcn.kernels.reference.masks import WORD, threshold

TASKS = 64
"""Pieces that nodes are divided into, also for sums over all nodes; independent of the number of threads."""
EXPONENTIAL = 4
"""Nanoseconds that an edge needs per head beside its channels, for the exponential and the mask."""


def attention(
    h: Tensor, source: Tensor, target: Tensor, edges: Edges, *, dropout: float = 0.0, seed: int = 0
) -> Tensor:
    """See the reference; a weight is dropped where the hash mask ``[E, heads]`` of this seed says so."""
    return _Attention.apply(h, source, target, edges, dropout, seed)  # type: ignore[no-untyped-call,no-any-return]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, source: Tensor, target: Tensor, edges: Edges, dropout: float, seed: int) -> Tensor:
        heads = len(source)
        rows, out = _by_channel(h, heads), torch.empty_like(h, memory_format=torch.contiguous_format)
        a, b = (vectors.mT.flatten().contiguous() for vectors in (source, target))
        scores, weights = h.new_empty(2, len(h), heads), h.new_empty(len(edges.from_source.order), heads)
        arrays = tuple(t.detach().numpy() for t in (rows, scores, weights, out))
        dtype = arrays[0].dtype.type
        ctx.mask = (np.uint32(threshold(dropout)), dtype(1 / (1 - dropout)), np.uint64(seed))
        ctx.slope, ctx.edges = dtype(SLOPE), edges
        run(_score, 0.5 * rows.numel(), arrays[0], a.detach().numpy(), b.detach().numpy(), arrays[1])
        cost = len(weights) * (0.2 * rows.shape[1] + EXPONENTIAL * heads)
        run(_forward, cost, edges.starts.numpy(), _sources(edges), *ctx.mask, ctx.slope, *arrays)
        ctx.save_for_backward(rows, a, b, scores, weights, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        rows, a, b, scores, weights, out = (t.detach() for t in ctx.saved_tensors)
        edges, heads = ctx.edges, weights.shape[1]
        slopes, pull, grad_h = torch.empty_like(weights), torch.empty_like(rows), torch.empty_like(out)
        grad_scores, grad_vectors = torch.empty_like(scores), rows.new_empty(TASKS, 2, len(a))
        by_source = edges.from_source.transpose
        arrays = [grad.contiguous(), out, pull, grad_scores]
        run(_pull, rows.numel(), *(t.numpy() for t in arrays))
        arrays = [by_source.crow_indices(), by_source.col_indices(), _targets(edges)]
        more = [rows, scores, weights, pull, slopes, grad_scores, grad_h]
        cost = len(weights) * (0.4 * rows.shape[1] + EXPONENTIAL * heads)
        run(_backward, cost, *(t.numpy() for t in arrays), *ctx.mask, ctx.slope, *(t.numpy() for t in more))
        arrays = [edges.starts, rows, a, b, slopes, grad_scores, grad_h, grad_vectors]
        run(_score_backward, 2 * rows.numel(), *(t.numpy() for t in arrays))
        grad_source, grad_target = add_up(grad_vectors).view(2, -1, heads).mT
        return grad_h, grad_source, grad_target, None, None, None


def _by_channel(rows: Tensor, heads: int) -> Tensor:
    """Arrange rows ``[heads, channels]`` as ``[channels, heads]``."""
    return rows.view(len(rows), heads, -1).mT.flatten(1).contiguous()


def _sources(edges: Edges) -> Any:
    return edges.from_source.matrix.col_indices().numpy()


def _targets(edges: Edges) -> Tensor:
    return edges.from_target.matrix.col_indices()


@inlined
def _factors(seed: Any, edge: Any, below: Any, scale: Any, out: Any) -> None:
    """Write the mask of one edge."""
    key, heads = key_of(seed, edge), len(out)
    for first in range(0, heads, WORD):
        bits = kept_bits(key, first, heads - first, below)
        for head in range(first, min(first + WORD, heads)):
            out[head] = scale if bits >> uint32(head - first) & uint32(1) else 0


@compiled
def _score(turn: Any, rows: Any, a: Any, b: Any, scores: Any) -> None:
    """Write ``scores [2, N, heads]``, of each node as a source and as a target."""
    (num_nodes, width), heads = rows.shape, scores.shape[2]
    task = take(turn)
    while task < TASKS:
        for node in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            scores[:, node] = 0
            add_inner(scores, node * heads, rows, node * width, a, 0, width // heads, heads)
            add_inner(scores, (num_nodes + node) * heads, rows, node * width, b, 0, width // heads, heads)
        task = take(turn)


@compiled
def _forward(
    turn: Any, starts: Any, sources: Any, below: Any, scale: Any, seed: Any, slope: Any, rows: Any, scores: Any,
    weights: Any, out: Any,
) -> None:  # fmt: skip
    """Write the softmax of the scores, and what it averages."""
    num_nodes, width = rows.shape
    heads = weights.shape[1]
    channels = width // heads
    largest, total, factors = np.empty(heads, rows.dtype), np.empty(heads, rows.dtype), np.empty(heads, rows.dtype)
    sums = np.empty(width, rows.dtype)
    task = take(turn)
    while task < TASKS:
        for node in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            start, stop = starts[node], starts[node + 1]
            largest[:] = -np.inf
            total[:] = 0
            sums[:] = 0
            for edge in range(start, stop):
                for head in range(heads):
                    score = scores[0, sources[edge], head] + scores[1, node, head]
                    score = score if score > 0 else score * slope
                    weights[edge, head] = score
                    largest[head] = max(largest[head], score)
            for edge in range(start, stop):
                _factors(seed, edge, below, scale, factors)
                for head in range(heads):
                    weight = np.exp(weights[edge, head] - largest[head])
                    weights[edge, head] = weight
                    total[head] += weight
                    factors[head] *= weight
                add_weighted(sums, 0, factors, 0, rows, sources[edge] * width, channels, heads)
            for head in range(heads):
                for channel in range(channels):
                    out[node, head * channels + channel] = sums[channel * heads + head] / total[head]
            for edge in range(start, stop):
                for head in range(heads):
                    weights[edge, head] /= total[head]
        task = take(turn)


@compiled
def _pull(turn: Any, grad_out: Any, out: Any, pull: Any, grad_scores: Any) -> None:
    r"""Write the gradient of ``out`` by channel to ``pull``, and what a softmax's gradient takes off.

    That is :math:`\sum_j \alpha_{ij} \partial / \partial \alpha_{ij}`, for each edge of a node the same: what the
    node's gradient and value give multiplied.
    """
    (num_nodes, width), heads = out.shape, grad_scores.shape[2]
    channels = width // heads
    task = take(turn)
    while task < TASKS:
        for node in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            for head in range(heads):
                grad_scores[1, node, head] = 0
                for channel in range(channels):
                    grad = grad_out[node, head * channels + channel]
                    grad_scores[1, node, head] += grad * out[node, head * channels + channel]
                    pull[node, channel * heads + head] = grad
        task = take(turn)


@compiled
def _backward(
    turn: Any, source_starts: Any, source_edges: Any, targets: Any, below: Any, scale: Any, seed: Any, slope: Any,
    rows: Any, scores: Any, weights: Any, pull: Any, slopes: Any, grad_scores: Any, grad_h: Any,
) -> None:  # fmt: skip
    """Write the gradient of h through the average, of each edge's score to ``slopes``, and of a node's as a source."""
    num_nodes, width = rows.shape
    heads = weights.shape[1]
    channels = width // heads
    factors, inner = np.empty(heads, rows.dtype), np.empty(heads, rows.dtype)
    sums = np.empty(width, rows.dtype)
    task = take(turn)
    while task < TASKS:
        for node in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            grad_scores[0, node] = 0
            sums[:] = 0
            for place in range(source_starts[node], source_starts[node + 1]):
                edge = source_edges[place]
                to = targets[edge]
                _factors(seed, edge, below, scale, factors)
                inner[:] = 0
                add_inner(inner, 0, pull, to * width, rows, node * width, channels, heads)
                for head in range(heads):
                    weight = weights[edge, head]
                    grad = weight * (factors[head] * inner[head] - grad_scores[1, to, head])
                    score = scores[0, node, head] + scores[1, to, head]
                    grad = grad if score > 0 else grad * slope
                    slopes[edge, head] = grad
                    grad_scores[0, node, head] += grad
                    factors[head] *= weight
                add_weighted(sums, 0, factors, 0, pull, to * width, channels, heads)
            for head in range(heads):
                for channel in range(channels):
                    grad_h[node, head * channels + channel] = sums[channel * heads + head]
        task = take(turn)


@compiled
def _score_backward(
    turn: Any, starts: Any, rows: Any, a: Any, b: Any, slopes: Any, grad_scores: Any, grad_h: Any, grad_vectors: Any
) -> None:
    """Add the gradient of h through the scores, and write that of the two vectors, one part per task."""
    num_nodes, width = rows.shape
    heads = slopes.shape[1]
    channels = width // heads
    task = take(turn)
    while task < TASKS:
        grad_vectors[task] = 0
        for node in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            grad_scores[1, node] = 0
            for edge in range(starts[node], starts[node + 1]):
                for head in range(heads):
                    grad_scores[1, node, head] += slopes[edge, head]
            for head in range(heads):
                for channel in range(channels):
                    here = channel * heads + head
                    change = grad_scores[0, node, head] * a[here] + grad_scores[1, node, head] * b[here]
                    grad_h[node, head * channels + channel] += change
            for end in range(2):
                at, to = (end * num_nodes + node) * heads, (task * 2 + end) * width
                add_weighted(grad_vectors, to, grad_scores, at, rows, node * width, channels, heads)
        task = take(turn)
