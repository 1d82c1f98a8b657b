"""The product of a sparse matrix some of whose entries are dropped: the mask is computed along the way.

Neither the matrix without these entries is made, nor a transpose for the backward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nfcgcn.kernels.cpu.inputs import Draw, apply
from nfcgcn.kernels.cpu.node_feature_conv import SparseGather


def dropped_product(x: Tensor, matrix: Tensor, *, dropout: float, seed: int) -> Tensor:
    """Return ``drop_entries(x) @ matrix``; see the reference.

    It is the node-feature convolution's gather where each row has one slot, for itself.
    """
    own = torch.arange(x.shape[0])[:, None]
    return apply(SparseGather, Draw(x, own, dropout, seed), matrix.unsqueeze(0))
