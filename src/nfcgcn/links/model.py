"""An encoder and a decoder: from a graph to scores of pairs of nodes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nfcgcn.graph import Edges
from nfcgcn.links.decoders import Decoder
from nfcgcn.method.classifier import NodeClassifier


class LinkModel(nn.Module):
    r"""Score pairs of nodes: :math:`s_{uv} = \mathrm{decoder}(z_u, z_v)` with :math:`Z = \mathrm{encoder}(X, A)`.

    The encoder is any model that is called as ``encoder(x, edge_index)``; what it returns as class scores in
    classification, before the softmax, are here the nodes' vectors. So its own forward pass is what runs.

    With ``variational``, the encoder has two outputs per channel, mean and logarithm of the deviation, and training
    samples: :math:`z_i = \mu_i + \sigma_i \epsilon` (Kipf and Welling, "Variational Graph Auto-Encoders", 2016).
    Evaluation uses the means.
    """

    def __init__(self, encoder: NodeClassifier, decoder: Decoder, *, variational: bool = False) -> None:
        super().__init__()
        self.encoder, self.decoder, self.variational = encoder, decoder, variational
        self.divergence: Tensor | None = None
        """Of the last training pass of a variational model: the mean divergence from the standard normal per node."""

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Return the nodes' vectors as the decoder reads them, ``[N, C]``."""
        h: Tensor = self.encoder(x, edges)
        if self.variational:
            mean, log_deviation = h.chunk(2, dim=1)
            h = mean
            if self.training:
                log_deviation = log_deviation.clamp(max=10)  # so that one large step does not end in infinity
                noise = torch.randn(mean.shape).to(mean.device)  # drawn on the CPU: the same on every device
                h = mean + noise * log_deviation.exp()
                spread = 1 + 2 * log_deviation - mean.square() - (2 * log_deviation).exp()
                self.divergence = -0.5 * spread.sum(1).mean()
        return self.decoder.prepare(h)

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the weights that L2 regularisation applies to: those that the encoder chooses, and the decoder's."""
        return [*self.encoder.decayed_parameters(), *self.decoder.decayed_parameters()]
