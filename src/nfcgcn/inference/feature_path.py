"""The path from no features to all of them: scores along it, and the way back from scores to features.

Integrated gradients needs three things from a model: an inner value ``p`` at ``alpha X`` with its derivative in
``alpha``, the scores as a function of ``p``, and a way to carry gradients with respect to ``p`` back to the features.
``X`` are the features as the model reads them, after scaling: on a path of unscaled features, a division by their norm
would cancel ``alpha``. Everything is computed in float64, and only for the part of the graph that the scores depend on.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from nfcgcn.baselines import PlanetoidT
from nfcgcn.baselines.sampled import SampledClassifier
from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Edges, Graph, Ints, WeightedEdges, csr_tensor
from nfcgcn.inference.reach import count_hops, reach
from nfcgcn.kernels.reference.node_feature_conv import compose
from nfcgcn.kernels.sparse import Sparse
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.features import scale_features
from nfcgcn.method.model import NFCGCN
from nfcgcn.method.node_feature_conv import ACTIVATIONS, convolve, feature_map

Doubles = npt.NDArray[np.float64]
M = TypeVar("M", bound=nn.Module)

CHUNK = 2**22
"""Numbers held in memory at a time: 32 MiB."""
MOST_KEPT = 2**26
"""Most numbers of the maps' convolution that are kept from one point of the path to the next: 512 MiB."""
MOST_SEEN = 24
"""Points of the path whose ``p`` is kept, so that the next class can reuse it."""
MOST_DENSE = 2**28
"""Most numbers in the dense features of a neighbourhood: 2 GiB."""


class Point(NamedTuple):
    """A point of the path at which an integral is evaluated."""

    alpha: float
    weight: float
    gradient: Tensor
    """Of the score in question with respect to ``p``."""


class FeaturePath(ABC):
    """The scores of some nodes, as all features grow from 0 to their values."""

    hops: Ints
    """``[N]``: edges to the nearest of these nodes, or -1 for a node whose features do not reach their scores."""

    @abstractmethod
    def at(self, alpha: float) -> tuple[Tensor, Tensor]:
        """Return ``p`` for the features times `alpha`, and its derivative in `alpha`."""

    @abstractmethod
    def scores(self, p: Tensor) -> Tensor:
        """Return the class scores of the nodes, ``[nodes, C]``."""

    @abstractmethod
    def contributions(self, points: Sequence[Point]) -> sp.csr_array:
        """Return what each feature of each node added, ``[N, D]``."""


class MapModel:
    """An NFC-GCN on a graph: what its paths have in common, whichever nodes they lead to."""

    def __init__(self, model: NFCGCN, graph: Graph) -> None:
        if model.nfc.in_channels != graph.num_features:
            raise GraphError(
                f"the model was made for {model.nfc.in_channels} features per node, got {graph.num_features}; "
                "explain it on a graph with the features it was trained on"
            )
        # The table that prediction draws, whatever device the model is on.
        self.table: Ints = copy.deepcopy(model.nfc).cpu().eval().table(model.scale(graph.x), graph.edges).numpy()
        self.original, self.model, self.graph = model, _double(model), graph
        self.weight, self.matrix = self.model.nfc.weight.detach(), self.model.first_matrix.detach()
        own = [layer.get_parameter("weight").detach().mT for layer in self.model.own[:1]]
        self.own = torch.cat([self.matrix.new_zeros(graph.num_features, 0), *own], dim=1)
        self.composed = self._compose() if model.config.activation == "none" else None

    def _compose(self) -> Tensor:
        """Return one matrix per slot, ``[n, D, channels]``."""
        config = self.original.config
        sizes = {"bandwidth": config.bandwidth, "num_features": self.graph.num_features, "stride": config.stride}
        of_maps = compose(self.weight, self.matrix, **sizes)
        of_own = of_maps.new_zeros(*of_maps.shape[:2], self.own.shape[1])
        of_own[0] = self.own
        return torch.cat([of_maps, of_own], dim=2)


