"""GNN (Gori, Monfardini and Scarselli, "A New Model for Learning in Graph Domains", IJCNN 2005; Scarselli, Gori, Tsoi,
Hagenbuchner and Monfardini, "The Graph Neural Network Model", IEEE Transactions on Neural Networks 2009)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nfcgcn.baselines.chebnet import scaled_laplacian
from nfcgcn.kernels.products import sparse_product
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.graph_conv import Linear
from nfcgcn.method.operations import dropout, multiply
from nfcgcn.settings import rate, setting, takes

EXACT = 1e-6
"""How far the state is from the fixed point at most, of how far it was at the start."""


@dataclass(frozen=True)
class GNNConfig(ClassifierConfig):
    """The settings of the graph neural network, named as its arguments."""

    hidden_channels: int = setting(32, "numbers of a node's state", low=1)
    contraction: float = setting(
        0.8, "by how much every step brings two states nearer to each other (the paper's mu)", above=0, below=1
    )
    dropout: float = rate(0.5, "dropout on the features and on the state")


class GNN(NodeClassifier):
    r"""Iterate a contraction of all nodes' states to its fixed point; a linear layer reads the states.

    .. math:: H = F(H) = \tanh(\mu \hat A H \bar W + X W_0 + b), \qquad
        \frac{\partial e}{\partial \theta} = z \frac{\partial F}{\partial \theta}, \qquad
        z = z \frac{\partial F}{\partial H} + \frac{\partial e}{\partial H}

    (2009, equations 1, 2 and 7): the gradient needs no iteration step but the last, by the theorem on implicit
    functions, and :math:`z` is a fixed point as well. :math:`\hat A = D^{-1/2} A D^{-1/2}` and :math:`\bar W`, which is
    W divided by a bound of its norm where that is above 1, stretch nothing, so :math:`\mu < 1` makes F a contraction,
    and the number of steps follows from it (Banach). For the arguments see :class:`GNNConfig`.
    """

    # Paper: F adds up a network's outputs over the neighbours, and a penalty on its Jacobian makes it nearly a
    # contraction; here it is one by construction, and neighbours are weighted by their degrees.
    config: GNNConfig

    @takes(GNNConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: GNNConfig) -> None:
        super().__init__(in_channels, out_channels, config)
        self.first = Linear(in_channels, config.hidden_channels)
        self.state = Linear(config.hidden_channels, config.hidden_channels, bias=False)
        self.output = Linear(config.hidden_channels, out_channels)

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the fixed point, ``[N, hidden_channels]``."""
        given: Tensor = self.first(dropout(self.scale(x), self.config.dropout, self.training))
        minus = scaled_laplacian(edge_index, x.shape[0], given.dtype, given.device)
        size = self.state.weight.abs()
        norm = (size.sum(0).max() * size.sum(1).max()).sqrt()  # at least the spectral norm
        matrix = -self.config.contraction * self.state.weight.mT / norm.clamp(min=1)
        return fixed_point(lambda h: (sparse_product(minus, multiply(h, matrix)) + given).tanh(), given, self.steps)

    @property
    def steps(self) -> int:
        """How many steps bring the state as near to the fixed point as it is to be."""
        return min(1000, math.ceil(math.log(EXACT) / math.log(self.config.contraction)))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        scores: Tensor = self.output(dropout(self.embed(x, edge_index), self.config.dropout, self.training))
        return scores

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List all parameters but the biases."""
        return [p for name, p in self.named_parameters() if not name.endswith("bias")]


def fixed_point(function: Callable[[Tensor], Tensor], like: Tensor, steps: int) -> Tensor:
    """Return ``h = function(h)`` after so many steps from 0, with the gradient of the fixed point."""
    with torch.no_grad():
        h = torch.zeros_like(like)
        for _ in range(steps):
            h = function(h)
    if not torch.is_grad_enabled():
        return h
    out = function(h)
    if not out.requires_grad:
        return out
    at = h.detach().requires_grad_()
    again = function(at)

    def solve(gradient: Tensor) -> Tensor:
        z = gradient
        for _ in range(steps):
            z = gradient + torch.autograd.grad(again, at, z, retain_graph=True)[0]
        return z

    out.register_hook(solve)  # type: ignore[no-untyped-call]
    return out
