"""The product with a sparse matrix some of whose entries are dropped: the mask is computed during the product.

This needs neither a copy of the matrix without these entries nor a transpose for the backward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nfcgcn.kernels.cpu.inputs import Draw, apply
from nfcgcn.kernels.cpu.node_feature_conv import SparseGather


def dropped_product(x: Tensor, matrix: Tensor, *, dropout: float, seed: int) -> Tensor:
    """Return ``drop_entries(x) @ matrix``; see the reference.

    It is the gather of the node-feature convolution, with one slot per row that holds the row itself.
    """
    own = torch.arange(x.shape[0])[:, None]
    return apply(SparseGather, Draw(x, own, dropout, seed), matrix.unsqueeze(0))
