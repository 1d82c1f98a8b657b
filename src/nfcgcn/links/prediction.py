"""What a trained model says about pairs of nodes; scores are made in blocks, and no N x N matrix ever is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Graph, Ints, check_finite
from nfcgcn.kernels.threads import one_pool
from nfcgcn.links.model import LinkModel
from nfcgcn.links.scores import Doubles
from nfcgcn.links.splits import pair_keys, pairs_of, with_edges

PAIRS_AT_ONCE = 2**16
SCORES_AT_ONCE = 2**22
"""Scores of one block of suggestions: 16 MiB, and with the decoder `mlp` as much per hidden channel."""


@dataclass(frozen=True, eq=False)
class Suggestions:
    """The most probable missing links of some nodes."""

    nodes: Ints
    """``[M]``: the nodes, each as often as it has suggestions, in the order in which they were asked for."""
    ranks: Ints
    """``[M]``: 1 is the most probable."""
    others: Ints
    """``[M]``: the node to link to."""
    probabilities: Doubles
    """``[M]``"""


@one_pool()
@torch.no_grad()
def encode(model: LinkModel, graph: Graph, read: Ints | None = None, *, device: torch.device | str = "cpu") -> Tensor:
    """Return the vectors of all nodes as the decoder reads them, ``[N, C]``; the model reads the edges `read` alone.

    Without `read` it reads all edges of the graph.
    """
    model.to(device).eval()
    seen = graph if read is None else with_edges(graph, read)
    vectors: Tensor = model(graph.x.to(device), model.encoder.edges_of(seen).to(device))
    check_finite(vectors, f"the vectors of some nodes of '{graph.name}'")
    return vectors


@one_pool()
@torch.no_grad()
def score_pairs(model: LinkModel, vectors: Tensor, pairs: Ints) -> Doubles:
    """Return the score of each pair ``[2, P]``, before the sigmoid; the order of its nodes does not matter."""
    ordered = np.sort(pairs, axis=0)
    scores = np.zeros(pairs.shape[1])
    for start in range(0, pairs.shape[1], PAIRS_AT_ONCE):
        some = torch.from_numpy(np.ascontiguousarray(ordered[:, start : start + PAIRS_AT_ONCE])).to(vectors.device)
        scores[start : start + PAIRS_AT_ONCE] = model.decoder.score(vectors, some).double().cpu().numpy()
    return scores


def probabilities(scores: Doubles) -> Doubles:
    """Return the probability of an edge for each score, where half of the pairs have one, as in training."""
    return np.exp(-np.logaddexp(0, -scores))


def predict_pairs(
    model: LinkModel,
    graph: Graph,
    pairs: npt.ArrayLike,
    *,
    read: Ints | None = None,
    device: torch.device | str = "cpu",
) -> Doubles:
    """Return the probability of an edge for each pair ``[2, P]``.

    Without `read`, the model reads all edges of the graph but those among `pairs`: as in training, no edge is read
    while it is scored.
    """
    pairs = check_pairs(np.asarray(pairs), graph)
    if read is None:
        known = pairs_of(graph)
        asked = np.isin(pair_keys(known, graph.num_nodes), pair_keys(pairs, graph.num_nodes))
        read = known[:, ~asked]
    scores = score_pairs(model, encode(model, graph, read, device=device), pairs)
    check_finite(torch.from_numpy(scores), "the scores of some pairs")
    return probabilities(scores)


def check_pairs(pairs: npt.NDArray[np.generic], graph: Graph) -> Ints:
    """Return pairs of node numbers as ``[2, P]``, if each names two different nodes of the graph."""
    if pairs.ndim != 2 or pairs.shape[0] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise GraphError(f"pairs must be whole numbers of shape [2, number of pairs], got {pairs.dtype} {pairs.shape}")
    numbers = pairs.astype(np.int64)
    outside = np.flatnonzero(((numbers < 0) | (numbers >= graph.num_nodes)).any(axis=0))
    if len(outside):
        u, v = numbers[:, outside[0]].tolist()
        culprit = v if 0 <= u < graph.num_nodes else u
        raise GraphError(
            f"pair {outside[0]} names node {culprit}, but '{graph.name}' has {graph.num_nodes} nodes "
            f"(0 to {graph.num_nodes - 1})"
        )
    loops = np.flatnonzero(numbers[0] == numbers[1])
    if len(loops):
        raise GraphError(f"pair {loops[0]} joins node {numbers[0, loops[0]]} to itself; leave it out")
    return numbers


@torch.no_grad()
def suggest_links(
    model: LinkModel, vectors: Tensor, graph: Graph, nodes: Ints, *, top: int = 10
) -> Iterator[Suggestions]:
    """Yield the `top` most probable missing links of `nodes`, some nodes at a time; links of the graph are left out.

    Of equal scores, the node with the lower number comes first. A node that is linked to almost all others has fewer
    suggestions. Memory: some million scores, whatever the size of the graph.
    """
    if top < 1:
        raise ConfigError(f"`top` must be at least 1, got {top}")
    width = max(1, vectors.shape[1]) if model.decoder.expands else 1
    at_once = max(1, SCORES_AT_ONCE // (graph.num_nodes * width))
    for start in range(0, len(nodes), at_once):
        with one_pool():
            yield _suggest_block(model, vectors, graph, nodes[start : start + at_once], top)


def _suggest_block(model: LinkModel, vectors: Tensor, graph: Graph, nodes: Ints, top: int) -> Suggestions:
    columns = max(1, SCORES_AT_ONCE // (len(nodes) * (vectors.shape[1] if model.decoder.expands else 1)))
    own = vectors[torch.from_numpy(nodes).to(vectors.device)]
    best, chosen = np.zeros((len(nodes), 0), np.float32), np.zeros((len(nodes), 0), np.int64)
    for start in range(0, graph.num_nodes, columns):
        grid = model.decoder.grid(own, vectors[start : start + columns])
        check_finite(grid, "the scores of some pairs")
        scores = grid.cpu().numpy()
        _leave_out_known(scores, graph, nodes, start)
        numbers = np.broadcast_to(np.arange(start, start + scores.shape[1]), scores.shape)
        best, chosen = highest(np.concatenate([best, scores], axis=1), np.concatenate([chosen, numbers], axis=1), top)
    rows, ranks = np.nonzero(np.isfinite(best))
    pairs = np.stack([nodes[rows], chosen[rows, ranks]])
    # Scored again, pair by pair: the same bits as for a list of pairs, whatever the blocks.
    return Suggestions(pairs[0], ranks + 1, pairs[1], probabilities(score_pairs(model, vectors, pairs)))


def _leave_out_known(scores: npt.NDArray[np.float32], graph: Graph, nodes: Ints, start: int) -> None:
    """Set the scores of known links, and of nodes with themselves, to minus infinity."""
    block = graph.adjacency[nodes][:, start : start + scores.shape[1]].tocoo()
    scores[block.row, block.col] = -np.inf
    inside = np.flatnonzero((nodes >= start) & (nodes < start + scores.shape[1]))
    scores[inside, nodes[inside] - start] = -np.inf


def highest(scores: npt.NDArray[np.float32], numbers: Ints, top: int) -> tuple[npt.NDArray[np.float32], Ints]:
    """Return the `top` highest scores of each row, highest first, and their numbers; of equals the lower number.

    >>> highest(np.array([[1.0, 3.0, 3.0, 2.0]]), np.array([[0, 1, 2, 3]]), 2)[1].tolist()
    [[1, 2]]
    """
    if scores.shape[1] > top:
        limit = np.partition(scores, -top, axis=1)[:, -top, None]
        # All that are above the limit, and of those that equal it the first ones.
        above, equal = scores > limit, scores == limit
        room = top - above.sum(axis=1, keepdims=True)
        kept = above | (equal & (equal.cumsum(axis=1) <= room))
        shape = (len(scores), top)
        scores, numbers = scores[kept].reshape(shape), numbers[kept].reshape(shape)
    order = np.lexsort((numbers, -scores), axis=1)
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(numbers, order, axis=1)
