"""The figures of an epoch: loss and accuracy of the training nodes, and all of the validation nodes."""

from __future__ import annotations

import math
from typing import TypedDict

import torch.nn.functional as F
from torch import Tensor

from nfcgcn.errors import ConfigError
from nfcgcn.training.scores import SCORES
from nfcgcn.training.values import Monitor


class Training(TypedDict):
    """The figures of the training nodes."""

    train_loss: float
    train_accuracy: float


class _Judged(TypedDict):
    val_loss: float
    val_accuracy: float


class Validation(_Judged, total=False):
    """The figures of the validation nodes."""

    val_score: float


def judge(scores: Tensor, y: Tensor, weight: Tensor | None, monitor: Monitor) -> Validation:
    """Return the figures of nodes with these scores and classes."""
    figures: Validation = {
        "val_loss": F.cross_entropy(scores, y, weight).item(),
        "val_accuracy": accuracy(scores, y),
    }
    if monitor not in ("accuracy", "loss") and math.isfinite(figures["val_loss"]):
        score = SCORES[monitor].measure(y.cpu().numpy(), scores.double().softmax(1).cpu().numpy())
        if not math.isfinite(score):
            raise ConfigError(f"`monitor` {monitor} needs validation nodes of two classes at least; choose another")
        figures["val_score"] = score
    return figures


def accuracy(scores: Tensor, y: Tensor) -> float:
    """Return the share of nodes whose highest score is that of their class."""
    return (scores.argmax(1) == y).double().mean().item()
