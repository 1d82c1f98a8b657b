"""Gated GNN (Li, Tarlow, Brockschmidt and Zemel, "Gated Graph Sequence Neural Networks", ICLR 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nfcgcn.baselines.chebnet import scaled_laplacian
from nfcgcn.kernels.products import sparse_product
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.graph_conv import Linear
from nfcgcn.method.operations import add_bias, dropout, multiply
from nfcgcn.settings import rate, setting, takes


@dataclass(frozen=True)
class GatedGNNConfig(ClassifierConfig):
    """The settings of the gated network, named as its arguments."""

    hidden_channels: int = setting(32, "numbers of a node's state", low=1)
    steps: int = setting(2, "how often every node hears from its neighbours", low=1, high=100)
    dropout: float = rate(0.5, "dropout on the features and on the last state")


class GatedGNN(NodeClassifier):
    r"""A state per node that a gated recurrent unit changes ``steps`` times by what the neighbours say.

    .. math:: a_i = \sum_{j \in \mathcal{N}_i} \frac{W h_j}{\sqrt{d_i d_j}} + b, \qquad
        r, z = \sigma(U_{r,z} (a_i \Vert h_i)), \qquad
        h_i \leftarrow (1 - z) h_i + z \tanh(U (a_i \Vert r h_i))

    (equations 1 to 6), from :math:`h_i = x_i W_0`; a linear layer reads the last state. PyG's ``GatedGraphConv`` has
    the same unit, but takes no sparse ``x``. For the arguments see :class:`GatedGNNConfig`.
    """

    # Paper: adds up the neighbours, which were few; divided by the degrees, hubs do not saturate the gates. The first
    # state is the features padded with zeros; words need a matrix.
    config: GatedGNNConfig

    @takes(GatedGNNConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: GatedGNNConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        width = config.hidden_channels
        self.first = Linear(in_channels, width, bias=False)
        self.message = Linear(width, width)
        self.gates = Linear(2 * width, 2 * width)
        self.candidate = Linear(2 * width, width)
        self.output = Linear(width, out_channels)

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the last state, ``[N, hidden_channels]``."""
        h: Tensor = self.first(dropout(self.scale(x), self.config.dropout, self.training))
        minus = scaled_laplacian(edge_index, x.shape[0], h.dtype, h.device)
        for _ in range(self.config.steps):
            heard = add_bias(-sparse_product(minus, multiply(h, self.message.weight.mT)), self.message.bias)
            reset, update = self.gates(torch.cat([heard, h], dim=1)).sigmoid().chunk(2, dim=1)
            h = h + update * (self.candidate(torch.cat([heard, reset * h], dim=1)).tanh() - h)
        return h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        scores: Tensor = self.output(dropout(self.embed(x, edge_index), self.config.dropout, self.training))
        return scores

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters but the biases."""
        return [p for name, p in self.named_parameters() if not name.endswith("bias")]
