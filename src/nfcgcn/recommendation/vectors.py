"""Encoders that only recommendation has: one learned vector per node, as it is or averaged along the edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nfcgcn.graph import Edges, edge_parts
from nfcgcn.kernels.sparse import Sparse
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.operations import multiply, propagate
from nfcgcn.settings import depth, setting, takes


@dataclass(frozen=True)
class MFConfig(ClassifierConfig):
    """The settings of matrix factorisation."""

    init_scale: float = setting(0.1, "standard deviation of the vectors at the start", above=0)


@dataclass(frozen=True)
class LightGCNConfig(MFConfig):
    """The settings of LightGCN."""

    num_layers: int = depth(3, "propagations along the edges", low=0)


class MF(NodeClassifier):
    r"""Matrix factorisation: :math:`Z = X E`, where each user and item has a column of :math:`X` of its own.

    Features, where there are some, add what is learned for them (Kula, "Metadata Embeddings for User and Item
    Cold-start Recommendations", 2015). With the loss ``bpr`` it is BPR-MF (Rendle, Freudenthaler, Gantner and
    Schmidt-Thieme, "BPR: Bayesian Personalized Ranking from Implicit Feedback", UAI 2009).

    >>> MF(4, 2)(torch.eye(4), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([4, 2])
    """

    config: MFConfig

    @takes(MFConfig)
    def __init__(self, in_channels: int, out_channels: int, *, config: MFConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors again (normally distributed)."""
        nn.init.normal_(self.weight, std=self.config.init_scale)

    def forward(self, x: Tensor, edge_index: Edges) -> Tensor:  # noqa: ARG002
        """Return the vectors, ``[N, out_channels]``."""
        return multiply(self.scale(x), self.weight)

    def embed(self, x: Tensor, edge_index: Edges) -> Tensor:
        """Return the vectors."""
        return self(x, edge_index)  # type: ignore[no-any-return]

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters."""
        return [self.weight]


class LightGCN(MF):
    r"""Average the vectors of matrix factorisation over 0 to ``num_layers`` propagations.

    .. math:: Z = \frac{1}{K + 1} \sum_{l=0}^{K} (D^{-1/2} A D^{-1/2})^l X E

    (He, Deng, Wang, Li, Zhang and Wang, "LightGCN: Simplifying and Powering Graph Convolution Network for
    Recommendation", SIGIR 2020). There are no loops in :math:`A`.

    >>> LightGCN(4, 2)(torch.eye(4), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([4, 2])
    """

    config: LightGCNConfig

    @takes(LightGCNConfig)
    def __init__(self, in_channels: int, out_channels: int, *, config: LightGCNConfig) -> None:
        super().__init__(in_channels, out_channels, config=config)

    def forward(self, x: Tensor, edge_index: Edges) -> Tensor:
        """Return the vectors, ``[N, out_channels]``."""
        h: Tensor = multiply(self.scale(x), self.weight)
        adjacency = without_loops(edge_parts(edge_index)[0], len(h), h.dtype)
        total = h
        for _ in range(self.config.num_layers):
            h = propagate(h, adjacency)  # type: ignore[arg-type]
            total = total + h
        return total / (self.config.num_layers + 1)


@remembered
def without_loops(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Sparse:
    """Return ``D^-1/2 A D^-1/2``; a node without edges has a row of zeros."""
    source, target = edge_index
    degrees = torch.bincount(target, minlength=num_nodes).clamp(min=1).to(dtype)
    scale = degrees.rsqrt()
    return Sparse.from_entries(target, source, scale[source] * scale[target], size=(num_nodes, num_nodes))
