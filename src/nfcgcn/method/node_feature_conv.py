"""Node-feature convolution, the paper's layer: put the neighbours' features side by side, then convolve this map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.method.acceleration import accelerated, prepare
from nfcgcn.method.additions import DrawConfig
from nfcgcn.method.hops import Hops
from nfcgcn.method.sampling import SlotOrder, neighbour_table, next_draw, order_slots
from nfcgcn.settings import MOST_SLOTS, rate, setting, takes

Conv = Literal["1d", "2d"]
Activation = Literal["none", "tanh", "relu"]
Resample = Literal["once", "epoch"]
Backend = Literal["auto", "reference", "cpu", "gpu"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"none": lambda h: h, "tanh": torch.tanh, "relu": torch.relu}


def feature_map(x: Tensor, neighbours: Tensor) -> Tensor:
    """Put the features of each node's neighbours side by side: ``X'[i, j] = x[neighbours[i, j]]``, ``[N, n, D]``."""
    return (x if x.layout == torch.strided else x.to_dense())[neighbours]


def convolve(maps: Tensor, weight: Tensor, *, stride: int) -> Tensor:
    """Slide ``weight [c, w, k]`` over maps ``[N, n, D]``: ``w`` slots at a time by one, ``k`` features by ``stride``.

    Returns ``[N, n - w + 1, c, D']`` with ``D' = (D - k) // stride + 1``. With ``w = n`` this is the 1D convolution,
    whose channels are the slots; with a smaller ``w`` the 2D one.
    """
    if weight.shape[1] == maps.shape[1]:
        return F.conv1d(maps, weight, stride=stride)[:, None]
    return F.conv2d(maps[:, None], weight[:, None], stride=(1, stride)).transpose(1, 2)


@accelerated
def node_feature_conv(
    x: Tensor,
    neighbours: Tensor,
    weight: Tensor,
    *,
    stride: int,
    activation: Activation,
    dropout: float = 0.0,
    backend: Backend = "auto",  # noqa: ARG001  (for those that compute it otherwise)
) -> Tensor:
    r"""Return :math:`h^{(0)} = \mathrm{flatten}(\sigma(\mathrm{Conv}(\mathrm{dropout}(X'))))`.

    The shape is ``[N, (n - w + 1) c D']``. Each cell of the map is dropped independently, so that two copies of a node
    lose different features.
    """
    maps = F.dropout(feature_map(x, neighbours), dropout)
    return ACTIVATIONS[activation](convolve(maps, weight, stride=stride)).flatten(1)


@accelerated
def projected(
    x: Tensor,
    neighbours: Tensor,
    weight: Tensor,
    matrix: Tensor,
    *,
    stride: int,
    activation: Activation,
    dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    needed: Tensor | None = None,  # noqa: ARG001  (to skip rows is for those that compute it otherwise)
    backend: Backend = "auto",
) -> Tensor:
    """Return ``h(0) @ matrix``, ``[N, H]``; with ``hidden_dropout``, cells of ``h(0)`` are dropped first.

    With ``needed``, node numbers, ignore the rows of all other nodes: faster code may leave them 0.
    """
    conv = node_feature_conv.formula  # type: ignore[attr-defined]
    h = conv(x, neighbours, weight, stride=stride, activation=activation, dropout=dropout, backend=backend)
    return F.dropout(h, hidden_dropout) @ matrix


@dataclass(frozen=True)
class NodeFeatureConvConfig(DrawConfig):
    """The settings of the node-feature convolution, named as its arguments."""

    bandwidth: int = setting(6, "slots of a node's feature map (n), the node itself included", low=1, high=MOST_SLOTS)
    filters: int = setting(64, "filters of the node-feature convolution (c)", low=1)
    kernel_size: int = setting(32, "features a filter sees at a time (k)", low=1)
    stride: int = setting(16, "features between two places of a filter (s)", low=1)
    conv: Conv = setting("1d", "1d: slots are channels; 2d: filters slide over slots, too")
    kernel_width: int = setting(3, "slots a 2D filter sees at a time", low=1)
    activation: Activation = setting("none", "after the node-feature convolution")
    map_dropout: float = rate(0.5, "dropout on the feature maps")
    slot_order: SlotOrder = setting("random", "order of the drawn neighbours in the map")
    resample: Resample = setting("once", "draw neighbours once per run, or again in every training epoch")
    backend: Backend = setting("auto", "kernels: the fast ones where they can run, or the named ones")


class NodeFeatureConv(nn.Module):
    r"""Convolve the features of each node and its sampled neighbours: the NFC layer.

    .. math:: h^{(0)}_i = \mathrm{flatten}(\sigma(\mathrm{Conv}(X'_i))), \qquad
        X'_i = (x_i, x_{j_1}, \ldots, x_{j_{n-1}}), \; j \in \mathcal{N}'_i

    (the paper's equations 4 to 6). ``conv="1d"`` takes the ``n`` slots as channels and slides ``k`` features by ``s``:
    ``D' c`` outputs with ``D' = (D - k) // s + 1``. ``conv="2d"`` also slides over the slots, ``kernel_width`` of them
    at a time by one: ``(n - w + 1) c D'`` outputs. Columns that no window reaches have no effect.

    Args:
        in_channels: features per node, ``D``.
        seed: of the neighbour draw.

    For the other arguments see :class:`NodeFeatureConvConfig` or ``nfcgcn settings``. Neighbours are drawn once per
    ``edge_index`` tensor; with ``resample="epoch"`` again in every training pass, while evaluation uses a fixed draw.

    Shapes: ``x [N, D]`` dense or CSR, ``edge_index [2, E]``, output ``[N, out_channels]``.

    >>> layer = NodeFeatureConv(8, filters=3, bandwidth=2, kernel_size=4, stride=2)
    >>> layer(torch.eye(8), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([8, 9])
    """

    @takes(NodeFeatureConvConfig, positional=("filters",))
    def __init__(self, in_channels: int, *, config: NodeFeatureConvConfig, seed: int = 0) -> None:
        super().__init__()
        prepare()
        if config.kernel_size > in_channels:
            raise ConfigError(
                f"`kernel_size` must be at most the number of features, {in_channels}, got {config.kernel_size}; "
                "lower it"
            )
        if config.conv == "2d" and config.kernel_width > config.bandwidth:
            raise ConfigError(
                f"`kernel_width` must be between 1 and `bandwidth`, {config.bandwidth}, got {config.kernel_width}; "
                "lower it or raise `bandwidth`"
            )
        self.in_channels, self.config, self.seed = in_channels, config, seed
        self.draw = 0
        """Which of the seed's draws of neighbours evaluation uses."""
        width = config.bandwidth if config.conv == "1d" else config.kernel_width
        # Paper: the equations have no bias; without one, the layer is linear if it has no activation.
        self.weight = nn.Parameter(torch.empty(config.filters, width, config.kernel_size))
        places = (in_channels - config.kernel_size) // config.stride + 1
        self.out_channels = (config.bandwidth - width + 1) * config.filters * places
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the filters again (Glorot, uniform)."""
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor, edge_index: Any = None, *, neighbours: Tensor | None = None) -> Tensor:
        """Return ``h(0)``; without a neighbour table ``[N, bandwidth]``, one is drawn from the edges."""
        return node_feature_conv(x, self.table(x, edge_index, neighbours), self.weight, **self._options())

    def project(
        self,
        x: Tensor,
        edge_index: Any,
        matrix: Tensor,
        *,
        neighbours: Tensor | None = None,
        needed: Tensor | None = None,
        hidden_dropout: float = 0.0,
    ) -> Tensor:
        """Return ``h(0) @ matrix``, ``[N, H]``, without keeping ``h(0)``; see :func:`projected`."""
        table = self.table(x, edge_index, neighbours)
        hidden_dropout = hidden_dropout if self.training else 0.0
        options = {**self._options(), "needed": needed, "hidden_dropout": hidden_dropout}
        return projected(x, table, self.weight, matrix, **options)

    def _options(self) -> dict[str, Any]:
        c = self.config
        return {
            "stride": c.stride,
            "activation": c.activation,
            "dropout": c.map_dropout if self.training else 0.0,
            "backend": c.backend,
        }

    def table(self, x: Tensor, edge_index: Any, neighbours: Tensor | None = None) -> Tensor:
        """Return the neighbour table ``[N, bandwidth]``: the one given, or the one drawn from the edges."""
        num_nodes, bandwidth = x.shape[0], self.config.bandwidth
        if x.shape[1] != self.in_channels:
            raise GraphError(f"`x` must have {self.in_channels} features, as the layer was made for, got {x.shape[1]}")
        if neighbours is not None:
            return neighbours if torch.compiler.is_exporting() else check_table(neighbours, num_nodes, bandwidth)
        if edge_index is None:
            raise GraphError("the layer needs `edge_index` to draw neighbours from, or a table as `neighbours`")
        if isinstance(edge_index, Hops):
            if edge_index.table is None:
                raise GraphError("these hops have no neighbour table, which a node-feature convolution needs")
            return edge_index.table
        draw = next_draw() if self.training and self.config.resample == "epoch" else self.draw
        table = neighbour_table(
            edge_index,
            num_nodes,
            bandwidth=bandwidth,
            seed=self.seed,
            draw=draw,
            device=x.device,
            by=self.config.neighbour_draw,
            x=x,
        )
        return order_slots(x, table, edge_index, self.config.slot_order)

    def __repr__(self) -> str:
        c = self.config
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, filters={c.filters}, "
            f"bandwidth={c.bandwidth}, kernel_size={c.kernel_size}, stride={c.stride}, conv='{c.conv}', "
            f"activation='{c.activation}')"
        )


def check_table(neighbours: Tensor, num_nodes: int, bandwidth: int) -> Tensor:
    """Return a neighbour table, or raise an error if it does not fit."""
    if neighbours.shape != (num_nodes, bandwidth):
        raise GraphError(
            f"`neighbours` must have shape [{num_nodes}, {bandwidth}] (nodes, bandwidth), got {list(neighbours.shape)}"
        )
    if neighbours.numel() and not 0 <= int(neighbours.min()) <= int(neighbours.max()) < num_nodes:
        raise GraphError(f"`neighbours` names a node outside 0 to {num_nodes - 1}")
    return neighbours
