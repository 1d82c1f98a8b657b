"""Planetoid (Yang, Cohen and Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.baselines.planetoid_contexts import Contexts, LabelledWalks, draw_triplets
from nfcgcn.baselines.vectors import check_graph, known_by
from nfcgcn.errors import ConfigError
from nfcgcn.kernels.reference.adam import BETAS, adam
from nfcgcn.kernels.rows import gathered
from nfcgcn.kernels.skip_gram import learn_vectors, window_pairs
from nfcgcn.kernels.threads import one_pool
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import ClassifierConfig, NodeClassifier
from nfcgcn.method.graph_conv import Linear
from nfcgcn.method.operations import dropout as drop
from nfcgcn.method.sampling import adjacency_lists
from nfcgcn.randomness import hash_seed
from nfcgcn.settings import rate, setting, takes


@dataclass(frozen=True)
class PlanetoidConfig(ClassifierConfig):
    """The settings that both forms have, named as their arguments."""

    hidden_channels: int = setting(50, "numbers of each node's embedding", low=1)
    walk_length: int = setting(11, "nodes of a walk", low=1, high=1000)
    window: int = setting(3, "how far apart two nodes of a walk may be to be a pair", low=1, high=1000)
    negatives: int = setting(5, "weight of the negative nodes, per pair", low=1, high=100)
    label_share: float = setting(0.2, "share of the pairs that are nodes of one class (1 - r2)", low=0, high=1)
    dropout: float = rate(0.0, "not the authors' unless 0: dropout on the features")


class Planetoid(NodeClassifier):
    r"""Classify features and an embedding that predicts a node's context; the graph is no input.

    .. math:: z_i = [\mathrm{softmax}(W_x x_i + b_x) \,\|\, \mathrm{softmax}(W_e e_i + b_e)] \, W + b

    The loss is that of all three softmaxes on the labelled nodes. The embeddings :math:`e_i` are learned from contexts
    by negative sampling: :math:`-\sum \log \sigma(\gamma w_c^\top e_i)` (equation 4), where a pair (i, c) is near each
    other on a random walk or has the same label (algorithm 1), and :math:`\gamma = -1` for nodes drawn in their place.
    """

    # Paper: says "k layers" of the features and of the embedding. The authors' code has one of each, a softmax over the
    # classes, and adds the loss of both ("layer loss"), as here; it reports the best accuracy on test nodes.
    config: Any

    def __init__(self, in_channels: int, out_channels: int, config: PlanetoidConfig, *, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config)
        self.seed = seed
        self.of_features = Linear(in_channels, out_channels)
        self.of_embedding = Linear(config.hidden_channels, out_channels)
        self.output = Linear(2 * out_channels, out_channels)

    @abstractmethod
    def embedding(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ``e``, ``[N, hidden_channels]``, of features that are scaled already."""

    def branches(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the class scores of the features and those of the embedding, before the softmax."""
        x = self.scale(x)
        alone: Tensor = self.of_features(drop(x, self.config.dropout, self.training))
        return alone, self.of_embedding(self.embedding(x, edge_index))

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return both softmaxes, ``[N, 2 * out_channels]``."""
        return torch.cat([scores.softmax(1) for scores in self.branches(x, edge_index)], dim=1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores before the softmax, ``[N, out_channels]``."""
        scores: Tensor = self.output(self.embed(x, edge_index))
        return scores

    def further_loss(
        self, x: Tensor, edge_index: Tensor, nodes: Tensor, labels: Tensor, weight: Tensor | None
    ) -> Tensor:
        """Return the loss of both softmaxes on the labelled nodes."""
        first, second = (F.cross_entropy(scores[nodes], labels, weight) for scores in self.branches(x, edge_index))
        return first + second

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the weights that read features or embeddings."""
        return [self.of_features.get_parameter("weight"), self.of_embedding.get_parameter("weight")]


@dataclass(frozen=True)
class PlanetoidTConfig(PlanetoidConfig):
    """The settings of Planetoid-T, named as its arguments."""

    num_walks: int = setting(10, "walks from each node", low=1, high=10_000)
    step_size: float = setting(0.025, "step of the skip-gram at the start; it falls to 0", above=0, below=0.3)


class PlanetoidT(Planetoid):
    r"""The transductive form: each node of the training graph has an embedding of its own.

    The embeddings are learned once, when training starts, from the edges and the training labels; without training,
    from the edges alone. The model knows only the graph that it was trained on, and refuses others. For the equation
    see :class:`Planetoid`, for the arguments :class:`PlanetoidTConfig`.
    """

    # Paper: alternates steps on labels and on contexts. The authors' program learns from contexts first, and then only
    # from labels, which move no embedding but those of the labelled nodes; here they move none. Their negative nodes
    # of a label pair have another label; here they are drawn as all others, by degree to the power of 3/4.
    config: PlanetoidTConfig
    grows: ClassVar[frozenset[str]] = frozenset({"vectors"})
    vectors: Tensor

    @takes(PlanetoidTConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: PlanetoidTConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config, seed=seed)
        self.graph = 0
        """What the edges of the training graph are known by; 0 before training."""
        self.register_buffer("vectors", torch.zeros(0, config.hidden_channels))

    def begin_training(self, x: Tensor, edge_index: Tensor, nodes: Tensor, labels: Tensor) -> None:
        """Learn the embeddings."""
        self.graph = known_by(edge_index, x.shape[0])
        made = _vectors(edge_index, x.shape[0], self.config, self.seed, _pairs(nodes), _pairs(labels))
        self.vectors = made.to(x.device, self.output.weight.dtype)

    def embedding(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the nodes' vectors, ``[N, hidden_channels]``."""
        if not self.graph:
            made = _vectors(edge_index, x.shape[0], self.config, self.seed, (), ())
            return made.to(x.device, self.output.weight.dtype)
        check_graph(self, self.graph, edge_index, x.shape[0])
        return self.vectors

    def get_extra_state(self) -> Tensor:
        """Return what the training graph is known by, as two numbers that are exact in any precision."""
        return torch.tensor([self.graph >> 16, self.graph & 0xFFFF], dtype=torch.float32)

    def set_extra_state(self, state: Tensor) -> None:
        """Take over what a training graph is known by."""
        high, low = state.tolist()
        self.graph = int(high) << 16 | int(low)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state, whose vectors are as many as the nodes of its graph."""
        if isinstance(state_dict.get("vectors"), Tensor):
            self.vectors = self.vectors.new_zeros(len(state_dict["vectors"]), self.config.hidden_channels)
        return super().load_state_dict(state_dict, strict, assign)


@dataclass(frozen=True)
class PlanetoidIConfig(PlanetoidConfig):
    """The settings of Planetoid-I, named as its arguments."""

    pretraining: int = setting(300, "steps on contexts before training", low=0, high=1_000_000)
    contexts: int = setting(5000, "pairs of nodes per step", low=1, high=10_000_000)
    step_size: float = setting(0.01, "Adam's step size in these steps", above=0)
    context_weight: float = setting(1.0, "weight of the contexts' loss in training (lambda)", low=0)


class PlanetoidI(Planetoid):
    r"""The inductive form: an embedding is a function of the features, :math:`e_i = \mathrm{ReLU}(V x_i + c)`.

    It is learned from contexts alone first, then from contexts and labels; nodes that come later need no edges. For the
    equation see :class:`Planetoid`, for the arguments :class:`PlanetoidIConfig`.
    """

    # Paper: learns the vectors w of the contexts all the time; here they stay as they are when training starts, because
    # they belong to the training graph and are no part of the model.
    config: PlanetoidIConfig

    @takes(PlanetoidIConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: PlanetoidIConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config, seed=seed)
        self.first = Linear(in_channels, config.hidden_channels)
        self._contexts: tuple[Contexts, Tensor] | None = None

    def embedding(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        """Return ``[N, hidden_channels]``."""
        return F.relu(self.first(drop(x, self.config.dropout, self.training)))

    def begin_training(self, x: Tensor, edge_index: Tensor, nodes: Tensor, labels: Tensor) -> None:
        """Learn the first layer from contexts alone."""
        c = self.config
        starts, neighbours = (part.numpy() for part in adjacency_lists(edge_index, x.shape[0]))
        if not len(neighbours) and not c.label_share:
            raise ConfigError("Planetoid needs edges, or a `label_share` above 0")
        known = Contexts(starts, neighbours, nodes.cpu().numpy(), labels.cpu().numpy())
        seed = hash_seed(self.seed, "neighbours")
        vectors = torch.zeros(x.shape[0], c.hidden_channels, device=x.device).requires_grad_()
        parameters = [*self.first.parameters(), vectors]
        moments = [torch.zeros(2, *p.shape, device=x.device) for p in parameters]
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []), one_pool():
            torch.manual_seed(seed >> 1)
            for step in range(1, c.pretraining + 1):
                loss = self._context_loss(self.scale(x), edge_index, known, vectors, seed=[seed, step])
                gradients = torch.autograd.grad(loss, parameters)
                correction = 1 - BETAS[0] ** step, (1 - BETAS[1] ** step) ** 0.5
                with torch.no_grad():
                    for p, gradient, each in zip(parameters, gradients, moments, strict=True):
                        adam(p, gradient, each, correction, rate=c.step_size, decay=0.0)
        self._contexts = known, vectors.detach()

    def further_loss(
        self, x: Tensor, edge_index: Tensor, nodes: Tensor, labels: Tensor, weight: Tensor | None
    ) -> Tensor:
        """Return the loss of both softmaxes, and that of newly drawn contexts."""
        loss = super().further_loss(x, edge_index, nodes, labels, weight)
        if self._contexts is None or not self.config.context_weight:
            return loss
        seed = [int(torch.randint(2**62, ()))]
        return loss + self.config.context_weight * self._context_loss(
            self.scale(x), edge_index, *self._contexts, seed=seed
        )

    def _context_loss(
        self, x: Tensor, edge_index: Tensor, known: Contexts, vectors: Tensor, *, seed: list[int]
    ) -> Tensor:
        c = self.config
        centre, context, negative = (
            torch.from_numpy(part).to(x.device)
            for part in draw_triplets(
                known,
                c.contexts,
                length=c.walk_length,
                window=c.window,
                label_share=c.label_share,
                rng=np.random.default_rng(seed),
            )
        )
        e = gathered(self.embedding(x, edge_index), centre[:, None])
        near = (e * gathered(vectors, context[:, None])).sum(2)
        far = (e * gathered(vectors, negative[:, None])).sum(2)
        return F.softplus(-near).mean() + c.negatives * F.softplus(far).mean()


def _pairs(numbers: Tensor) -> tuple[int, ...]:
    return tuple(numbers.tolist())


@remembered
@torch.no_grad()
def _vectors(
    edge_index: Tensor,
    num_nodes: int,
    config: PlanetoidTConfig,
    seed: int,
    nodes: tuple[int, ...],
    labels: tuple[int, ...],
) -> Tensor:
    starts, neighbours = (part.numpy() for part in adjacency_lists(edge_index, num_nodes))
    c = config
    known = Contexts(starts, neighbours, np.array(nodes, np.int64), np.array(labels, np.int64))
    source = LabelledWalks(known, c.walk_length, c.num_walks, c.label_share if nodes else 0.0)
    pairs = window_pairs(c.walk_length, c.window, segment=c.walk_length, negatives=c.negatives)
    seed = hash_seed(seed, "neighbours")
    with one_pool():
        made = learn_vectors(source, pairs, width=c.hidden_channels, step=c.step_size, seed=seed, say="Planetoid-T")
    return torch.from_numpy(np.ascontiguousarray(made, np.float32))
