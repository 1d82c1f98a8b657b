"""NFC-GCN: node-feature convolution, then graph convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.errors import ConfigError
from nfcgcn.graph import Edges, edge_parts
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.additions import AdditionsConfig, StackConfig, own_layers
from nfcgcn.method.classifier import ClassifierConfig
from nfcgcn.method.graph_conv import GraphConv, Linear
from nfcgcn.method.hops import LayeredClassifier, first_rows
from nfcgcn.method.node_feature_conv import NodeFeatureConv, NodeFeatureConvConfig
from nfcgcn.method.operations import add_bias, dropout, multiply
from nfcgcn.method.stacked_conv import StackedConv
from nfcgcn.settings import depth, rate, setting, takes

Classifier = Literal["none", "linear"]


@dataclass(frozen=True)
class NFCGCNConfig(AdditionsConfig, StackConfig, NodeFeatureConvConfig, ClassifierConfig):
    """The settings of NFC-GCN, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of each graph convolution but the last", low=1)
    num_layers: int = depth(2, "graph convolutions (K), from 0 up", low=0)
    representation_dropout: float = rate(0.0, "dropout on the node-feature convolution's output")
    dropout: float = rate(0.5, "dropout on the inputs of graph convolutions 2 to K")
    classifier: Classifier = setting("none", "a further layer from classes to classes")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classifier == "linear" and not self.num_layers:
            raise ConfigError("`classifier` must be none with `num_layers` 0, where a linear layer classifies already")


