"""Matrix products, dense and sparse, with entries of the first factor dropped or not."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nfcgcn.kernels import numba_refusal, opaque
from nfcgcn.kernels.masks import dropout
from nfcgcn.kernels.product import reference
from nfcgcn.kernels.product.reference import Sparse, product, sparse_product


class Dropped(NamedTuple):
    """A constant sparse matrix of whose entries some are dropped and the others scaled up, when it is multiplied."""

    whole: Tensor
    """``[M, F]``, torch CSR, with all entries."""
    rate: float
    seed: Tensor
    """One number, of the mask; no plain number, for which ``torch.compile`` would compile anew."""

    @property
    def matrix(self) -> Tensor:
        """The same with the entries dropped."""
        return reference.drop_entries(self.whole, dropout=self.rate, seed=int(self.seed))


Factor = Tensor | Sparse | Dropped
"""What stands first in a product; a sparse one is a constant and gets no gradient."""


@opaque
def drop_entries(x: Sparse, rate: float) -> Sparse | Dropped:
    """Drop entries of ``x`` in training."""
    if _has_kernel(x.matrix):
        return Dropped(x.matrix, rate, torch.randint(2**62, ()))
    return x.with_values(dropout(x.matrix.values()[:, None], rate, True).squeeze(1))


def multiply(x: Factor, matrix: Tensor) -> Tensor:
    """Return ``x @ matrix``.

    Of the sparse ones a CSR tensor is for a single product, :class:`Sparse` for many.
    """
    if isinstance(x, Sparse):
        return sparse_product(x, matrix)
    if isinstance(x, Dropped):
        return _run_kernel(x.whole, matrix, x.rate, x.seed)
    if x.layout != torch.sparse_csr:
        return product(x, matrix)
    return _run_kernel(x, matrix, 0.0) if _has_kernel(x) else sparse_product(Sparse.from_csr(x), matrix)


def _has_kernel(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and not numba_refusal()


@opaque
def _run_kernel(x: Tensor, matrix: Tensor, rate: float, seed: Tensor | None = None) -> Tensor:
    from nfcgcn.kernels.product import cpu

    return cpu.dropped_product(x, matrix, dropout=rate, seed=0 if seed is None else int(seed))
