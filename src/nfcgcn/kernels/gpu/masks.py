"""Dropout masks in Triton: bit for bit those of the reference."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.gpu.launch import Program
from nfcgcn.kernels.reference.masks import HALF, threshold

BLOCK = 1024


def rate_of(dropout: float) -> tuple[int, int, float]:
    """Return how kernels decide on a cell (0: all stay, 1: by a bit, 2: by a threshold), that threshold, the scale."""
    below = threshold(dropout)
    return (0 if below == 0 else 1 if below == HALF else 2), below, 1 / (1 - dropout)


@triton.jit
def key_of(seed, row):
    """Return the 32-bit key of a row; both are 64-bit numbers."""
    z = seed.to(tl.uint64) + (row + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return (z ^ (z >> 31)).to(tl.uint32)


@triton.jit
def number(key, place):
    """Return the 32-bit number of a cell in the row with this key."""
    h = key + place.to(tl.uint32) * 0x9E3779B9
    h = (h ^ (h >> 16)) * 0x85EBCA6B
    h = (h ^ (h >> 13)) * 0xC2B2AE35
    return h ^ (h >> 16)


@triton.jit
def kept(key, place, below, RATE: tl.constexpr):
    """Say whether a cell stays."""
    if RATE == 1:
        return ((number(key, place // 32) >> (place % 32).to(tl.uint32)) & 1) != 0
    return number(key, place) >= below.to(tl.uint32)


@Program
def _relu_dropout(h, seeds, out, num_rows, num_columns, below, scale, RATE: tl.constexpr, BLOCK: tl.constexpr):
    run = tl.program_id(1)
    cell = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = cell < num_rows * num_columns
    row = (cell // num_columns).to(tl.int64)
    here = run.to(tl.int64) * num_rows * num_columns + cell
    value = tl.maximum(tl.load(h + here, mask=inside, other=0.0), 0.0)
    stays = kept(key_of(tl.load(seeds + run), row), cell % num_columns, below, RATE)
    tl.store(out + here, tl.where(stays, value * scale, 0.0), mask=inside)


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, seeds: Tensor, dropout: float) -> Tensor:
        h = h.contiguous()
        runs, num_rows, num_columns = h.shape
        out = torch.empty_like(h)
        rate, below, scale = rate_of(dropout)
        grid = (triton.cdiv(num_rows * num_columns, BLOCK), runs)
        _relu_dropout[grid](h, seeds, out, num_rows, num_columns, below, scale, RATE=rate, BLOCK=BLOCK)
        ctx.save_for_backward(out)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (out,) = ctx.saved_tensors
        return torch.where(out > 0, grad * ctx.scale, 0.0), None, None


def relu_dropout(h: Tensor, seeds: Tensor, dropout: float) -> Tensor:
    """Return ``dropout(relu(h))`` of a stack ``h [S, N, H]``, each masked with its own seed like the reference."""
    if dropout == 0:
        return torch.relu(h)
    result: Tensor = _ReluDropout.apply(h, seeds, dropout)
    return result
