"""How programs are launched, and how all programs of a step are compiled at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.runtime.jit import MockTensor


class Program:
    """A Triton program, launched as ``program[grid](...)``; a step of :func:`compile_ahead` only compiles it.

    For arguments that are no `sizes`, Triton compiles another variant for 1 and for multiples of 16.
    """

    def __init__(self, function: Callable[..., None], *, sizes: tuple[str, ...] = ()) -> None:
        self._compiled = triton.jit(function, do_not_specialize=sizes)
        self._turn = Lock()

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self._launch, grid)

    def _launch(self, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        if _rehearsal is not None and torch.cuda.current_stream() == _rehearsal.stream:
            likes = [_Like(a) if isinstance(a, Tensor) else a for a in arguments]
            _rehearsal.pool.submit(self._compile, _rehearsal.stream.device, grid, likes, options)
        else:
            self._compiled[grid](*arguments, **options)

    def _compile(self, device: torch.device, grid: tuple[int, ...], arguments: list[Any], options: Any) -> None:
        # Several launches that need the same code wait for one another. An error is raised by the true launch.
        with self._turn, torch.cuda.device(device), suppress(Exception):
            kernel = self._compiled.warmup(*arguments, grid=grid, **options)
            _ = kernel.run  # asking for it makes the launcher too, which takes as long as the compiler


class _Like(MockTensor):  # type: ignore[misc]
    """What Triton asks of a tensor, without holding the tensor's memory."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor.dtype)
        address = tensor.data_ptr()
        self.data_ptr = lambda: address


class _Rehearsal(NamedTuple):
    stream: torch.cuda.Stream
    pool: ThreadPoolExecutor


_rehearsal: _Rehearsal | None = None
"""Backward passes have threads of their own, which see this and are told apart by their stream."""


def compile_ahead(step: Callable[[], object], stream: torch.cuda.Stream) -> None:
    """Compile the programs that a step launches, all at the same time.

    The step is made on `stream` without any of our programs: its results, and all that was derived from them, come from
    memory that nobody has written.
    """
    global _rehearsal
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool, torch.cuda.stream(stream):
        _rehearsal = _Rehearsal(stream, pool)
        try:
            step()
        finally:
            _rehearsal = None
