"""JK-Net (Xu, Li, Tian, Sonobe, Kawarabayashi and Jegelka, "Representation Learning on Graphs with Jumping Knowledge
Networks", ICML 2018)."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.kernels.masks import dropout as drop
from nfcgcn.method.layers import GraphConv, Linear, at_least_one, check_rate, one_of
from nfcgcn.method.model import NodeClassifier

Mode = Literal["concat", "max", "lstm"]


class JKNet(NodeClassifier):
    r"""``num_layers`` graph convolutions whose outputs are joined, then a linear layer.

    .. math:: H^{(l)} = \mathrm{ReLU}(\hat A H^{(l-1)} W^{(l)}), \qquad
        Z = \mathrm{Join}(H^{(1)}, \ldots, H^{(K)}) \, W + b

    Args:
        num_layers: ``K``, graph convolutions, the linear layer not counted.
        mode: side by side ("concat"), the largest of each feature ("max"), or a sum whose weights a bidirectional LSTM
            over the layers gives each node ("lstm"); PyG's ``JumpingKnowledge``. With torch's LSTM, and only there,
            the last bits depend on the number of threads.
        dropout: on the input of every graph convolution; of a CSR ``x`` it touches the nonzeros only.

    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        mode: Mode = "concat",
        dropout: float = 0.5,
    ) -> None:
        from torch_geometric.nn import JumpingKnowledge

        super().__init__()
        at_least_one(hidden_channels=hidden_channels, num_layers=num_layers, out_channels=out_channels)
        check_rate("dropout", dropout)
        one_of(mode=(mode, Mode))
        self.dropout = dropout
        widths = [in_channels, *[hidden_channels] * num_layers]
        self.layers = nn.ModuleList(GraphConv(*sizes) for sizes in pairwise(widths))
        self.join = JumpingKnowledge("cat" if mode == "concat" else mode, hidden_channels, num_layers)
        self.output = Linear(hidden_channels * (num_layers if mode == "concat" else 1), out_channels)

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the joined outputs of the graph convolutions: ``[N, channels]``."""
        adjacency = self.adjacency(x, edge_index)
        outputs = [F.relu(self.layers[0](self.read(x, self.dropout), adjacency))]
        for layer in self.layers[1:]:
            outputs.append(F.relu(layer(drop(outputs[-1], self.dropout, self.training), adjacency)))
        joined: Tensor = self.join(outputs)
        return joined

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        scores: Tensor = self.output(self.embed(x, edge_index))
        return scores

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters but the biases."""
        return [p for name, p in self.named_parameters() if "bias" not in name]
