"""GCN (Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.graph import Edges
from nfcgcn.method.additions import AdditionsConfig, own_layers
from nfcgcn.method.classifier import ClassifierConfig
from nfcgcn.method.graph_conv import GraphConv
from nfcgcn.method.hops import LayeredClassifier, first_rows, hop
from nfcgcn.method.operations import drop_edges, dropout
from nfcgcn.settings import depth, rate, setting, takes


@dataclass(frozen=True)
class GCNConfig(AdditionsConfig, ClassifierConfig):
    """The settings of GCN, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of each graph convolution but the last", low=1)
    num_layers: int = depth(2, "graph convolutions")
    dropout: float = rate(0.5, "dropout on every layer's input")


class GCN(LayeredClassifier):
    r"""``num_layers`` graph convolutions.

    .. math:: H^{(l)} = \mathrm{ReLU}(\hat A H^{(l-1)} W^{(l)}), \qquad H^{(0)} = X

    Dropout acts on every layer's input; of a CSR ``x`` it touches the nonzeros only. For the arguments see
    :class:`GCNConfig`. ``edge_dropout``, ``own_features`` and ``self_weight`` are not the paper's; they do here what
    they do in :class:`~nfcgcn.NFCGCN`.

    >>> import torch
    >>> model = GCN(8, 4, 2, 3)  # features, hidden channels, layers, classes
    >>> model(torch.eye(8), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([8, 3])
    """

    config: GCNConfig
    takes_weights = True

    @takes(GCNConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: GCNConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        widths = [in_channels, *[config.hidden_channels] * (config.num_layers - 1), out_channels]
        self.layers = nn.ModuleList(GraphConv(*sizes, self_weight=config.self_weight) for sizes in pairwise(widths))
        self.own = own_layers(config, in_channels, config.hidden_channels, out_channels)

    def embed(self, x: Tensor, edge_index: Edges) -> Tensor:
        """Return ``H(K-1)``: ``[N, channels]``; the scaled features for one layer."""
        return self._hidden(self.scale(x), self._edges(edge_index))

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        x, edges = self.scale(x), self._edges(edge_index)
        last = len(self.layers) - 1
        scores: Tensor = self.layers[last](self._dropped(self._hidden(x, edges)), hop(edges, last))
        if not len(self.own):
            return scores
        return self.complete(scores, self._own(first_rows(x, scores.shape[0])))

    def _hidden(self, h: Tensor, edges: Any) -> Tensor:
        """Return ``H(K-1)``."""
        for number, layer in enumerate(self.layers[:-1]):
            h = F.relu(layer(self._dropped(h), hop(edges, number)))
        return h

    def _edges(self, edge_index: Any) -> Any:
        """Return the edges of this pass: in training, what ``edge_dropout`` leaves."""
        return drop_edges(edge_index, self.config.edge_dropout, self.training)

    @property
    def num_hops(self) -> int:
        """How many graph convolutions there are."""
        return len(self.layers)

    def read(self, x: Tensor, edge_index: Any) -> Tensor:  # noqa: ARG002
        """Return ``X W(1)`` and, with ``own_features``, ``X V(1)`` beside it."""
        x = self.scale(x)
        first = self._first.project(self._dropped(x))
        return torch.cat([first, self._own(x)], dim=1)

    def split(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``X W(1)`` and ``X V(1)``, which :meth:`read` put side by side."""
        width = self._first.weight.shape[1]
        return h[:, :width], h[:, width:]

    def rectify(self, h: Tensor) -> Tensor:
        """Return ``dropout(ReLU(H))``."""
        return self._dropped(F.relu(h))

    def complete(self, h: Tensor, own: Tensor) -> Tensor:
        """Return the class scores that follow from ``H(K)`` and from ``X V(1)``."""
        if not len(self.own):
            return h
        alone: Tensor = self.own[1](self.rectify(own))
        return h + alone

    def _own(self, x: Tensor) -> Tensor:
        """Return ``X V(1)`` for scaled features; no column without ``own_features``."""
        if not len(self.own):
            return self._first.weight.new_zeros(x.shape[0], 0)
        own: Tensor = self.own[0](self._dropped(x))
        return own

    @property
    def _first(self) -> GraphConv:
        return self.layers[0]  # type: ignore[return-value]

    def _dropped(self, h: Tensor) -> Tensor:
        return dropout(h, self.config.dropout, self.training)  # type: ignore[no-any-return]

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the weights that read the features; the authors' code regularises no others."""
        return [*self.layers[0].parameters(), *(weight for own in self.own[:1] for weight in own.parameters())]
