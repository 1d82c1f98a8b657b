"""LGCN (Gao, Wang and Ji, "Large-Scale Learnable Graph Convolutional Networks", KDD 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.graph import Ints
from nfcgcn.kernels.rows import column_sums, scaled, shifted
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.graph_conv import GraphConv
from nfcgcn.method.operations import dropout as drop
from nfcgcn.method.operations import multiply
from nfcgcn.method.sampling import adjacency_lists
from nfcgcn.settings import rate, setting, takes

Neighbourhoods = list[tuple[Tensor, Tensor]]
"""Nodes of similar degree ``[M]`` with their neighbours ``[M, width]``; unused places hold N."""


@dataclass(frozen=True)
class LGCNConfig(ClassifierConfig):
    """The settings of LGCN, named as its arguments."""

    hidden_channels: int = setting(32, "outputs of the first graph convolution", low=1)
    num_layers: int = setting(1, "learnable graph convolutions; each adds its outputs to what it reads", low=1)
    filters: int = setting(8, "outputs of each learnable graph convolution", low=1)
    k: int = setting(8, "values per feature that each takes from the neighbours", low=1)
    dropout: float = rate(0.84, "dropout on every layer's input")


class LGCN(NodeClassifier):
    r"""A graph convolution, ``num_layers`` learnable graph convolutions, and a graph convolution that classifies.

    .. math:: H^{(0)} = \hat A X W, \qquad H^{(l)} = [H^{(l-1)} \,\|\, \mathrm{LGCL}(H^{(l-1)})], \qquad
        Z = \hat A H^{(L)} W'

    Dropout acts on every layer's input; of a CSR ``x`` it touches the nonzeros only. For the arguments see
    :class:`LGCNConfig`.
    """

    # Paper: trains on sub-graphs grown from the training nodes, to save memory; here training sees the whole graph. In
    # the authors' code the sub-graph is drawn once and has 2,500 of Cora's 2,708 nodes. Their code departs from the
    # paper: it makes steps of Nadam; it has biases in both graph convolutions and in the first of the two convolutions;
    # it drops 0.1 % of the adjacency's entries; it multiplies the neighbours' values by these entries, counts the node
    # among them, and takes those below 0 as 0 (tried but for the node itself, validation accuracy over three seeds:
    # Cora 81.5 with, 82.0 without, CiteSeer 72.1 and 71.7); and it reports the highest test accuracy of all epochs in
    # which the validation accuracy was at least as high as before, which no figure here does;
    # examples/selection_on_test.py measures what that adds.
    config: LGCNConfig

    @takes(LGCNConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: LGCNConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        c = config
        self.embedding = GraphConv(in_channels, c.hidden_channels)
        widths = [c.hidden_channels + i * c.filters for i in range(c.num_layers + 1)]
        self.layers = nn.ModuleList(LearnableGraphConv(w, c.filters, k=c.k, dropout=c.dropout) for w in widths[:-1])
        self.output = GraphConv(widths[-1], out_channels)

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``H(L)``: ``[N, hidden_channels + num_layers * filters]``."""
        h: Tensor = self.embedding(drop(self.scale(x), self.config.dropout, self.training), edge_index)
        neighbourhoods = group_neighbours(edge_index, x.shape[0])
        for layer in self.layers:
            h = torch.cat([h, layer(h, neighbourhoods)], dim=1)
        return h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        h = drop(self.embed(x, edge_index), self.config.dropout, self.training)
        scores: Tensor = self.output(h, edge_index)
        return scores

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters, as the authors' code does."""
        return list(self.parameters())


