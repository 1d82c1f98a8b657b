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
from nfcgcn.kernels.choice import numba_refusal
from nfcgcn.kernels.product import reference
from nfcgcn.kernels.product.reference import Sparse
from nfcgcn.method.acceleration import opaque


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


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b`` for dense ``a [M, F]`` and ``b [F, H]``."""
    return _multiply_dense(a, b) if has_kernel(a, b) else reference.product(a, b)


def sparse_product(a: Sparse, dense: Tensor) -> Tensor:
    """Return ``a @ dense``; the sparse matrix is a constant and gets no gradient."""
    return _multiply_sparse(a, dense) if has_kernel(a.matrix, dense) else reference.sparse_product(a, dense)


def aggregate(a: Sparse, x: Tensor) -> Tensor:
    """Return ``a @ x``, CSR where ``x`` is."""
    if x.layout == torch.strided:
        return sparse_product(a, x)
    if not has_kernel(a.matrix, x):
        return a.matrix @ x
    product = _to_scipy(a.matrix) @ _to_scipy(x)  # by one thread, row after row
    starts, columns, values = (torch.from_numpy(part) for part in (product.indptr, product.indices, product.data))
    return csr_tensor(starts.long(), columns.long(), values, product.shape)


def has_kernel(*factors: Tensor) -> bool:
    """Say whether the CPU kernels can multiply these."""
    dtypes = {x.dtype for x in factors}
    on_cpu = all(x.device.type == "cpu" for x in factors)
    return on_cpu and len(dtypes) == 1 and dtypes <= {torch.float32, torch.float64} and not numba_refusal()


def _to_scipy(x: Tensor) -> sp.csr_array:
    return sp.csr_array((x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()), shape=tuple(x.shape))


@opaque
def _multiply_dense(a: Tensor, b: Tensor) -> Tensor:
    from nfcgcn.kernels.product import cpu

    return cpu.product(a, b)


@opaque
def _multiply_sparse(a: Sparse, dense: Tensor) -> Tensor:
    from nfcgcn.kernels.product import cpu

    return cpu.sparse_product(a, dense)
