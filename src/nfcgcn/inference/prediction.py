"""What a trained model says about a graph: classes, probabilities over neighbour draws, representations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nfcgcn.baselines.sampled import SampledClassifier
from nfcgcn.errors import ConfigError, NFCError, unknown
from nfcgcn.graph import Floats, Graph, Ints, check_finite
from nfcgcn.inference.pieces import Layer, compute, in_pieces
from nfcgcn.kernels.threads import one_pool
from nfcgcn.memory import enough_memory
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.model import NFCGCN
from nfcgcn.method.node_feature_conv import NodeFeatureConv

LAYERS: tuple[str, ...] = get_args(Layer)
MOST_BYTES = 4 << 30
"""The largest representation that :func:`embed` makes."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """Class probabilities of every node, averaged over draws of its neighbours."""

    probabilities: npt.NDArray[np.float64]
    """``[N, C]``; each row sums to 1."""
    spread: npt.NDArray[np.float64]
    """``[N, C]``: the standard deviation of each probability over the draws; 0 for a single draw."""
    draws: int
    """How many draws were made: always 1 for a model that reads all neighbours."""

    @property
    def classes(self) -> Ints:
        """The most probable class of each node, ``[N]``."""
        return np.asarray(self.probabilities.argmax(1), np.int64)

    @property
    def uncertainty(self) -> npt.NDArray[np.float64]:
        """The standard deviation over the draws of the probability of each node's class, ``[N]``."""
        return np.take_along_axis(self.spread, self.classes[:, None], axis=1).squeeze(1)


@enough_memory()
@one_pool()
@torch.no_grad()
def predict(model: NodeClassifier, graph: Graph, *, device: torch.device | str = "cpu") -> Ints:
    """Return the predicted class of every node, ``[N]``.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> predict(nfcgcn.GCN(50, 8, 2, 7), graph).shape
    (200,)
    """
    classes: Ints = _finite_scores(model, graph, device).argmax(1).cpu().numpy()
    return classes


@enough_memory()
@one_pool()
@torch.no_grad()
def predict_with_confidence(
    model: NodeClassifier, graph: Graph, nodes: Ints, *, device: torch.device | str = "cpu"
) -> tuple[Ints, npt.NDArray[np.float64]]:
    """Return the predicted class of every node, ``[N]``, and the class probabilities of `nodes`, ``[nodes, C]``.

    Of a graph in a store, only what `nodes` need is computed, and the classes of all other nodes are -1.
    """
    if in_pieces(model, graph):
        some = torch.from_numpy(compute(model, graph, nodes, device=device)[nodes])
        predicted: Ints = np.full(graph.num_nodes, -1, np.int64)
        predicted[nodes] = some.argmax(1).numpy()
        return predicted, softmax(model, some)
    scores = _scores(model, graph, device)
    classes: Ints = scores.argmax(1).cpu().numpy()
    return classes, softmax(model, scores[torch.from_numpy(nodes).to(device)])


def _scores(model: NodeClassifier, graph: Graph, device: torch.device | str) -> Tensor:
    """Return the class scores of every node: of a graph in a store layer by layer, else at once."""
    if in_pieces(model, graph):
        return torch.from_numpy(compute(model, graph, device=device))
    model.to(device).eval()
    scores: Tensor = model(graph.x.to(device), model.edges_of(graph).to(device))
    return scores


def _finite_scores(model: NodeClassifier, graph: Graph, device: torch.device | str) -> Tensor:
    """Return them if they are numbers to predict by."""
    scores = _scores(model, graph, device)
    check_finite(scores, f"the class scores of some nodes of '{graph.name}'")
    return scores


@enough_memory()
@one_pool()
@torch.no_grad()
def predict_proba(
    model: NodeClassifier, graph: Graph, *, draws: int = 1, device: torch.device | str = "cpu"
) -> Prediction:
    """Return the class probabilities of every node, averaged over `draws` draws of neighbours.

    The first draw is the one that :func:`predict` uses; the others are the next draws of the model's seed. A model that
    reads all neighbours gives the same probabilities at every draw and runs only once.

    Cost: one pass over the graph per draw.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> model = nfcgcn.NFCGCN(50, 8, 2, 7, filters=4, kernel_size=8, stride=4)
    >>> prediction = predict_proba(model, graph, draws=3)
    >>> prediction.probabilities.shape, prediction.uncertainty.shape, prediction.draws
    ((200, 7), (200,), 3)
    """
    if draws < 1:
        raise ConfigError(f"`draws` must be at least 1, got {draws}")
    samplers = [part for part in model.modules() if isinstance(part, NodeFeatureConv | SampledClassifier)]
    num_draws = draws if samplers else 1
    mean = softmax(model, _finite_scores(model, graph, device))
    squares = np.zeros_like(mean)
    # Welford's recurrence: probabilities that never change have a deviation of exactly 0.
    for draw in range(1, num_draws):
        with _drawn(samplers, draw):
            probabilities = softmax(model, _finite_scores(model, graph, device))
        change = probabilities - mean
        mean += change / (draw + 1)
        squares += change * (probabilities - mean)
    return Prediction(mean, np.sqrt(squares / max(num_draws - 1, 1)), num_draws)


