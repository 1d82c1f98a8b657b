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
from nfcgcn.method.operations import drop_edges, dropout, multiply, propagate
from nfcgcn.settings import rate, setting, takes


@dataclass(frozen=True)
class GCNConfig(AdditionsConfig, ClassifierConfig):
    """The settings of GCN, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of each graph convolution but the last", low=1)
    num_layers: int = setting(2, "graph convolutions", low=1)
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
        if len(self.layers) == 1:
            return self.scale(x)
        return F.relu(self._convolve(self.first(self.scale(x)), edge_index, without_last=True))

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        x = self.scale(x)
        scores = self._convolve(self.first(x), edge_index)
        return self.complete(scores, self._own(first_rows(x, len(scores))))

    def _convolve(self, h: Tensor, edge_index: Any, *, without_last: bool = False) -> Tensor:
        """Return ``H(K)``, or ``H(K - 1)``, before the ReLU, from ``X W(1)``."""
        edge_index = drop_edges(edge_index, self.config.edge_dropout, self.training)
        for number in range(len(self.layers) - without_last):
            h = self.onward(h, number) if number else h
            h = propagate(h, hop(edge_index, number), self.config.self_weight)
        return h

    @property
    def num_hops(self) -> int:
        """How many graph convolutions there are."""
        return len(self.layers)

    def first(self, x: Tensor) -> Tensor:
        """Return ``X W(1)`` for scaled features."""
        return multiply(self._dropped(x), self.layers[0].weight)  # type: ignore[arg-type]

    def read(self, x: Tensor, edge_index: Any) -> Tensor:  # noqa: ARG002
        """Return ``X W(1)`` and, with ``own_features``, ``X V(1)`` beside it."""
        x = self.scale(x)
        return torch.cat([self.first(x), self._own(x)], dim=1)

    def split(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``X W(1)`` and ``X V(1)``, which :meth:`read` put side by side."""
        width = self.layers[0].weight.shape[1]
        return h[:, :width], h[:, width:]  # type: ignore[misc]

    def onward(self, h: Tensor, number: int) -> Tensor:
        """Return ``H(l) W(l + 1)`` from ``H(l)`` before its ReLU, for ``l`` of `number`."""
        return multiply(self._dropped(F.relu(h)), self.layers[number].weight)  # type: ignore[arg-type]

    def complete(self, h: Tensor, own: Tensor) -> Tensor:
        """Return the class scores that follow from ``H(K)`` and from ``X V(1)``."""
        if not len(self.own):
            return h
        alone: Tensor = self.own[1](self._dropped(F.relu(own)))
        return h + alone

    def _own(self, x: Tensor) -> Tensor:
        """Return ``X V(1)`` for scaled features; no column without ``own_features``."""
        if not len(self.own):
            return self.layers[0].weight.new_zeros(len(x), 0)  # type: ignore[union-attr,operator]
        own: Tensor = self.own[0](self._dropped(x))
        return own

    def _dropped(self, h: Tensor) -> Tensor:
        return dropout(h, self.config.dropout, self.training)  # type: ignore[no-any-return]

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the weights that read the features; the authors' code regularises no others."""
        return [*self.layers[0].parameters(), *(weight for own in self.own[:1] for weight in own.parameters())]
