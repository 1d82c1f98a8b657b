"""Neural fingerprints (Duvenaud, Maclaurin, Aguilera-Iparraguirre, Gomez-Bombarelli, Hirzel, Aspuru-Guzik and Adams,
"Convolutional Networks on Graphs for Learning Molecular Fingerprints", NeurIPS 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.kernels.products import aggregate
from nfcgcn.kernels.sparse import Sparse
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.operations import dropout, multiply
from nfcgcn.method.sampling import adjacency_lists
from nfcgcn.settings import depth, rate, setting, takes


@dataclass(frozen=True)
class FingerprintConfig(ClassifierConfig):
    """The settings of neural fingerprints, named as their arguments."""

    hidden_channels: int = setting(16, "outputs of each layer but the last", low=1)
    num_layers: int = depth(2, "layers")
    max_degree: int = setting(5, "nodes with more neighbours share the weights of this many", low=1, high=100)
    dropout: float = rate(0.5, "dropout on every layer's input")


class DegreeConv(nn.Module):
    r"""Add up a node and its neighbours, then multiply by the matrix of its degree.

    .. math:: h'_i = W_{\deg(i)} \Big( h_i + \sum_{j \in \mathcal{N}_i} h_j \Big) + b_{\deg(i)}

    (algorithm 2, lines 8 and 9). PyG's ``MFConv`` has a second matrix for the node itself, and takes no sparse ``x``.
    """

    def __init__(self, in_channels: int, out_channels: int, max_degree: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_degree + 1, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(max_degree + 1, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights again (Glorot, uniform, for each degree)."""
        for weight in self.weight:
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.bias)

    def forward(self, sums: Tensor, degrees: Tensor) -> Tensor:
        """Return ``[N, out_channels]``, given the sums over each node and its neighbours."""
        count, _, width = self.weight.shape
        by_degree = multiply(sums, torch.cat(self.weight.unbind(), dim=1)).view(-1, count, width)
        chosen = F.one_hot(degrees, count).to(by_degree.dtype)
        own = by_degree.gather(1, degrees[:, None, None].expand(-1, 1, width)).squeeze(1)
        return own + multiply(chosen, self.bias)


class Fingerprint(NodeClassifier):
    r"""``num_layers`` layers with weights by degree, ReLU between them; the last one gives the class scores.

    Dropout acts on every layer's sums; of a CSR ``x`` it touches the nonzeros only. For the arguments see
    :class:`FingerprintConfig`.
    """

    # Paper: classifies whole molecules, by the sum over all atoms and layers of a softmax. A node has no such sum.
    config: FingerprintConfig

    @takes(FingerprintConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: FingerprintConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        widths = [in_channels, *[config.hidden_channels] * (config.num_layers - 1), out_channels]
        self.layers = nn.ModuleList(DegreeConv(*sizes, config.max_degree) for sizes in pairwise(widths))

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the sums that the last layer multiplies, ``[N, channels]``, CSR where ``x`` is."""
        around, degrees = self._around(x, edge_index)
        h = _summed(self.scale(x), edge_index, around.matrix.dtype)
        for layer in self.layers[:-1]:
            h = F.relu(layer(dropout(h, self.config.dropout, self.training), degrees))
            h = aggregate(around, h)
        return h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        h = dropout(self.embed(x, edge_index), self.config.dropout, self.training)
        scores: Tensor = self.layers[-1](h, self._around(x, edge_index)[1])
        return scores

    def _around(self, x: Tensor, edge_index: Tensor) -> tuple[Sparse, Tensor]:
        dtype = next(self.parameters()).dtype
        return _around(edge_index, x.shape[0], self.config.max_degree, dtype, x.device)

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters but the biases."""
        return [p for name, p in self.named_parameters() if not name.endswith("bias")]


@remembered
def _around(
    edge_index: Tensor, num_nodes: int, most: int, dtype: torch.dtype, device: torch.device
) -> tuple[Sparse, Tensor]:
    """Return the adjacency with loops, and each node's degree, `most` at most."""
    starts, neighbours = adjacency_lists(edge_index, num_nodes, device)
    nodes = torch.arange(num_nodes, device=device)
    rows = torch.cat([torch.repeat_interleave(nodes, starts.diff()), nodes])
    ones = torch.ones(len(rows), dtype=dtype, device=device)
    matrix = Sparse.from_entries(rows, torch.cat([neighbours, nodes]), ones, size=(num_nodes, num_nodes))
    return matrix, starts.diff().clamp(max=most)


@remembered
def _summed(x: Tensor, edge_index: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sums over each node and its neighbours, of features that do not change once per graph."""
    return aggregate(_around(edge_index, x.shape[0], 1, dtype, x.device)[0], x)
