"""The inputs and results of training, as plain values: settings, epochs, runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import torch
from torch import Tensor

from nfcgcn.errors import ConfigError, NFCError, unknown
from nfcgcn.kernels.choice import Precision
from nfcgcn.settings import Settings, setting

Monitor = Literal["accuracy", "loss"]
Judges = Literal["val", "train"]
"""The nodes by which the best epoch is chosen."""


class Epoch(TypedDict):
    """The figures of one epoch. Training figures come from the training pass, with dropout on."""

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
        """Rank epochs: the larger, the better; of equal accuracies the one with the lower loss is better."""
        loss, accuracy = -epoch["val_loss"], epoch["val_accuracy"]
        return (accuracy, loss) if self.monitor == "accuracy" else (loss, accuracy)

    def gives_up(self, epoch: int, best_epoch: int) -> bool:
        """Say whether `patience` epochs have passed without a better one."""
        return self.patience is not None and epoch - best_epoch >= self.patience

    @property
    def best_is(self) -> str:
        """What makes an epoch the best, in words, for reports."""
        return "highest validation accuracy" if self.monitor == "accuracy" else "lowest validation loss"


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """How a model is trained."""

    # Paper: "train 200 epochs at most" with "early stopping based on the validation accuracy", without the waiting
    # time: all epochs are run and the best one is kept.
    epochs: int = setting(200, "epochs at most", low=1)
    learning_rate: float = setting(0.01, "Adam's step size", above=0)
    weight_decay: float = setting(1e-4, "L2 penalty on the weights that the model chooses for it", low=0)
    monitor: Monitor = setting("accuracy", "validation figure by which the best epoch is chosen")
    patience: int | None = setting(None, "stop after this many epochs without a better one; none: never", low=1)
    batch_size: int | None = setting(None, "training nodes per step; none: all at once", low=1)
    precision: Precision = setting("float32", "precision to which matrix products on a GPU round their inputs")

    @property
    def stopping(self) -> Stopping:
        """The stopping rule."""
        return Stopping(self.monitor, self.patience)


@dataclass(frozen=True)
class Run:
    """One finished training: every epoch, and the state of the best one."""

    history: tuple[Epoch, ...]
    best: Epoch
    state: dict[str, Tensor]
    """A copy of the parameters after the best epoch, on the CPU."""
    seconds: float
    interrupted: bool = False

    def _repr_html_(self) -> str:
        """Return a small table for notebooks."""
        rows = {
            "epochs": f"{len(self.history):,}" + ", interrupted" * self.interrupted,
            "best epoch": f"{self.best['epoch']:,}",
            "validation accuracy": f"{self.best['val_accuracy']:.1%}",
            "validation loss": f"{self.best['val_loss']:.4g}",
            "training loss": f"{self.best['train_loss']:.4g}",
            "time": f"{self.seconds:.1f} s",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in rows.items())
        return f"<table><caption>Run</caption>{cells}</table>"


def choose_device(name: str) -> torch.device:
    """Return the device of this name; "auto" is the GPU if there is one, else the CPU."""
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(unknown("device", name, ("auto", "cpu", "cuda")))
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device 'cuda' is not available to this PyTorch; use device 'cpu'")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


class SeriesError(NFCError):
    """What ends a series of runs before its time."""

    finished: Sequence[Run] = ()
    """The runs of the series before the one that failed."""


class DivergedError(SeriesError):
    """Training whose loss is not finite any more."""


class DiedError(SeriesError):
    """The process of a run has died."""


def check_finite(epoch: Epoch, config: TrainingConfig, seed: int) -> None:
    """Raise an error after an epoch whose loss is not finite."""
    if not math.isfinite(epoch["train_loss"] + epoch["val_loss"]):
        raise DivergedError(
            f"training diverged in epoch {epoch['epoch']} with seed {seed}: the loss is not finite; "
            f"lower `learning_rate`, now {config.learning_rate:g}"
        )
