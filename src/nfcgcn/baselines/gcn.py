"""GCN (Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.graph_conv import GraphConv
from nfcgcn.method.operations import dropout
from nfcgcn.settings import rate, setting, takes


@dataclass(frozen=True)
class GCNConfig(ClassifierConfig):
    """The settings of GCN, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of each graph convolution but the last", low=1)
    num_layers: int = setting(2, "graph convolutions", low=1)
    dropout: float = rate(0.5, "dropout on every layer's input")


class GCN(NodeClassifier):
    r"""``num_layers`` graph convolutions.

    .. math:: H^{(l)} = \mathrm{ReLU}(\hat A H^{(l-1)} W^{(l)}), \qquad H^{(0)} = X

    Dropout acts on every layer's input; of a CSR ``x`` it touches the nonzeros only. For the arguments see
    :class:`GCNConfig`.

    >>> import torch
    >>> model = GCN(8, 4, 2, 3)  # features, hidden channels, layers, classes
    >>> model(torch.eye(8), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([8, 3])
    """

    config: GCNConfig

    @takes(GCNConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: GCNConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        widths = [in_channels, *[config.hidden_channels] * (config.num_layers - 1), out_channels]
        self.layers = nn.ModuleList(GraphConv(*sizes) for sizes in pairwise(widths))

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``H(K-1)``: ``[N, channels]``; the scaled features for one layer."""
        h = self.scale(x)
        for layer in self.layers[:-1]:
            h = F.relu(layer(dropout(h, self.config.dropout, self.training), edge_index))
        return h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        h = dropout(self.embed(x, edge_index), self.config.dropout, self.training)
        scores: Tensor = self.layers[-1](h, edge_index)
        return scores

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the first layer's weights, the only ones that the authors' code regularises."""
        return list(self.layers[0].parameters())
