"""The neighbour table: which nodes stand side by side in each node's feature map."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from nfcgcn.errors import ConfigError
from nfcgcn.graph import Floats, Graph, Ints
from nfcgcn.kernels import Backend, triton_refusal
from nfcgcn.kernels.neighbour_draw import draw

SlotOrder = Literal["random", "similarity"]


def draw_neighbours(
    starts: Ints, neighbours: Ints, *, bandwidth: int, rng: np.random.Generator, backend: Backend = "auto"
) -> Ints:
    """Draw the table ``[N, n]`` for an adjacency in CSR form (``starts [N + 1]``, ``neighbours [E]``).

    Slot 0 holds the node itself, the next ones ``n - 1`` distinct neighbours, drawn uniformly and in random order. A
    node with fewer neighbours has all of them, and copies of itself in the slots left over.

    Cost: O(N n^2), whatever the degrees.
    """
    if bandwidth < 1:
        raise ConfigError(f"`bandwidth` must be at least 1, got {bandwidth}; it counts the node itself")
    num_nodes = len(starts) - 1
    table = np.repeat(np.arange(num_nodes)[:, None], bandwidth, axis=1)
    most = min(bandwidth - 1, int(np.diff(starts).max(initial=0)))
    table[:, : most + 1] = draw(starts, neighbours, rng.random((most, num_nodes)), backend=backend)
    return table


def draw_table(starts: Tensor, neighbours: Tensor, *, bandwidth: int, rng: np.random.Generator) -> Tensor:
    """Draw the table of :func:`draw_neighbours` where the adjacency lies; the same one on every device."""
    if not starts.is_cuda or triton_refusal():
        lists = (t.cpu().numpy() for t in (starts, neighbours))
        return torch.from_numpy(draw_neighbours(*lists, bandwidth=bandwidth, rng=rng)).to(starts.device)
    from nfcgcn.kernels.neighbour_draw import gpu

    most = min(bandwidth - 1, int(starts.diff().max()) if len(starts) > 1 else 0)
    uniforms = torch.from_numpy(rng.random((most, len(starts) - 1))).to(starts.device)
    return gpu.draw(starts, neighbours, uniforms, bandwidth=bandwidth)


def draw_lists(
    starts: Ints, neighbours: Ints, nodes: Ints, *, size: int, rng: np.random.Generator, backend: Backend = "auto"
) -> tuple[Ints, Ints]:
    """Draw at most ``size`` distinct neighbours of each of `nodes`, uniformly and in random order.

    Takes an adjacency in CSR form and returns what was drawn in the same form, a row a node of `nodes`.
    """
    degrees = starts[nodes + 1] - starts[nodes]
    local = np.concatenate([[0], degrees.cumsum()])
    theirs = neighbours[np.arange(local[-1]) + np.repeat(starts[nodes] - local[:-1], degrees)]
    most = min(size, int(degrees.max(initial=0)))
    table = draw(local, theirs, rng.random((most, len(nodes))), backend=backend)[:, 1:]
    counts = np.minimum(degrees, size)
    return np.concatenate([[0], counts.cumsum()]), table[np.arange(most) < counts[:, None]]


def sample_neighbours(
    graph: Graph, *, bandwidth: int, rng: np.random.Generator, slot_order: SlotOrder = "random"
) -> Ints:
    """Draw the neighbour table of a graph; see :func:`draw_neighbours`.

    ``slot_order="similarity"`` puts the drawn neighbours in order of falling cosine similarity to the node.
    """
    a = graph.adjacency
    table = draw_neighbours(a.indptr.astype(np.int64), a.indices.astype(np.int64), bandwidth=bandwidth, rng=rng)
    return order_by_similarity(table, graph.features) if slot_order == "similarity" else table


def order_by_similarity(table: Ints, features: sp.csr_array | Floats) -> Ints:
    """Sort each row's drawn neighbours by falling cosine similarity to slot 0; copies of the node stay last."""
    unit = _normalised(features)
    similarity = np.full(table.shape, -np.inf)
    similarity[:, 0] = np.inf
    for slot in range(1, table.shape[1]):
        drawn = np.flatnonzero(table[:, slot] != table[:, 0])
        product = unit[drawn] * unit[table[drawn, slot]]
        similarity[drawn, slot] = product.sum(axis=1)
    return np.take_along_axis(table, np.argsort(-similarity, axis=1, kind="stable"), axis=1)


def _normalised(features: sp.csr_array | Floats) -> sp.csr_array | Floats:
    if isinstance(features, np.ndarray):
        norms = np.linalg.norm(features, axis=1, keepdims=True)
        return np.asarray(features / np.where(norms > 0, norms, 1), dtype=np.float32)
    norms = np.sqrt(features.multiply(features).sum(axis=1))
    return sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ features)
