"""The neighbour table: which nodes are side by side in each node's feature map."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Edges, Floats, Graph, Ints, edge_parts
from nfcgcn.method.acceleration import accelerated, remembered
from nfcgcn.method.features import moderate
from nfcgcn.randomness import hash_seed, hashed

SlotOrder = Literal["random", "similarity", "degree", "pagerank"]
NeighbourDraw = Literal["uniform", "degree", "similarity", "importance"]
LEAST = 0.01
"""Of a draw by similarity: the weight of a neighbour that is not similar at all."""
DAMPING, ROUNDS = 0.85, 100
"""Of PageRank: the share of a node's rank that goes to its neighbours, and how often it does."""
MOST_PAIRS = 2**15
"""Pairs of nodes whose similarity is computed at a time."""


def neighbour_table(
    edges: Edges,
    num_nodes: int,
    *,
    bandwidth: int,
    seed: int,
    draw: int = 0,
    device: torch.device | None = None,
    by: NeighbourDraw = "uniform",
    x: Tensor | None = None,
) -> Tensor:
    r"""Draw :math:`\mathcal{N}'_i` of every node: the table ``[N, n]``.

    Slot 0 holds the node itself; the other slots hold ``n - 1`` distinct neighbours, drawn uniformly and in random
    order. A node with fewer neighbours gets all of them, and copies of itself in the remaining slots. Of edges with
    weights, each slot in turn gets one of the neighbours that are left, with a probability proportional to its weight.

    With another `by` than "uniform", the probability is also proportional to what :func:`draw_weights` gives an edge;
    "similarity" needs the features ``x``.

    A row depends only on the seed, the node, its own neighbours and the number of the draw: adding or removing nodes
    and edges elsewhere changes no row.
    """
    if bandwidth < 1:
        raise ConfigError(f"`bandwidth` must be at least 1, got {bandwidth}; it counts the node itself")
    edge_index, weight = edge_parts(edges)
    device = device or edge_index.device
    if by == "uniform":
        return _table(edge_index, weight, num_nodes, bandwidth, seed, draw, device)
    return _preferred_table(edge_index, weight, num_nodes, bandwidth, seed, draw, device, by, x)


@remembered
def _table(
    edge_index: Tensor,
    weight: Tensor | None,
    num_nodes: int,
    bandwidth: int,
    seed: int,
    draw: int,
    device: torch.device,
) -> Tensor:
    if weight is not None:
        lists = weighted_lists(edge_index, weight, num_nodes)
        return draw_weighted_rows(*lists, size=bandwidth - 1, seed=draw_seed(seed, draw)).to(device)
    starts, neighbours = adjacency_lists(edge_index, num_nodes, device)
    return draw_rows(starts, neighbours, size=bandwidth - 1, seed=draw_seed(seed, draw))


@remembered
def _preferred_table(
    edge_index: Tensor,
    weight: Tensor | None,
    num_nodes: int,
    bandwidth: int,
    seed: int,
    draw: int,
    device: torch.device,
    by: NeighbourDraw,
    x: Tensor | None,
) -> Tensor:
    starts, neighbours = (part.numpy() for part in adjacency_lists(edge_index, num_nodes))
    if by != "similarity":
        weights = draw_weights(starts, neighbours, by)
    elif x is not None:
        weights = _edge_similarity(x, edge_index)
    else:
        raise GraphError("a draw by similarity needs the features `x`")
    if weight is not None:
        weights = weights * weighted_lists(edge_index, weight, num_nodes)[2]
    return draw_weighted_rows(starts, neighbours, weights, size=bandwidth - 1, seed=draw_seed(seed, draw)).to(device)


