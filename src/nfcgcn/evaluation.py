"""Scores on held-out nodes, repeats over seeds, and what they say together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch
from scipy.special import stdtrit

from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph, Ints, Split
from nfcgcn.inference import predict as predict
from nfcgcn.models import NodeClassifier
from nfcgcn.systems import Config
from nfcgcn.training import Epoch, Run, fit


class Summary(TypedDict):
    """A figure over several runs; deviation and interval are None for a single run."""

    mean: float
    std: float | None
    ci95: tuple[float, float] | None
    runs: list[float]


class ClassScore(TypedDict):
    """How well one class is told apart."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Repeat:
    """One seed: its split, its training, and its one look at the test nodes."""

    seed: int
    split: Split
    run: Run
    model: NodeClassifier
    predictions: Ints
    """``[N]``: the predicted class of every node."""
    test_accuracy: float


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, unbiased standard deviation and the 95 % interval of the mean (Student's t)."""
    runs = [float(v) for v in values]
    mean = float(np.mean(runs))
    if len(runs) < 2:
        return {"mean": mean, "std": None, "ci95": None, "runs": runs}
    std = float(np.std(runs, ddof=1))
    reach = float(stdtrit(len(runs) - 1, 0.975)) * std / len(runs) ** 0.5
    return {"mean": mean, "std": std, "ci95": (mean - reach, mean + reach), "runs": runs}


def accuracy(predictions: Ints, graph: Graph, nodes: Ints) -> float:
    """Return the share of `nodes` whose predicted class is their label."""
    return float(np.mean(predictions[nodes] == graph.labels[nodes]))


def confusion(predictions: Ints, graph: Graph, nodes: Ints) -> Ints:
    """Count `nodes` by true class (row) and predicted class (column)."""
    c = graph.num_classes
    return np.bincount(graph.labels[nodes] * c + predictions[nodes], minlength=c * c).reshape(c, c)


def class_scores(matrix: Ints, graph: Graph) -> list[ClassScore]:
    """Return precision, recall and F1 of each class from a confusion matrix; an empty ratio counts as 0."""
    hits, truth, guesses = np.diag(matrix), matrix.sum(1), matrix.sum(0)

    def share(part: Any, whole: Any) -> float:
        return float(part / whole) if whole else 0.0

    return [
        {
            "name": graph.class_name(c),
            "precision": share(hits[c], guesses[c]),
            "recall": share(hits[c], truth[c]),
            "f1": share(2 * hits[c], guesses[c] + truth[c]),
            "support": int(truth[c]),
        }
        for c in range(len(matrix))
    ]


def repeat(
    graph: Graph,
    config: Config,
    seeds: Sequence[int],
    *,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, Epoch], None] | None = None,
) -> list[Repeat]:
    """Train once a seed and score each run's best state on its test nodes, once.

    A run that is interrupted is scored and ends the series.
    """
    repeats: list[Repeat] = []
    for seed in seeds:
        try:
            with warnings.catch_warnings():
                if repeats:  # once said is enough: all seeds share the graph
                    warnings.simplefilter("ignore")
                repeats.append(_train_once(graph, config, seed, device, on_epoch))
        except KeyboardInterrupt:
            if not repeats:
                raise
            break
        if repeats[-1].run.interrupted:
            break
    return repeats


def _train_once(
    graph: Graph,
    config: Config,
    seed: int,
    device: torch.device | str,
    on_epoch: Callable[[int, Epoch], None] | None,
) -> Repeat:
    split = config.split.make(graph, seed)
    if not len(split.test):
        raise GraphError(f"the split '{split.name}' leaves no labelled node to test on; change its sizes")
    model = config.build(graph, seed)
    run = fit(
        model,
        graph,
        split,
        config.training,
        seed=seed,
        device=device,
        on_epoch=(lambda epoch: on_epoch(seed, epoch)) if on_epoch else None,
    )
    predictions = predict(model, graph, device=device)
    return Repeat(seed, split, run, model, predictions, accuracy(predictions, graph, split.test))