@enough_memory()
@one_pool()
@torch.no_grad()
def predict_draw(model: NodeClassifier, graph: Graph, draw: int) -> npt.NDArray[np.float64]:
    """Return the class probabilities of every node for one of the model's draws, ``[N, C]``; draw 0 is evaluation's."""
    samplers = [part for part in model.eval().modules() if isinstance(part, NodeFeatureConv | SampledClassifier)]
    with _drawn(samplers, draw):
        return softmax(model, _finite_scores(model, graph, "cpu"))


@enough_memory()
@one_pool()
@torch.no_grad()
def embed(model: NodeClassifier, graph: Graph, layer: Layer = "last", *, device: torch.device | str = "cpu") -> Floats:
    r"""Return a representation of every node, ``[N, channels]``, dense.

    "last" is what the last layer reads: :math:`H^{(K-1)}` of ``K`` layers. "first" is :math:`H^{(0)}`, the output of
    the node-feature convolution, which only NFC-GCN has and which can be large. "scores" is :math:`H^{(K)}`, the class
    scores before the softmax.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> embed(nfcgcn.GCN(50, 8, 2, 7), graph).shape
    (200, 8)
    """
    if layer not in LAYERS:
        raise ConfigError(unknown("layer", layer, LAYERS))
    if layer == "first" and not isinstance(model, NFCGCN):
        raise ConfigError(
            f"{type(model).__name__} has no node-feature convolution and so no layer 'first'; choose 'last'"
        )
    if in_pieces(model, graph):
        pieces = compute(model, graph, layer=layer, device=device)
        check_finite(torch.from_numpy(pieces), f"the vectors of some nodes of '{graph.name}'")
        return pieces
    model.to(device).eval()
    x, edge_index = graph.x.to(device), model.edges_of(graph).to(device)
    if layer == "first":
        assert isinstance(model, NFCGCN)  # noqa: S101
        check_size(graph.num_nodes, model.nfc.out_channels)
        h = model.nfc(model.scale(x), edge_index)
    elif layer == "last":
        if isinstance(model, NFCGCN) and len(model.layers) <= (model.config.classifier == "none"):
            check_size(graph.num_nodes, model.nfc.out_channels)
        h = model.embed(x, edge_index)
    else:
        h = model(x, edge_index)
    check_size(*h.shape)
    dense = h if h.layout == torch.strided else h.to_dense()
    check_finite(dense, f"the vectors of some nodes of '{graph.name}'")
    return np.ascontiguousarray(dense.cpu().numpy(), dtype=np.float32)


def check_size(num_nodes: int, channels: int) -> None:
    """Raise an error for a representation that would take too much memory."""
    size = 4 * num_nodes * channels
    if size > MOST_BYTES:
        raise NFCError(
            f"the representation would hold {num_nodes} nodes x {channels} numbers: {size / 2**30:.1f} GiB, more than "
            f"the {MOST_BYTES / 2**30:.0f} GiB allowed; choose another layer, or a model with fewer filters or a "
            "larger stride"
        )


def softmax(model: NodeClassifier, scores: Tensor) -> npt.NDArray[np.float64]:
    """Return the class probabilities that follow from scores."""
    probabilities: npt.NDArray[np.float64] = (scores.double() / model.temperature).softmax(1).cpu().numpy()
    return probabilities


@contextmanager
def _drawn(samplers: list[NodeFeatureConv | SampledClassifier], draw: int) -> Iterator[None]:
    before = [sampler.draw for sampler in samplers]
    try:
        for sampler, own in zip(samplers, before, strict=True):
            sampler.draw = own + draw
        yield
    finally:
        for sampler, own in zip(samplers, before, strict=True):
            sampler.draw = own
