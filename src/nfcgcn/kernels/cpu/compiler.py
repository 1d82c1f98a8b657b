"""How Numba compiles the CPU kernels, where it keeps them, and how their loops share work among threads."""

from __future__ import annotations

import logging
import os
import platform
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils, event
from numba.extending import intrinsic

AFTER = 2.0
"""Seconds of compiling after which a message says so."""
log = logging.getLogger("nfcgcn")


def _find_cache() -> bool:
    """Find a folder for compiled kernels, and say whether there is one.

    Numba takes ``NUMBA_CACHE_DIR``, the package's own folder or the user's cache. If none of them can be written, a
    folder among the temporary files will do, but only one that nobody else can write: Numba unpickles what it finds.
    """
    try:
        njit(cache=True)(_find_cache)
        return True
    except RuntimeError:
        pass
    folder = Path(tempfile.gettempdir()) / f"nfcgcn-kernels-{os.getuid() if hasattr(os, 'getuid') else 0}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        kind = folder.lstat()
        if not stat.S_ISDIR(kind.st_mode) or kind.st_mode & 0o077 or kind.st_uid != os.getuid():
            return False
        config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
        njit(cache=True)(_find_cache)
        return True
    except (OSError, RuntimeError, AttributeError):
        return False


class _Notice(event.Listener):
    """Tells the user once, if compiling takes long."""

    def __init__(self) -> None:
        self.depth, self.spent, self.began = 0, 0.0, 0.0
        self.timer: threading.Timer | None = None

    def on_start(self, _: Any) -> None:
        if self.depth == 0 and self.spent < AFTER:
            self.began = time.perf_counter()
            self.timer = threading.Timer(AFTER - self.spent, self.tell)
            self.timer.daemon = True
            self.timer.start()
        self.depth += 1

    def on_end(self, _: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and self.timer is not None:
            self.timer.cancel()
            self.timer = None
            self.spent += time.perf_counter() - self.began

    def tell(self) -> None:
        self.spent = AFTER
        log.info("compiling the CPU kernels for this machine, some seconds each; later runs reuse them")


event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]

# A product and a sum may be fused, and the sign of a zero may be lost; nothing is reordered: results are repeatable.
# No loop is parallel by itself: every thread that takes part calls the loop, and `take` hands out its tasks.
compiled: Any = njit(cache=_find_cache(), nogil=True, fastmath={"contract", "nsz"})
inlined: Any = njit(inline="always")
primitive: Any = intrinsic


@primitive
def take(_: Any, turn: Any) -> Any:
    """Return the number of a task that no thread has taken yet; ``turn [1]`` counts them."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, given[0])
        return builder.atomic_rmw("add", array.data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(turn), generate


@primitive
def peek(_: Any, array: Any, place: Any) -> Any:
    """Read a number that another thread may write at any time."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        return builder.load_atomic(builder.gep(data, [given[1]]), "acquire", 8)

    return types.int64(array, types.intp if isinstance(place, types.Integer) else place), generate


@primitive
def relax(_: Any) -> Any:
    """Let the core do something else for a moment, if it has a word for that."""

    def generate(_: Any, builder: Any, __: Any, ___: Any) -> Any:
        if platform.machine().lower() in ("x86_64", "amd64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            pause = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause")  # type: ignore[no-untyped-call]
            builder.call(pause, [])
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(), generate


@primitive
def prefetch(_: Any, array: Any, place: Any) -> Any:  # noqa: ARG001
    """Let the core fetch what lies at a place of an array while it goes on; pages that are not mapped are left out."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [address], kind)
        options = [ir.Constant(number, value) for value in (0, 3, 1)]  # to read, to keep in all caches, data
        builder.call(fetch, [builder.bitcast(builder.gep(data, [given[1]]), address), *options])
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(array, types.int64), generate
