"""GAT (Velickovic, Cucurull, Casanova, Romero, Lio and Bengio, "Graph Attention Networks", ICLR 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from nfcgcn.kernels.attention import attention
from nfcgcn.kernels.reference.attention import Edges
from nfcgcn.kernels.rows import add_slots
from nfcgcn.kernels.sparse import normalised_adjacency
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.operations import Rows, add_bias, dropout, multiply
from nfcgcn.settings import depth, rate, setting, takes


@dataclass(frozen=True)
class GATConfig(ClassifierConfig):
    """The settings of GAT, named as its arguments."""

    hidden_channels: int = setting(8, "outputs of each head of each layer but the last", low=1)
    num_layers: int = depth(2, "layers of attention")
    heads: int = setting(8, "heads of each layer but the last, side by side", low=1)
    output_heads: int = setting(1, "heads of the last layer, averaged", low=1)
    dropout: float = rate(0.6, "dropout on every layer's input")
    attention_dropout: float = rate(0.6, "dropout on the weights of the neighbours")


class AttentionConv(nn.Module):
    r"""Average a linear map of the neighbours, and of the node itself, by learned weights.

    .. math:: h'_i = \sum_{j \in \mathcal{N}_i \cup i} \alpha_{ij} W h_j + b, \qquad
        \alpha_{ij} = \mathrm{softmax}_j(\mathrm{LeakyReLU}(a_1^\top W h_i + a_2^\top W h_j))

    for each of ``heads`` sets of parameters (equations 3 to 6); the heads stand side by side (``"concat"``) or are
    averaged (``"mean"``). PyG's ``GATConv`` computes the same, but takes no sparse ``x``.
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, heads: int, join: Literal["concat", "mean"], dropout: float
    ) -> None:
        super().__init__()
        self.heads, self.join, self.dropout = heads, join, dropout
        self.weight = nn.Parameter(torch.empty(in_channels, heads * out_channels))
        self.source = nn.Parameter(torch.empty(heads, out_channels))
        self.target = nn.Parameter(torch.empty(heads, out_channels))
        self.bias = nn.Parameter(torch.empty(heads * out_channels if join == "concat" else out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights again (Glorot, uniform)."""
        for weight in (self.weight, self.source, self.target):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Rows, edges: Edges) -> Tensor:
        """Return ``h'``: ``[N, heads * out_channels]``, or ``[N, out_channels]`` for the mean."""
        h = multiply(x, self.weight)
        out = attention(h, self.source, self.target, edges, dropout=self.dropout, training=self.training)
        if self.join == "mean":
            out = add_slots(out.view(len(h), self.heads, -1)) / self.heads
        return add_bias(out, self.bias)

    def __repr__(self) -> str:
        sizes = f"{self.weight.shape[0]}, {self.source.shape[1]}"
        return f"{type(self).__name__}({sizes}, heads={self.heads}, join='{self.join}')"


def elu(h: Tensor) -> Tensor:
    """Return ELU, like ``F.elu``, in which torch uses a different exponential at the end of each thread's share."""
    return torch.where(h > 0, h, torch.expm1(h.clamp(max=0)))


class GAT(NodeClassifier):
    r"""``num_layers`` layers of attention over the neighbours, ELU between them.

    .. math:: H^{(l)} = \mathrm{ELU}(\Vert_{h} \mathrm{Attention}_h(H^{(l-1)})), \qquad H^{(0)} = X

    Dropout acts on every layer's input; of a CSR ``x`` it touches the nonzeros only. For the arguments see
    :class:`GATConfig`.
    """

    config: GATConfig

    @takes(GATConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: GATConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        c = config
        widths = [in_channels, *[c.heads * c.hidden_channels] * (c.num_layers - 1)]
        self.layers = nn.ModuleList(
            AttentionConv(width, c.hidden_channels, heads=c.heads, join="concat", dropout=c.attention_dropout)
            for width in widths[:-1]
        )
        self.layers.append(
            AttentionConv(widths[-1], out_channels, heads=c.output_heads, join="mean", dropout=c.attention_dropout)
        )

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``H(K-1)``: ``[N, heads * hidden_channels]``; the scaled features for one layer."""
        h, edges = self.scale(x), self.edges(x, edge_index)
        for layer in self.layers[:-1]:
            h = elu(layer(dropout(h, self.config.dropout, self.training), edges))
        return h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        h = dropout(self.embed(x, edge_index), self.config.dropout, self.training)
        scores: Tensor = self.layers[-1](h, self.edges(x, edge_index))
        return scores

    def edges(self, x: Tensor, edge_index: Tensor) -> Edges:
        """Return the edges that all layers share, prepared once per graph."""
        return _edges(edge_index, x.shape[0], next(self.parameters()).dtype)

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters but the biases."""
        return [p for name, p in self.named_parameters() if not name.endswith("bias")]


@remembered
def _edges(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Edges:
    return Edges.of(normalised_adjacency(edge_index, num_nodes, dtype))
