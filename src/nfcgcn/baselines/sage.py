"""GraphSAGE (Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017)."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.graph import Ints, csr_tensor
from nfcgcn.kernels.masks import dropout as drop
from nfcgcn.kernels.product import Factor, multiply, sparse_product
from nfcgcn.kernels.product.reference import Sparse
from nfcgcn.kernels.rows import shifted
from nfcgcn.layers import Remembered, adjacency_lists, at_least_one, check_rate
from nfcgcn.models import NodeClassifier
from nfcgcn.sampling import draw_lists


class Hop(NamedTuple):
    """From the nodes that one layer has read to those that it writes."""

    mean: Sparse
    """``[written, read]``: averages over the neighbours."""
    own: Tensor | None
    """``[written]``: the place of each node among those read; None where they are the same."""


class MeanConv(nn.Module):
    r"""Add a linear map of the node to one of its neighbours' mean: the mean aggregator.

    .. math:: h'_i = W_1 h_i + W_2 \, \mathrm{mean}_{j \in \mathcal{N}_i} h_j + b

    which is :math:`W (h_i \Vert \mathrm{mean}_j h_j) + b` (algorithm 1, line 5). PyG's ``SAGEConv`` computes the same,
    but takes no sparse ``x``. The mean of a node without neighbours is 0.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.empty(in_channels, out_channels))
        self.neighbours = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew (Glorot, uniform)."""
        nn.init.xavier_uniform_(self.own)
        nn.init.xavier_uniform_(self.neighbours)
        nn.init.zeros_(self.bias)

    def forward(self, h: Factor, hop: Hop) -> Tensor:
        """Return ``h'`` of the nodes written: ``[written, out_channels]``."""
        own, neighbours = multiply(h, torch.cat([self.own, self.neighbours], dim=1)).chunk(2, dim=1)
        own = own if hop.own is None else own.index_select(0, hop.own)
        return shifted(own + sparse_product(hop.mean, neighbours), self.bias)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.own.shape[0]}, {self.own.shape[1]})"


class SAGE(NodeClassifier):
    r"""``num_layers`` layers, each of which adds the mean of the neighbours to the node, ReLU between them.

    .. math:: h^{(l)}_i = \mathrm{ReLU}(W_1^{(l)} h^{(l-1)}_i + W_2^{(l)} \, \mathrm{mean}_j \, h^{(l-1)}_j + b^{(l)})

    In training the mean is over neighbours drawn anew for every step (algorithm 2), in evaluation over all of them.

    Args:
        num_neighbours: drawn of a node that is scored, at most (the paper's ``S1``).
        num_further: drawn of a node that was itself drawn, at most (``S2``).
        dropout: on every layer's input; of a CSR ``x`` it touches the nonzeros only.

    """

    # Paper: scales every layer's output to length 1 (algorithm 1, line 7) and puts a linear classifier on the last. The
    # last layer gives the class scores here, which a length of 1 would flatten.

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        num_neighbours: int = 25,
        num_further: int = 10,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        at_least_one(hidden_channels=hidden_channels, num_layers=num_layers, out_channels=out_channels)
        at_least_one(num_neighbours=num_neighbours, num_further=num_further)
        check_rate("dropout", dropout)
        self.num_neighbours, self.num_further, self.dropout = num_neighbours, num_further, dropout
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(MeanConv(*sizes) for sizes in pairwise(widths))
        self._lists: Remembered[tuple[Ints, Ints]] = Remembered()
        self._full: Remembered[Hop] = Remembered()

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``H(K-1)`` by all neighbours: ``[N, channels]``; ``x`` itself for one layer."""
        return x if len(self.layers) == 1 else self._climb(x, [self._all(x, edge_index)] * (len(self.layers) - 1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        if self.training:
            return self.score_nodes(x, edge_index, torch.arange(x.shape[0], device=x.device))
        return self._climb(x, [self._all(x, edge_index)] * len(self.layers))

    def score_nodes(self, x: Tensor, edge_index: Tensor, nodes: Tensor) -> Tensor:
        """Return the class scores of `nodes`, in training by neighbours drawn anew."""
        if not self.training:
            return super().score_nodes(x, edge_index, nodes)
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        lists = self._neighbours(x, edge_index)
        dtype = next(self.parameters()).dtype
        hops: list[Hop] = []
        written = nodes.cpu().numpy()
        for layer in reversed(range(len(self.layers))):
            size = self.num_further if hops else self.num_neighbours
            starts, drawn = draw_lists(*lists, written, size=size, rng=rng)
            # The first layer multiplies the features of all nodes, which costs less than to pick rows from them.
            read = np.unique(np.concatenate([written, drawn])) if layer else np.arange(x.shape[0])
            mean = _mean(starts, np.searchsorted(read, drawn), len(read), dtype, x.device)
            hops.insert(0, Hop(mean, torch.from_numpy(np.searchsorted(read, written)).to(x.device)))
            written = read
        return self._climb(x, hops)

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters but the biases."""
        return [p for name, p in self.named_parameters() if not name.endswith("bias")]

    def _climb(self, x: Tensor, hops: list[Hop]) -> Tensor:
        h: Tensor = self.layers[0](self.read(x, self.dropout), hops[0])
        for layer, hop in zip(self.layers[1:], hops[1:], strict=False):
            h = layer(drop(F.relu(h), self.dropout, self.training), hop)
        return F.relu(h) if len(hops) < len(self.layers) else h

    def _neighbours(self, x: Tensor, edge_index: Tensor) -> tuple[Ints, Ints]:
        return self._lists.get(edge_index, lambda e: adjacency_lists(e, x.shape[0]), x.shape[0])

    def _all(self, x: Tensor, edge_index: Tensor) -> Hop:
        n, dtype = x.shape[0], next(self.parameters()).dtype
        lists = self._neighbours(x, edge_index)
        return self._full.get(edge_index, lambda _: Hop(_mean(*lists, n, dtype, x.device), None), n, dtype)


def _mean(starts: Ints, neighbours: Ints, num_columns: int, dtype: torch.dtype, device: torch.device) -> Sparse:
    """Return the matrix that averages over each row's neighbours."""
    counts = np.diff(starts)
    shares = np.repeat(1 / np.maximum(counts, 1), counts)
    parts = (torch.from_numpy(part).to(device) for part in (starts, neighbours, shares))
    starts_, columns, values = parts
    return Sparse.from_csr(csr_tensor(starts_, columns, values.to(dtype), (len(counts), num_columns)))
