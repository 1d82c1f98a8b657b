"""Matrix products, dense and sparse, with entries of the first factor dropped or not.

======================  ===========================================================================================
variant                 runs
======================  ===========================================================================================
``reference``           anywhere, any float type
``cpu``                 CPU, float32 and float64; needs Numba. The same bits for any number of threads
======================  ===========================================================================================

``gpu`` multiplies stacks of matrices and is called by name.
"""

from __future__ import annotations

from typing import NamedTuple

import scipy.sparse as sp
import torch
from torch import Tensor

from nfcgcn.graph import csr_tensor
from nfcgcn.kernels import numba_refusal, opaque
from nfcgcn.kernels.masks import dropout
from nfcgcn.kernels.product import reference
from nfcgcn.kernels.product.reference import Sparse


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
    if has_kernel(x.matrix):
        return Dropped(x.matrix, rate, torch.randint(2**62, ()))
    return x.with_values(dropout(x.matrix.values()[:, None], rate, True).squeeze(1))


def multiply(x: Factor, matrix: Tensor) -> Tensor:
    """Return ``x @ matrix``.

    Of the sparse ones a CSR tensor is for a single product, :class:`Sparse` for many.
    """
    if isinstance(x, Sparse):
        return sparse_product(x, matrix)
    if isinstance(x, Dropped):
        return _drop_and_multiply(x.whole, matrix, x.rate, x.seed)
    if x.layout != torch.sparse_csr:
        return product(x, matrix)
    return _multiply_once(x, matrix)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b`` for dense ``a [M, F]`` and ``b [F, H]``."""
    return _multiply_dense(a, b) if a.device.type == "cpu" else reference.product(a, b)


def sparse_product(a: Sparse, dense: Tensor) -> Tensor:
    """Return ``a @ dense``; the sparse matrix is a constant and gets no gradient."""
    return _multiply_sparse(a, dense) if dense.device.type == "cpu" else reference.sparse_product(a, dense)


def aggregate(a: Sparse, x: Factor) -> Tensor:
    """Return ``a @ x``, CSR where ``x`` is sparse."""
    if isinstance(x, Tensor):
        return sparse_product(a, x)
    if not has_kernel(a.matrix, x.matrix):
        return a.matrix @ x.matrix
    found = _to_scipy(a.matrix) @ _to_scipy(x.matrix)  # by one thread, row after row
    parts = (torch.from_numpy(part) for part in (found.indptr, found.indices, found.data))
    starts, columns, values = parts
    return csr_tensor(starts.long(), columns.long(), values, found.shape)


def has_kernel(*factors: Tensor) -> bool:
    """Say whether the CPU kernels can multiply these."""
    dtypes = {x.dtype for x in factors}
    on_cpu = all(x.device.type == "cpu" for x in factors)
    return on_cpu and len(dtypes) == 1 and dtypes <= {torch.float32, torch.float64} and not numba_refusal()


def _to_scipy(x: Tensor) -> sp.csr_array:
    return sp.csr_array((x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()), shape=tuple(x.shape))


@opaque
def _drop_and_multiply(x: Tensor, matrix: Tensor, rate: float, seed: Tensor | None = None) -> Tensor:
    from nfcgcn.kernels.product import dropped

    return dropped.dropped_product(x, matrix, dropout=rate, seed=0 if seed is None else int(seed))


@opaque
def _multiply_once(x: Tensor, matrix: Tensor) -> Tensor:
    if not has_kernel(x, matrix):
        return sparse_product(Sparse.from_csr(x), matrix)
    return _drop_and_multiply(x, matrix, 0.0)


@opaque
def _multiply_dense(a: Tensor, b: Tensor) -> Tensor:
    if not has_kernel(a, b):
        return reference.product(a, b)
    from nfcgcn.kernels.product import cpu

    return cpu.product(a, b)


@opaque
def _multiply_sparse(a: Sparse, dense: Tensor) -> Tensor:
    if not has_kernel(a.matrix, dense):
        return reference.sparse_product(a, dense)
    from nfcgcn.kernels.product import cpu

    return cpu.sparse_product(a, dense)