def draw_weights(starts: Ints, neighbours: Ints, by: NeighbourDraw) -> Floats:
    r"""Return what a neighbour's probability is proportional to, one number per entry of the adjacency lists.

    Not the paper's, which draws uniformly. "degree": the neighbour's degree. "importance": what FastGCN draws nodes by
    (Chen, Ma and Xiao, ICLR 2018), :math:`q(u) \propto \lVert \hat A_{:,u} \rVert^2`, the squared length of the
    neighbour's column of the normalised adjacency. It follows from the degrees; nothing in it is learned.
    """
    degrees = np.diff(starts).astype(np.float64)
    if by == "degree":
        return np.asarray(np.maximum(degrees, 1)[neighbours])  # 0 where edges have one direction only
    own = 1 / (degrees + 1)
    around = np.bincount(np.repeat(np.arange(len(degrees)), np.diff(starts)), own[neighbours], minlength=len(degrees))
    return np.asarray((own * (own + around))[neighbours])


@remembered
def _edge_similarity(x: Tensor, edge_index: Tensor) -> Floats:
    """Return, per entry of the adjacency lists, the cosine similarity of both nodes, at least `LEAST`."""
    starts, neighbours = adjacency_lists(edge_index, x.shape[0])
    return np.asarray(np.maximum(_pair_similarity(x, starts, neighbours), 0) + LEAST)


def draw_seed(seed: int, draw: int) -> int:
    """Return the number from which this draw of a seed is hashed."""
    return hash_seed(seed, "neighbours", draw)


def next_draw() -> int:
    """Return the number of a draw that is made again for every step; draw 0 is that of evaluation."""
    return int(torch.randint(1, 2**62, ()))


@accelerated
def draw_rows(starts: Tensor, neighbours: Tensor, *, size: int, seed: int, nodes: Tensor | None = None) -> Tensor:
    """Return each node and `size` of its neighbours, ``[N, size + 1]``, of CSR lists ``starts`` and ``neighbours``.

    ``nodes`` says whose lists these are if they are not those of all nodes in order.

    These are the first steps of a Fisher-Yates shuffle, on positions only: step t swaps position t with a position
    drawn from t on; what that position holds by then follows from the earlier draws.
    """
    degrees = starts.diff()
    nodes = torch.arange(len(degrees), device=starts.device) if nodes is None else nodes
    table = nodes[:, None].repeat(1, size + 1)
    draws: list[Tensor] = []
    for step in range(min(size, int(degrees.max()) if len(degrees) else 0)):
        number = hashed(seed, nodes, torch.tensor(step, device=starts.device))
        drawn = step + (number * (degrees - step) >> 32)
        position = drawn
        for earlier in reversed(range(step)):
            position = torch.where(position == draws[earlier], earlier, position)
        draws.append(drawn)
        left = degrees > step
        table[left, step + 1] = neighbours[(starts[:-1] + position)[left]]
    return table


def draw_weighted_rows(
    starts: Ints, neighbours: Ints, weights: Floats, *, size: int, seed: int, nodes: Ints | None = None
) -> Tensor:
    """Return each node and `size` of its neighbours, drawn in proportion to their weights: ``[N, size + 1]``.

    ``nodes`` says whose lists these are if they are not those of all nodes in order.

    Every neighbour waits for a time that is exponentially distributed with its weight as the rate; those that come
    first are drawn, in this order. That is the same as drawing one after the other from those that are left (Efraimidis
    and Spirakis, "Weighted random sampling with a reservoir", 2006).

    Cost: one sort of all edges.
    """
    degrees = np.diff(starts)
    names = np.arange(len(degrees)) if nodes is None else nodes
    rows = np.repeat(np.arange(len(degrees)), degrees)
    places = np.arange(len(rows)) - starts[rows]
    numbers = hashed(seed, torch.from_numpy(names[rows]), torch.from_numpy(places)).numpy()
    waiting = -np.log((numbers + 0.5) / 2**32) / weights
    order = np.lexsort((waiting, rows))
    first = places < size
    table = np.repeat(names[:, None], size + 1, axis=1)
    table[rows[first], places[first] + 1] = neighbours[order[first]]
    return torch.from_numpy(table)


