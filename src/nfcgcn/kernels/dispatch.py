"""Which kernel computes which operation of the method, and on what."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.errors import NFCError
from nfcgcn.kernels.choice import choose, numba_refusal, refusal, triton_refusal, variant_for
from nfcgcn.kernels.products import Dropped, has_kernel, product, sparse_product
from nfcgcn.kernels.rows import gathered, shifted
from nfcgcn.kernels.sparse import Sparse, normalised_adjacency, with_transpose
from nfcgcn.method import node_feature_conv as nfc
from nfcgcn.method import operations, sampling
from nfcgcn.method.acceleration import accelerates, opaque
from nfcgcn.method.node_feature_conv import Backend, NodeFeatureConv


def mask_seed(*rates: float) -> int:
    """Draw the seed from which dropout masks are hashed: torch's generator decides them, the same on every device."""
    if not any(rates):
        return 0
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise NFCError("a captured CUDA graph would repeat one dropout mask for ever; train with `nfcgcn.fit`")
    return int(torch.randint(2**62, ()))


@accelerates(nfc.node_feature_conv)
@opaque
def _node_feature_conv(
    x: Tensor, neighbours: Tensor, weight: Tensor, *, dropout: float = 0.0, backend: Backend = "auto", **options: Any
) -> Any:
    kernels = _variant(backend, x, weight)
    if kernels is None:
        return NotImplemented
    seed = mask_seed(dropout)
    return kernels.node_feature_conv(x, neighbours, weight, dropout=dropout, seed=seed, **options)


@accelerates(nfc.projected)
@opaque
def _projected(
    x: Tensor,
    neighbours: Tensor,
    weight: Tensor,
    matrix: Tensor,
    *,
    dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    needed: Tensor | None = None,
    backend: Backend = "auto",
    **options: Any,
) -> Any:
    kernels = _variant(backend, x, weight, matrix)
    if kernels is None:
        return NotImplemented
    if hidden_dropout and not kernels.HIDDEN_DROPOUT:
        h = kernels.node_feature_conv(x, neighbours, weight, dropout=dropout, seed=mask_seed(dropout), **options)
        return F.dropout(h, hidden_dropout) @ matrix
    seed = mask_seed(dropout, hidden_dropout)
    options |= {"hidden_dropout": hidden_dropout} if hidden_dropout else {}
    return kernels.projected(x, neighbours, weight, matrix, dropout=dropout, seed=seed, needed=needed, **options)


def _variant(backend: Backend, x: Tensor, weight: Tensor, matrix: Tensor | None = None) -> Any:
    """Return the module of the kernels to run, or None for the formula."""
    variant = variant_for(x, backend)
    # Inside a stack of layers the formula is what is meant to run.
    expected = x.requires_grad or x.device.type not in ("cpu", "cuda")
    chosen = choose(backend, variant, refusal(variant, x, weight, matrix), expected=expected)
    if chosen == "gpu":
        from nfcgcn.kernels.gpu import node_feature_conv as gpu

        return gpu
    if chosen == "cpu":
        from nfcgcn.kernels.cpu import node_feature_conv as cpu

        return cpu
    return None


def why(layer: NodeFeatureConv, x: Tensor) -> str:
    """Return which kernels `layer` runs on `x`: "cpu", "gpu", or "reference" with the reason."""
    if layer.config.backend == "reference":
        return "reference: `backend` says so"
    variant = variant_for(x, layer.config.backend)
    complaint = refusal(variant, x, layer.weight)
    return f"reference: {complaint}" if complaint else variant


@accelerates(operations.dropout)
@opaque
def _dropout(h: Any, rate: float, training: bool) -> Any:
    if not training or rate == 0 or not isinstance(h, Tensor):
        return NotImplemented
    if h.layout == torch.sparse_csr and not h.requires_grad:
        if has_kernel(h):
            return Dropped(h, rate, torch.randint(2**62, ()))
        entries = with_transpose(h)
        return entries.with_values(F.dropout(entries.matrix.values(), rate))
    if h.layout != torch.strided or h.dim() != 2 or not has_kernel(h):
        return NotImplemented
    from nfcgcn.kernels.cpu import masks as cpu

    # A hash: torch draws one number after the other, a tenth of a Cora step in a profile.
    return h * cpu.mask(h.shape[0], h.shape[1], dropout=rate, seed=mask_seed(rate), dtype=h.dtype)


@accelerates(operations.multiply)
@opaque
def _multiply(h: Any, matrix: Tensor) -> Any:
    if isinstance(h, Dropped):
        from nfcgcn.kernels.cpu import dropped_product as dropped

        return dropped.dropped_product(h.whole, matrix, dropout=h.rate, seed=int(h.seed))
    if isinstance(h, Sparse):
        return sparse_product(h, matrix)
    if h.layout == torch.sparse_csr and not h.requires_grad and h.device.type in ("cpu", "cuda"):
        return sparse_product(with_transpose(h), matrix)
    if h.layout == torch.strided and h.dim() == 2 and has_kernel(h, matrix):
        return product(h, matrix)
    return NotImplemented


@accelerates(operations.add_bias)
@opaque
def _add_bias(h: Tensor, bias: Tensor) -> Tensor:
    return shifted(h, bias)


@accelerates(operations.gather_rows)
@opaque
def _gather_rows(h: Tensor, table: Tensor) -> Tensor:
    return gathered(h, table)


@accelerates(operations.propagate)
@opaque
def _propagate(h: Tensor, edges: Any, self_weight: float = 1.0) -> Any:
    if isinstance(edges, Sparse):
        return sparse_product(edges, h)
    if isinstance(edges, Tensor) and edges.layout == torch.sparse_csr:
        # The transpose is for the gradient alone.
        return sparse_product(with_transpose(edges) if h.requires_grad else Sparse(edges, edges, edges), h)
    if h.device.type not in ("cpu", "cuda"):
        return NotImplemented
    return sparse_product(normalised_adjacency(edges, len(h), h.dtype, self_weight), h)


@accelerates(sampling.draw_rows)
def _draw_rows(starts: Tensor, neighbours: Tensor, *, size: int, seed: int, nodes: Tensor | None = None) -> Any:
    if nodes is not None:
        return NotImplemented
    if starts.is_cuda and not triton_refusal():
        from nfcgcn.kernels.gpu import neighbour_draw as gpu

        return gpu.draw_rows(starts, neighbours, size=size, seed=seed)
    if starts.device.type == "cpu" and not numba_refusal():
        from nfcgcn.kernels.cpu import neighbour_draw as cpu

        return cpu.draw_rows(starts, neighbours, size=size, seed=seed)
    return NotImplemented
