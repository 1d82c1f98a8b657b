"""LGCN (Gao, Wang and Ji, "Large-Scale Learnable Graph Convolutional Networks", KDD 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.graph import Ints
from nfcgcn.kernels.rows import column_sums, gathered, scaled, shifted
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.graph_conv import GraphConv
from nfcgcn.method.operations import Rows, add_bias, multiply, propagate
from nfcgcn.method.operations import dropout as drop
from nfcgcn.method.sampling import adjacency_lists
from nfcgcn.settings import depth, rate, setting, takes

NeighbourValues = Literal["plain", "weighted"]
Biases = Literal["none", "learned"]
TrainedOn = Literal["graph", "neighbourhood"]
ADDITIONS = ("neighbour_values", "bias", "trained_on", "epsilon")
"""Settings that came later; at their defaults, runs are what they were before."""


class Neighbours(NamedTuple):
    """Some nodes of similar degree."""

    nodes: Tensor
    """``[M]``"""
    table: Tensor
    """Their neighbours, ``[M, width]``; unused places hold N."""
    weights: Tensor | None
    """What the neighbours' values are multiplied by, ``[M, width]``; None for 1."""


class Part(NamedTuple):
    """The nodes that a pass computes."""

    members: Tensor | None
    """Their numbers in the graph, in ascending order; None for all nodes."""
    neighbourhoods: list[Neighbours]
    """Numbered as the members are."""


@dataclass(frozen=True)
class LGCNConfig(ClassifierConfig):
    """The settings of LGCN, named as its arguments."""

    hidden_channels: int = setting(32, "outputs of the first graph convolution", low=1)
    num_layers: int = depth(1, "learnable graph convolutions; each adds its outputs to what it reads")
    filters: int = setting(8, "outputs of each learnable graph convolution", low=1)
    k: int = setting(8, "values per feature that each takes from the neighbours", low=1)
    dropout: float = rate(0.84, "dropout on every layer's input")
    neighbour_values: NeighbourValues = setting(
        "plain",
        "weighted, as in the authors' program: multiplied by the adjacency's entries, the node among its neighbours, "
        "those below 0 taken as 0",
    )
    bias: Biases = setting("none", "learned, as in the authors' program: biases before the convolutions' sums")
    trained_on: TrainedOn = setting(
        "graph", "neighbourhood, as in the authors' program: a training step sees its nodes and their neighbours alone"
    )
    epsilon: float = setting(
        1e-5, "added to the variance that outputs are divided by; 0.001 in the authors' program", above=0
    )


