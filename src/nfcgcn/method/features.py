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
        x = x * _safe_factor(x.detach().abs().amax(1))[:, None] if x.shape[1] else x
        return x / _nonzero(x.sum(1) if scale == "row-sum" else torch.linalg.vector_norm(x, dim=1))[:, None]
    starts, values = x.crow_indices(), x.values()
    counts = starts.diff()

    def per_row(terms: Tensor, reduce: str) -> Tensor:
        return torch.segment_reduce(terms, reduce, offsets=starts, axis=0, unsafe=True, initial=0.0)

    def per_value(sizes: Tensor) -> Tensor:
        return torch.repeat_interleave(sizes, counts, output_size=len(values))

    values = values * per_value(_safe_factor(per_row(values.detach().abs(), "max")))
    sizes = per_row(values, "sum") if scale == "row-sum" else per_row(values.square(), "sum").sqrt()
    return csr_tensor(starts, x.col_indices(), values / per_value(_nonzero(sizes)), x.shape)


def _safe_factor(largest: Tensor) -> Tensor:
    """Return the power of two to multiply a row by, so that its squares and their sum neither overflow nor vanish.

    It is 1 unless the row's largest magnitude is beyond 2^50 or below 2^-40. A power of two changes no other bit.
    """
    ones = torch.ones_like(largest)
    return torch.where(largest > 2.0**50, 2.0**-100, torch.where(largest < 2.0**-40, 2.0**90, ones))


def _nonzero(sizes: Tensor) -> Tensor:
    return torch.where(sizes == 0, 1, sizes)
