"""A multilayer perceptron: what the features say without the edges."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.graph import Edges
from nfcgcn.method.classifier import ClassifierConfig
from nfcgcn.method.graph_conv import Linear
from nfcgcn.method.hops import LayeredClassifier
from nfcgcn.method.operations import dropout
from nfcgcn.settings import depth, rate, setting, takes


@dataclass(frozen=True)
class MLPConfig(ClassifierConfig):
    """The settings of the perceptron, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of each layer but the last", low=1)
    num_layers: int = depth(2, "linear layers")
    dropout: float = rate(0.5, "dropout on every layer's input")


class MLP(LayeredClassifier):
    r"""``num_layers`` linear layers on each node's own features; ``edge_index`` is not looked at.

    .. math:: H^{(l)} = \mathrm{ReLU}(H^{(l-1)} W^{(l)} + b^{(l)}), \qquad H^{(0)} = X

    The perceptron that Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks" (2017),
    compare with. Dropout acts on every layer's input; of a CSR ``x`` it touches the nonzeros only. For the arguments
    see :class:`MLPConfig`.
    """

    config: MLPConfig
    takes_weights = True

    @takes(MLPConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: MLPConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        widths = [in_channels, *[config.hidden_channels] * (config.num_layers - 1), out_channels]
        self.layers = nn.ModuleList(Linear(*sizes) for sizes in pairwise(widths))

    def embed(self, x: Tensor, edge_index: Edges) -> Tensor:  # noqa: ARG002
        """Return ``H(K-1)``: ``[N, channels]``; the scaled features for one layer."""
        h = self.scale(x)
        for layer in self.layers[:-1]:
            h = F.relu(layer(dropout(h, self.config.dropout, self.training)))
        return h

    def forward(self, x: Tensor, edge_index: Edges) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        h = dropout(self.embed(x, edge_index), self.config.dropout, self.training)
        scores: Tensor = self.layers[-1](h)
        return scores

    @property
    def num_hops(self) -> int:
        """How many graph convolutions there are: none."""
        return 0

    def read(self, x: Tensor, edge_index: Any) -> Tensor:
        """Return the class scores."""
        return self.forward(x, edge_index)

    def split(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the class scores; there is nothing beside them."""
        return h, h[:, :0]

    def rectify(self, h: Tensor) -> Tensor:
        """Return ``dropout(ReLU(H))``."""
        return dropout(F.relu(h), self.config.dropout, self.training)  # type: ignore[no-any-return]

    def complete(self, h: Tensor, own: Tensor) -> Tensor:  # noqa: ARG002
        """Return the class scores, which are complete."""
        return h

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the first layer's weights, as in the code that Kipf and Welling published with their perceptron."""
        return list(self.layers[0].parameters())[:1]