class NFCGCN(LayeredClassifier):
    r"""Node-feature convolution, then ``num_layers`` graph convolutions.

    .. math:: H^{(0)} = \mathrm{NFC}(X), \qquad H^{(l)} = \mathrm{ReLU}(\hat A H^{(l-1)} W^{(l)}), \; l = 1 \ldots K

    without the ReLU in the last layer, which has one output per class ("Graph Node-Feature Convolution for
    Representation Learning", Zhang, Song, Aletras and Lu). With ``num_layers=0`` a linear layer classifies
    :math:`H^{(0)}`. With ``classifier="linear"`` the last graph convolution has its ReLU too, and a linear layer from
    classes to classes follows.

    Five settings are ours, not the paper's, and off by default. ``edge_dropout`` leaves out edges in the graph
    convolutions of a training step, drawn anew for each, and normalises what is left; evaluation uses all edges.
    ``own_features="mlp"`` adds :math:`\mathrm{ReLU}(X V^{(1)}) V^{(2)}`, what a node says without its neighbours.
    ``self_weight`` is the weight of a node's loop in :math:`\hat A`. ``neighbour_draw`` draws some neighbours more
    often than others. ``conv_layers`` is the number of node-feature convolutions: each further one convolves the maps
    of what the one before returned (:class:`StackedConv`); with ``num_layers=0`` the model is convolutions alone.

    Args:
        in_channels: features per node.
        hidden_channels: outputs of each graph convolution but the last.
        num_layers: number of graph convolutions (``K``), at least 0.
        out_channels: classes.
        seed: of the neighbour draw.

    For the other arguments see :class:`NFCGCNConfig` or ``nfcgcn settings``. ``forward`` draws the neighbour table from
    ``edge_index``, once per tensor, or takes one as ``neighbours``.

    >>> model = NFCGCN(8, 4, 2, 3, filters=2, bandwidth=2, kernel_size=4, stride=2)
    >>> model(torch.eye(8), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([8, 3])
    """

    config: NFCGCNConfig
    takes_weights = True

    @takes(NFCGCNConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: NFCGCNConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config)
        # Paper: the parameter table lists dropout "for the hidden layers' inputs"; on the map, and not on h(0), is the
        # interpretation that reproduces the results.
        self.nfc = NodeFeatureConv(in_channels, config=config, seed=seed)
        self.stack = nn.ModuleList()
        convolved = self.nfc.out_channels
        for _ in range(config.conv_layers - 1):
            further = StackedConv(convolved, config.hidden_channels, config)
            self.stack.append(further)
            convolved = further.out_channels
        hidden = [config.hidden_channels] * (config.num_layers - 1)
        widths = [convolved, *hidden, out_channels][: config.num_layers + 1]
        self.layers = nn.ModuleList(GraphConv(*sizes, self_weight=config.self_weight) for sizes in pairwise(widths))
        # Paper: the parameter table has a further "classifier layer" from classes to classes; without it the results
        # are the paper's, with it they are worse. By default it is used only without graph convolutions.
        last = widths[-1]
        linear = config.classifier == "linear" or not config.num_layers
        self.classifier = Linear(last, out_channels) if linear else None
        self.own = own_layers(config, in_channels, config.hidden_channels, out_channels)

    def forward(
        self, x: Tensor, edge_index: Edges, neighbours: Tensor | None = None, *, needed: Tensor | None = None
    ) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``.

        With ``needed``, node numbers, only these rows of ``H(0)`` are valid: ignore scores that depend on other rows.
        """
        h = self.read(x, edge_index, neighbours, needed=needed)  # H(0) W(1), where H(0) = NFC(X)
        return self.finish(h, edge_index)  # H(l) = A_hat ReLU(H(l-1)) W(l) for l = 2 to K, then class scores

    def read(
        self, x: Tensor, edge_index: Edges, neighbours: Tensor | None = None, *, needed: Tensor | None = None
    ) -> Tensor:
        """Return ``H(0) W`` for the first matrix ``W`` after the convolution, ``[N, channels]``.

        With ``own_features``, ``X V(1)`` stands beside it, in the last columns.
        """
        x, drop = self.scale(x), self.config.representation_dropout
        if len(self.stack):
            h = multiply(self._convolve_stack(x, edge_index, neighbours), self.last_matrix)
        else:
            h = self.nfc.project(
                x, edge_index, self.last_matrix, neighbours=neighbours, needed=needed, hidden_dropout=drop
            )
        if not len(self.own):
            return h
        x = first_rows(x, h.shape[0])
        return torch.cat([h, self.own[0](dropout(x, self.config.map_dropout, self.training))], dim=1)

    def _convolve_stack(self, x: Tensor, edge_index: Edges, neighbours: Tensor | None) -> Tensor:
        """Return the last convolution's output of a stack; all of its convolutions share one draw."""
        neighbours = self.nfc.table(x, edge_index, neighbours)
        h = self.nfc.project(x, edge_index, self.first_matrix, neighbours=neighbours)
        for before, layer in enumerate(self.stack):
            if before:
                h = multiply(h, layer.matrix)  # type: ignore[arg-type]
            h = layer(dropout(F.relu(h), self.config.map_dropout, self.training), neighbours)
        return dropout(h, self.config.representation_dropout, self.training)  # type: ignore[no-any-return]

    def split(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``H(0) W`` and ``X V(1)``, which :meth:`read` put side by side."""
        width = self.last_matrix.shape[1]
        return (h[:, :width], h[:, width:]) if len(self.own) else (h, h[:, :0])

    def rectify(self, h: Tensor) -> Tensor:
        """Return ``dropout(ReLU(H))``."""
        return dropout(F.relu(h), self.config.dropout, self.training)  # type: ignore[no-any-return]

    def complete(self, h: Tensor, own: Tensor) -> Tensor:
        """Return the class scores that follow from ``H(K)`` before its ReLU and from ``X V(1)``."""
        scores = self._classify(h)
        if not len(self.own):
            return scores
        alone: Tensor = self.own[1](self.rectify(own))
        return scores + alone[: scores.shape[0]]

    def _classify(self, h: Tensor) -> Tensor:
        """Return the class scores that follow from ``H(K)`` before its ReLU, or for ``K = 0`` from ``H(0) W``."""
        if self.classifier is None:
            return h
        if not len(self.layers):
            return add_bias(h, self.classifier.bias)
        scores: Tensor = self.classifier(F.relu(h))
        return scores

    @property
    def num_hops(self) -> int:
        """How many graph convolutions there are, ``K``."""
        return len(self.layers)

    @property
    def embed_hops(self) -> int:
        """How many of them come before what :meth:`embed` returns."""
        return max(0, len(self.layers) - (self.classifier is None))

    def embed(self, x: Tensor, edge_index: Edges, neighbours: Tensor | None = None) -> Tensor:
        """Return what the last layer reads: ``H(K-1)``, or ``H(0)`` for ``K < 2``, or ``H(K)`` before a classifier."""
        if self.embed_hops:
            h, _ = self.split(self.read(x, edge_index, neighbours))
            return F.relu(self.convolve(h, edge_index, self.embed_hops))
        x = self.scale(x)
        if len(self.stack):
            return self._convolve_stack(x, edge_index, neighbours)
        h = self.nfc(x, edge_index, neighbours=neighbours)
        return dropout(h, self.config.representation_dropout, self.training)  # type: ignore[no-any-return]

    def score_nodes(self, x: Tensor, edge_index: Edges, nodes: Tensor) -> Tensor:
        """Return the class scores of `nodes`; only nodes within ``K`` hops of them are convolved."""
        if x.device.type != "cpu":  # on a GPU all rows are convolved: listing some would make the host wait
            return super().score_nodes(x, edge_index, nodes)
        hops = len(self.layers) + len(self.stack)
        needed = neighbourhood(nodes, edge_parts(edge_index)[0], x.shape[0], hops)
        scores: Tensor = self(x, edge_index, needed=needed)[nodes]
        return scores

    @property
    def first_matrix(self) -> Tensor:
        """What the first convolution's output is multiplied by: that of a stack, or :attr:`last_matrix`."""
        return self.stack[0].matrix if len(self.stack) else self.last_matrix  # type: ignore[return-value]

    @property
    def last_matrix(self) -> Tensor:
        """What ``H(0)`` is multiplied by: the weights of the layer that follows."""
        if len(self.layers):
            return self.layers[0].weight  # type: ignore[return-value]
        assert self.classifier is not None  # noqa: S101
        return self.classifier.weight.mT

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the weights of the layer that reads ``H(0)``, and of the one that reads the node's own features."""
        # Paper: "an L2 regularization of 0.0001", as in GCN's code, which applies it to the first layer only.
        layer = self.layers[0] if len(self.layers) else self.classifier
        further = [*self.stack.parameters(), *(own.weight for own in self.own[:1])]
        return [layer.weight, *further]  # type: ignore[union-attr,list-item]


@remembered
def neighbourhood(nodes: Tensor, edge_index: Tensor, num_nodes: int, num_hops: int) -> Tensor:
    """List, in ascending order, the nodes whose rows of ``H`` enter the rows `nodes` of ``A_hat^num_hops H``."""
    reached = torch.zeros(num_nodes, dtype=torch.bool, device=nodes.device)
    reached[nodes] = True
    for _ in range(num_hops):
        arriving = edge_index[0, reached[edge_index[1]]]
        reached[arriving] = True  # each node is its own neighbour
    return reached.nonzero().squeeze(1)
