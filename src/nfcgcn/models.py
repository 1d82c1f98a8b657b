"""NFC-GCN, and what every model for node classification here can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.errors import ConfigError
from nfcgcn.graph import csr_tensor
from nfcgcn.kernels import Backend
from nfcgcn.kernels.masks import dropout as drop
from nfcgcn.kernels.product import Factor, drop_entries, multiply
from nfcgcn.kernels.product.reference import Sparse
from nfcgcn.kernels.rows import shifted
from nfcgcn.layers import (
    Activation,
    Classifier,
    Conv,
    GraphConv,
    Linear,
    NodeFeatureConv,
    Remembered,
    Resample,
    at_least_one,
    check_rate,
    normalised_adjacency,
    one_of,
)
from nfcgcn.sampling import SlotOrder

FeatureScale = Literal["given", "row-sum", "row-norm"]


class NodeClassifier(nn.Module, ABC):
    """A model called as ``model(x, edge_index)``, which returns class scores ``[N, out_channels]``."""

    feature_scale: FeatureScale = "given"
    """Whether features are taken as given, or those of each node divided by their sum or by their Euclidean norm."""

    def __init__(self) -> None:
        super().__init__()
        self._normalised: Remembered[Sparse] = Remembered()
        self._features: Remembered[Tensor | Sparse] = Remembered()
        self._scaled: Remembered[Tensor] = Remembered()

    @abstractmethod
    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the representation of each node that the last layer reads."""

    @abstractmethod
    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the parameters that L2 regularisation applies to."""

    def score_nodes(self, x: Tensor, edge_index: Tensor, nodes: Tensor) -> Tensor:
        """Return the class scores of `nodes`.

        In training a model may override this to sample; in evaluation the scores are those that ``forward`` gives.
        """
        scores: Tensor = self(x, edge_index)[nodes]
        return scores

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for module in self.modules():
            reset = getattr(module, "reset_parameters", None)
            if reset and module is not self:
                reset()

    def read(self, x: Tensor, dropout: float = 0.0) -> Factor:
        """Return the features as a first layer multiplies them: scaled, and in training with cells dropped.

        A CSR ``x`` stays sparse, and dropout touches its nonzeros only.
        """
        # What was computed from features that need a gradient belongs to one backward pass and is not kept.
        h = self._ready(x) if x.requires_grad else self._features.get(x, self._ready, self.feature_scale)
        if isinstance(h, Tensor):
            return drop(h, dropout, self.training)
        return drop_entries(h, dropout) if self.training and dropout else h

    def scale(self, x: Tensor) -> Tensor:
        """Return the features as ``feature_scale`` has them, computed once a graph."""
        if self.feature_scale == "given":
            return x
        if x.requires_grad:
            return scale_features(x, self.feature_scale)
        return self._scaled.get(x, lambda x: scale_features(x, self.feature_scale), self.feature_scale)

    def _ready(self, x: Tensor) -> Tensor | Sparse:
        x = scale_features(x, self.feature_scale)
        return Sparse.from_csr(x) if x.layout == torch.sparse_csr else x

    def adjacency(self, x: Tensor, edge_index: Tensor) -> Sparse:
        """Return the normalised adjacency that all layers share, computed once a graph."""
        key = (x.shape[0], next(self.parameters()).dtype)
        return self._normalised.get(edge_index, lambda e: normalised_adjacency(e, *key), *key)


def scale_features(x: Tensor, scale: FeatureScale) -> Tensor:
    """Return the features, dense or CSR, as the scale of this name has them."""
    if scale == "row-sum":
        return divide_by_row_sums(x)
    return divide_by_row_norms(x) if scale == "row-norm" else x


def divide_by_row_sums(x: Tensor) -> Tensor:
    """Divide each row of a dense or CSR matrix by its sum; rows that sum to 0 stay as they are."""
    return _divide_rows(x, _row_sums(x))


def divide_by_row_norms(x: Tensor) -> Tensor:
    """Divide each row of a dense or CSR matrix by its Euclidean norm; rows of zeros stay as they are."""
    if x.layout != torch.sparse_csr:
        return _divide_rows(x, torch.linalg.vector_norm(x, dim=1))
    squares = csr_tensor(x.crow_indices(), x.col_indices(), x.values().square(), x.shape)
    return _divide_rows(x, _row_sums(squares).sqrt())


def _row_sums(x: Tensor) -> Tensor:
    if x.layout != torch.sparse_csr:
        return x.sum(1)
    return multiply(x, torch.ones(x.shape[1], 1, dtype=x.dtype, device=x.device)).squeeze(1)


def _divide_rows(x: Tensor, by: Tensor) -> Tensor:
    by = torch.where(by == 0, 1, by)
    if x.layout != torch.sparse_csr:
        return x / by[:, None]
    starts = x.crow_indices()
    values = x.values() / torch.repeat_interleave(by, starts.diff(), output_size=x.values().numel())
    return csr_tensor(starts, x.col_indices(), values, x.shape)


class NFCGCN(NodeClassifier):
    r"""Node-feature convolution, then ``num_layers`` graph convolutions.

    .. math:: H^{(0)} = \mathrm{NFC}(X), \qquad H^{(l)} = \mathrm{ReLU}(\hat A H^{(l-1)} W^{(l)}), \; l = 1 \ldots K

    without the ReLU in the last layer, which has one output a class ("Graph Node-Feature Convolution for
    Representation Learning", Zhang, Song, Aletras and Lu). With ``num_layers=0`` a linear layer classifies
    :math:`H^{(0)}`. With ``classifier="linear"`` the last graph convolution has its ReLU too, and a linear layer from
    classes to classes follows.

    Args:
        in_channels: features a node.
        hidden_channels: outputs of each graph convolution but the last.
        num_layers: ``K``, graph convolutions, from 0 up.
        out_channels: classes.
        map_dropout: on the feature maps.
        representation_dropout: on :math:`H^{(0)}`, which a GPU then has to lay out in training.
        dropout: on the inputs of graph convolutions 2 to K.

    For the other arguments see :class:`NodeFeatureConv`. ``forward`` draws the neighbour table from ``edge_index`` and
    keeps it as long as it is called with the same tensor, or takes one as ``neighbours``.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        bandwidth: int = 6,
        filters: int = 64,
        kernel_size: int = 32,
        stride: int = 16,
        conv: Conv = "1d",
        kernel_width: int = 3,
        activation: Activation = "none",
        map_dropout: float = 0.5,
        representation_dropout: float = 0.0,
        dropout: float = 0.5,
        classifier: Classifier = "none",
        slot_order: SlotOrder = "random",
        resample: Resample = "once",
        seed: int = 0,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        if num_layers < 0:
            raise ConfigError(f"`num_layers` must be at least 0, got {num_layers}")
        at_least_one(hidden_channels=hidden_channels, out_channels=out_channels)
        one_of(classifier=(classifier, Classifier))
        if classifier == "linear" and not num_layers:
            raise ConfigError("`classifier` must be none with `num_layers` 0, where a linear layer classifies already")
        check_rate("map_dropout", map_dropout)
        check_rate("representation_dropout", representation_dropout)
        check_rate("dropout", dropout)
        self.representation_dropout, self.dropout = representation_dropout, dropout
        # Paper: the parameter table lists dropout "for the hidden layers' inputs"; on the map, and not on h(0), is the
        # reading that reproduces the results.
        self.nfc = NodeFeatureConv(
            in_channels,
            filters,
            bandwidth=bandwidth,
            kernel_size=kernel_size,
            stride=stride,
            conv=conv,
            kernel_width=kernel_width,
            activation=activation,
            dropout=map_dropout,
            slot_order=slot_order,
            resample=resample,
            seed=seed,
            backend=backend,
        )
        widths = [self.nfc.out_channels, *[hidden_channels] * (num_layers - 1)]
        self.hidden = nn.ModuleList(GraphConv(*sizes) for sizes in pairwise(widths))
        # Paper: the parameter table has a further "classifier layer" from classes to classes; without it the results
        # are the paper's, with it they are worse. By default it stands only where no graph convolution does.
        self.output: GraphConv | Linear
        self.output = GraphConv(widths[-1], out_channels) if num_layers else Linear(widths[0], out_channels)
        self.classifier = Linear(out_channels, out_channels) if classifier == "linear" else None
        # One for the nodes trained on and one for those validated on, which take turns.
        self._reached: tuple[Remembered[tuple[Sparse, Tensor]], ...] = Remembered(), Remembered()

    def embed(self, x: Tensor, edge_index: Tensor, neighbours: Tensor | None = None) -> Tensor:
        """Return ``H(K-1)``, or ``H(0)`` for ``K = 0``, or ``H(K)`` before a classifier: ``[N, channels]``."""
        if self.classifier is not None:
            return F.relu(self._last_convolution(x, edge_index, neighbours))
        return self._before_last(x, edge_index, neighbours)

    def _before_last(
        self, x: Tensor, edge_index: Tensor, neighbours: Tensor | None, needed: Tensor | None = None
    ) -> Tensor:
        if not len(self.hidden):
            return drop(self.convolve(x, edge_index, neighbours), self.representation_dropout, self.training)
        adjacency = self.adjacency(x, edge_index)
        h = self._read_map(self.hidden[0], x, edge_index, neighbours, needed)
        for layer in self.hidden[1:]:
            h = layer(drop(F.relu(h), self.dropout, self.training), adjacency)
        return drop(F.relu(h), self.dropout, self.training)

    def convolve(self, x: Tensor, edge_index: Tensor, neighbours: Tensor | None = None) -> Tensor:
        """Return ``H(0)``, the node-feature convolution's output: ``[N, nfc.out_channels]``."""
        h: Tensor = self.nfc(self.scale(x), edge_index, neighbours=neighbours)
        return h

    def forward(
        self, x: Tensor, edge_index: Tensor, neighbours: Tensor | None = None, *, needed: Tensor | None = None
    ) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``.

        With ``needed``, node numbers, only these nodes' rows of ``H(0)`` count: scores that others enter mean nothing.
        """
        h = self._last_convolution(x, edge_index, neighbours, needed)
        return h if self.classifier is None else self.classifier(F.relu(h))

    def _last_convolution(
        self, x: Tensor, edge_index: Tensor, neighbours: Tensor | None, needed: Tensor | None = None
    ) -> Tensor:
        if not len(self.hidden):
            return self._read_map(self.output, x, edge_index, neighbours, needed)
        h = self._before_last(x, edge_index, neighbours, needed)
        scores: Tensor = self.output(h, self.adjacency(x, edge_index))
        return scores

    def score_nodes(self, x: Tensor, edge_index: Tensor, nodes: Tensor) -> Tensor:
        """Return the class scores of `nodes`, for which only what lies within ``K`` hops of them is convolved."""
        if x.device.type != "cpu":  # elsewhere all rows are convolved, and to list some would make the host wait
            return super().score_nodes(x, edge_index, nodes)
        adjacency = self.adjacency(x, edge_index)

        def reach(nodes: Tensor) -> tuple[Sparse, Tensor]:
            num_layers = len(self.hidden) + isinstance(self.output, GraphConv)
            return adjacency, neighbourhood(nodes, adjacency, num_layers)

        # The adjacency is kept beside the nodes, so that its id cannot come to name another.
        _, needed = self._reached[self.training].get(nodes, reach, id(adjacency))
        scores: Tensor = self(x, edge_index, needed=needed)[nodes]
        return scores

    def _read_map(
        self, layer: nn.Module, x: Tensor, edge_index: Tensor, neighbours: Tensor | None, needed: Tensor | None
    ) -> Tensor:
        """Return ``layer(H(0))`` without ``H(0)``: the layer first multiplies by its matrix."""
        if self.training and self.representation_dropout and x.device.type != "cpu":  # for which GPUs have no kernel
            h = drop(self.convolve(x, edge_index, neighbours), self.representation_dropout, True)
            read: Tensor = layer(h, self.adjacency(x, edge_index)) if isinstance(layer, GraphConv) else layer(h)
            return read
        assert isinstance(layer, GraphConv | Linear)  # noqa: S101
        matrix = layer.weight if isinstance(layer, GraphConv) else layer.weight.mT
        h = self.nfc.project(
            self.scale(x), edge_index, matrix, neighbours=neighbours, needed=needed,
            hidden_dropout=self.representation_dropout,
        )  # fmt: skip
        if isinstance(layer, Linear):
            return shifted(h, layer.bias)
        return layer.propagate(h, self.adjacency(x, edge_index))

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the weights of the layer that reads ``H(0)``."""
        # Paper: "an L2 regularization of 0.0001", as in GCN's code, which applies it to the first layer alone.
        return list((self.hidden[0] if len(self.hidden) else self.output).parameters())[:1]


def neighbourhood(nodes: Tensor, adjacency: Sparse, num_hops: int) -> Tensor:
    """List, in ascending order, the nodes whose rows of ``H`` enter the rows `nodes` of ``A_hat^num_hops H``."""
    starts, columns = adjacency.matrix.crow_indices(), adjacency.matrix.col_indices()
    reached = torch.zeros(len(starts) - 1, dtype=torch.bool, device=nodes.device)
    reached[nodes] = True
    for _ in range(num_hops):
        reached[columns[torch.repeat_interleave(reached, starts.diff())]] = True  # each node is among its own
    return reached.nonzero().squeeze(1)
