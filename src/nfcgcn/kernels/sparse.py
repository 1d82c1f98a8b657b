"""Sparse matrices: what a product needs, and the matrices of a graph, each made once per graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.graph import Edges, csr_tensor, edge_parts, quiet_sparse
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.sampling import check_range


class Sparse(NamedTuple):
    """A constant sparse matrix, ready for products from either side."""

    matrix: Tensor
    """``[M, F]``, torch CSR."""
    transpose: Tensor
    """``[F, M]``, torch CSR of the same entries."""
    order: Tensor
    """The place in ``matrix`` of each entry of ``transpose``."""

    @classmethod
    def from_csr(cls, matrix: Tensor) -> Sparse:
        """Pair a torch CSR matrix with its transpose."""
        num_rows, num_cols = matrix.shape
        columns = matrix.col_indices()
        rows = torch.repeat_interleave(
            torch.arange(num_rows, device=matrix.device), matrix.crow_indices().diff(), output_size=columns.numel()
        )
        order = torch.argsort(columns, stable=True)
        starts = _row_starts(columns, num_cols)
        return cls(matrix, csr_tensor(starts, rows[order], matrix.values()[order], (num_cols, num_rows)), order)

    @classmethod
    def from_entries(cls, rows: Tensor, columns: Tensor, values: Tensor, *, size: tuple[int, int]) -> Sparse:
        """Build the matrix from entries in any order; those at the same place are added up."""
        with quiet_sparse():
            place = torch.stack([rows, columns])
            entries = torch.sparse_coo_tensor(place, values, size, check_invariants=False).coalesce()
        rows, columns = entries.indices()
        return cls.from_csr(csr_tensor(_row_starts(rows, size[0]), columns, entries.values(), size))

    def with_values(self, values: Tensor) -> Sparse:
        """Return the same pattern with other values, given in the order of ``matrix``."""
        m, t = self.matrix, self.transpose
        return Sparse(
            csr_tensor(m.crow_indices(), m.col_indices(), values, m.shape),
            csr_tensor(t.crow_indices(), t.col_indices(), values[self.order], t.shape),
            self.order,
        )


def _row_starts(rows: Tensor, num_rows: int) -> Tensor:
    counts = torch.bincount(rows, minlength=num_rows)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transpose: Tensor, dense: Tensor) -> Tensor:
        ctx.transpose = transpose
        return matrix @ dense

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transpose @ grad.contiguous()


def sparse_product(a: Sparse, dense: Tensor) -> Tensor:
    """Return ``a @ dense``; the sparse matrix is a constant and gets no gradient."""
    return _SparseProduct.apply(a.matrix, a.transpose, dense)  # type: ignore[no-untyped-call,no-any-return]


def normalised_adjacency(
    edges: Edges, num_nodes: int, dtype: torch.dtype = torch.float32, self_weight: float = 1.0
) -> Sparse:
    r"""Return :math:`\hat A = \tilde D^{-1/2} (A + w I) \tilde D^{-1/2}`: each node has one loop, of weight ``w``.

    Edges run from ``edge_index[0]`` to ``edge_index[1]``, as in PyTorch Geometric; degrees add up the weights of
    arriving edges, 1 each unless they have weights. It is made once per graph.
    """
    return _normalised_adjacency(*edge_parts(edges), num_nodes, dtype, self_weight)


@remembered
def _normalised_adjacency(
    edge_index: Tensor, weight: Tensor | None, num_nodes: int, dtype: torch.dtype, self_weight: float
) -> Sparse:
    check_range(edge_index, num_nodes)
    kept = edge_index[0] != edge_index[1]
    source, target = edge_index[:, kept]
    # Weights are added up on the CPU, where the order is fixed.
    degrees = (
        torch.bincount(target, minlength=num_nodes)
        if weight is None
        else torch.bincount(target.cpu(), weight[kept].cpu().double(), minlength=num_nodes).to(edge_index.device)
    )
    scale = (degrees.to(dtype) + self_weight).rsqrt()
    loops = torch.arange(num_nodes, device=edge_index.device)
    rows, columns = torch.cat([target, loops]), torch.cat([source, loops])
    along = scale[source] * scale[target]
    along = along if weight is None else weight[kept].to(dtype) * along
    values = torch.cat([along, self_weight * scale.square()])
    return Sparse.from_entries(rows, columns, values, size=(num_nodes, num_nodes))


def with_transpose(matrix: Tensor) -> Sparse:
    """Pair a torch CSR matrix with its transpose, which is computed once."""
    return Sparse(matrix, *_transpose(matrix))


@remembered
def _transpose(matrix: Tensor) -> tuple[Tensor, Tensor]:
    _, transpose, order = Sparse.from_csr(matrix)
    return transpose, order