class MapPath(FeaturePath):
    """NFC-GCN: ``p`` is ``H(0) W``, what the first layer makes of the feature maps, and beside it ``X V(1)``.

    Without an activation, convolution and ``W`` are one linear map per slot, and no map is built. ``V(1)``, which reads
    the node's own features, reads slot 0, where the node itself stands; without ``own_features`` it has no columns.
    """

    def __init__(self, prepared: MapModel, nodes: Ints) -> None:
        graph, everywhere = prepared.graph, prepared.table
        self.model, self.config = prepared.model, prepared.original.config
        self.weight, self.matrix = prepared.weight, prepared.matrix
        self.own, self.composed = prepared.own, prepared.composed
        self.size = self.model.nfc.out_channels
        self.hops = count_hops(graph, nodes, self.config.num_layers + 1)
        self.rows = np.flatnonzero((self.hops >= 0) & (self.hops <= self.config.num_layers))  # whose maps matter
        self.sources = np.unique(everywhere[self.rows])  # nodes that appear in these maps
        self.hops[np.setdiff1d(np.arange(graph.num_nodes), self.sources)] = -1
        self.table = torch.from_numpy(np.searchsorted(self.sources, everywhere[self.rows]))
        self.local = torch.from_numpy(np.searchsorted(self.rows, nodes))
        self.adjacency = _normalised(graph, self.rows, self.config.self_weight)
        self.features = _scaled(prepared.original, graph, self.sources)
        self.x = _csr(self.features)
        self.shape = graph.features.shape
        self._whole: Tensor | None = None
        self._seen: dict[float, tuple[Tensor, Tensor]] = {}
        self._kept: dict[int, Tensor] = {}

    def at(self, alpha: float) -> tuple[Tensor, Tensor]:
        if self.composed is not None:
            if self._whole is None:
                parts = [(self.x @ m).index_select(0, s) for m, s in zip(self.composed, self.table.mT, strict=True)]
                self._whole = torch.stack(parts).sum(0)
            return alpha * self._whole, self._whole
        if alpha not in self._seen:
            if len(self._seen) == MOST_SEEN:
                self._seen.clear()
            self._seen[alpha] = self._curved(alpha)
        return self._seen[alpha]

    def _curved(self, alpha: float) -> tuple[Tensor, Tensor]:
        values, slopes = [], []
        for rows in self._chunks():
            z = self._convolved(rows)
            h, slope = self._activate(alpha * z)
            own = feature_map(self.x, self.table[rows, 0]) @ self.own
            values.append(torch.cat([h @ self.matrix, alpha * own], dim=1))
            slopes.append(torch.cat([(slope * z) @ self.matrix, own], dim=1))
        return torch.cat(values), torch.cat(slopes)

    def scores(self, p: Tensor) -> Tensor:
        return self.model.finish(p, self.adjacency).index_select(0, self.local)

    def contributions(self, points: Sequence[Point]) -> sp.csr_array:
        if self.composed is not None:
            return self._through_composed(weighted(points), self.composed)
        total = sp.csr_array(self.shape)
        for rows in self._chunks():
            cells, table = self._cells(rows, points), self.table[rows].numpy()
            place = cells.nonzero()
            total += self._spread(table[place[:2]], place[2], cells[place])
        return total

    def own_map(self, node: int, points: Sequence[Point]) -> tuple[Ints, sp.csr_array]:
        """Return the nodes in the map of `node`, ``[n]``, and what each cell of this map added, ``[n, D]``."""
        row = int(np.searchsorted(self.rows, node))
        (cells,) = self._cells(slice(row, row + 1), points)
        return self.sources[self.table[row].numpy()], sp.csr_array(cells)

    def _through_composed(self, gradient: Tensor, composed: Tensor) -> sp.csr_array:
        """Carry ``[rows, H]`` back to the nonzero features; all places where a node appears are added up first."""
        arrived = gradient.new_zeros(len(self.sources), *composed.shape[::2])
        for slot, stands in enumerate(self.table.mT):
            arrived[:, slot].index_add_(0, stands, gradient)
        arrived, composed = arrived.flatten(1), composed.transpose(0, 1).flatten(1)
        x = self.features
        source, feature = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), x.indices.astype(np.int64)
        slopes = np.empty(x.nnz)
        step = max(1, CHUNK // arrived.shape[1])
        for start in range(0, x.nnz, step):
            part = slice(start, start + step)
            both = arrived[torch.from_numpy(source[part])] * composed[torch.from_numpy(feature[part])]
            slopes[part] = both.sum(1).numpy()
        return self._spread(source, feature, slopes * x.data)

    def _spread(self, source: Ints, feature: Ints, values: Doubles) -> sp.csr_array:
        return sp.csr_array(sp.coo_array((values, (self.sources[source], feature)), shape=self.shape))

    def _cells(self, rows: slice, points: Sequence[Point]) -> Doubles:
        """Return what each cell of these rows' maps added, ``[rows, n, D]``."""
        maps = feature_map(self.x, self.table[rows]).requires_grad_()
        z = convolve(maps, self.weight, stride=self.config.stride).flatten(1)
        width = self.matrix.shape[1]
        gradient = torch.zeros_like(z)
        for alpha, weight, arriving in points:
            slope = self._activate(alpha * z.detach())[1]
            gradient += weight * slope * (arriving[rows, :width] @ self.matrix.mT)
        (slopes,) = torch.autograd.grad(z, maps, gradient)
        slopes[:, 0] += weighted(points)[rows, width:] @ self.own.mT
        cells: Doubles = (slopes * maps.detach()).numpy()
        return cells

    def _chunks(self) -> list[slice]:
        step = max(1, CHUNK // max(self.config.bandwidth * self.shape[1], self.size))
        return [slice(start, start + step) for start in range(0, len(self.rows), step)]

    def _convolved(self, rows: slice) -> Tensor:
        """Return the maps' convolution before the activation, ``[rows, out_channels]``."""
        z = self._kept.get(rows.start)
        if z is None:
            z = convolve(feature_map(self.x, self.table[rows]), self.weight, stride=self.config.stride).flatten(1)
            if len(self.rows) * self.size <= MOST_KEPT:
                self._kept[rows.start] = z
        return z

    def _activate(self, z: Tensor) -> tuple[Tensor, Tensor]:
        h = ACTIVATIONS[self.config.activation](z.requires_grad_())
        (slope,) = torch.autograd.grad(h.sum(), z)
        return h.detach(), slope


class PlainPath(FeaturePath):
    """Any other model: ``p`` lists the nonzero scaled features themselves, of the nodes that affect the scores."""

    def __init__(self, model: NodeClassifier, graph: Graph, nodes: Ints) -> None:
        most = reach(model)
        self.hops = count_hops(graph, nodes, graph.num_nodes if most is None else most)
        if most is None:
            self.hops[self.hops < 0] = graph.num_nodes  # not connected, and yet they may affect the scores
        # With one more ring of nodes, those that affect the scores have their true degrees.
        around = np.flatnonzero((self.hops >= 0) | (count_hops(graph, nodes, (most or 0) + 1) >= 0))
        counted = np.flatnonzero(self.hops >= 0)
        rows = _scaled(model, graph, counted)
        self.model, columns = _narrowed(_double(model), np.unique(rows.indices))
        self.size = (len(around), len(columns))
        if self.size[0] * self.size[1] > MOST_DENSE:
            raise GraphError(
                f"the scores depend on {self.size[0]} nodes with {self.size[1]} features each, too many for memory; "
                "explain other nodes, or a model with fewer layers"
            )
        self.local = torch.from_numpy(np.searchsorted(around, nodes))
        local = graph.adjacency[around][:, around].tocoo()
        edge_index = torch.from_numpy(np.stack([local.col, local.row]).astype(np.int64))
        weighted = WeightedEdges(edge_index, torch.from_numpy(local.data)) if graph.is_weighted else edge_index
        self.edges: Edges = weighted
        if isinstance(model, SampledClassifier) and isinstance(self.model, SampledClassifier):
            table = _local_table(model.table(graph.x, graph.edge_index).numpy()[around], around)
            self.model.table = lambda *_: table
        if isinstance(model, PlanetoidT) and isinstance(self.model, PlanetoidT):
            vectors = model.embedding(graph.x, graph.edge_index).cpu()[torch.from_numpy(around)].double()
            self.model.embedding = lambda *_: vectors
        if isinstance(model, NFCGCN) and isinstance(self.model, NFCGCN):
            drawn = copy.deepcopy(model.nfc).cpu().eval().table(model.scale(graph.x), graph.edges).numpy()
            slots = _local_table(drawn[around], around)
            self.model.nfc.table = lambda *_: slots
        self.model.config = replace(self.model.config, feature_scale="given")
        self.node = np.repeat(counted, np.diff(rows.indptr))
        self.feature = rows.indices.astype(np.int64)
        places = np.searchsorted(around, self.node), np.searchsorted(columns, self.feature)
        self.place = torch.from_numpy(places[0]), torch.from_numpy(places[1])
        self.values = torch.from_numpy(rows.data)
        self.shape = graph.features.shape

    def at(self, alpha: float) -> tuple[Tensor, Tensor]:
        return alpha * self.values, self.values

    def scores(self, p: Tensor) -> Tensor:
        x = p.new_zeros(self.size).index_put(self.place, p)
        scores: Tensor = self.model(x, self.edges)
        return scores.index_select(0, self.local)

    def contributions(self, points: Sequence[Point]) -> sp.csr_array:
        values = (weighted(points) * self.values).numpy()
        return sp.csr_array(sp.coo_array((values, (self.node, self.feature)), shape=self.shape))


def prepare_path(model: NodeClassifier, graph: Graph) -> Callable[[Ints], FeaturePath]:
    """Return what makes the path of a model to some nodes; the model itself is not changed."""
    if not model.reads_features:
        raise ConfigError(
            f"a {type(model).__name__} reads no features, so no feature explains its scores; explain another model"
        )
    if isinstance(model, NFCGCN) and not len(model.stack):
        return partial(MapPath, MapModel(model, graph))
    return partial(PlainPath, model, graph)


def _local_table(table: Ints, around: Ints) -> Tensor:
    """Return rows of a neighbour table, the nodes `around` counted from 0; rows with others name only themselves."""
    inside = np.isin(table, around).all(1, keepdims=True)
    return torch.from_numpy(np.searchsorted(around, np.where(inside, table, around[:, None])))


def weighted(points: Sequence[Point]) -> Tensor:
    """Return the weighted sum of the gradients."""
    return torch.stack([weight * gradient for _, weight, gradient in points]).sum(0)


def _double(model: M) -> M:
    model = copy.deepcopy(model).cpu().double().eval()
    return model.requires_grad_(False)


def _narrowed(model: NodeClassifier, used: Ints) -> tuple[NodeClassifier, Ints]:
    """Let a model read the features that are `used` alone, and return it with these.

    Every model but NFC-GCN, whose windows slide over all features, reads a feature through weights of its own, so that
    one which is 0 for all nodes makes no difference. The weights of features are those whose shape depends on how many
    there are; a model that cannot be made anew from its settings keeps them all.
    """
    can_be_made = isinstance(model.config, getattr(type(model).__init__, "config_class", ()))
    if isinstance(model, NFCGCN) or not can_be_made or 2 * len(used) > model.in_channels:
        return model, np.arange(model.in_channels)
    with torch.device("meta"):
        pair = [type(model)(size, 2, config=model.config) for size in (model.in_channels, model.in_channels + 1)]
    shapes = [{name: weight.shape for name, weight in one.named_parameters()} for one in pair]
    for name, weight in model.named_parameters():
        for axis, sizes in enumerate(zip(shapes[0][name], shapes[1][name], strict=True)):
            if sizes[0] != sizes[1]:
                weight.data = weight.data.index_select(axis, torch.from_numpy(used.astype(np.int64)))
    return model, used


def _scaled(model: NodeClassifier, graph: Graph, nodes: Ints) -> sp.csr_array:
    """Return the features of `nodes` as the model reads them, in float64."""
    x = scale_features(_csr(sp.csr_array(graph.features[nodes], dtype=np.float64)), model.config.feature_scale)
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return sp.csr_array(parts, shape=tuple(x.shape))


def _normalised(graph: Graph, rows: Ints, self_weight: float) -> Sparse:
    """Return the normalised adjacency among `rows`, by the degrees in the whole graph."""
    loops = self_weight * sp.eye_array(len(rows), format="csr")
    degrees = graph.adjacency[rows].sum(axis=1, dtype=np.float64)
    scale = sp.diags_array((degrees + self_weight) ** -0.5)
    return Sparse.from_csr(_csr(sp.csr_array(scale @ (graph.adjacency[rows][:, rows] + loops) @ scale)))


def _csr(matrix: sp.csr_array) -> Tensor:
    starts, columns = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    return csr_tensor(starts, columns, torch.from_numpy(matrix.data), matrix.shape)
