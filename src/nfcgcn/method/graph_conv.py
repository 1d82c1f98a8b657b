"""Graph convolution, and the linear layer that follows or replaces it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nfcgcn.graph import Edges
from nfcgcn.method.acceleration import prepare
from nfcgcn.method.operations import Rows, add_bias, multiply, propagate


class GraphConv(nn.Module):
    r"""Average a linear map of the neighbours with symmetric normalisation: Kipf and Welling's layer, without bias.

    .. math:: H' = \hat A H W, \qquad \hat A = \tilde D^{-1/2} (A + w I) \tilde D^{-1/2}

    where ``w``, `self_weight`, is 1 in their layer.

    Shapes: ``x [N, in_channels]`` dense or CSR, ``edge_index [2, E]``, output ``[N, out_channels]``.

    >>> layer = GraphConv(2, 1)
    >>> layer(torch.eye(2), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([2, 1])
    """

    def __init__(self, in_channels: int, out_channels: int, *, self_weight: float = 1.0) -> None:
        super().__init__()
        prepare()
        self.self_weight = self_weight
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights again (Glorot, uniform)."""
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Rows, edge_index: Edges) -> Tensor:
        """Return ``A_hat x W``."""
        return propagate(self.project(x), edge_index, self.self_weight)

    def project(self, x: Rows) -> Tensor:
        """Return ``x W``, which is then propagated."""
        return multiply(x, self.weight)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weight.shape[0]}, {self.weight.shape[1]})"


class Linear(nn.Linear):
    """``nn.Linear`` with Glorot weights, zero bias, and rows that may be sparse."""

    def reset_parameters(self) -> None:
        """Draw the weights again."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Rows) -> Tensor:
        """Return ``input W + b``, or ``input W`` if the layer has no bias."""
        h = multiply(input, self.weight.mT)
        return h if self.bias is None else add_bias(h, self.bias)
