"""ChebNet (Defferrard, Bresson and Vandergheynst, "Convolutional Neural Networks on Graphs with Fast Localized Spectral
Filtering", NeurIPS 2016): the spectral networks of Bruna, Zaremba, Szlam and LeCun (ICLR 2014) without eigenvectors."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.products import sparse_product
from nfcgcn.kernels.sparse import Sparse
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.operations import Rows, dropout, multiply
from nfcgcn.method.sampling import adjacency_lists
from nfcgcn.settings import depth, rate, setting, takes


@dataclass(frozen=True)
class ChebNetConfig(ClassifierConfig):
    """The settings of ChebNet, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of each layer but the last", low=1)
    num_layers: int = depth(2, "layers")
    order: int = setting(3, "order of the polynomials: how many edges a layer reaches", low=1, high=100)
    dropout: float = rate(0.5, "dropout on every layer's input")


class ChebConv(nn.Module):
    r"""Filter by a polynomial of the Laplacian.

    .. math:: H' = \sum_{k=0}^K T_k(\tilde L) H W_k, \qquad \tilde L = \frac{2}{\lambda_{max}} L - I, \qquad
        L = I - D^{-1/2} A D^{-1/2}

    with Chebyshev's :math:`T_k(y) = 2 y \, T_{k-1}(y) - T_{k-2}(y)` (equations 4 and 5). PyG's ``ChebConv`` computes
    the same, but takes no sparse ``x``. By Clenshaw's scheme the products are of outputs, not of inputs.
    """

    # Paper: takes the largest eigenvalue of L, which is at most 2; with 2 no eigenvalue need be found.

    def __init__(self, in_channels: int, out_channels: int, order: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(order + 1, in_channels, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights again (Glorot, uniform, for each power)."""
        for weight in self.weight:
            nn.init.xavier_uniform_(weight)

    def forward(self, h: Rows, laplacian: Sparse) -> Tensor:
        """Return ``[N, out_channels]``."""
        count, _, width = self.weight.shape
        terms: tuple[Tensor, ...] = torch.split(multiply(h, torch.cat(self.weight.unbind(), dim=1)), width, dim=1)
        after, later = terms[-1], torch.zeros_like(terms[-1])
        for k in range(count - 2, 0, -1):
            after, later = terms[k] + 2 * sparse_product(laplacian, after) - later, after
        return terms[0] + sparse_product(laplacian, after) - later


class ChebNet(NodeClassifier):
    r"""``num_layers`` Chebyshev filters, ReLU between them.

    Dropout acts on every layer's input; of a CSR ``x`` it touches the nonzeros only. For the arguments see
    :class:`ChebNetConfig`.
    """

    config: ChebNetConfig

    @takes(ChebNetConfig, positional=("hidden_channels", "num_layers"))
    def __init__(self, in_channels: int, out_channels: int, *, config: ChebNetConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        widths = [in_channels, *[config.hidden_channels] * (config.num_layers - 1), out_channels]
        self.layers = nn.ModuleList(ChebConv(*sizes, config.order) for sizes in pairwise(widths))

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``H(K-1)``: ``[N, channels]``; the scaled features for one layer."""
        h = self.scale(x)
        for layer in self.layers[:-1]:
            h = F.relu(layer(dropout(h, self.config.dropout, self.training), self.laplacian(x, edge_index)))
        return h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        h = dropout(self.embed(x, edge_index), self.config.dropout, self.training)
        scores: Tensor = self.layers[-1](h, self.laplacian(x, edge_index))
        return scores

    def laplacian(self, x: Tensor, edge_index: Tensor) -> Sparse:
        """Return the scaled Laplacian, made once per graph."""
        return scaled_laplacian(edge_index, x.shape[0], next(self.parameters()).dtype, x.device)

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the first layer's weights, as Kipf and Welling did in their comparison."""
        return list(self.layers[0].parameters())


@remembered
def scaled_laplacian(edge_index: Tensor, num_nodes: int, dtype: torch.dtype, device: torch.device) -> Sparse:
    """Return ``L - I``, which is minus the normalised adjacency without loops; rows of lone nodes are empty."""
    starts, neighbours = adjacency_lists(edge_index, num_nodes, device)
    scale = starts.diff().clamp(min=1).to(dtype).rsqrt()
    rows = torch.repeat_interleave(torch.arange(num_nodes, device=device), starts.diff())
    values = -scale[rows] * scale[neighbours]
    return Sparse.from_csr(csr_tensor(starts, neighbours, values, (num_nodes, num_nodes)))
