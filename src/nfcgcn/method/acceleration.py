"""How faster code replaces the method's formulas, and which results are cached.

Each operation of this folder is a formula in plain PyTorch. :mod:`nfcgcn.kernels` has faster ways to compute some of
them; it is loaded with the first layer or operation and registers these here. Inside :func:`plain_formulas` only the
formulas themselves run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

P = ParamSpec("P")
T = TypeVar("T")

KERNELS = "nfcgcn.kernels"
"""The module that registers faster ways. A name, because the method must not depend on it."""
MOST_REMEMBERED = 16
"""How many results a function caches per tensor: those used last."""

_faster: dict[str, Callable[..., Any]] = {}
_prepared = False
_only: dict[str, Callable[..., Any]] | None = None
"""Inside `plain_formulas`: the functions that replace a formula."""


def accelerated(formula: Callable[P, T]) -> Callable[P, T]:
    """Mark a formula that faster code may replace; ``formula`` of the result is the formula itself."""
    name = _name(formula)

    @wraps(formula)
    def compute(*args: P.args, **kwargs: P.kwargs) -> T:
        if not _prepared and not torch.compiler.is_compiling():
            prepare()
        otherwise = (_faster if _only is None else _only).get(name)
        if otherwise is not None:
            result = otherwise(*args, **kwargs)
            if result is not NotImplemented:
                return result  # type: ignore[no-any-return]
        return formula(*args, **kwargs)

    compute.formula = formula  # type: ignore[attr-defined]
    return compute


def prepare() -> None:
    """Load the faster ways. Layers do it when they are made: the compiler cannot do it for them."""
    global _prepared
    _prepared = True
    import_module(KERNELS)


def accelerates(operation: Callable[..., Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Register a faster way to compute an operation; it returns ``NotImplemented`` if it does not apply."""

    def register(faster: Callable[P, T]) -> Callable[P, T]:
        _faster[_name(operation)] = faster
        return faster

    return register


def _name(operation: Callable[..., Any]) -> str:
    return f"{operation.__module__}.{operation.__name__}"


@contextmanager
def plain_formulas(instead: Mapping[Any, Callable[..., Any]] | None = None) -> Iterator[None]:
    """Compute all operations by their formulas inside the block, and cache nothing.

    `instead` maps operations to functions that still replace their formulas.
    """
    global _only
    before, _only = _only, {_name(operation): other for operation, other in (instead or {}).items()}
    try:
        yield
    finally:
        _only = before


def opaque(function: Callable[P, T]) -> Callable[P, T]:
    """Let ``torch.compile`` call a function without tracing it: it cannot trace Numba, NumPy and caches."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch.compiler.is_compiling() and _only is None:
            # Made on first use, because it loads the compiler, which takes a second.
            closed: Callable[P, T] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
            return closed(*args, **kwargs)
        return function(*args, **kwargs)

    return call


class _Same(NamedTuple):
    """A tensor in a cache key: the same object at the same version. It is held, so that no other tensor gets its id."""

    tensor: Tensor
    version: int

    def __hash__(self) -> int:
        return id(self.tensor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.tensor is other.tensor and self.version == other.version


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor was written to; a tensor made in inference mode has no such count."""
    return 0 if tensor.is_inference() else tensor._version


def remembered(
    function: Callable[Concatenate[Tensor, P], T],
) -> Callable[Concatenate[Tensor, P], T]:
    """Compute a function of a tensor once, for as long as the tensor lives and nobody writes to it.

    The result must not hold the tensor itself, which would then live for ever. A result computed from a tensor that
    needs a gradient belongs to one backward pass and is not cached.
    """
    known: Any = WeakTensorKeyDictionary()

    @opaque
    @wraps(function)
    def look_up(tensor: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if _only is not None or tensor.requires_grad:
            return function(tensor, *args, **kwargs)
        others = (*args, *(part for item in sorted(kwargs.items()) for part in item))
        key = tuple(_Same(a, version_of(a)) if isinstance(a, Tensor) else a for a in others)
        results: OrderedDict[Any, T] | None
        version, results = known.get(tensor) or (None, None)
        if version != version_of(tensor) or results is None:
            results = OrderedDict()
            known[tensor] = version_of(tensor), results
        if key not in results:
            results[key] = function(tensor, *args, **kwargs)
        results.move_to_end(key)
        while len(results) > MOST_REMEMBERED:
            results.popitem(last=False)
        return results[key]

    return look_up
