"""GraphSAGE (Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.products import sparse_product
from nfcgcn.kernels.sparse import Sparse
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.operations import Rows, add_bias, dropout, multiply
from nfcgcn.method.sampling import adjacency_lists, draw_rows
from nfcgcn.settings import depth, rate, setting, takes


@dataclass(frozen=True)
class SAGEConfig(ClassifierConfig):
    """The settings of GraphSAGE, named as its arguments."""

    hidden_channels: int = setting(128, "outputs of each layer but the last", low=1)
    num_layers: int = depth(2, "layers")
    num_neighbours: int = setting(25, "most neighbours drawn per node that is scored (the paper's S1)", low=1)
    num_further: int = setting(10, "most neighbours drawn per node that was itself drawn (S2)", low=1)
    dropout: float = rate(0.5, "dropout on every layer's input")


class Hop(NamedTuple):
    """How one layer gets from the nodes that it reads to the nodes that it writes."""

    mean: Sparse
    """``[written, read]``: averages over the neighbours."""
    own: Tensor | None
    """``[written]``: the place of each node among those read; None if both are the same nodes."""


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
        """Draw the weights again (Glorot, uniform)."""
        nn.init.xavier_uniform_(self.own)
        nn.init.xavier_uniform_(self.neighbours)
        nn.init.zeros_(self.bias)

    def forward(self, h: Rows, hop: Hop) -> Tensor:
        """Return ``h'`` of the nodes written: ``[written, out_channels]``."""
        own, neighbours = multiply(h, torch.cat([self.own, self.neighbours], dim=1)).chunk(2, dim=1)
        own = own if hop.own is None else own.index_select(0, hop.own)
        return add_bias(own + sparse_product(hop.mean, neighbours), self.bias)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.own.shape[0]}, {self.own.shape[1]})"


class SAGE(NodeClassifier):
    r"""``num_layers`` layers, each of which adds the mean of the neighbours to the node, ReLU between them.

    .. math:: h^{(l)}_i = \mathrm{ReLU}(W_1^{(l)} h^{(l-1)}_i + W_2^{(l)} \, \mathrm{mean}_j \, h^{(l-1)}_j + b^{(l)})

    In training the mean is over neighbours drawn again for every step (algorithm 2), in evaluation over all of them.

    Dropout acts on every layer's input; of a CSR ``x`` it touches the nonzeros only. For the arguments see
    :class:`SAGEConfig`.
    """

    # Paper: scales every layer's output to length 1 (algorithm 1, line 7) and puts a linear classifier on the last. The
    # last layer gives the class scores here, which a length of 1 would flatten.

    config: SAGEConfig

    @takes(SAGEConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: SAGEConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        widths = [in_channels, *[config.hidden_channels] * (config.num_layers - 1), out_channels]
        self.layers = nn.ModuleList(MeanConv(*sizes) for sizes in pairwise(widths))

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``H(K-1)`` by all neighbours: ``[N, channels]``; the scaled features for one layer."""
        if len(self.layers) == 1:
            return self.scale(x)
        return F.relu(self._climb(x, [self._all(x, edge_index)] * (len(self.layers) - 1)))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        if self.training:
            return self.score_nodes(x, edge_index, torch.arange(x.shape[0], device=x.device))
        return self._climb(x, [self._all(x, edge_index)] * len(self.layers))

    def score_nodes(self, x: Tensor, edge_index: Tensor, nodes: Tensor) -> Tensor:
        """Return the class scores of `nodes`, in training with newly drawn neighbours."""
        if not self.training:
            return super().score_nodes(x, edge_index, nodes)
        lists = adjacency_lists(edge_index, x.shape[0], x.device)
        dtype = next(self.parameters()).dtype
        hops: list[Hop] = []
        written = nodes
        for layer in reversed(range(len(self.layers))):
            size = self.config.num_further if hops else self.config.num_neighbours
            starts, drawn = draw_lists(*lists, written, size=size, seed=int(torch.randint(2**62, ())))
            # The first layer multiplies the features of all nodes, which costs less than picking rows from them.
            read = torch.unique(torch.cat([written, drawn])) if layer else torch.arange(x.shape[0], device=x.device)
            mean = _mean(starts, torch.searchsorted(read, drawn), len(read), dtype)
            hops.insert(0, Hop(mean, torch.searchsorted(read, written)))
            written = read
        return self._climb(x, hops)

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters but the biases."""
        return [p for name, p in self.named_parameters() if not name.endswith("bias")]

    def _climb(self, x: Tensor, hops: list[Hop]) -> Tensor:
        h = self.scale(x)
        for number, (layer, hop) in enumerate(zip(self.layers, hops, strict=False)):
            h = layer(dropout(F.relu(h) if number else h, self.config.dropout, self.training), hop)
        return h

    def _all(self, x: Tensor, edge_index: Tensor) -> Hop:
        return Hop(_mean_of_all(edge_index, x.shape[0], next(self.parameters()).dtype, x.device), None)


def draw_lists(starts: Tensor, neighbours: Tensor, nodes: Tensor, *, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw at most ``size`` distinct neighbours of each of `nodes`, uniformly and in random order.

    Takes an adjacency in CSR form and returns what was drawn in the same form, one row per node of `nodes`.
    """
    degrees = starts[nodes + 1] - starts[nodes]
    local = _starts(degrees)
    shift = torch.repeat_interleave(starts[nodes] - local[:-1], degrees)
    places = torch.arange(len(shift), device=shift.device) + shift
    most = min(size, int(degrees.max()) if len(degrees) else 0)
    table = draw_rows(local, neighbours[places], size=most, seed=seed)[:, 1:]
    counts = degrees.clamp(max=size)
    return _starts(counts), table[torch.arange(most, device=counts.device) < counts[:, None]]


def _starts(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


@remembered
def _mean_of_all(edge_index: Tensor, num_nodes: int, dtype: torch.dtype, device: torch.device) -> Sparse:
    return _mean(*adjacency_lists(edge_index, num_nodes, device), num_nodes, dtype)


def _mean(starts: Tensor, neighbours: Tensor, num_columns: int, dtype: torch.dtype) -> Sparse:
    """Return the matrix that averages over each row's neighbours."""
    counts = starts.diff()
    shares = torch.repeat_interleave(1 / counts.clamp(min=1).double(), counts).to(dtype)
    return Sparse.from_csr(csr_tensor(starts, neighbours, shares, (len(counts), num_columns)))
