"""The layers: node-feature convolution and graph convolution, each forward as its equation reads."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, get_args

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from nfcgcn.errors import ConfigError, GraphError, NFCError, unknown
from nfcgcn.graph import Floats, Ints
from nfcgcn.kernels import Backend, opaque
from nfcgcn.kernels.node_feature_conv import node_feature_conv, projected, refusal, variant_for
from nfcgcn.kernels.product import Factor, multiply, sparse_product
from nfcgcn.kernels.product.reference import Sparse
from nfcgcn.kernels.rows import shifted
from nfcgcn.randomness import generator
from nfcgcn.sampling import SlotOrder, draw_table, order_by_similarity

Conv = Literal["1d", "2d"]
Activation = Literal["none", "tanh", "relu"]
Classifier = Literal["none", "linear"]
Resample = Literal["once", "epoch"]

T = TypeVar("T")


class Remembered(Generic[T]):
    """The value last computed from a tensor, kept until another tensor comes or this one is written to."""

    def __init__(self) -> None:
        self._tensor: Callable[[], Tensor | None] = lambda: None
        self._rest: tuple[Any, ...] = ()
        self._value: T | None = None

    @opaque
    def get(self, tensor: Tensor, compute: Callable[[Tensor], T], *also: Any) -> T:
        """Return what ``compute(tensor)`` gave the last time, or compute it; it also depends on `also`."""
        rest = (0 if tensor.is_inference() else tensor._version, *also)
        if self._value is None or self._tensor() is not tensor or self._rest != rest:
            self._value = compute(tensor)
            self._tensor, self._rest = weakref.ref(tensor), rest
        return self._value

    def __deepcopy__(self, memo: dict[int, Any]) -> Remembered[T]:
        return type(self)()

    def __reduce__(self) -> tuple[type[Remembered[T]], tuple[()]]:
        return type(self), ()


class NodeFeatureConv(nn.Module):
    r"""Convolve the features of each node and its sampled neighbours: the NFC layer.

    .. math:: h^{(0)}_i = \mathrm{flatten}(\sigma(\mathrm{Conv}(X'_i))), \qquad
        X'_i = (x_i, x_{j_1}, \ldots, x_{j_{n-1}}), \; j \in \mathcal{N}'_i

    (the paper's equations 4 to 6). ``conv="1d"`` takes the ``n`` slots as channels and slides ``k`` features by ``s``:
    ``D' c`` outputs with ``D' = (D - k) // s + 1``. ``conv="2d"`` also slides over the slots, ``kernel_width`` of them
    at a time by one: ``(n - w + 1) c D'`` outputs. Columns that no window reaches do not count.

    Args:
        in_channels: features a node, ``D``.
        filters: ``c``.
        bandwidth: ``n``, slots of the map, the node itself included.
        kernel_size: ``k``.
        stride: ``s``.
        activation: of the convolution's output.
        dropout: share of the map's cells set to 0 in training; copies of a node lose different cells.
        slot_order: drawn neighbours in random order, or by falling cosine similarity to the node.
        resample: draw neighbours once a graph, or anew in every training pass; evaluation always uses the one draw.
        seed: of the neighbour draw.
        backend: "auto" runs the fast kernels of the device where they can, else the reference; the others force one.

    Shapes: ``x [N, D]`` dense or CSR, ``edge_index [2, E]``, output ``[N, out_channels]``.
    """

    def __init__(
        self,
        in_channels: int,
        filters: int = 64,
        *,
        bandwidth: int = 6,
        kernel_size: int = 32,
        stride: int = 16,
        conv: Conv = "1d",
        kernel_width: int = 3,
        activation: Activation = "none",
        dropout: float = 0.5,
        slot_order: SlotOrder = "random",
        resample: Resample = "once",
        seed: int = 0,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        one_of(conv=(conv, Conv), activation=(activation, Activation), backend=(backend, Backend))
        one_of(slot_order=(slot_order, SlotOrder), resample=(resample, Resample))
        at_least_one(bandwidth=bandwidth, filters=filters, kernel_size=kernel_size, stride=stride)
        check_rate("dropout", dropout)
        if kernel_size > in_channels:
            raise ConfigError(
                f"`kernel_size` must be at most the number of features, {in_channels}, got {kernel_size}; lower it"
            )
        if conv == "2d" and not 1 <= kernel_width <= bandwidth:
            raise ConfigError(
                f"`kernel_width` must be between 1 and `bandwidth`, {bandwidth}, got {kernel_width}; "
                "lower it or raise `bandwidth`"
            )
        self.in_channels = in_channels
        self.bandwidth, self.kernel_size, self.stride = bandwidth, kernel_size, stride
        self.conv, self.activation, self.dropout = conv, activation, dropout
        self.slot_order, self.resample, self.seed = slot_order, resample, seed
        self.backend: Backend = backend
        width = bandwidth if conv == "1d" else kernel_width
        # Paper: no bias is printed, and without one the layer stays linear when it has no activation.
        self.weight = nn.Parameter(torch.empty(filters, width, kernel_size))
        self.out_channels = (bandwidth - width + 1) * filters * ((in_channels - kernel_size) // stride + 1)
        self._adjacency: Remembered[tuple[Tensor, Tensor]] = Remembered()
        self._table: Remembered[Tensor] = Remembered()
        self._ordered: Remembered[tuple[Tensor, Tensor]] = Remembered()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the filters anew (Glorot, uniform)."""
        nn.init.xavier_uniform_(self.weight)

    @opaque
    def forward(self, x: Tensor, edge_index: Tensor | None = None, *, neighbours: Tensor | None = None) -> Tensor:
        """Return ``h(0)``; a neighbour table ``[N, bandwidth]`` may be given in place of being drawn from the edges."""
        table = self._table_for(x, edge_index, neighbours)
        return node_feature_conv(x, table, self.weight, backend=self.backend, **self._options())

    @opaque
    def project(
        self,
        x: Tensor,
        edge_index: Tensor | None,
        matrix: Tensor,
        *,
        neighbours: Tensor | None = None,
        needed: Tensor | None = None,
        hidden_dropout: float = 0.0,
    ) -> Tensor:
        """Return ``h(0) @ matrix`` without keeping ``h(0)``: ``[N, H]`` for ``matrix [out_channels, H]``.

        With ``hidden_dropout``, which GPU kernels do not have, cells of ``h(0)`` are dropped in training. With
        ``needed``, node numbers, the rows of all other nodes mean nothing, and cost nothing where that is fast.
        """
        table = self._table_for(x, edge_index, neighbours)
        options = self._options(hidden_dropout)
        return projected(x, table, self.weight, matrix, backend=self.backend, needed=needed, **options)

    def why(self, x: Tensor) -> str:
        """Say which kernels run on `x`: "cpu", "gpu", or "reference" with what keeps the faster ones from it."""
        if self.backend == "reference":
            return "reference: `backend` says so"
        variant = variant_for(x, self.backend)
        complaint = refusal(variant, x, self.weight)
        return f"reference: {complaint}" if complaint else variant

    def _options(self, hidden_dropout: float = 0.0) -> dict[str, Any]:
        dropout, hidden_dropout = (rate if self.training else 0.0 for rate in (self.dropout, hidden_dropout))
        if dropout and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise NFCError("a captured CUDA graph would repeat one dropout mask for ever; train with `nfcgcn.fit`")
        # The masks are hashes of this one number, so torch's generator decides them on every device alike.
        seed = int(torch.randint(2**62, ())) if dropout or hidden_dropout else 0
        options = {"stride": self.stride, "activation": self.activation, "dropout": dropout, "seed": seed}
        return options | ({"hidden_dropout": hidden_dropout} if hidden_dropout else {})

    def _table_for(self, x: Tensor, edge_index: Tensor | None, neighbours: Tensor | None) -> Tensor:
        if x.shape[1] != self.in_channels:
            raise GraphError(f"`x` must have {self.in_channels} features, as the layer was made for, got {x.shape[1]}")
        if neighbours is None:
            if edge_index is None:
                raise GraphError("the layer needs `edge_index` to draw neighbours from, or a table as `neighbours`")
            if self.training and self.resample == "epoch":
                rng = np.random.default_rng(int(torch.randint(2**62, ())))
                return self._order(x, self._draw(x, edge_index, rng))
            return self.table(x, edge_index)
        if neighbours.shape != (x.shape[0], self.bandwidth):
            raise GraphError(
                f"`neighbours` must have shape [{x.shape[0]}, {self.bandwidth}] (nodes, bandwidth), "
                f"got {list(neighbours.shape)}"
            )
        if neighbours.numel() and not 0 <= int(neighbours.min()) <= int(neighbours.max()) < x.shape[0]:
            raise GraphError(f"`neighbours` names a node outside 0 to {x.shape[0] - 1}")
        return neighbours

    def table(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the neighbour table ``[N, bandwidth]`` that evaluation uses, drawn once a graph."""
        num_nodes = x.shape[0]
        drawn = self._table.get(
            edge_index, lambda e: self._draw(x, e, generator(self.seed, "neighbours")), num_nodes, x.device, self.seed
        )
        return self._order(x, drawn)

    def _draw(self, x: Tensor, edge_index: Tensor, rng: np.random.Generator) -> Tensor:
        def lists(edge_index: Tensor) -> tuple[Tensor, Tensor]:
            starts, neighbours = (torch.from_numpy(a).to(x.device) for a in adjacency_lists(edge_index, x.shape[0]))
            return starts, neighbours

        adjacency = self._adjacency.get(edge_index, lists, x.shape[0], x.device)
        return draw_table(*adjacency, bandwidth=self.bandwidth, rng=rng)

    def _order(self, x: Tensor, drawn: Tensor) -> Tensor:
        if self.slot_order == "random":
            return drawn

        def order(_: Tensor) -> tuple[Tensor, Tensor]:
            ordered = order_by_similarity(drawn.cpu().numpy(), _to_numpy(x))
            return drawn, torch.from_numpy(ordered).to(x.device)

        # The drawn table is kept beside the ordered one, so that its id cannot come to name another.
        return self._ordered.get(x, order, id(drawn))[1]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, filters={len(self.weight)}, "
            f"bandwidth={self.bandwidth}, kernel_size={self.kernel_size}, stride={self.stride}, conv='{self.conv}', "
            f"activation='{self.activation}')"
        )


class GraphConv(nn.Module):
    r"""Average a linear map of the neighbours with symmetric normalisation: Kipf and Welling's layer, without bias.

    .. math:: H' = \hat A H W, \qquad \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}

    ``x`` is ``[N, in_channels]``, dense, CSR, or what :mod:`nfcgcn.kernels.product` has for them; ``adjacency`` is an
    ``edge_index`` or the result of :func:`normalised_adjacency`.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self._normalised: Remembered[Sparse] = Remembered()
        self._sparse: Remembered[Sparse] = Remembered()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew (Glorot, uniform)."""
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Factor, adjacency: Tensor | Sparse) -> Tensor:
        """Return ``A_hat x W``."""
        if isinstance(x, Tensor) and x.layout == torch.sparse_csr:
            x = self._sparse.get(x, Sparse.from_csr)
        return self.propagate(multiply(x, self.weight), adjacency)

    def propagate(self, h: Tensor, adjacency: Tensor | Sparse) -> Tensor:
        """Return ``A_hat h``, where ``h`` is ``x W`` already."""
        if isinstance(adjacency, Tensor):
            key = (len(h), h.dtype)
            adjacency = self._normalised.get(adjacency, lambda e: normalised_adjacency(e, *key), *key)
        return sparse_product(adjacency, h)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weight.shape[0]}, {self.weight.shape[1]})"


class Linear(nn.Linear):
    """``nn.Linear`` with Glorot weights, zero bias, and gradients that do not depend on the number of threads."""

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, input: Factor) -> Tensor:
        """Return ``input W + b``."""
        return shifted(multiply(input, self.weight.mT), self.bias)


def normalised_adjacency(edge_index: Tensor, num_nodes: int, dtype: torch.dtype = torch.float32) -> Sparse:
    r"""Return :math:`\hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}`, where each node has one loop.

    Edges run from ``edge_index[0]`` to ``edge_index[1]``, as in PyTorch Geometric; degrees count what arrives.
    """
    check_range(edge_index, num_nodes)
    loops = torch.arange(num_nodes, device=edge_index.device)
    source, target = torch.cat([edge_index[:, edge_index[0] != edge_index[1]], loops.expand(2, -1)], dim=1)
    scale = torch.bincount(target, minlength=num_nodes).to(dtype).rsqrt()
    return Sparse.from_entries(target, source, scale[source] * scale[target], size=(num_nodes, num_nodes))


def adjacency_lists(edge_index: Tensor, num_nodes: int) -> tuple[Ints, Ints]:
    """List the distinct neighbours of each node, itself excluded, as CSR ``starts`` and ``neighbours``."""
    check_range(edge_index, num_nodes)
    source, target = edge_index.cpu().numpy()
    keep = source != target
    matrix = sp.csr_array((np.ones(keep.sum(), np.int8), (target[keep], source[keep])), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)


def check_range(edge_index: Tensor, num_nodes: int) -> None:
    """Refuse edges that name nodes the features have no row for."""
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise GraphError(f"`edge_index` names a node outside 0 to {num_nodes - 1}; does it belong to these features?")


def at_least_one(**values: int) -> None:
    """Refuse counts below 1, by name."""
    for name, value in values.items():
        if value < 1:
            raise ConfigError(f"`{name}` must be at least 1, got {value}")


def one_of(**choices: tuple[str, Any]) -> None:
    """Refuse a choice that its `Literal` does not list, by name."""
    for name, (value, literal) in choices.items():
        if value not in get_args(literal):
            raise ConfigError(unknown(name, value, get_args(literal)))


def check_rate(name: str, value: float) -> None:
    """Refuse a dropout rate outside [0, 1)."""
    if not 0 <= value < 1:
        raise ConfigError(f"`{name}` must be at least 0 and below 1, got {value}")


def _to_numpy(x: Tensor) -> sp.csr_array | Floats:
    x = x.detach().cpu()
    if x.layout != torch.sparse_csr:
        return x.numpy()
    return sp.csr_array((x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()), shape=tuple(x.shape))