@remembered
def weighted_lists(edge_index: Tensor, weight: Tensor, num_nodes: int) -> tuple[Ints, Ints, Floats]:
    """List the distinct neighbours of each node, itself excluded, as CSR: starts, neighbours and their weights."""
    check_range(edge_index, num_nodes)
    source, target = edge_index.cpu().numpy()
    keep = source != target
    values = weight.cpu().numpy()[keep].astype(np.float64)
    matrix = sp.csr_array((values, (target[keep], source[keep])), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data


@remembered
def adjacency_lists(edge_index: Tensor, num_nodes: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """List the distinct neighbours of each node, itself excluded, as CSR ``starts`` and ``neighbours``."""
    if torch.device(device).type != "cpu":
        starts, neighbours = adjacency_lists(edge_index, num_nodes)
        return starts.to(device), neighbours.to(device)
    check_range(edge_index, num_nodes)
    source, target = edge_index.cpu().numpy()
    keep = source != target
    matrix = sp.csr_array((np.ones(keep.sum(), np.int8), (target[keep], source[keep])), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()
    starts, neighbours = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    return starts, neighbours


def check_range(edge_index: Tensor, num_nodes: int) -> None:
    """Raise an error for edges that name nodes without a row of features."""
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise GraphError(f"`edge_index` names a node outside 0 to {num_nodes - 1}; does it belong to these features?")


def sample_neighbours(
    graph: Graph,
    *,
    bandwidth: int,
    seed: int = 0,
    draw: int = 0,
    slot_order: SlotOrder = "random",
    neighbour_draw: NeighbourDraw = "uniform",
) -> Ints:
    """Draw the neighbour table ``[N, bandwidth]`` of a graph, as a model with this `seed` does.

    Slot 0 holds the node, the others distinct neighbours or copies of the node; each `draw` gives other neighbours.
    ``slot_order`` sorts the drawn neighbours, largest first: by cosine similarity to the node, degree or PageRank.
    ``neighbour_draw`` says which neighbours are drawn more often than others.

    >>> graph = Graph.from_edges([[0, 0, 0], [1, 2, 3]], np.eye(4))
    >>> table = sample_neighbours(graph, bandwidth=3)
    >>> table.shape, table[1].tolist()  # node 1 has one neighbour
    ((4, 3), [1, 0, 1])
    """
    table = neighbour_table(
        graph.edges, graph.num_nodes, bandwidth=bandwidth, seed=seed, draw=draw, by=neighbour_draw, x=graph.x
    )
    ordered = order_slots(graph.x, table, graph.edges, slot_order)
    copy: Ints = ordered.numpy().copy()  # of what is remembered
    return copy


def order_slots(x: Tensor, table: Tensor, edges: Edges, order: SlotOrder) -> Tensor:
    """Sort each row's drawn neighbours; the node stays first, and copies of it stay last."""
    if order == "random":
        return table
    if order == "similarity":
        return order_by_similarity(x, table)
    return _order_by_score(table, node_scores(edge_parts(edges)[0], x.shape[0], order))


@remembered
def node_scores(edge_index: Tensor, num_nodes: int, order: SlotOrder) -> Tensor:
    r"""Return by what nodes are sorted, ``[N]``: their degree, or their PageRank.

    .. math:: r = 1 + 0.85 \, A D^{-1} r

    (Page et al., 1998, without the division by the number of nodes, so that nodes of other components change nothing).
    To sort a neighbourhood by such a rank and convolve it is the idea of PATCHY-SAN (Niepert, Ahmed and Kutzkov,
    "Learning Convolutional Neural Networks for Graphs", ICML 2016).
    """
    starts, neighbours = adjacency_lists(edge_index, num_nodes)
    degrees = starts.diff().double().numpy()
    if order == "degree":
        return torch.from_numpy(degrees)
    shares = DAMPING / np.maximum(degrees, 1)
    matrix = sp.csr_array((shares[neighbours.numpy()], neighbours.numpy(), starts.numpy()), shape=(num_nodes,) * 2)
    rank = np.ones(num_nodes)
    for _ in range(ROUNDS):
        rank = 1 + matrix @ rank
    return torch.from_numpy(rank)


@remembered
def _order_by_score(table: Tensor, scores: Tensor) -> Tensor:
    slots = table.cpu().numpy()
    drawn = scores.numpy()[slots]
    drawn[slots == slots[:, :1]] = -np.inf
    drawn[:, 0] = np.inf
    ordered = np.take_along_axis(slots, np.argsort(-drawn, axis=1, kind="stable"), axis=1)
    return torch.from_numpy(ordered).to(table.device)


@remembered
def order_by_similarity(x: Tensor, table: Tensor) -> Tensor:
    """Sort each row's drawn neighbours by cosine similarity to slot 0, largest first; copies of the node stay last."""
    unit, slots = _unit_rows(x.detach().cpu()), table.cpu().numpy()
    similarity = np.full(slots.shape, -np.inf)
    similarity[:, 0] = np.inf
    for slot in range(1, slots.shape[1]):
        drawn = np.flatnonzero(slots[:, slot] != slots[:, 0])
        similarity[drawn, slot] = _similarity(unit, drawn, slots[drawn, slot])
    ordered = np.take_along_axis(slots, np.argsort(-similarity, axis=1, kind="stable"), axis=1)
    return torch.from_numpy(ordered).to(table.device)


def rank_by_similarity(x: Tensor, starts: Tensor, neighbours: Tensor) -> Tensor:
    """Rank each node's neighbours, in adjacency lists, by their similarity to it: 1 is the largest, equals are equal.

    A row of a table, sorted by these ranks, is what :func:`order_by_similarity` makes of it.
    """
    degrees = starts.diff().cpu().numpy()
    nodes = np.repeat(np.arange(len(degrees)), degrees)
    similarity = _pair_similarity(x, starts, neighbours)
    return torch.from_numpy(_ranks(similarity, nodes, degrees)).to(neighbours.device)


def _pair_similarity(x: Tensor, starts: Tensor, neighbours: Tensor) -> Floats:
    """Return the similarity of each node to each of its neighbours, in adjacency lists."""
    unit, others = _unit_rows(x.detach().cpu()), neighbours.cpu().numpy()
    degrees = starts.diff().cpu().numpy()
    nodes = np.repeat(np.arange(len(degrees)), degrees)
    parts = range(0, len(nodes), MOST_PAIRS)
    pairs = ((nodes[i : i + MOST_PAIRS], others[i : i + MOST_PAIRS]) for i in parts)
    return np.concatenate([np.empty(0), *(_similarity(unit, *pair) for pair in pairs)])


def rank_by_score(scores: Tensor, starts: Tensor, neighbours: Tensor) -> Tensor:
    """Rank each node's neighbours by a number of their own, as :func:`rank_by_similarity` does."""
    degrees = starts.diff().cpu().numpy()
    nodes = np.repeat(np.arange(len(degrees)), degrees)
    return torch.from_numpy(_ranks(scores.numpy()[neighbours.cpu().numpy()], nodes, degrees)).to(neighbours.device)


def _ranks(values: Any, nodes: Ints, degrees: Ints) -> Ints:
    order = np.lexsort((-values, nodes))
    lower = (np.diff(values[order], prepend=0) != 0) | (np.diff(nodes[order], prepend=-1) != 0)
    rank = lower.cumsum()
    ranks = np.empty(len(nodes), np.int64)
    before = np.concatenate([[0], rank])[(degrees.cumsum() - degrees)[nodes[order]]]
    ranks[order] = rank - before
    return ranks


def _similarity(unit: Any, nodes: Ints, others: Ints) -> Any:
    return (unit[nodes] * unit[others]).sum(axis=1)


def _unit_rows(x: Tensor) -> sp.csr_array | Floats:
    x = moderate(x)
    if x.layout != torch.sparse_csr:
        norms = np.linalg.norm(x.numpy(), axis=1, keepdims=True)
        return np.asarray(x.numpy() / np.where(norms > 0, norms, 1), dtype=np.float32)
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    rows = sp.csr_array(parts, shape=tuple(x.shape))
    norms = np.sqrt(rows.multiply(rows).sum(axis=1))
    return sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ rows)
