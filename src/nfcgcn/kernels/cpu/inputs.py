"""Inputs in the form that the CPU loops take, for sparse and for dense features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.kernels.cpu import conv_loops as loops
from nfcgcn.kernels.reference.masks import threshold

KINDS = {"none": loops.NONE, "tanh": loops.TANH, "relu": loops.RELU}


class Draw:
    """The features, the neighbour table, the mask and the nodes whose rows are needed, as the loops take them."""

    def __init__(self, x: Tensor, neighbours: Tensor, dropout: float, seed: int, needed: Tensor | None = None) -> None:
        self.is_sparse = x.layout == torch.sparse_csr
        # Always 64-bit indices: for others the loops would be compiled again, which takes about 20 s each.
        parts = [x.crow_indices().long(), x.col_indices().long(), x.values()] if self.is_sparse else [x]
        self.x = tuple(part.detach().contiguous().numpy() for part in parts)
        self.table = neighbours.contiguous().numpy()
        self.whole = dropout == 0
        below, scale = self.dropped(dropout)
        self.mask = (below, scale, np.uint64(seed))
        self.num_nodes, self.bandwidth = neighbours.shape
        self.num_features = x.shape[1]
        self.needed = np.arange(self.num_nodes) if needed is None else needed.numpy()

    @property
    def cells(self) -> int:
        """How many numbers the maps of the needed nodes hold, zeros of sparse features left out."""
        return self.x[-1].size * len(self.needed) // max(1, len(self.x[0]) - self.is_sparse) * self.bandwidth

    def conv_cost(self, shape: torch.Size, stride: int) -> float:
        """Return roughly how many nanoseconds one thread needs to convolve all maps with filters of this shape."""
        filters, width, size = shape
        return 0.06 * self.cells * width * -(-size // stride) * filters

    def cost(self, shape: torch.Size, stride: int, matrix: Tensor) -> float:
        """Return the same for the convolution, its activation and the matrix behind it."""
        return self.conv_cost(shape, stride) + len(self.needed) * (0.03 * matrix.numel() + len(matrix))

    def dropped(self, rate: float) -> tuple[Any, Any]:
        """Return a dropout rate as the loops take it: the threshold for a draw, and the scale of kept cells."""
        return np.uint32(threshold(rate)), self.x[-1].dtype.type(1 / (1 - rate))

    def steps(self, shape: torch.Size) -> int:
        """Return the number of positions of a filter of this shape along the slots."""
        return self.bandwidth - shape[1] + 1

    def places(self, shape: torch.Size, stride: int) -> int:
        """Return the number of positions of a filter of this shape along the features."""
        return (self.num_features - shape[2]) // stride + 1

    def spread(self, values: Tensor, width: int) -> Tensor:
        """Give the needed nodes their rows of `values`, cut to a width, and all other nodes rows of zeros."""
        out = values.new_zeros(self.num_nodes, width)
        out.numpy()[self.needed] = values[:, :width].numpy()
        return out


def apply(function: Any, *arguments: Any) -> Tensor:
    """Call an autograd function."""
    result: Tensor = function.apply(*arguments)
    return result


def pad(rows: Tensor) -> Tensor:
    """Append zeros to each row up to a multiple of 4, the shortest vector: a remainder would be computed one by one."""
    left = -rows.shape[-1] % 4
    return F.pad(rows, (0, left)) if left else rows


def by_place(matrix: Tensor, steps: int, filters: int) -> Tensor:
    """Reorder the matrix's rows from ``(step, filter, place)`` to ``(step, place, filter)``."""
    return matrix.detach().reshape(steps, filters, -1, matrix.shape[1]).transpose(1, 2).reshape(matrix.shape)


def by_filter(matrix: Tensor, steps: int, filters: int) -> Tensor:
    """Undo `by_place`."""
    return matrix.reshape(steps, -1, filters, matrix.shape[1]).transpose(1, 2).reshape(matrix.shape)
