"""A multilayer perceptron: what the features say without the edges."""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.kernels.masks import dropout as drop
from nfcgcn.method.layers import Linear, at_least_one, check_rate
from nfcgcn.method.model import NodeClassifier


class MLP(NodeClassifier):
    r"""``num_layers`` linear layers on each node's own features; ``edge_index`` is not looked at.

    .. math:: H^{(l)} = \mathrm{ReLU}(H^{(l-1)} W^{(l)} + b^{(l)}), \qquad H^{(0)} = X

    The perceptron that Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks" (2017),
    compare with. Dropout acts on every layer's input; of a CSR ``x`` it touches the nonzeros only.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int, *, dropout: float = 0.5
    ) -> None:
        super().__init__()
        at_least_one(hidden_channels=hidden_channels, num_layers=num_layers, out_channels=out_channels)
        check_rate("dropout", dropout)
        self.dropout = dropout
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(Linear(*sizes) for sizes in pairwise(widths))

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        """Return ``H(K-1)``: ``[N, channels]``; ``x`` itself for one layer."""
        if len(self.layers) == 1:
            return x
        h = F.relu(self.layers[0](self.read(x, self.dropout)))
        for layer in self.layers[1:-1]:
            h = F.relu(layer(drop(h, self.dropout, self.training)))
        return h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        h = self.embed(x, edge_index)
        dropped = self.read(x, self.dropout) if h is x else drop(h, self.dropout, self.training)
        scores: Tensor = self.layers[-1](dropped)
        return scores

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the first layer's weights, as in the code that Kipf and Welling published with their perceptron."""
        return list(self.layers[0].parameters())[:1]
