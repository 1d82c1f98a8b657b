"""GCN_5 and GAT_5, the rivals without graph convolutions in the NFC-GCN paper's "Test accuracy without GCN layer"."""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.kernels.product import aggregate, multiply, product
from nfcgcn.kernels.product.reference import Sparse
from nfcgcn.kernels.rows import add_slots, gathered, shifted
from nfcgcn.layers import Linear, Remembered, adjacency_lists, at_least_one, check_rate
from nfcgcn.models import NodeClassifier
from nfcgcn.randomness import generator
from nfcgcn.sampling import draw_neighbours


class SampledClassifier(NodeClassifier):
    r"""Classify a weighted sum of each node's features and its sampled neighbours' with one layer.

    .. math:: z_i = W h_i + b, \qquad h_i = \sum_{j \in \{i\} \cup \mathcal{N}'_i} c_{ij} x_j

    ("Graph Node-Feature Convolution for Representation Learning", Zhang, Song, Aletras and Lu). The neighbours are
    those of NFC-GCN with the same seed: the node itself and ``bandwidth - 1`` of its neighbours, copies of the node
    where it has fewer. Subclasses say what :math:`c_{ij}` is.

    Args:
        in_channels: features a node.
        out_channels: classes.
        bandwidth: slots, the node itself included.
        dropout: on the features; of a CSR ``x`` it touches the nonzeros only.
        seed: of the neighbour draw.
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, bandwidth: int = 6, dropout: float = 0.5, seed: int = 0
    ) -> None:
        super().__init__()
        at_least_one(out_channels=out_channels, bandwidth=bandwidth)
        check_rate("dropout", dropout)
        self.bandwidth, self.dropout, self.seed = bandwidth, dropout, seed
        self.output = Linear(in_channels, out_channels)
        self._table: Remembered[Tensor] = Remembered()

    @abstractmethod
    def coefficients(self, h: Tensor, table: Tensor, edge_index: Tensor) -> Tensor:
        """Return each slot's weight, ``[N, bandwidth]``, given ``h = W x``."""

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the weighted sums ``[N, in_channels]``, CSR where ``x`` is; no gradient reaches the weights."""
        features, table = self.read(x, self.dropout), self.table(x, edge_index)
        c = self.coefficients(multiply(features, self.output.weight.mT), table, edge_index).detach()
        rows = table[:, :1].expand_as(table)
        sums = Sparse.from_entries(rows.flatten(), table.flatten(), c.flatten(), size=(len(table), len(table)))
        return aggregate(sums, features)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        h = multiply(self.read(x, self.dropout), self.output.weight.mT)  # the sum of W x_j is W h_i, and shorter
        table = self.table(x, edge_index)
        weighted = self.coefficients(h, table, edge_index)[:, :, None] * gathered(h, table)
        return shifted(add_slots(weighted), self.output.bias)

    def table(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the neighbour table ``[N, bandwidth]``, drawn once a graph."""

        def draw(edge_index: Tensor) -> Tensor:
            starts, columns = adjacency_lists(edge_index, x.shape[0])
            rng = generator(self.seed, "neighbours")
            return torch.from_numpy(draw_neighbours(starts, columns, bandwidth=self.bandwidth, rng=rng)).to(x.device)

        return self._table.get(edge_index, draw, x.shape[0], x.device, self.seed)

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the layer's weights."""
        return list(self.output.parameters())[:1]


class GCN5(SampledClassifier):
    r"""Classify a sum weighted by degrees, as in GCN: :math:`c_{ij} = 1 / \sqrt{\tilde d_i \tilde d_j}`.

    The degrees are those of the whole graph, loops counted. For the rest see :class:`SampledClassifier`.
    """

    # Paper: "average with different weights according to neighbors' node degrees (GCN)" says no more. Copies of the
    # node count as often as they stand in its table.
    def __init__(
        self, in_channels: int, out_channels: int, *, bandwidth: int = 6, dropout: float = 0.5, seed: int = 0
    ) -> None:
        super().__init__(in_channels, out_channels, bandwidth=bandwidth, dropout=dropout, seed=seed)
        self._degrees: Remembered[Tensor] = Remembered()

    def coefficients(self, h: Tensor, table: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``[N, bandwidth]``."""

        def count(edge_index: Tensor) -> Tensor:
            return torch.bincount(edge_index[1, edge_index[0] != edge_index[1]], minlength=len(table)) + 1

        scale = self._degrees.get(edge_index, count, len(table)).to(h.dtype).rsqrt()
        return scale[:, None] * scale[table]


class GAT5(SampledClassifier):
    r"""Classify a sum with learned weights, as in GAT with one head, the softmax being taken over the slots.

    .. math:: c_{ij} = \mathrm{softmax}_j(\mathrm{LeakyReLU}_{0.2}(a^\top W x_i + a'^\top W x_j))

    For the rest see :class:`SampledClassifier`.
    """

    # Paper: "learn to assign weight to neighbors and then mean average (GAT)" says no more; the attention reads the
    # scores that the one layer gives each node, so that there is one layer and no other.
    def __init__(
        self, in_channels: int, out_channels: int, *, bandwidth: int = 6, dropout: float = 0.5, seed: int = 0
    ) -> None:
        super().__init__(in_channels, out_channels, bandwidth=bandwidth, dropout=dropout, seed=seed)
        self.attention = nn.Parameter(nn.init.xavier_uniform_(torch.empty(out_channels, 2)))

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        super().reset_parameters()
        nn.init.xavier_uniform_(self.attention)

    def coefficients(self, h: Tensor, table: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        """Return ``[N, bandwidth]``; they sum to 1 in each row."""
        scores = product(h, self.attention)
        return F.leaky_relu(scores[:, :1] + gathered(scores[:, 1:], table).squeeze(2), 0.2).softmax(1)
