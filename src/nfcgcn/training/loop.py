"""The training loop, one epoch after the other, on any device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.errors import ConfigError
from nfcgcn.graph import Edges, Graph, Ints
from nfcgcn.kernels.threads import one_pool
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.randomness import torch_randomness
from nfcgcn.training.adam import Adam
from nfcgcn.training.class_weights import class_weights
from nfcgcn.training.scores import SCORES
from nfcgcn.training.unfinished import Bookmark, Unfinished
from nfcgcn.training.values import Epoch, Monitor, Run, TrainingConfig, check_finite


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
    x, edge_index, y = graph.x.to(device), model.edges_of(graph).to(device), graph.y.to(device)
    train, val = (torch.from_numpy(nodes).to(device) for nodes in parts)
    y_val = y[val]
    weight = class_weights(config.class_weight, graph, parts[0])
    weight = None if weight is None else weight.to(device)
    with torch_randomness(seed, "training", device):
        model.begin_training(x, edge_index, train, y[train])
    optimizer = Adam(model, config)
    stopping = config.stopping
    history: list[Epoch] = []
    best: Epoch | None = None
    state: dict[str, Tensor] = {}
    interrupted = False
    start = time.perf_counter()
    try:
        with torch_randomness(seed, "training", device):
            bookmark = None if keep is None else Bookmark(keep, seed, model, optimizer)
            if bookmark is not None and (place := bookmark.open()) is not None:
                history, best, state, seconds = place
                start -= seconds
            for number in range(len(history) + 1, config.epochs + 1):
                epoch: Epoch = {
                    "epoch": number,
                    **_train_epoch(model, optimizer, x, edge_index, _batches(train, config.batch_size), y, weight),
                    **_validate(model, x, edge_index, val, y_val, weight, config.monitor),
                }
                check_finite(epoch, config, seed)
                history.append(epoch)
                if best is None or stopping.merit(epoch) > stopping.merit(best):
                    best, state = epoch, _copy_state(model)
                if on_epoch:
                    on_epoch(epoch)
                if stopping.gives_up(number, best["epoch"]):
                    break
                if bookmark is not None:
                    bookmark.keep(history, best, state, start)
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted = True
    assert best is not None  # noqa: S101  (epochs >= 1)
    model.load_state_dict(state)
    model.eval()
    return Run(tuple(history), best, state, time.perf_counter() - start, interrupted)


class _Training(TypedDict):
    train_loss: float
    train_accuracy: float


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
) -> _Training:
    """Make one step per batch; the figures are means over all training nodes, that of the loss by their weights."""
    model.train()
    total = sum(map(len, batches))
    weights = [1.0 if weight is None else weight[y[nodes]].mean().item() for nodes in batches]
    mean_weight = sum(w * len(nodes) / total for w, nodes in zip(weights, batches, strict=True))
    figures: _Training = {"train_loss": 0.0, "train_accuracy": 0.0}
    for nodes, own_weight in zip(batches, weights, strict=True):
        optimizer.forget_gradients()
        scores = model.score_nodes(x, edge_index, nodes)
        loss = F.cross_entropy(scores, y[nodes], weight)
        further = model.further_loss(x, edge_index, nodes, y[nodes], weight)
        (loss if further is None else loss + further).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        share = len(nodes) / total
        figures["train_loss"] += (share if weight is None else share * own_weight / mean_weight) * loss.item()
        figures["train_accuracy"] += share * _accuracy(scores, y[nodes])
    return figures


class _Validated(TypedDict):
    val_loss: float
    val_accuracy: float


class _Validation(_Validated, total=False):
    val_score: float


@torch.no_grad()
def _validate(
    model: NodeClassifier,
    x: Tensor,
    edge_index: Edges,
    nodes: Tensor,
    y: Tensor,
    weight: Tensor | None,
    monitor: Monitor,
) -> _Validation:
    model.eval()
    scores = model.score_nodes(x, edge_index, nodes)
    figures: _Validation = {
        "val_loss": F.cross_entropy(scores, y, weight).item(),
        "val_accuracy": _accuracy(scores, y),
    }
    if monitor not in ("accuracy", "loss") and math.isfinite(figures["val_loss"]):
        score = SCORES[monitor].measure(y.cpu().numpy(), scores.double().softmax(1).cpu().numpy())
        if not math.isfinite(score):
            raise ConfigError(f"`monitor` {monitor} needs validation nodes of two classes at least; choose another")
        figures["val_score"] = score
    return figures


def _accuracy(scores: Tensor, y: Tensor) -> float:
    return (scores.argmax(1) == y).double().mean().item()


def _copy_state(model: NodeClassifier) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}
