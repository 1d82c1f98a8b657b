"""Training in mini-batches: one step per batch, shared by all ranks, and validation by the same means."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph, Ints
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.randomness import hash_seed
from nfcgcn.training.adam import Adam
from nfcgcn.training.batches import EVALUATION, Batch, NodeReader, Plan, ahead, moved, plan
from nfcgcn.training.class_weights import class_weights
from nfcgcn.training.figures import Training, Validation, judge
from nfcgcn.training.ranks import current
from nfcgcn.training.unfinished import Within
from nfcgcn.training.values import TrainingConfig

BATCH_SIZE = 1024
"""Nodes per step where `batch_size` does not say."""
MOST_EXACT = 2**16
"""Validation uses all neighbours if its nodes depend on at most so many."""
log = logging.getLogger("nfcgcn")


class MiniBatches:
    """Steps that read of the graph what the nodes of a batch need."""

    def __init__(
        self,
        model: NodeClassifier,
        graph: Graph,
        parts: tuple[Ints, Ints],
        config: TrainingConfig,
        seed: int,
        device: torch.device,
    ) -> None:
        assert config.fan_out is not None  # noqa: S101
        model.check_weights(graph)
        if getattr(model.config, "edge_dropout", 0.0):
            raise ConfigError("`edge_dropout` must be 0 with `fan_out`, which leaves out edges by itself")
        self.ranks = current()
        self.model, self.config, self.seed, self.device = model, config, seed, device
        self.reader = NodeReader(model, graph, seed=seed, device=device)
        self.sizes = config.fan_out.sizes(self.reader.model.num_hops)
        self.nodes, judges = parts
        self.batch_size = config.batch_size or BATCH_SIZE
        self.num_parts = config.batch_parts or self.ranks.count
        if self.num_parts < self.ranks.count:
            raise ConfigError(
                f"`batch_parts` must be at least the number of processes, {self.ranks.count}, got {self.num_parts}"
            )
        weight = class_weights(config.class_weight, graph, self.nodes)
        self.weight = None if weight is None else weight.to(device)
        self.labels = graph.labels
        self.own_judges, self.y = self.ranks.share(judges), torch.from_numpy(np.asarray(graph.labels[judges], np.int64))
        self.exact = self.reader.reach(judges, MOST_EXACT) is not None
        self.judged: Batch | None = None
        if not self.exact:
            log.info(
                "validation draws neighbours as training does, the same in every epoch: with all neighbours, its %s "
                "nodes would depend on more than %s",
                f"{len(judges):,}",
                f"{MOST_EXACT:,}",
            )

    def begin(self) -> None:
        """Do nothing: no model that trains in mini-batches learns anything before its first step."""

    def train(self, epoch: int, optimizer: Adam, within: Within | None, keep: Callable[[Within], None]) -> Training:
        """Make the steps of an epoch, from the place `within` it on."""
        self.model.train()
        order = plan(self.nodes, seed=self.seed, epoch=epoch, size=self.batch_size, num_parts=self.num_parts)
        done = within or Within(0, 0.0, 0.0, 0.0)
        work = [(b, *part) for b in range(done.batch, order.num_batches) for part in order.parts(b, self.ranks)]
        prepared = moved(
            ahead(partial(self.reader.batch, nodes, self.sizes, epoch) for _, _, nodes in work), self.device
        )
        try:
            for batch in range(done.batch, order.num_batches):
                done = self._step(order, epoch, batch, optimizer, prepared, done)
                if self.ranks.is_first and done.batch < order.num_batches:
                    keep(done)
        finally:
            prepared.close()  # type: ignore[attr-defined]
        return {"train_loss": done.loss / done.weight, "train_accuracy": done.correct / len(self.nodes)}

    def _step(
        self, order: Plan, epoch: int, batch: int, optimizer: Adam, prepared: Iterator[Batch], done: Within
    ) -> Within:
        """Make one step, together with all other ranks."""
        optimizer.forget_gradients()
        total = self._weight_of(order.nodes(batch))
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for part, _ in order.parts(batch, self.ranks):
            # Masks depend on nothing but these numbers, so neither on the rank nor on what was drawn before.
            torch.manual_seed(hash_seed(self.seed, "training", epoch, batch, part))
            x, hops, y = next(prepared)
            scores = self.model(x, hops)[: len(y)]
            loss = F.cross_entropy(scores, y, self.weight, reduction="sum")
            (loss / total).backward()  # type: ignore[no-untyped-call]
            sums += torch.stack([loss.detach().double(), (scores.argmax(1) == y).sum().double()])
        self.ranks.add_gradients(optimizer.parameters)
        loss_sum, correct = self.ranks.add_up(sums).tolist()
        optimizer.step()
        return Within(batch + 1, done.loss + loss_sum, done.weight + total, done.correct + correct)

    def _weight_of(self, nodes: Ints) -> float:
        """Return by what the loss of some nodes is divided: the sum of the weights of their classes."""
        if self.weight is None:
            return float(len(nodes))
        labels = torch.from_numpy(np.asarray(self.labels[nodes], np.int64))
        return float(self.weight.cpu()[labels].double().sum())

    def validate(self) -> Validation:
        """Return the figures of the validation nodes."""
        return judge(self.scores(), self.y.to(self.device), self.weight, self.config.monitor)

    @torch.no_grad()
    def scores(self) -> Tensor:
        """Return the scores of all validation nodes: each rank computes its share."""
        self.model.eval()
        if self.exact and self.judged is None:
            everything = self.reader.batch(self.own_judges, [None] * len(self.sizes))
            self.judged = next(iter(moved([everything], self.device)))
        if self.judged is not None:
            batches: Iterator[Batch] = iter([self.judged])
        else:
            pieces = np.array_split(self.own_judges, max(1, -(-len(self.own_judges) // self.batch_size)))
            works = (partial(self.reader.batch, piece, self.sizes, EVALUATION) for piece in pieces)
            batches = moved(ahead(works), self.device)
        return self.ranks.gather(torch.cat([self.model(x, hops)[: len(y)] for x, hops, y in batches]))
