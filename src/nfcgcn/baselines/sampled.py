"""GCN_5 and GAT_5, the rivals without graph convolutions in the NFC-GCN paper's "Test accuracy without GCN layer"."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.kernels.products import aggregate
from nfcgcn.kernels.rows import add_slots, gathered
from nfcgcn.kernels.sparse import Sparse
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.graph_conv import Linear
from nfcgcn.method.operations import add_bias, dropout, multiply
from nfcgcn.method.sampling import neighbour_table
from nfcgcn.settings import MOST_SLOTS, rate, setting, takes


@dataclass(frozen=True)
class SampledConfig(ClassifierConfig):
    """The settings of GCN-5 and GAT-5, named as their arguments."""

    bandwidth: int = setting(6, "slots of a node, the node itself included", low=1, high=MOST_SLOTS)
    dropout: float = rate(0.5, "dropout on the features")


class SampledClassifier(NodeClassifier):
    r"""Classify a weighted sum of each node's features and its sampled neighbours' with one layer.

    .. math:: z_i = W h_i + b, \qquad h_i = \sum_{j \in \{i\} \cup \mathcal{N}'_i} c_{ij} x_j

    ("Graph Node-Feature Convolution for Representation Learning", Zhang, Song, Aletras and Lu). The neighbours are
    those of NFC-GCN with the same seed: the node itself and ``bandwidth - 1`` of its neighbours, copies of the node
    where it has fewer. Subclasses say what :math:`c_{ij}` is.

    Of a CSR ``x`` dropout touches the nonzeros only. `seed` is that of the neighbour draw; for the other arguments see
    :class:`SampledConfig`.
    """

    config: SampledConfig

    @takes(SampledConfig)
    def __init__(self, in_channels: int, out_channels: int, *, config: SampledConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config)
        self.seed = seed
        self.draw = 0
        """Which of the seed's draws of neighbours is used."""
        self.output = Linear(in_channels, out_channels)

    @abstractmethod
    def coefficients(self, h: Tensor, table: Tensor, edge_index: Tensor) -> Tensor:
        """Return each slot's weight, ``[N, bandwidth]``, given ``h = W x``."""

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the weighted sums ``[N, in_channels]``, CSR where ``x`` is; no gradient reaches the weights."""
        x, table = self.scale(x), self.table(x, edge_index)
        c = self.coefficients(multiply(x, self.output.weight.mT), table, edge_index).detach()
        rows = table[:, :1].expand_as(table)
        sums = Sparse.from_entries(rows.flatten(), table.flatten(), c.flatten(), size=(len(table), len(table)))
        return aggregate(sums, x)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        features = dropout(self.scale(x), self.config.dropout, self.training)
        h = multiply(features, self.output.weight.mT)  # the sum of W x_j is W h_i and has fewer numbers
        table = self.table(x, edge_index)
        slots = self.coefficients(h, table, edge_index)[:, :, None] * gathered(h, table)
        return add_bias(add_slots(slots), self.output.bias)

    def table(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the neighbour table ``[N, bandwidth]``, drawn once per graph."""
        bandwidth = self.config.bandwidth
        return neighbour_table(
            edge_index, x.shape[0], bandwidth=bandwidth, seed=self.seed, draw=self.draw, device=x.device
        )

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the layer's weights."""
        return list(self.output.parameters())[:1]


class GCN5(SampledClassifier):
    r"""Classify a sum weighted by degrees, as in GCN: :math:`c_{ij} = 1 / \sqrt{\tilde d_i \tilde d_j}`.

    The degrees are those of the whole graph, loops counted. For the rest see :class:`SampledClassifier`.
    """

    # Paper: "average with different weights according to neighbors' node degrees (GCN)" gives no formula. Copies of
    # the node count as often as they appear in its table.
    def coefficients(self, h: Tensor, table: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``[N, bandwidth]``."""
        scale = _degrees(edge_index, len(table)).to(h.dtype).rsqrt()
        return scale[:, None] * scale[table]


@remembered
def _degrees(edge_index: Tensor, num_nodes: int) -> Tensor:
    return torch.bincount(edge_index[1, edge_index[0] != edge_index[1]], minlength=num_nodes) + 1


class GAT5(SampledClassifier):
    r"""Classify a sum with learned weights, as in GAT with one head, the softmax being taken over the slots.

    .. math:: c_{ij} = \mathrm{softmax}_j(\mathrm{LeakyReLU}_{0.2}(a^\top W x_i + a'^\top W x_j))

    For the rest see :class:`SampledClassifier`.
    """

    # Paper: "learn to assign weight to neighbors and then mean average (GAT)" gives no formula; the attention
    # reads the scores that the only layer gives each node, so that no second layer is needed.
    @takes(SampledConfig)
    def __init__(self, in_channels: int, out_channels: int, *, config: SampledConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config=config, seed=seed)
        self.attention = nn.Parameter(nn.init.xavier_uniform_(torch.empty(out_channels, 2)))

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        super().reset_parameters()
        nn.init.xavier_uniform_(self.attention)

    def coefficients(self, h: Tensor, table: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        """Return ``[N, bandwidth]``; they sum to 1 in each row."""
        scores = multiply(h, self.attention)
        return F.leaky_relu(scores[:, :1] + gathered(scores[:, 1:], table).squeeze(2), 0.2).softmax(1)
