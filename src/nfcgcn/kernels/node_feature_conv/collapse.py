r"""Without an activation, convolution and the matrix after it are one linear map a slot.

.. math:: h^{(0)} W = \sum_j x_{i_j} M_j, \qquad
    M[j, d] = \sum_{q, p} \sum_f F[f, j - q, d - p s] \, W[(q, f, p)]

with filters :math:`F [c, w, k]`: exact, and differentiable through the composition.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.kernels.product.reference import product


def compose(weight: Tensor, matrix: Tensor, *, bandwidth: int, num_features: int, stride: int) -> Tensor:
    """Return ``M [n, D, H]`` for filters ``[c, w, k]`` and a matrix ``[(n - w + 1) c D', H]``."""
    filters, width, size = weight.shape
    steps, hidden = bandwidth - width + 1, matrix.shape[1]
    places = matrix.shape[0] // (steps * filters)
    columns = matrix.reshape(steps, filters, places * hidden)
    rows = weight.flatten(1).mT.contiguous()
    slots = [product(rows, c).view(width, size, places, hidden) for c in columns]
    maps = _add([F.pad(slot, (0, 0) * 3 + (q, steps - 1 - q)) for q, slot in enumerate(slots)])
    # A window is `size` wide and moves by `stride`: of its pieces of `stride`, the r-th stands r steps further on.
    overlap = -(-size // stride)
    pieces = F.pad(maps, (0, 0, 0, 0, 0, overlap * stride - size)).view(bandwidth, overlap, stride, places, hidden)
    strip = _add([F.pad(pieces[:, r].transpose(1, 2), (0, 0, 0, 0, r, overlap - 1 - r)) for r in range(overlap)])
    strip = strip.reshape(bandwidth, -1, hidden)
    missing = num_features - strip.shape[1]
    return F.pad(strip, (0, 0, 0, missing)) if missing > 0 else strip[:, :num_features].contiguous()


def _add(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
