"""Training: Adam on the training nodes, the best epoch chosen on the validation nodes; test labels are never read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.errors import ConfigError, NFCError, unknown
from nfcgcn.graph import Graph, Split
from nfcgcn.models import NodeClassifier
from nfcgcn.randomness import torch_randomness
from nfcgcn.settings import setting

Monitor = Literal["accuracy", "loss"]


class Epoch(TypedDict):
    """What one epoch came to. Training figures are those of the training pass, with dropout on."""

    epoch: int
    train_loss: float
    train_accuracy: float
    val_loss: float
    val_accuracy: float


@dataclass(frozen=True)
class Stopping:
    """When an epoch is the best so far, and when to give up waiting for a better one."""

    monitor: Monitor = "accuracy"
    patience: int | None = None

    def merit(self, epoch: Epoch) -> tuple[float, float]:
        """Rank epochs: the larger, the better; equal accuracies are told apart by the lower loss."""
        loss, accuracy = -epoch["val_loss"], epoch["val_accuracy"]
        return (accuracy, loss) if self.monitor == "accuracy" else (loss, accuracy)

    def gives_up(self, epoch: int, best_epoch: int) -> bool:
        """Say whether `patience` epochs have passed without a better one."""
        return self.patience is not None and epoch - best_epoch >= self.patience


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained."""

    # Paper: "train 200 epochs at most" with "early stopping based on the validation accuracy", the waiting time unsaid:
    # all epochs are run and the best one is kept.
    epochs: int = setting(200, "epochs at most")
    learning_rate: float = setting(0.01, "Adam's step size")
    weight_decay: float = setting(1e-4, "L2 penalty on the weights the model names for it")
    monitor: Monitor = setting("accuracy", "validation figure by which the best epoch is chosen")
    patience: int | None = setting(None, "stop after this many epochs without a better one; none: never")
    batch_size: int | None = setting(None, "training nodes a step; none: all at once")

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ConfigError(f"`epochs` must be at least 1, got {self.epochs}")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"`learning_rate` must be above 0, got {self.learning_rate}")
        if not 0 <= self.weight_decay < math.inf:
            raise ConfigError(f"`weight_decay` must be at least 0, got {self.weight_decay}")
        if self.patience is not None and self.patience < 1:
            raise ConfigError(f"`patience` must be at least 1 or none, got {self.patience}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"`batch_size` must be at least 1 or none, got {self.batch_size}")

    @property
    def stopping(self) -> Stopping:
        """The stopping rule."""
        return Stopping(self.monitor, self.patience)


@dataclass(frozen=True)
class Run:
    """One finished training: every epoch, and the state of the best."""

    history: tuple[Epoch, ...]
    best: Epoch
    state: dict[str, Tensor]
    """A copy of the parameters after the best epoch, on the CPU."""
    seconds: float
    interrupted: bool = False


def choose_device(name: str) -> torch.device:
    """Return the device of this name; "auto" is the GPU where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(unknown("device", name, ("auto", "cpu", "cuda")))
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device 'cuda' is not available to this PyTorch; use device 'cpu'")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def fit(
    model: NodeClassifier,
    graph: Graph,
    split: Split,
    config: TrainingConfig | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    choose_by: Literal["val", "train"] = "val",
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Run:
    """Train `model`, leave it in the state of its best epoch, and tell how it went.

    Cross-entropy on ``split.train``, validation on ``split.val`` after every epoch; ``split.test`` is not looked at.
    ``choose_by="train"`` puts the training nodes in the place of validation nodes, for want of others.
    With ``config.batch_size`` an epoch takes the training nodes in a new random order, and a step a batch of them.
    ``on_epoch`` is called after each epoch. Ctrl-C ends training early and keeps the best state so far.
    """
    config = config or TrainingConfig()
    split.check(graph, needed=("train", choose_by))
    model.to(device)
    x, edge_index, y = graph.x.to(device), graph.edge_index.to(device), graph.y.to(device)
    train, val = (torch.from_numpy(nodes).to(device) for nodes in (split.train, getattr(split, choose_by)))
    y_val = y[val]
    decayed = model.decayed_parameters()
    others = [p for p in model.parameters() if all(p is not d for d in decayed)]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others}]
    optimizer = torch.optim.Adam(groups, lr=config.learning_rate)
    stopping = config.stopping
    history: list[Epoch] = []
    best: Epoch | None = None
    state: dict[str, Tensor] = {}
    interrupted = False
    start = time.perf_counter()
    try:
        with torch_randomness(seed, "training", device):
            for number in range(1, config.epochs + 1):
                epoch: Epoch = {
                    "epoch": number,
                    **_train_epoch(model, optimizer, x, edge_index, _batches(train, config.batch_size), y),
                    **_validate(model, x, edge_index, val, y_val),
                }
                if not math.isfinite(epoch["train_loss"] + epoch["val_loss"]):
                    raise NFCError(
                        f"training diverged in epoch {number}: the loss is not finite; "
                        f"lower `learning_rate`, now {config.learning_rate:g}"
                    )
                history.append(epoch)
                if best is None or stopping.merit(epoch) > stopping.merit(best):
                    best, state = epoch, _copy_state(model)
                if on_epoch:
                    on_epoch(epoch)
                if stopping.gives_up(number, best["epoch"]):
                    break
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
    """Share `nodes` out in a random order, the last batch taking what is left; all at once, nothing is drawn."""
    if batch_size is None:
        return (nodes,)
    # Drawn on the CPU, so that the order is the same on every device.
    return torch.split(nodes[torch.randperm(len(nodes)).to(nodes.device)], batch_size)


def _train_epoch(
    model: NodeClassifier,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    edge_index: Tensor,
    batches: tuple[Tensor, ...],
    y: Tensor,
) -> _Training:
    """Make a step a batch; the figures are means over all training nodes."""
    model.train()
    total = sum(map(len, batches))
    figures: _Training = {"train_loss": 0.0, "train_accuracy": 0.0}
    for nodes in batches:
        optimizer.zero_grad()
        scores = model.score_nodes(x, edge_index, nodes)
        loss = F.cross_entropy(scores, y[nodes])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        share = len(nodes) / total
        figures["train_loss"] += share * loss.item()
        figures["train_accuracy"] += share * _accuracy(scores, y[nodes])
    return figures


class _Validation(TypedDict):
    val_loss: float
    val_accuracy: float


@torch.no_grad()
def _validate(model: NodeClassifier, x: Tensor, edge_index: Tensor, nodes: Tensor, y: Tensor) -> _Validation:
    model.eval()
    scores = model(x, edge_index)[nodes]
    return {"val_loss": F.cross_entropy(scores, y).item(), "val_accuracy": _accuracy(scores, y)}


def _accuracy(scores: Tensor, y: Tensor) -> float:
    return (scores.argmax(1) == y).double().mean().item()


def _copy_state(model: NodeClassifier) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}
