"""Settings that are ours, not the paper's: NFC-GCN and GCN have them, and all are off by default."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import nn

from nfcgcn.method.graph_conv import Linear
from nfcgcn.settings import Settings, rate, setting, settings_of

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
        return [name for name in ADDITIONS if getattr(self, name) != ADDITIONS[name]]


ADDITIONS = {name: declared.default for name, declared in settings_of(AdditionsConfig).items()}
"""The names of these settings, and their values when they are off."""


def own_layers(config: AdditionsConfig, in_channels: int, hidden_channels: int, out_channels: int) -> nn.ModuleList:
    """Return the layers of the perceptron on a node's own features; none without ``own_features``."""
    widths = [in_channels, hidden_channels, out_channels] if config.own_features == "mlp" else []
    return nn.ModuleList(Linear(*sizes, bias=False) for sizes in pairwise(widths))
