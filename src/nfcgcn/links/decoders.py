"""From two nodes' vectors to one score: the logit of the probability that they have an edge."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.kernels.products import product
from nfcgcn.kernels.rows import gathered
from nfcgcn.method.graph_conv import Linear
from nfcgcn.method.operations import dropout, multiply

DecoderName = Literal["dot", "cosine", "bilinear", "mlp"]


class Decoder(nn.Module):
    """Scores pairs of vectors; the order of the two does not matter."""

    expands = False
    """Whether :meth:`grid` needs a vector per pair, and not a number alone."""

    def prepare(self, h: Tensor) -> Tensor:
        """Return the nodes' vectors ``[N, C]`` as :meth:`forward` reads them: what is done once per node."""
        return h

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the score of each pair, ``[P]``, from prepared vectors ``[P, C]`` each."""
        raise NotImplementedError

    def score(self, prepared: Tensor, pairs: Tensor) -> Tensor:
        """Return the score of each pair of nodes, ``[P]`` for ``pairs [2, P]``."""
        ends = gathered(prepared, pairs.mT.contiguous())
        scores: Tensor = self(ends[:, 0], ends[:, 1])
        return scores

    def grid(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the score of each of the first ``[M, C]`` with each of the second ``[N, C]``: ``[M, N]``."""
        shape = (len(first), len(second), first.shape[1])
        rows, columns = (h.expand(shape).reshape(-1, shape[2]) for h in (first[:, None], second[None]))
        scores: Tensor = self(rows, columns)
        return scores.view(shape[:2])

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the weights that L2 regularisation applies to."""
        return [p for name, p in self.named_parameters() if name.endswith("weight")]


class DotDecoder(Decoder):
    r"""The inner product: :math:`s_{uv} = z_u^\top z_v` (Kipf and Welling, "Variational Graph Auto-Encoders", 2016)."""

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the score of each pair."""
        return (first * second).sum(1)

    def grid(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the score of each of the first with each of the second."""
        return product(first, second.mT)


class CosineDecoder(Decoder):
    r"""The cosine, scaled and shifted: :math:`s_{uv} = a \cos(z_u, z_v) + b` with learned a and b.

    To divide vectors by their norms keeps nodes with few edges from being scored low for their small vectors alone
    (Ahn and Kim, "Variational Graph Normalized AutoEncoders", CIKM 2021).
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(1))
        self.shift = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Return to the first scale and shift."""
        nn.init.constant_(self.scale, 5.0)
        nn.init.constant_(self.shift, -1.0)

    def prepare(self, h: Tensor) -> Tensor:
        """Return the vectors divided by their norms."""
        return F.normalize(h, dim=1)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the score of each pair."""
        return (first * second).sum(1) * self.scale + self.shift

    def grid(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the score of each of the first with each of the second."""
        return product(first, second.mT) * self.scale + self.shift


class BilinearDecoder(Decoder):
    r"""A learned form, the same in both directions: :math:`s_{uv} = z_u^\top (W + W^\top) z_v / 2 + b`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, channels))
        self.shift = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the matrix again, near the identity."""
        nn.init.xavier_uniform_(self.weight)
        with torch.no_grad():
            self.weight.add_(torch.eye(len(self.weight), device=self.weight.device))
        nn.init.zeros_(self.shift)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the score of each pair."""
        return (multiply(first, self._matrix()) * second).sum(1) + self.shift

    def grid(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the score of each of the first with each of the second."""
        return product(multiply(first, self._matrix()), second.mT) + self.shift

    def _matrix(self) -> Tensor:
        return (self.weight + self.weight.mT) / 2


class MLPDecoder(Decoder):
    r"""A perceptron on the Hadamard product: :math:`s_{uv} = w^\top \mathrm{ReLU}(W (z_u \odot z_v) + b) + b'`."""

    expands = True

    def __init__(self, channels: int, hidden_channels: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.hidden = Linear(channels, hidden_channels)
        self.output = Linear(hidden_channels, 1)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the score of each pair."""
        h = F.relu(self.hidden(dropout(first * second, self.rate, self.training)))
        scores: Tensor = self.output(dropout(h, self.rate, self.training))
        return scores.squeeze(1)


def make_decoder(name: DecoderName, channels: int, *, hidden_channels: int, rate: float) -> Decoder:
    """Return a new decoder of vectors with so many channels."""
    if name == "dot":
        return DotDecoder()
    if name == "cosine":
        return CosineDecoder()
    return BilinearDecoder(channels) if name == "bilinear" else MLPDecoder(channels, hidden_channels, rate)
