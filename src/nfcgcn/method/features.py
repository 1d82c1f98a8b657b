"""The features as a model reads them: the one place where they are scaled."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from nfcgcn.graph import csr_tensor
from nfcgcn.method.acceleration import remembered

FeatureScale = Literal["given", "row-sum", "row-norm"]


def scale_features(x: Tensor, scale: FeatureScale) -> Tensor:
    """Return ``x [N, D]``, dense or CSR, as given, or each row divided by its sum or by its Euclidean norm.

    Rows whose sum or norm is 0 are not changed.
    """
    return x if scale == "given" else _divided(x, scale)


@remembered
def _divided(x: Tensor, scale: FeatureScale) -> Tensor:
    if x.layout != torch.sparse_csr:
        return x / _nonzero(x.sum(1) if scale == "row-sum" else torch.linalg.vector_norm(x, dim=1))[:, None]
    starts, values = x.crow_indices(), x.values()
    terms = values if scale == "row-sum" else values.square()
    sizes = torch.segment_reduce(terms, "sum", offsets=starts, axis=0, unsafe=True, initial=0.0)
    sizes = _nonzero(sizes if scale == "row-sum" else sizes.sqrt())
    divided = values / torch.repeat_interleave(sizes, starts.diff(), output_size=len(values))
    return csr_tensor(starts, x.col_indices(), divided, x.shape)


def _nonzero(sizes: Tensor) -> Tensor:
    return torch.where(sizes == 0, 1, sizes)
