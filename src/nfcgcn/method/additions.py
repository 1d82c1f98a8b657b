"""Settings that are ours, not the paper's; all are off by default. The first class is for GCN as well."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import nn

from nfcgcn.method.graph_conv import Linear
from nfcgcn.method.sampling import NeighbourDraw
from nfcgcn.settings import Settings, depth, rate, setting, settings_of

OwnFeatures = Literal["none", "mlp"]


@dataclass(frozen=True)
class AdditionsConfig(Settings):
    """The settings that neither the paper nor GCN's has."""

    edge_dropout: float = rate(0.0, "not the paper's: edges that graph convolutions leave out, anew in every step")
    own_features: OwnFeatures = setting("none", "not the paper's: adds the scores of a perceptron on the node alone")
    self_weight: float = setting(1.0, "not the paper's unless 1: weight of a node's loop in the adjacency", above=0)

    @property
    def additions(self) -> list[str]:
        """The settings in use that are not the paper's."""
        return [name for name, off in ADDITIONS.items() if getattr(self, name, off) != off]


@dataclass(frozen=True)
class DrawConfig(Settings):
    """The settings of the neighbour draw that the paper does not have."""

    neighbour_draw: NeighbourDraw = setting(
        "uniform", "not the paper's unless uniform: what a neighbour's chance to be drawn is proportional to"
    )


@dataclass(frozen=True)
class StackConfig(Settings):
    """The settings of a stack of node-feature convolutions, which the paper leaves as future work."""

    conv_layers: int = depth(1, "not the paper's unless 1: node-feature convolutions, one after the other")


ADDITIONS = {
    name: declared.default
    for added in (AdditionsConfig, DrawConfig, StackConfig)
    for name, declared in settings_of(added).items()
}
"""The names of these settings, and their values when they are off."""


def own_layers(config: AdditionsConfig, in_channels: int, hidden_channels: int, out_channels: int) -> nn.ModuleList:
    """Return the layers of the perceptron on a node's own features; none without ``own_features``."""
    widths = [in_channels, hidden_channels, out_channels] if config.own_features == "mlp" else []
    return nn.ModuleList(Linear(*sizes, bias=False) for sizes in pairwise(widths))
