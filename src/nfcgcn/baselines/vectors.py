"""Systems that learn a vector per node from the edges alone, and then a linear classifier on these vectors."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from nfcgcn.errors import GraphError
from nfcgcn.graph import Floats, Ints
from nfcgcn.kernels.threads import one_pool
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.graph_conv import Linear
from nfcgcn.method.sampling import adjacency_lists
from nfcgcn.settings import Settings, setting


@dataclass(frozen=True)
class VectorConfig(Settings):
    """The settings that all of these systems have."""

    hidden_channels: int = setting(128, "numbers of each node's vector", low=1)


class VectorClassifier(NodeClassifier):
    r"""Classify fixed vectors of the nodes by a linear layer: :math:`z_i = W u_i + b`.

    The vectors :math:`u_i` follow from the edges, the settings and the `seed`; features and labels play no part in
    them. They are made once per graph. Vectors of different graphs have nothing to do with each other: a trained model
    refuses every graph but the one that it was trained on.
    """

    reads_features: ClassVar[bool] = False
    random: ClassVar[bool] = True
    """Whether the vectors depend on the seed."""

    def __init__(self, in_channels: int, out_channels: int, config: VectorConfig, *, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config)
        self.seed = seed
        self.graph = 0
        """What the edges of the training graph are known by; 0 before training."""
        self.output = Linear(config.hidden_channels, out_channels)

    @classmethod
    @abstractmethod
    def vectors(cls, starts: Ints, neighbours: Ints, config: Any, seed: int) -> Floats:
        """Return the nodes' vectors, ``[N, hidden_channels]``, given their neighbours as sorted CSR lists."""

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the nodes' vectors, ``[N, hidden_channels]``."""
        if self.training:
            self.graph = known_by(edge_index, x.shape[0])
        elif self.graph:
            check_graph(self, self.graph, edge_index, x.shape[0])
        made = _vectors(edge_index, x.shape[0], type(self), self.config, self.seed if self.random else 0)
        return made.to(x.device, self.output.weight.dtype)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        scores: Tensor = self.output(self.embed(x, edge_index))
        return scores

    def score_nodes(self, x: Tensor, edge_index: Tensor, nodes: Tensor) -> Tensor:
        """Return the class scores of `nodes`."""
        scores: Tensor = self.output(self.embed(x, edge_index)[nodes])
        return scores

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the weights of the linear layer."""
        return list(self.output.parameters())[:1]

    def get_extra_state(self) -> Tensor:
        """Return what the training graph is known by, as two numbers that are exact in any precision."""
        return torch.tensor([self.graph >> 16, self.graph & 0xFFFF], dtype=torch.float32)

    def set_extra_state(self, state: Tensor) -> None:
        """Take over what a training graph is known by."""
        high, low = state.tolist()
        self.graph = int(high) << 16 | int(low)


def check_graph(model: NodeClassifier, known: int, edge_index: Tensor, num_nodes: int) -> None:
    """Raise an error for a graph that is not known by this number."""
    if known_by(edge_index, num_nodes) != known:
        raise GraphError(
            f"a {type(model).__name__} knows only the nodes and edges that it was trained on, and these are others; "
            "train on this graph"
        )


@remembered
def known_by(edge_index: Tensor, num_nodes: int) -> int:
    """Return a checksum of a graph's edges, which is not 0."""
    lists = adjacency_lists(edge_index, num_nodes)
    return zlib.crc32(b"".join(part.numpy().tobytes() for part in lists)) or 1


@remembered
@torch.no_grad()
def _vectors(edge_index: Tensor, num_nodes: int, kind: type[VectorClassifier], config: Any, seed: int) -> Tensor:
    starts, neighbours = (part.numpy() for part in adjacency_lists(edge_index, num_nodes))
    with one_pool():
        made = kind.vectors(starts, neighbours, config, seed)
    return torch.from_numpy(np.ascontiguousarray(made, np.float32))
