"""GCN (Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017)."""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.kernels.masks import dropout as drop
from nfcgcn.method.layers import GraphConv, at_least_one, check_rate
from nfcgcn.method.model import NodeClassifier


class GCN(NodeClassifier):
    r"""``num_layers`` graph convolutions.

    .. math:: H^{(l)} = \mathrm{ReLU}(\hat A H^{(l-1)} W^{(l)}), \qquad H^{(0)} = X

    Dropout acts on every layer's input; of a CSR ``x`` it touches the nonzeros only.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int, *, dropout: float = 0.5
    ) -> None:
        super().__init__()
        at_least_one(hidden_channels=hidden_channels, num_layers=num_layers, out_channels=out_channels)
        check_rate("dropout", dropout)
        self.dropout = dropout
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(GraphConv(*sizes) for sizes in pairwise(widths))

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``H(K-1)``: ``[N, channels]``; ``x`` itself for one layer."""
        if len(self.layers) == 1:
            return x
        adjacency = self.adjacency(x, edge_index)
        h = F.relu(self.layers[0](self.read(x, self.dropout), adjacency))
        for layer in self.layers[1:-1]:
            h = F.relu(layer(drop(h, self.dropout, self.training), adjacency))
        return h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        h = self.embed(x, edge_index)
        dropped = self.read(x, self.dropout) if h is x else drop(h, self.dropout, self.training)
        scores: Tensor = self.layers[-1](dropped, self.adjacency(x, edge_index))
        return scores

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the first layer's weights, the only ones that the authors' code regularises."""
        return list(self.layers[0].parameters())