class LGCN(NodeClassifier):
    r"""A graph convolution, ``num_layers`` learnable graph convolutions, and a graph convolution that classifies.

    .. math:: H^{(0)} = \hat A X W, \qquad H^{(l)} = [H^{(l-1)} \,\|\, \mathrm{LGCL}(H^{(l-1)})], \qquad
        Z = \hat A H^{(L)} W'

    Dropout acts on every layer's input; of a CSR ``x`` it touches the nonzeros only. For the arguments see
    :class:`LGCNConfig`.
    """

    # Paper: trains on sub-graphs grown from the training nodes, to save memory. The authors' program asks for 2,500 of
    # Cora's 2,708 nodes, but stops growing after one round (it compares a set with itself): training sees the training
    # nodes and their neighbours, 644 nodes, with the entries that the whole graph's adjacency has for them. So does
    # `trained_on="neighbourhood"`. The program scores validation and test nodes on such sub-graphs too; here they are
    # scored on the graph. It makes steps of Nadam and drops 0.1 % of the adjacency's entries, which are not here. And
    # it reports the highest test accuracy of all epochs in which the validation accuracy was at least as high as
    # before; its first version, that of all epochs. No figure here is chosen like that; examples/selection_on_test.py
    # measures what both rules add.
    config: LGCNConfig

    @takes(LGCNConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: LGCNConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        c = config
        layer = BiasedGraphConv if c.bias == "learned" else GraphConv
        self.embedding = layer(in_channels, c.hidden_channels)
        widths = [c.hidden_channels + i * c.filters for i in range(c.num_layers + 1)]
        self.layers = nn.ModuleList(
            LearnableGraphConv(w, c.filters, k=c.k, dropout=c.dropout, bias=c.bias, epsilon=c.epsilon)
            for w in widths[:-1]
        )
        self.output = layer(widths[-1], out_channels)

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``H(L)``: ``[N, hidden_channels + num_layers * filters]``."""
        return self._embed(x, edge_index, self._part(edge_index, x.shape[0]))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        return self._score(x, edge_index, self._part(edge_index, x.shape[0]))

    def score_nodes(self, x: Tensor, edge_index: Tensor, nodes: Tensor) -> Tensor:
        """Return the class scores of `nodes`."""
        if not (self.training and self.config.trained_on == "neighbourhood"):
            return super().score_nodes(x, edge_index, nodes)
        part = self._part(edge_index, x.shape[0], nodes)
        assert part.members is not None  # noqa: S101
        return self._score(x, edge_index, part)[torch.searchsorted(part.members, nodes)]

    def _part(self, edge_index: Tensor, num_nodes: int, nodes: Tensor | None = None) -> Part:
        return find_part(edge_index, num_nodes, nodes, self.config.neighbour_values)

    def _embed(self, x: Tensor, edge_index: Tensor, part: Part) -> Tensor:
        h = self.embedding.project(drop(self.scale(x), self.config.dropout, self.training))
        if part.members is not None:
            h = _rows(h, part.members)
        h = _propagate_within(h, edge_index, part.members, x.shape[0])
        for layer in self.layers:
            h = torch.cat([h, layer(h, part.neighbourhoods)], dim=1)
        return h

    def _score(self, x: Tensor, edge_index: Tensor, part: Part) -> Tensor:
        h = drop(self._embed(x, edge_index, part), self.config.dropout, self.training)
        if part.members is None:
            scores: Tensor = self.output(h, edge_index)
            return scores
        return _propagate_within(self.output.project(h), edge_index, part.members, x.shape[0])

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters, as the authors' code does."""
        return list(self.parameters())


class BiasedGraphConv(GraphConv):
    r"""A graph convolution with a bias before the sum over neighbours: :math:`\hat A (H W + b)`."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and biases again (Glorot, uniform, both)."""
        super().reset_parameters()
        if hasattr(self, "bias"):
            nn.init.uniform_(self.bias, -((3 / len(self.bias)) ** 0.5), (3 / len(self.bias)) ** 0.5)

    def project(self, x: Rows) -> Tensor:
        """Return ``x W + b``, which is then propagated."""
        return add_bias(super().project(x), self.bias)


class LearnableGraphConv(nn.Module):
    r"""Convolve each node's features and its neighbours' k largest values of each: the LGCL.

    .. math:: \mathrm{LGCL}(H)_i = \mathrm{Norm}(\mathrm{Conv}_2(\mathrm{Conv}_1(G_i))), \qquad
        G_i = (h_i, g_{i1}, \ldots, g_{ik}) \in \mathbb{R}^{(k+1) \times C}

    where :math:`g_{ij}` holds, feature by feature, the j-th largest value among the
    neighbours. Both convolutions are one-dimensional over the k + 1 places, about half of them wide, the features
    being their channels; they leave one place.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        k: int = 8,
        dropout: float = 0.0,
        bias: Biases = "none",
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.k, self.dropout, self.epsilon = k, dropout, epsilon
        between, width = (in_channels + out_channels) // 2, (k + 1) // 2 + 1
        self.first = nn.Parameter(torch.empty(between, in_channels, width))
        self.second = nn.Parameter(torch.empty(out_channels, between, k + 2 - width))
        self.bias = nn.Parameter(torch.empty(between)) if bias == "learned" else None
        self.scale = nn.Parameter(torch.empty(out_channels))
        self.shift = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the filters again (Glorot, uniform), and reset the normalisation's scale to 1 and all else to 0."""
        nn.init.xavier_uniform_(self.first)
        nn.init.xavier_uniform_(self.second)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        nn.init.ones_(self.scale)
        nn.init.zeros_(self.shift)

    def forward(self, h: Tensor, neighbourhoods: list[Neighbours]) -> Tensor:
        """Return ``[N, out_channels]``."""
        grid = torch.cat([h[:, None], k_largest(h, neighbourhoods, self.k)], dim=1).flatten(1)
        h = multiply(drop(grid, self.dropout, self.training), _banded(self.first, self.k + 1))
        if self.bias is not None:
            h = add_bias(h, self.bias.repeat(self.second.shape[2]))
        h = multiply(drop(h, self.dropout, self.training), _banded(self.second, self.second.shape[2]))
        # Paper: does not mention normalisation. The authors' code normalises over the nodes at hand, in training and in
        # evaluation; without it, the step size of 0.1 ruins the training (validation accuracy 49 % on Cora). A bias
        # just before it would have no effect. There is no activation, as in their code.
        h = shifted(h, -column_sums(h) / len(h))
        spread = (column_sums(h.square()) / len(h) + self.epsilon).rsqrt()
        return shifted(scaled(h, spread * self.scale), self.shift)


def k_largest(h: Tensor, neighbourhoods: list[Neighbours], k: int) -> Tensor:
    """Return the k largest values of each feature among each node's neighbours, largest first: ``[N, k, C]``.

    For a node with fewer than k neighbours, zeros follow. Of equal values, that of the node with the lower number comes
    first; the gradient goes to the chosen entries. Values with weights are multiplied by these before they are
    compared, and are 0 instead of negative. Memory: O((E + k N) C).
    """
    num_nodes, channels = h.shape
    chosen = torch.full((num_nodes, k, channels), num_nodes, device=h.device)
    weights = None if neighbourhoods[0].weights is None else h.new_ones(chosen.shape)
    with torch.no_grad():
        ranked = torch.cat([h, h.new_full((1, channels), -torch.inf)])
        for group in neighbourhoods:
            values = ranked[group.table].mT.contiguous()
            if group.weights is not None:
                values = values * group.weights[:, None].to(h.dtype)
            order = values.sort(dim=2, descending=True, stable=True).indices[:, :, :k]
            chosen[group.nodes, : order.shape[2]] = group.table[:, None].expand_as(values).gather(2, order).mT
            if weights is not None and group.weights is not None:
                own = group.weights[:, None].to(h.dtype).expand_as(values)
                weights[group.nodes, : order.shape[2]] = own.gather(2, order).mT
    padded = torch.cat([h, h.new_zeros(1, channels)])
    values = padded.gather(0, chosen.view(-1, channels)).view(chosen.shape)
    return values if weights is None else F.relu(values * weights)


@remembered
def find_part(edge_index: Tensor, num_nodes: int, nodes: Tensor | None, values: NeighbourValues) -> Part:
    """Return what a pass over `nodes` and their neighbours computes, or over the graph if there are no `nodes`."""
    starts, columns = (part.numpy() for part in adjacency_lists(edge_index, num_nodes))
    matrix = sp.csr_array((np.ones(len(columns)), columns, starts), shape=(num_nodes, num_nodes))
    members = None if nodes is None else np.union1d(nodes.cpu().numpy(), matrix[nodes.cpu().numpy()].indices)
    if values == "weighted":
        matrix = matrix + sp.eye_array(num_nodes, format="csr")
        scale = sp.diags_array(matrix.sum(1) ** -0.5)
        matrix = scale @ matrix @ scale
    if members is not None:
        matrix = matrix[members][:, members]
    neighbourhoods = group_neighbours(sp.csr_array(matrix), weighted=values == "weighted", device=edge_index.device)
    return Part(None if members is None else torch.from_numpy(members).to(edge_index.device), neighbourhoods)


def group_neighbours(matrix: sp.csr_array, *, weighted: bool, device: torch.device) -> list[Neighbours]:
    """Group nodes of similar degree in tables of width 1, 2, 4, ...: none is twice as wide as one of its rows needs."""
    matrix.sort_indices()
    starts, columns, entries = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data
    degrees = np.diff(starts)
    doublings = np.ceil(np.log2(np.maximum(degrees, 1))).astype(np.int64)

    def group(doubling: int) -> Neighbours:
        nodes: Ints = np.flatnonzero(doublings == doubling)
        places = np.arange(1 << doubling)
        filled = places < degrees[nodes, None]
        at = (starts[nodes, None] + places)[filled]
        table, weights = np.full(filled.shape, matrix.shape[0]), np.ones(filled.shape, np.float32)
        table[filled], weights[filled] = columns[at], entries[at]
        on_device = [torch.from_numpy(part).to(device) for part in (nodes, table, weights)]
        return Neighbours(on_device[0], on_device[1], on_device[2] if weighted else None)

    return [group(doubling) for doubling in np.unique(doublings).tolist()]


def _rows(h: Tensor, nodes: Tensor) -> Tensor:
    return gathered(h, nodes[:, None])[:, 0]


def _propagate_within(h: Tensor, edge_index: Tensor, members: Tensor | None, num_nodes: int) -> Tensor:
    """Multiply by the rows and columns of the adjacency that belong to the members."""
    if members is None:
        return propagate(h, edge_index)
    return _rows(propagate(h.new_zeros(num_nodes, h.shape[1]).index_copy(0, members, h), edge_index), members)


def _banded(weight: Tensor, places: int) -> Tensor:
    """Return a convolution's filters ``[F, C, W]`` as a matrix ``[places * C, (places - W + 1) * F]``.

    The convolution is then one product, without a copy of each window, and its gradient does not depend on the number
    of threads.
    """
    taps = weight.permute(2, 1, 0)
    rest = places - len(taps)
    shifted = [F.pad(taps, (0, 0, 0, 0, before, rest - before)) for before in range(rest + 1)]
    return torch.stack(shifted, dim=2).flatten(2).flatten(0, 1)
