"""The training loop, one epoch after the other, on any device."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.graph import Edges, Graph, Ints
from nfcgcn.kernels.threads import one_pool
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.randomness import torch_randomness
from nfcgcn.training.adam import Adam
from nfcgcn.training.batch_steps import MiniBatches
from nfcgcn.training.calibration import fit_temperature
from nfcgcn.training.class_weights import class_weights
from nfcgcn.training.figures import Training, Validation, accuracy, judge
from nfcgcn.training.ranks import current
from nfcgcn.training.unfinished import Bookmark, Place, Unfinished, Within
from nfcgcn.training.values import Epoch, Run, TrainingConfig, check_finite


@one_pool()
def fit_in_steps(
    model: NodeClassifier,
    graph: Graph,
    parts: tuple[Ints, Ints],
    config: TrainingConfig,
    *,
    seed: int,
    device: torch.device,
    on_epoch: Callable[[Epoch], None] | None,
    keep: Unfinished | None = None,
) -> Run:
    """See :func:`nfcgcn.training.fit`; ``parts`` are the nodes to train on and those to choose the best epoch by."""
    model.to(device)
    work: Work = (
        WholeGraph(model, graph, parts, config, device)
        if config.fan_out is None
        else MiniBatches(model, graph, parts, config, seed, device)
    )
    with torch_randomness(seed, "training", device):
        work.begin()
    optimizer = Adam(model, config)
    stopping = config.stopping
    place = Place([], None, {}, 0.0, None)
    interrupted = False
    start = time.perf_counter()
    try:
        with torch_randomness(seed, "training", device):
            bookmark = None if keep is None else Bookmark(keep, seed, model, optimizer)
            if bookmark is not None and (kept := bookmark.open()) is not None:
                place = kept
                start -= place.seconds
            for number in range(len(place.history) + 1, config.epochs + 1):
                keep_within = partial(_keep_within, bookmark, place, start)
                epoch: Epoch = {
                    "epoch": number,
                    **work.train(number, optimizer, place.within, keep_within),
                    **work.validate(),
                }
                check_finite(epoch, config, seed)
                best = stopping.best(place.best, epoch)
                state = _copy_state(model) if best is epoch else place.state
                place = Place([*place.history, epoch], best, state, 0.0, None)
                if on_epoch:
                    on_epoch(epoch)
                if stopping.gives_up(number, best["epoch"]):
                    break
                if bookmark is not None:
                    bookmark.keep(place, start)
    except KeyboardInterrupt:
        if place.best is None or current().count > 1:
            raise
        interrupted = True
    assert place.best is not None  # noqa: S101  (epochs >= 1)
    model.load_state_dict(place.state)
    model.eval()
    seconds = time.perf_counter() - start
    temperature = 1.0
    if config.calibrate == "temperature":
        temperature = fit_temperature(work.scores().double().cpu().numpy(), graph.labels[parts[1]])
    return Run(tuple(place.history), place.best, place.state, seconds, interrupted, temperature)


def _keep_within(bookmark: Bookmark | None, place: Place, start: float, within: Within) -> None:
    if bookmark is not None:
        bookmark.keep(place._replace(within=within), start)


class Work(Protocol):
    """What an epoch does: steps over the training nodes, and scores of the validation nodes."""

    def begin(self) -> None: ...

    def train(self, epoch: int, optimizer: Adam, within: Within | None, keep: Callable[[Within], None]) -> Training: ...

    def validate(self) -> Validation: ...

    def scores(self) -> Tensor: ...


class WholeGraph:
    """Steps that read the whole graph, each over all training nodes or some of them."""

    def __init__(
        self,
        model: NodeClassifier,
        graph: Graph,
        parts: tuple[Ints, Ints],
        config: TrainingConfig,
        device: torch.device,
    ) -> None:
        self.model, self.config = model, config
        self.x, self.edges, self.y = graph.x.to(device), model.edges_of(graph).to(device), graph.y.to(device)
        self.nodes, self.judges = (torch.from_numpy(nodes).to(device) for nodes in parts)
        weight = class_weights(config.class_weight, graph, parts[0])
        self.weight = None if weight is None else weight.to(device)

    def begin(self) -> None:
        """Let the model learn what it learns before its first step."""
        self.model.begin_training(self.x, self.edges, self.nodes, self.y[self.nodes])

    def train(
        self,
        epoch: int,  # noqa: ARG002
        optimizer: Adam,
        within: Within | None,  # noqa: ARG002
        keep: Callable[[Within], None],  # noqa: ARG002
    ) -> Training:
        """Make the steps of an epoch."""
        batches = _batches(self.nodes, self.config.batch_size)
        return _train_epoch(self.model, optimizer, self.x, self.edges, batches, self.y, self.weight)

    def validate(self) -> Validation:
        """Return the figures of the validation nodes."""
        return judge(self.scores(), self.y[self.judges], self.weight, self.config.monitor)

    @torch.no_grad()
    def scores(self) -> Tensor:
        """Return the scores of the validation nodes."""
        return self.model.eval().score_nodes(self.x, self.edges, self.judges)


def _batches(nodes: Tensor, batch_size: int | None) -> tuple[Tensor, ...]:
    """Shuffle `nodes` and cut them into batches, the last one smaller; without a batch size nothing is shuffled."""
    if batch_size is None:
        return (nodes,)
    # Drawn on the CPU, so that the order is the same on every device.
    return torch.split(nodes[torch.randperm(len(nodes)).to(nodes.device)], batch_size)


def _train_epoch(
    model: NodeClassifier,
    optimizer: Adam,
    x: Tensor,
    edge_index: Edges,
    batches: tuple[Tensor, ...],
    y: Tensor,
    weight: Tensor | None,
) -> Training:
    """Make one step per batch; the figures are means over all training nodes, that of the loss by their weights."""
    model.train()
    total = sum(map(len, batches))
    weights = [1.0 if weight is None else weight[y[nodes]].mean().item() for nodes in batches]
    mean_weight = sum(w * len(nodes) / total for w, nodes in zip(weights, batches, strict=True))
    figures: Training = {"train_loss": 0.0, "train_accuracy": 0.0}
    for nodes, own_weight in zip(batches, weights, strict=True):
        optimizer.forget_gradients()
        scores = model.score_nodes(x, edge_index, nodes)
        loss = F.cross_entropy(scores, y[nodes], weight)
        further = model.further_loss(x, edge_index, nodes, y[nodes], weight)
        (loss if further is None else loss + further).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        share = len(nodes) / total
        figures["train_loss"] += (share if weight is None else share * own_weight / mean_weight) * loss.item()
        figures["train_accuracy"] += share * accuracy(scores, y[nodes])
    return figures


def _copy_state(model: NodeClassifier) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}
