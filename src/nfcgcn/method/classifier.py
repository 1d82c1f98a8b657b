"""The interface that all models for node classification share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Edges, Graph
from nfcgcn.method.acceleration import prepare
from nfcgcn.method.features import FeatureScale, scale_features
from nfcgcn.settings import Settings, setting


@dataclass(frozen=True)
class ClassifierConfig(Settings):
    """The settings that every model with features has."""

    feature_scale: FeatureScale = setting(
        "given", "features as they are, or each node's divided by their sum or by their Euclidean norm"
    )


class NodeClassifier(nn.Module, ABC):
    """A model called as ``model(x, edge_index)``, which returns class scores ``[N, out_channels]``."""

    takes_weights = False
    """Whether the model may be called with edges that have weights."""

    temperature: float = 1.0
    """Class probabilities are the softmax of the scores divided by this; training may fit it on validation nodes."""

    reads_features: ClassVar[bool] = True
    """Whether the scores depend on the features, and not on the edges alone."""
    grows: ClassVar[frozenset[str]] = frozenset()
    """Names of the tensors in its state that have one row per node of the training graph."""
    config: Any

    def __init__(self, in_channels: int, out_channels: int, config: Settings) -> None:
        super().__init__()
        prepare()
        if out_channels < 1:
            raise ConfigError(f"`out_channels` must be at least 1, got {out_channels}")
        self.in_channels, self.config = in_channels, config

    @abstractmethod
    def embed(self, x: Tensor, edge_index: Any) -> Tensor:
        """Return the representation of each node that the last layer reads."""

    @abstractmethod
    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the parameters that L2 regularisation applies to."""

    def scale(self, x: Tensor) -> Tensor:
        """Return the features as this model reads them."""
        return scale_features(x, self.config.feature_scale)

    def edges_of(self, graph: Graph) -> Edges:
        """Return the edges of `graph` as this model takes them; weights that it cannot use are refused."""
        self.check_weights(graph)
        return graph.edges

    def check_weights(self, graph: Graph) -> None:
        """Refuse a graph whose edges have weights that this model cannot use."""
        if graph.is_weighted and not self.takes_weights:
            raise GraphError(
                f"the edges of '{graph.name}' have weights, which a {type(self).__name__} cannot use; "
                "read the graph without weights, or choose another model"
            )

    def score_nodes(self, x: Tensor, edge_index: Any, nodes: Tensor) -> Tensor:
        """Return the class scores of `nodes`.

        A model may override this to sample in training; in evaluation the scores are those of ``forward``.
        """
        scores: Tensor = self(x, edge_index)[nodes]
        return scores

    def begin_training(self, x: Tensor, edge_index: Any, nodes: Tensor, labels: Tensor) -> None:
        """Prepare for training on `nodes` with these labels; a model may learn something from the graph first."""

    def further_loss(
        self,
        x: Tensor,  # noqa: ARG002
        edge_index: Any,  # noqa: ARG002
        nodes: Tensor,  # noqa: ARG002
        labels: Tensor,  # noqa: ARG002
        weight: Tensor | None,  # noqa: ARG002
    ) -> Tensor | None:
        """Return what a training step adds to the loss of its nodes' scores; None for nothing.

        ``weight`` is that of each class, or None.
        """
        return None

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        for module in self.modules():
            reset = getattr(module, "reset_parameters", None)
            if reset and module is not self:
                reset()
