"""What a fast variant of an operation must guarantee, in a form that both tests and benchmarks run.

For each case: the error of the values and of every gradient against the float64 reference is at most twice the error of
the reference in the case's own type, plus a small floor; memory that the variant did not write shows as NaN; inputs are
not changed; and repeating the call gives the same bits, with one to four threads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.reference import node_feature_conv as reference


@dataclass(frozen=True)
class Case:
    """One problem, drawn with a fixed seed."""

    name: str
    num_nodes: int = 37
    num_features: int = 50
    bandwidth: int = 5
    width: int | None = None
    """Slots a filter sees; None is all of them, the 1D convolution."""
    filters: int = 4
    size: int = 8
    stride: int = 4
    hidden: int = 6
    activation: str = "tanh"
    dropout: float = 0.5
    hidden_dropout: float = 0.0
    """For `projected` only."""
    density: float = 0.2
    sparse: bool = True
    index_dtype: torch.dtype = torch.int64
    contiguous: bool = True
    lonely: bool = False
    """Every slot of a node holds a copy of the node."""
    grad: bool = True
    """Whether gradients are needed; without them, a variant may take another way."""

    def inputs(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Draw features, table, filters and matrix: the same numbers for each type, to rounding."""
        random = torch.Generator().manual_seed(20)

        def normal(*shape: int) -> Tensor:
            # Drawn in float32, so that both types start from the same numbers.
            return torch.randn(shape, generator=random).to(dtype)

        x = normal(self.num_nodes, self.num_features)
        x *= torch.rand(x.shape, generator=random) < self.density
        x[::5] = 0
        table = torch.randint(self.num_nodes, (self.num_nodes, self.bandwidth), generator=random)
        own = torch.arange(self.num_nodes)
        copies = torch.randint(self.bandwidth, (self.num_nodes,), generator=random)
        copies[:] = self.bandwidth if self.lonely else copies
        table[torch.arange(self.bandwidth) >= self.bandwidth - copies[:, None]] = -1
        table = torch.where(table < 0, own[:, None], table)
        table[:, 0] = own
        width = self.width or self.bandwidth
        places = (self.num_features - self.size) // self.stride + 1
        weight = normal(self.filters, width, self.size)
        matrix = normal((self.bandwidth - width + 1) * self.filters * places, self.hidden)
        if not self.contiguous:
            table, weight, matrix = (t.mT.contiguous().mT for t in (table, weight, matrix))
            x = x if self.sparse else x.mT.contiguous().mT
        if self.sparse:
            counts, (_, columns) = (x != 0).sum(1), x.nonzero(as_tuple=True)
            starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            x = csr_tensor(starts.to(self.index_dtype), columns.to(self.index_dtype), x[x != 0], x.shape)
        return {"x": x, "neighbours": table, "weight": weight, "matrix": matrix}

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of the operation."""
        options = {"stride": self.stride, "activation": self.activation, "dropout": self.dropout, "seed": 7}
        return options | ({"hidden_dropout": self.hidden_dropout} if self.hidden_dropout else {})


def cases() -> list[Case]:
    """List the cases: each kind has its own difficulty and comes with and without an activation, sparse and dense.

    The plain kind is combined with all activations and dropout rates.
    """
    shapes = [
        Case("plain"),
        Case("size no multiple of stride", size=7, stride=3),
        Case("columns no window covers", num_features=49, size=8, stride=7),
        Case("columns between windows", size=3, stride=5),
        Case("one window", num_features=20, size=20, stride=1),
        Case("one node", num_nodes=1),
        Case("bandwidth beyond any degree", bandwidth=12, num_nodes=6),
        Case("bandwidth one", bandwidth=1),
        Case("isolated nodes", lonely=True),
        Case("no nonzero", density=0.0),
        Case("2D", width=3),
        Case("2D, width one", width=1),
        Case("int32 indices", index_dtype=torch.int32),
        Case("not contiguous", contiguous=False, width=3),
        Case("wide", num_nodes=300, filters=33, hidden=17, num_features=120, size=32, stride=16),
        Case("whole vectors", filters=16, hidden=8),
        Case("no gradient", grad=False, dropout=0.0),
        Case("no gradient, isolated nodes", grad=False, dropout=0.0, lonely=True),
    ]
    return [
        replace(
            c, name=f"{c.name}, {a}, dropout {p:g}, {'sparse' if s else 'dense'}", activation=a, dropout=p, sparse=s
        )
        for c, a, p, s in product(shapes, ("none", "tanh", "relu"), (0.0, 0.5, 0.3), (True, False))
        if (s or c.index_dtype == torch.int64) and (c.name == "plain" or (a != "relu" and p == (0.5 if c.grad else 0)))
    ]


THREADS = (1, 2, 3, 4)
"""Numba uses at most ``NUMBA_NUM_THREADS`` of these, by default the number of cores."""

Operation = Callable[..., Tensor]
OPERATIONS: dict[str, Operation] = {
    "projected": reference.projected,
    "node_feature_conv": reference.node_feature_conv,
}


def violation(
    operation: str,
    variant: Operation,
    case: Case,
    dtype: torch.dtype,
    *,
    device: str = "cpu",
    slack: float = 1.0,
    threads: Sequence[int] = THREADS,
) -> str | None:
    """Return how `variant` breaks the contract on a case, or None.

    `slack` multiplies the allowed error; the call is repeated once with each number of `threads`.
    """
    truth = _run(OPERATIONS[operation], operation, case, torch.float64)
    own = _run(OPERATIONS[operation], operation, case, dtype)
    inputs = {name: t.to(device) for name, t in case.inputs(dtype).items()}
    before = {name: _values(t).clone() for name, t in inputs.items()}
    with _poisoned_memory():
        results = _run(variant, operation, case, dtype, inputs)
    for name, t in inputs.items():
        if not torch.equal(_values(t), before[name]):
            return f"changes its input {name}"
    for name, exact in truth.items():
        if results[name].shape != exact.shape or results[name].dtype != dtype:
            return f"{name} is {results[name].dtype} {list(results[name].shape)}, not {dtype} {list(exact.shape)}"
        scale = exact.abs().max().item() if exact.numel() else 0.0
        # In float64 the reference counts as exact, so the floor must cover its own error, too.
        allowed = slack * (2 * _error(own[name], exact) + 32 * torch.finfo(dtype).eps * scale)
        error = _error(results[name], exact)
        if not error <= allowed:  # false for NaN
            return f"{name} is off by {error:.3g}, where {allowed:.3g} is allowed"
    for count in threads:
        with _threads(count):
            again = _run(variant, operation, case, dtype, inputs)
        if any(not torch.equal(results[name], again[name]) for name in results):
            return f"other bits in a second call with {count} threads"
    return None


def _run(
    function: Operation, operation: str, case: Case, dtype: torch.dtype, inputs: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    inputs = dict(inputs or case.inputs(dtype))
    names = ["weight", "matrix"] if operation == "projected" else ["weight"]
    device = inputs["weight"].device
    if operation != "projected":
        del inputs["matrix"]
    if not case.grad:
        with torch.no_grad():
            return {"value": function(*inputs.values(), **case.options).cpu()}
    for name in names:
        inputs[name] = inputs[name].detach().requires_grad_()
    value = function(*inputs.values(), **case.options)
    seed = torch.randn(value.shape, generator=torch.Generator().manual_seed(21)).to(dtype)
    seed[1::4] = 0
    grads = torch.autograd.grad(value, [inputs[name] for name in names], seed.to(device))
    return {"value": value.detach().cpu(), **{f"gradient of {n}": g.cpu() for n, g in zip(names, grads, strict=True)}}


def _values(t: Tensor) -> Tensor:
    return t.values() if t.layout == torch.sparse_csr else t


def _error(result: Tensor, exact: Tensor) -> float:
    return (result.double() - exact).abs().max().item() if exact.numel() else 0.0


@contextmanager
def _poisoned_memory() -> Iterator[None]:
    """Let torch fill uninitialised memory with NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    # A GPU has operations without a deterministic form, which `cumsum` of whole numbers need not have.
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have a deterministic implementation")
            yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
