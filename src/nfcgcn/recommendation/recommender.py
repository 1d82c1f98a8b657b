"""A fitted recommender: lists for users, also for those that training never saw, and the reasons."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from nfcgcn.config.registry import MODELS, Config, SplitConfig
from nfcgcn.config.sizes import check_sizes, with_outputs
from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Floats, Graph, Ints, check_finite
from nfcgcn.kernels.threads import one_pool
from nfcgcn.memory import enough_memory
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.randomness import torch_randomness
from nfcgcn.recommendation.bipartite import Bipartite, Layout, make_graph
from nfcgcn.recommendation.explanation import SuggestionExplanation, explain_suggestion
from nfcgcn.recommendation.interactions import Interactions, check_usable
from nfcgcn.recommendation.ranking import top_items
from nfcgcn.recommendation.settings import ENCODERS, RecommenderSettings, make_settings
from nfcgcn.recommendation.splits import split_log
from nfcgcn.recommendation.training import Epoch, Fitted, Network, train
from nfcgcn.training import TrainingConfig


class Suggestion(NamedTuple):
    """An item for a user; the higher the score, the better."""

    item: str
    score: float


@dataclass(frozen=True, eq=False)
class Recommender:
    """What :func:`fit_recommender` returns: an encoder, and the log whose users and items it knows.

    >>> log = Interactions.from_pairs([(u, i) for u in "abcd" for i in ("wxy" if u in "ab" else "uvw")][:-1])
    >>> recommender = fit_recommender(log, settings={"channels": 4, "epochs": 30, "validation": 0.3})
    >>> [suggestion.item for suggestion in recommender.recommend("d", top=1)]
    ['w']
    """

    encoder: NodeClassifier
    settings: RecommenderSettings
    seed: int
    layout: Layout
    log: Interactions
    history: tuple[Epoch, ...] = ()
    best_epoch: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    interrupted: bool = False

    def with_log(self, log: Interactions) -> Recommender:
        """Return a recommender with the same weights that reads another log.

        Its first users and items must be those of training, as :func:`read_interactions` with ``known`` orders them;
        those that come after them are new. They are judged by their features and the interactions in this log.
        """
        for kind, count, before, what in (
            (log.users, self.layout.num_users, self.log.users, "users"),
            (log.items, self.layout.num_items, self.log.items, "items"),
        ):
            if kind.names[:count] != before.names[:count]:
                raise GraphError(f"the first {what} of the log must be those of training; read it with `known`")
            names = self.layout.user_features if what == "users" else self.layout.item_features
            if kind.features.shape[1] != len(names):
                raise GraphError(
                    f"the {what} must have the {len(names)} features of training, got {kind.features.shape[1]}"
                )
        return replace(self, log=log)

    @cached_property
    def bipartite(self) -> Bipartite:
        """The graph of the log."""
        return make_graph(self.log, self.layout)

    @cached_property
    def vectors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The vectors of all users and of all items."""
        with one_pool():
            both = Network(self.encoder, self.bipartite, next(self.encoder.parameters()).device).vectors()
        for vectors, what in zip(both, ("users", "items"), strict=True):
            check_finite(vectors, f"the vectors of some {what}")
        return both

    def recommend(self, user: str, *, top: int = 10, among: Sequence[str] | None = None) -> list[Suggestion]:
        """List the best items for a user, without those of the user's interactions; fewer if there are no more."""
        number = self.log.users.find(user, "user")
        if not self.log.matrix.indptr[number + 1] - self.log.matrix.indptr[number] and not self._is_described(number):
            raise GraphError(
                f"user '{user}' has neither interactions nor features, so nothing is known about this user's taste; "
                "give the first interactions"
            )
        named = None if among is None else np.array([self.log.items.find(name, "item") for name in among], np.int64)
        lists, scores = self.top(np.array([number]), top=min(top, len(self.log.items)), among=named)
        pairs = zip(lists[0].tolist(), scores[0].tolist(), strict=True)
        return [Suggestion(self.log.items.names[item], score) for item, score in pairs if item >= 0]

    def _is_described(self, user: int) -> bool:
        features = self.log.users.features
        return bool(features.indptr[user + 1] > features.indptr[user]) if features.shape[1] else False

    @one_pool()
    def top(self, users: Ints, *, top: int = 10, among: Ints | None = None) -> tuple[Ints, Floats]:
        """Return the numbers of the best items of some users, ``[users, top]``, and their scores; -1 for no item."""
        if top < 1:
            raise ConfigError(f"`top` must be at least 1, got {top}")
        of_users, of_items = self.vectors
        chosen = of_users[torch.from_numpy(users).to(of_users.device)]
        return top_items(chosen, of_items, top=top, seen=self.log.matrix[users], among=among)

    def blocks(self, *, top: int = 10, size: int = 4096) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Yield the numbers of some users, their best items and the scores, until all users had their turn."""
        for start in range(0, len(self.log.users), size):
            users = np.arange(start, min(start + size, len(self.log.users)))
            yield users, *self.top(users, top=top)

    def explain(self, user: str, item: str) -> SuggestionExplanation:
        """Return which past items and which features led to the score of an item for a user."""
        return explain_suggestion(self.encoder, self.bipartite, self.log, self.vectors, user=user, item=item)


def _config(settings: RecommenderSettings) -> Config:
    return Config(settings.name, "recommend", settings.encoder, TrainingConfig(), SplitConfig())


def build_encoder(settings: RecommenderSettings, num_features: int, *, seed: int) -> NodeClassifier:
    """Make the encoder; the seed decides its weights and neighbours."""
    channels = settings.training.channels
    if settings.name in MODELS:
        return _config(settings).build_for(num_features, channels, seed=seed)
    make = ENCODERS[settings.name]
    with torch_randomness(seed, "weights"):
        assert "seed" not in inspect.signature(make).parameters  # noqa: S101
        encoder: NodeClassifier = make(num_features, channels, config=settings.encoder)
    return encoder


def _check_memory(settings: RecommenderSettings, log: Interactions, layout: Layout) -> None:
    """Refuse settings with which training would need more memory than there is, and name the one to blame."""
    graph = make_graph(log, layout).graph
    if settings.name in MODELS:
        _config(settings).check_memory(with_outputs(graph, 1))
    check_sizes(
        settings.training,
        lambda training: _memory(replace(settings, training=training), graph),
        f"{settings.name} on '{graph.name}'",
        also=f" with {len(log.users):,} users and {len(log.items):,} items",
        remedy="leave out some, or choose another --model",
    )


def _memory(settings: RecommenderSettings, graph: Graph) -> float:
    """Estimate how many bytes training takes at least: the encoder, all vectors, and the negatives that are drawn."""
    c = settings.training
    drawn = 0 if c.negatives == "all" else c.num_negatives * (24 + 4 * c.channels)  # of an interaction
    if settings.name in MODELS:
        return _config(settings).memory(with_outputs(graph, c.channels)) + drawn
    return 20.0 * (graph.num_features + graph.num_nodes) * c.channels + drawn


@enough_memory()
def fit_recommender(
    log: Interactions,
    model: str = "nfc-gcn",
    *,
    settings: Mapping[str, Any] | RecommenderSettings | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Recommender:
    """Train a recommender on a log of interactions.

    A share of each user's interactions (``validation``) is held out to choose the epoch by its NDCG; then, unless
    ``refit`` is no, training begins again on all interactions of the log and ends after that many epochs. ``model`` is
    an encoder: a name of ``nfcgcn models``, "lightgcn" or "mf". ``settings`` are those of ``RecommendConfig`` and of
    the encoder.

    >>> log = Interactions.from_pairs([(u, i) for u in "abcd" for i in ("wxy" if u in "ab" else "uvw")])
    >>> recommender = fit_recommender(log, settings={"channels": 4, "epochs": 5, "validation": 0.3})
    >>> [len(vectors) for vectors in recommender.vectors]
    [4, 5]
    """
    chosen = settings if isinstance(settings, RecommenderSettings) else make_settings(model, settings)
    config, device = chosen.training, torch.device(device)
    check_usable(log, "the log")
    layout = Layout.of(log, identity=config.identity == "yes")
    if not layout.num_features or not (layout.identified.any() or log.users.features.nnz or log.items.features.nnz):
        raise ConfigError(
            "there are no features to learn from; set `identity` to yes, or give tables of users and items"
        )
    _check_memory(chosen, log, layout)
    parts = _hold_out(log, config.validation, seed)
    encoder = build_encoder(chosen, layout.num_features, seed=seed)
    first = _fit(encoder, parts[0], parts[1], layout, chosen, seed, device, config.epochs, on_epoch)
    spent, cpu = first.seconds, first.cpu_seconds
    interrupted = first.interrupted
    if config.refit == "yes" and parts[1] is not None and not interrupted:
        encoder = build_encoder(chosen, layout.num_features, seed=seed)
        again = _fit(encoder, log, None, layout, chosen, seed, device, first.best_epoch, on_epoch)
        spent, cpu, interrupted = spent + again.seconds, cpu + again.cpu_seconds, again.interrupted
    return Recommender(encoder, chosen, seed, layout, log, first.history, first.best_epoch, spent, cpu, interrupted)


def _hold_out(log: Interactions, share: float, seed: int) -> tuple[Interactions, Interactions | None]:
    """Return what to train on and what to validate by; None where no user has an interaction to spare."""
    try:
        split = split_log(log, "random", share=share, seed=seed + 1)
    except GraphError:
        return log, None
    return split.train, split.test


def _fit(
    encoder: NodeClassifier,
    log: Interactions,
    validation: Interactions | None,
    layout: Layout,
    settings: RecommenderSettings,
    seed: int,
    device: torch.device,
    epochs: int,
    on_epoch: Callable[[Epoch], None] | None,
) -> Fitted:
    return train(
        encoder,
        make_graph(log, layout),
        log,
        settings.training,
        seed=seed,
        device=device,
        validation=validation,
        epochs=epochs,
        on_epoch=on_epoch,
    )
