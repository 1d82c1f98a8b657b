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


def moderate(x: Tensor) -> Tensor:
    """Return ``x`` with rows of extreme magnitude multiplied by a power of two; the others keep their bits.

    The squares of its values and their sums neither overflow nor vanish.
    """
    if x.layout != torch.sparse_csr:
        return x * _safe_factor(x.detach().abs().amax(1))[:, None] if x.shape[1] else x
    factors = _safe_factor(_per_row(x, x.values().detach().abs(), "max"))
    return csr_tensor(x.crow_indices(), x.col_indices(), x.values() * _per_value(x, factors), x.shape)


@remembered
def _divided(x: Tensor, scale: FeatureScale) -> Tensor:
    x = moderate(x)
    if x.layout != torch.sparse_csr:
        return x / _nonzero(x.sum(1) if scale == "row-sum" else torch.linalg.vector_norm(x, dim=1))[:, None]
    values = x.values()
    sizes = _per_row(x, values, "sum") if scale == "row-sum" else _per_row(x, values.square(), "sum").sqrt()
    return csr_tensor(x.crow_indices(), x.col_indices(), values / _per_value(x, _nonzero(sizes)), x.shape)


def _per_row(x: Tensor, terms: Tensor, reduce: str) -> Tensor:
    return torch.segment_reduce(terms, reduce, offsets=x.crow_indices(), axis=0, unsafe=True, initial=0.0)


def _per_value(x: Tensor, sizes: Tensor) -> Tensor:
    return torch.repeat_interleave(sizes, x.crow_indices().diff(), output_size=len(x.values()))


def _safe_factor(largest: Tensor) -> Tensor:
    """Return the power of two to multiply a row by, so that its squares and their sum neither overflow nor vanish.

    It is 1 unless the row's largest magnitude is beyond 2^50 or below 2^-40. A power of two changes no other bit.
    """
    ones = torch.ones_like(largest)
    return torch.where(largest > 2.0**50, 2.0**-100, torch.where(largest < 2.0**-40, 2.0**90, ones))


def _nonzero(sizes: Tensor) -> Tensor:
    return torch.where(sizes == 0, 1, sizes)
