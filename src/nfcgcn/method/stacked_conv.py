"""A further node-feature convolution, for a stack of them: ours, as the paper leaves deeper models as future work."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.method.node_feature_conv import ACTIVATIONS, NodeFeatureConvConfig
from nfcgcn.method.operations import gather_rows, multiply


class StackedConv(nn.Module):
    r"""Convolve what the convolution before has made of each node and its sampled neighbours.

    .. math:: h = \mathrm{dropout}(\mathrm{ReLU}(H P)), \qquad H'_i = (h_i, h_{j_1}, \ldots, h_{j_{n-1}}), \qquad
        \mathrm{output}_i = \mathrm{flatten}(\sigma(\mathrm{Conv}(H'_i)))

    :math:`P` brings the former convolution's outputs to ``width`` columns, so that the maps of a deep stack stay small.
    The neighbours, the number of filters, the activation and the dropout are those of the first convolution;
    ``kernel_size`` and ``stride`` are too, where ``width`` columns are enough for them.
    """

    def __init__(self, in_channels: int, width: int, config: NodeFeatureConvConfig) -> None:
        super().__init__()
        self.config, self.width = config, width
        self.kernel_size, self.stride = min(config.kernel_size, width), min(config.stride, width)
        slots = config.bandwidth if config.conv == "1d" else config.kernel_width
        self.matrix = nn.Parameter(torch.empty(in_channels, width))
        self.weight = nn.Parameter(torch.empty(config.filters, slots, self.kernel_size))
        self.places = (width - self.kernel_size) // self.stride + 1
        self.out_channels = (config.bandwidth - slots + 1) * config.filters * self.places
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw matrix and filters again (Glorot, uniform)."""
        nn.init.xavier_uniform_(self.matrix)
        nn.init.xavier_uniform_(self.weight)

    def forward(self, h: Tensor, table: Tensor) -> Tensor:
        """Return ``[N, out_channels]`` for ``h [N, width]``."""
        maps = gather_rows(h, table).flatten(1)
        return ACTIVATIONS[self.config.activation](multiply(maps, self.as_matrix()))

    def as_matrix(self) -> Tensor:
        """Return the convolution as a matrix ``[n * width, out_channels]``; its outputs stand as the paper's do.

        One product instead of a convolution: its gradient does not depend on the number of threads.
        """
        free = self.config.bandwidth - self.weight.shape[1]
        spare = self.width - self.kernel_size
        shifts = [(slot, place * self.stride) for slot in range(free + 1) for place in range(self.places)]
        moved = [F.pad(self.weight, (at, spare - at, slot, free - slot)) for slot, at in shifts]
        filters = torch.stack(moved).view(free + 1, self.places, *moved[0].shape)  # [slots, places, c, n, width]
        return filters.permute(3, 4, 0, 2, 1).flatten(2).flatten(0, 1)
