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
from nfcgcn.settings import MOST_EPOCHS, Settings, one_line, setting
from nfcgcn.training.class_weights import ClassWeight, ClassWeights
from nfcgcn.training.fan_out import FanOut
from nfcgcn.training.scores import SCORES

Monitor = Literal["accuracy", "loss", "macro-f1", "balanced-accuracy", "roc-auc", "log-loss", "calibration-error"]
Calibration = Literal["none", "temperature"]
ADDITIONS = ("class_weight", "calibrate", "fan_out", "batch_parts")
"""Settings that came later; at their defaults, runs are what they were before."""
Judges = Literal["val", "train"]
"""The nodes by which the best epoch is chosen."""


class _Figures(TypedDict):
    epoch: int
    train_loss: float
    train_accuracy: float
    val_loss: float
    val_accuracy: float


class Epoch(_Figures, total=False):
    """The figures of one epoch. Training figures come from the training pass, with dropout on."""

    val_score: float
    """The score by which the best epoch is chosen, where that is neither accuracy nor loss."""


@dataclass(frozen=True)
class Stopping:
    """When an epoch is the best so far, and when to give up waiting for a better one."""

    monitor: Monitor = "accuracy"
    patience: int | None = None

    def merit(self, epoch: Epoch) -> tuple[float, float]:
        """Rank epochs: the larger, the better; of equal figures the one with the lower loss is better."""
        loss, accuracy = -epoch["val_loss"], epoch["val_accuracy"]
        if self.monitor in ("accuracy", "loss"):
            return (accuracy, loss) if self.monitor == "accuracy" else (loss, accuracy)
        sign = 1 if SCORES[self.monitor].best == "highest" else -1
        return sign * epoch["val_score"], loss

    def best(self, before: Epoch | None, epoch: Epoch) -> Epoch:
        """Return the better one of the best epoch before, if there is one, and another; of equals the earlier."""
        return epoch if before is None or self.merit(epoch) > self.merit(before) else before

    def gives_up(self, epoch: int, best_epoch: int) -> bool:
        """Say whether `patience` epochs have passed without a better one."""
        return self.patience is not None and epoch - best_epoch >= self.patience

    @property
    def best_is(self) -> str:
        """What makes an epoch the best, in words, for reports."""
        if self.monitor == "loss":
            return "lowest validation loss"
        return f"{SCORES[self.monitor].best} validation {SCORES[self.monitor].title}"


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """How a model is trained.

    >>> config = TrainingConfig(epochs=50, patience=10)
    >>> config.epochs, config.learning_rate
    (50, 0.01)
    """

    # Paper: "train 200 epochs at most" with "early stopping based on the validation accuracy", without the waiting
    # time: all epochs are run and the best one is kept.
    epochs: int = setting(200, "epochs at most", low=1, high=MOST_EPOCHS)
    learning_rate: float = setting(0.01, "Adam's step size", above=0)
    weight_decay: float = setting(1e-4, "L2 penalty on the weights that the model chooses for it", low=0)
    monitor: Monitor = setting("accuracy", "validation figure by which the best epoch is chosen")
    patience: int | None = setting(None, "stop after this many epochs without a better one; none: never", low=1)
    batch_size: int | None = setting(None, "training nodes per step; none: all at once", low=1)
    fan_out: FanOut | None = setting(
        None,
        "train in mini-batches: neighbours drawn per node and graph convolution, one number or one per convolution",
    )
    batch_parts: int | None = setting(
        None,
        "parts of a mini-batch, each with its own dropout masks, shared by processes; none: one per process",
        low=1,
    )
    precision: Precision = setting("float32", "precision to which matrix products on a GPU round their inputs")
    class_weight: ClassWeight = setting(
        None, "weight of each class in the loss; balanced: all classes together count the same, however rare"
    )
    calibrate: Calibration = setting(
        "none", "temperature: divide scores by one number, fitted on validation nodes, before the softmax"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_weight not in (None, "balanced"):
            try:
                object.__setattr__(self, "class_weight", ClassWeights(self.class_weight))
            except ValueError as error:
                meaning = ClassWeights.meaning
                raise ConfigError(
                    f"`class_weight` must be balanced, none or {meaning}, got '{one_line(self.class_weight)}'"
                ) from error
        if self.fan_out is not None and not isinstance(self.fan_out, FanOut):
            try:
                object.__setattr__(self, "fan_out", FanOut(self.fan_out))
            except (ValueError, TypeError) as error:
                raise ConfigError(
                    f"`fan_out` must be none or {FanOut.meaning}, got '{one_line(self.fan_out)}'"
                ) from error

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
    temperature: float = 1.0
    """What scores are divided by before the softmax; 1 unless `calibrate` fitted another."""

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