class LearnableGraphConv(nn.Module):
    r"""Convolve each node's features and its neighbours' k largest values of each: the LGCL.

    .. math:: \mathrm{LGCL}(H)_i = \mathrm{Norm}(\mathrm{Conv}_2(\mathrm{Conv}_1(G_i))), \qquad
        G_i = (h_i, g_{i1}, \ldots, g_{ik}) \in \mathbb{R}^{(k+1) \times C}

    where :math:`g_{ij}` holds, feature by feature, the j-th largest value among the
    neighbours. Both convolutions are one-dimensional over the k + 1 places, about half of them wide, the features
    being their channels; they leave one place.
    """

    def __init__(self, in_channels: int, out_channels: int, *, k: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.k, self.dropout = k, dropout
        between, width = (in_channels + out_channels) // 2, (k + 1) // 2 + 1
        self.first = nn.Parameter(torch.empty(between, in_channels, width))
        self.second = nn.Parameter(torch.empty(out_channels, between, k + 2 - width))
        self.scale = nn.Parameter(torch.empty(out_channels))
        self.shift = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the filters again (Glorot, uniform), and reset the normalisation's scale to 1 and its shift to 0."""
        nn.init.xavier_uniform_(self.first)
        nn.init.xavier_uniform_(self.second)
        nn.init.ones_(self.scale)
        nn.init.zeros_(self.shift)

    def forward(self, h: Tensor, neighbourhoods: Neighbourhoods) -> Tensor:
        """Return ``[N, out_channels]``."""
        grid = torch.cat([h[:, None], k_largest(h, neighbourhoods, self.k)], dim=1).flatten(1)
        h = multiply(drop(grid, self.dropout, self.training), _banded(self.first, self.k + 1))
        h = multiply(drop(h, self.dropout, self.training), _banded(self.second, self.second.shape[2]))
        # Paper: does not mention normalisation. The authors' code normalises over the nodes at hand, in training and in
        # evaluation; without it, the step size of 0.1 ruins the training (validation accuracy 49 % on Cora). A bias
        # before it would have no effect. There is no activation, as in their code.
        h = shifted(h, -column_sums(h) / len(h))
        spread = (column_sums(h.square()) / len(h) + 1e-5).rsqrt()
        return shifted(scaled(h, spread * self.scale), self.shift)


def k_largest(h: Tensor, neighbourhoods: Neighbourhoods, k: int) -> Tensor:
    """Return the k largest values of each feature among each node's neighbours, largest first: ``[N, k, C]``.

    For a node with fewer than k neighbours, zeros follow. Of equal values, that of the node with the lower number comes
    first; the gradient goes to the chosen entries. Memory: O((E + k N) C).
    """
    num_nodes, channels = h.shape
    chosen = torch.full((num_nodes, k, channels), num_nodes, device=h.device)
    with torch.no_grad():
        ranked = torch.cat([h, h.new_full((1, channels), -torch.inf)])
        for nodes, table in neighbourhoods:
            values = ranked[table].mT.contiguous()
            order = values.sort(dim=2, descending=True, stable=True).indices[:, :, :k]
            chosen[nodes, : order.shape[2]] = table[:, None].expand_as(values).gather(2, order).mT
    padded = torch.cat([h, h.new_zeros(1, channels)])
    return padded.gather(0, chosen.view(-1, channels)).view(chosen.shape)


@remembered
def group_neighbours(edge_index: Tensor, num_nodes: int) -> Neighbourhoods:
    """Group nodes of similar degree in tables of width 1, 2, 4, ...: none is twice as wide as one of its rows needs."""
    starts, columns = (part.numpy() for part in adjacency_lists(edge_index, num_nodes))
    degrees = np.diff(starts)
    doublings = np.ceil(np.log2(np.maximum(degrees, 1))).astype(np.int64)

    def group(doubling: int) -> tuple[Tensor, Tensor]:
        nodes: Ints = np.flatnonzero(doublings == doubling)
        places = np.arange(1 << doubling)
        filled = places < degrees[nodes, None]
        table = np.full(filled.shape, num_nodes)
        table[filled] = columns[(starts[nodes, None] + places)[filled]]
        return torch.from_numpy(nodes).to(edge_index.device), torch.from_numpy(table).to(edge_index.device)

    return [group(doubling) for doubling in np.unique(doublings).tolist()]


def _banded(weight: Tensor, places: int) -> Tensor:
    """Return a convolution's filters ``[F, C, W]`` as a matrix ``[places * C, (places - W + 1) * F]``.

    The convolution is then one product, without a copy of each window, and its gradient does not depend on the number
    of threads.
    """
    taps = weight.permute(2, 1, 0)
    rest = places - len(taps)
    shifted = [F.pad(taps, (0, 0, 0, 0, before, rest - before)) for before in range(rest + 1)]
    return torch.stack(shifted, dim=2).flatten(2).flatten(0, 1)
