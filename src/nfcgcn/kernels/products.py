"""Matrix products on any device: on the CPU by our own loops, whose bits do not depend on the number of threads."""

from __future__ import annotations

from typing import NamedTuple

import scipy.sparse as sp
import torch
from torch import Tensor

from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.choice import numba_refusal
from nfcgcn.kernels.reference.masks import drop_entries
from nfcgcn.kernels.sparse import Sparse
from nfcgcn.kernels.sparse import sparse_product as torch_sparse_product
from nfcgcn.method.acceleration import opaque


class Dropped(NamedTuple):
    """A constant sparse matrix; in a product, some of its entries are dropped and the others scaled up."""

    whole: Tensor
    """``[M, F]``, torch CSR, with all entries."""
    rate: float
    seed: Tensor
    """The seed of the mask, as a tensor: for each new plain number ``torch.compile`` would compile again."""

    @property
    def matrix(self) -> Tensor:
        """The same matrix without the dropped entries."""
        return drop_entries(self.whole, dropout=self.rate, seed=int(self.seed))


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b`` for dense ``a [M, F]`` and ``b [F, H]``."""
    return _multiply_dense(a, b) if a.device.type == "cpu" else a @ b


def sparse_product(a: Sparse, dense: Tensor) -> Tensor:
    """Return ``a @ dense``; the sparse matrix is a constant and gets no gradient."""
    return _multiply_sparse(a, dense) if dense.device.type == "cpu" else torch_sparse_product(a, dense)


def aggregate(a: Sparse, x: Tensor) -> Tensor:
    """Return ``a @ x``, as CSR if ``x`` is CSR."""
    if x.layout == torch.strided:
        return sparse_product(a, x)
    if not has_kernel(a.matrix, x):
        return a.matrix @ x
    product = _to_scipy(a.matrix) @ _to_scipy(x)  # by one thread, row after row
    starts, columns, values = (torch.from_numpy(part) for part in (product.indptr, product.indices, product.data))
    return csr_tensor(starts.long(), columns.long(), values, product.shape)


def has_kernel(*factors: Tensor) -> bool:
    """Return whether the CPU kernels can multiply these."""
    dtypes = {x.dtype for x in factors}
    on_cpu = all(x.device.type == "cpu" for x in factors)
    return on_cpu and len(dtypes) == 1 and dtypes <= {torch.float32, torch.float64} and not numba_refusal()


def _to_scipy(x: Tensor) -> sp.csr_array:
    return sp.csr_array((x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()), shape=tuple(x.shape))


@opaque
def _multiply_dense(a: Tensor, b: Tensor) -> Tensor:
    if not has_kernel(a, b):
        return a @ b
    from nfcgcn.kernels.cpu import product as cpu

    return cpu.product(a, b)


@opaque
def _multiply_sparse(a: Sparse, dense: Tensor) -> Tensor:
    if not has_kernel(a.matrix, dense):
        return torch_sparse_product(a, dense)
    from nfcgcn.kernels.cpu import product as cpu

    return cpu.sparse_product(a, dense)
