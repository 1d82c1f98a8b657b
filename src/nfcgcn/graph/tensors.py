"""Edges and sparse matrices as torch tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from nfcgcn.errors import GraphError

ROWS = 2**16
"""Rows that are looked at together."""


class WeightedEdges(NamedTuple):
    """Edges with weights: what models take in place of ``edge_index`` where a graph has weights."""

    edge_index: torch.Tensor
    """``[2, E]``."""
    weight: torch.Tensor
    """``[E]``, above 0; both directions of an edge have the same."""

    def to(self, device: torch.device | str) -> WeightedEdges:
        """Return the edges on another device."""
        return WeightedEdges(self.edge_index.to(device), self.weight.to(device))


Edges = torch.Tensor | WeightedEdges
"""What a model takes as edges: ``edge_index [2, E]``, with or without weights."""


def edge_parts(edges: Edges) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return ``edge_index [2, E]`` and the weights ``[E]``, or None for edges that all count the same."""
    return edges if isinstance(edges, WeightedEdges) else (edges, None)


def check_finite(results: torch.Tensor, what: str) -> None:
    """Refuse results that overflowed, which would look like an answer; `what` names them."""
    if not all(rows.isfinite().all() for rows in torch.split(results, ROWS)):
        raise GraphError(
            f"{what} are not finite: the weights or the features are too large to compute with; train again, or "
            "scale the features"
        )


@contextmanager
def quiet_sparse() -> Iterator[None]:
    """Silence torch's warnings that CSR is in beta and that it does not check sparse tensors; we have checked ours."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Sparse (CSR tensor support is in beta|invariant checks are implicitly)"
        )
        yield


def csr_tensor(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Build a torch CSR matrix from parts that are known to be valid."""
    with quiet_sparse():
        return torch.sparse_csr_tensor(starts, columns, values, size=tuple(size), check_invariants=False)
