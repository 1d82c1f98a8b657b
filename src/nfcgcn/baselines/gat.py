"""GAT (Velickovic, Cucurull, Casanova, Romero, Lio and Bengio, "Graph Attention Networks", ICLR 2018)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from nfcgcn.kernels.attention import attention
from nfcgcn.kernels.attention.reference import Edges
from nfcgcn.kernels.masks import dropout as drop
from nfcgcn.kernels.product import Factor, multiply
from nfcgcn.kernels.rows import add_slots, shifted
from nfcgcn.layers import Remembered, at_least_one, check_rate
from nfcgcn.models import NodeClassifier


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
        """Draw the weights anew (Glorot, uniform)."""
        for weight in (self.weight, self.source, self.target):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Factor, edges: Edges) -> Tensor:
        """Return ``h'``: ``[N, heads * out_channels]``, or ``[N, out_channels]`` for the mean."""
        h = multiply(x, self.weight)
        out = attention(h, self.source, self.target, edges, dropout=self.dropout, training=self.training)
        if self.join == "mean":
            out = add_slots(out.view(len(h), self.heads, -1)) / self.heads
        return shifted(out, self.bias)

    def __repr__(self) -> str:
        sizes = f"{self.weight.shape[0]}, {self.source.shape[1]}"
        return f"{type(self).__name__}({sizes}, heads={self.heads}, join='{self.join}')"


def elu(h: Tensor) -> Tensor:
    """Return what ``F.elu`` does, for which torch takes another exponential at the end of each thread's share."""
    return torch.where(h > 0, h, torch.expm1(h.clamp(max=0)))


class GAT(NodeClassifier):
    r"""``num_layers`` layers of attention over the neighbours, ELU between them.

    .. math:: H^{(l)} = \mathrm{ELU}(\Vert_{h} \mathrm{Attention}_h(H^{(l-1)})), \qquad H^{(0)} = X

    Args:
        hidden_channels: outputs of each head of each layer but the last.
        heads: of each layer but the last, side by side.
        output_heads: of the last layer, averaged.
        dropout: on every layer's input; of a CSR ``x`` it touches the nonzeros only.
        attention_dropout: on the weights of the neighbours.

    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        heads: int = 8,
        output_heads: int = 1,
        dropout: float = 0.6,
        attention_dropout: float = 0.6,
    ) -> None:
        super().__init__()
        at_least_one(hidden_channels=hidden_channels, num_layers=num_layers, out_channels=out_channels)
        at_least_one(heads=heads, output_heads=output_heads)
        check_rate("dropout", dropout)
        check_rate("attention_dropout", attention_dropout)
        self.dropout = dropout
        widths = [in_channels, *[heads * hidden_channels] * (num_layers - 1)]
        self.layers = nn.ModuleList(
            AttentionConv(width, hidden_channels, heads=heads, join="concat", dropout=attention_dropout)
            for width in widths[:-1]
        )
        self.layers.append(
            AttentionConv(widths[-1], out_channels, heads=output_heads, join="mean", dropout=attention_dropout)
        )
        self._edges: Remembered[Edges] = Remembered()

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``H(K-1)``: ``[N, heads * hidden_channels]``; ``x`` itself for one layer."""
        if len(self.layers) == 1:
            return x
        edges = self.edges(x, edge_index)
        h = elu(self.layers[0](self.read(x, self.dropout), edges))
        for layer in self.layers[1:-1]:
            h = elu(layer(drop(h, self.dropout, self.training), edges))
        return h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        h = self.embed(x, edge_index)
        dropped = self.read(x, self.dropout) if h is x else drop(h, self.dropout, self.training)
        scores: Tensor = self.layers[-1](dropped, self.edges(x, edge_index))
        return scores

    def edges(self, x: Tensor, edge_index: Tensor) -> Edges:
        """Return the edges that all layers share, prepared once a graph."""
        adjacency = self.adjacency(x, edge_index)
        return self._edges.get(edge_index, lambda _: Edges.of(adjacency), x.shape[0], adjacency.matrix.dtype)

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters but the biases."""
        return [p for name, p in self.named_parameters() if not name.endswith("bias")]
