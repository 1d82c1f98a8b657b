"""JK-Net (Xu, Li, Tian, Sonobe, Kawarabayashi and Jegelka, "Representation Learning on Graphs with Jumping Knowledge
Networks", ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.graph import Edges
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.graph_conv import GraphConv, Linear
from nfcgcn.method.operations import dropout
from nfcgcn.settings import depth, rate, setting, takes

Mode = Literal["concat", "max", "lstm"]


@dataclass(frozen=True)
class JKNetConfig(ClassifierConfig):
    """The settings of JK-Net, named as its arguments."""

    hidden_channels: int = setting(32, "outputs of each graph convolution", low=1)
    num_layers: int = depth(4, "graph convolutions")
    mode: Mode = setting("concat", "how the layers' outputs are joined")
    dropout: float = rate(0.5, "dropout on every graph convolution's input")


class JKNet(NodeClassifier):
    r"""``num_layers`` graph convolutions whose outputs are joined, then a linear layer.

    .. math:: H^{(l)} = \mathrm{ReLU}(\hat A H^{(l-1)} W^{(l)}), \qquad
        Z = \mathrm{Join}(H^{(1)}, \ldots, H^{(K)}) \, W + b

    Outputs are joined side by side ("concat"), by the largest of each feature ("max"), or by a sum whose weights a
    bidirectional LSTM over the layers gives each node ("lstm"); PyG's ``JumpingKnowledge``. With torch's LSTM, and only
    there, the last bits depend on the number of threads. Dropout acts on the input of every graph convolution; of a CSR
    ``x`` it touches the nonzeros only. For the arguments see :class:`JKNetConfig`.
    """

    config: JKNetConfig
    takes_weights = True

    @takes(JKNetConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: JKNetConfig) -> None:
        from torch_geometric.nn import JumpingKnowledge

        super().__init__(in_channels, out_channels, config)
        hidden, num_layers = config.hidden_channels, config.num_layers
        self.layers = nn.ModuleList(GraphConv(*sizes) for sizes in pairwise([in_channels, *[hidden] * num_layers]))
        self.join = JumpingKnowledge("cat" if config.mode == "concat" else config.mode, hidden, num_layers)
        self.output = Linear(hidden * (num_layers if config.mode == "concat" else 1), out_channels)

    def embed(self, x: Tensor, edge_index: Edges) -> Tensor:
        """Return the joined outputs of the graph convolutions: ``[N, channels]``."""
        outputs: list[Tensor] = []
        for layer in self.layers:
            h = outputs[-1] if outputs else self.scale(x)
            outputs.append(F.relu(layer(dropout(h, self.config.dropout, self.training), edge_index)))
        joined: Tensor = self.join(outputs)
        return joined

    def forward(self, x: Tensor, edge_index: Edges) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        scores: Tensor = self.output(self.embed(x, edge_index))
        return scores

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters but the biases."""
        return [p for name, p in self.named_parameters() if "bias" not in name]
