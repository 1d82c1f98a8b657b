"""Repeats over seeds, their scores on held-out nodes, and simple models beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from nfcgcn.config.inspection import check_classes
from nfcgcn.config.registry import Config, make_config
from nfcgcn.config.selection import Selection
from nfcgcn.errors import GraphError, NFCError
from nfcgcn.evaluation.origin import environment
from nfcgcn.evaluation.statistics import Summary, summarise
from nfcgcn.graph import Graph, Ints, Split
from nfcgcn.inference.prediction import predict_with_confidence
from nfcgcn.memory import available
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.training import Epoch, Run, SeriesError, Tracker, Unfinished, fit_together
from nfcgcn.training.ranks import current
from nfcgcn.training.scores import SCORES, Doubles, measure_all


@dataclass(frozen=True)
class Repeat:
    """One seed: its split, its training, and its one evaluation on the test nodes."""

    seed: int
    split: Split
    run: Run
    model: NodeClassifier
    predictions: Ints
    """``[N]``: the predicted class of every node; of a graph in a store, -1 for nodes that are no test nodes."""
    test_accuracy: float
    labels: Ints
    """``[T]``: the classes of the test nodes."""
    probabilities: Doubles
    """``[T, C]``: the class probabilities of the test nodes."""

    @cached_property
    def scores(self) -> dict[str, float | None]:
        """Every score on the test nodes, by name."""
        return measure_all(self.labels, self.probabilities)


def accuracy(predictions: Ints, graph: Graph, nodes: Ints) -> float:
    """Return the share of `nodes` whose predicted class is their label.

    >>> graph = Graph.from_edges([[0], [1]], [[1.0], [2.0], [3.0]], labels=[0, 1, 1])
    >>> accuracy(np.array([0, 1, 0]), graph, np.array([1, 2]))
    0.5
    """
    return float(np.mean(predictions[nodes] == graph.labels[nodes]))


def repeat(
    graph: Graph,
    config: Config,
    seeds: Sequence[int],
    *,
    splits: Sequence[Split] | None = None,
    device: torch.device | str = "cpu",
    jobs: int = 1,
    on_epoch: Callable[[int, Epoch], None] | None = None,
    track: Tracker | None = None,
    keep: Unfinished | None = None,
    start: Mapping[str, torch.Tensor] | None = None,
) -> list[Repeat]:
    """Train once per seed and score each run's best state once on its test nodes.

    Each seed makes its own split, unless ``splits`` are given, one per seed. On the CPU up to ``jobs`` seeds train at
    the same time; see :func:`nfcgcn.training.fit_together`. A run that is interrupted is scored and ends the series. If
    a run diverges, or its process dies, the error is an :class:`UnfinishedError`, which has the runs before it, unless
    there are none. ``on_epoch`` is called with the seed and its epoch; ``track`` hears of epochs and ends, see
    :class:`nfcgcn.Tracker`. With ``keep`` runs are kept on the disk, and those that it has already are not repeated.
    ``start`` are weights that all models start with, by name; see :func:`nfcgcn.inference.transfer.starting_weights`.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> config = nfcgcn.make_config("gcn", graph=graph, settings={"epochs": 2})
    >>> [run.seed for run in repeat(graph, config, [0, 1])]
    [0, 1]
    """
    check_classes(graph)
    splits = splits or [config.split.make(graph, seed) for seed in seeds]
    if not all(len(split.test) for split in splits):
        raise GraphError(f"the split '{splits[0].name}' leaves no labelled node to test on; change its sizes")
    models = [config.build(graph, seed) for seed in seeds]
    for model in models if start else ():
        model.load_state_dict({**model.state_dict(), **(start or {})})
    jobs = max(1, min(jobs, int(available() / (2 * config.memory(graph)))))  # the estimate is a lower bound
    runs = {} if keep is None else keep.finished(seeds)
    left = [number for number, seed in enumerate(seeds) if seed not in runs]
    callback = None if on_epoch is None else (lambda run, epoch: on_epoch(seeds[left[run]], epoch))
    failure: SeriesError | None = None
    try:
        trained: Sequence[Run] = fit_together(
            [models[number] for number in left],
            graph,
            [splits[number] for number in left],
            config.training,
            seeds=[seeds[number] for number in left],
            device=device,
            jobs=jobs,
            on_epoch=callback,
            track=track,
            keep=keep,
        )
    except SeriesError as error:
        trained, failure = error.finished, error
    for model, seed in zip(models, seeds, strict=True):
        if keep is not None and seed in runs:
            keep.restore(seed, runs[seed], model)
    runs |= {seeds[number]: run for number, run in zip(left, trained, strict=False)}  # an interrupted series is shorter
    if failure is not None and seeds[0] not in runs:
        raise failure
    repeats = []
    for seed, split, model in zip(seeds, splits, models, strict=True):
        if seed not in runs:
            break
        run = runs[seed]
        predictions, probabilities = predict_with_confidence(model, graph, split.test, device=device)
        score = accuracy(predictions, graph, split.test)
        repeats.append(Repeat(seed, split, run, model, predictions, score, graph.labels[split.test], probabilities))
    if failure is not None:
        raise UnfinishedError(str(failure), repeats) from failure
    return repeats


TestScores = dict[str, Summary | None]


"""Every score on the test nodes by name, over all seeds; None where some seed's test nodes do not define it."""


def summarise_scores(measured: Sequence[Mapping[str, float | None]]) -> TestScores:
    """Summarise the scores of several runs."""
    columns = {name: [scores[name] for scores in measured] for name in SCORES}
    return {name: None if None in column else summarise(column) for name, column in columns.items()}  # type: ignore[arg-type]


def majority_class(graph: Graph, repeats: Sequence[Repeat]) -> TestScores:
    """Score the guess that every node is of the class most frequent among the training nodes.

    Its probabilities are the shares of the classes among the training nodes.
    """
    measured = []
    for r in repeats:
        shares = np.bincount(graph.labels[r.split.train], minlength=graph.num_classes) / len(r.split.train)
        measured.append(measure_all(r.labels, np.tile(shares, (len(r.labels), 1))))
    return summarise_scores(measured)


def perceptron(
    graph: Graph,
    config: Config,
    repeats: Sequence[Repeat],
    *,
    dataset: str | None = None,
    device: torch.device | str = "cpu",
    jobs: int = 1,
) -> TestScores:
    """Train a perceptron, which does not see the edges, with the same seeds and splits, and score it on test nodes.

    Its settings are those it has for the `dataset`, or for any graph; what is learnt, and for how long, is as in
    `config`.
    """
    shared = ["epochs", "patience", "monitor", "class_weight", "calibrate"]
    if config.training.fan_out is not None:
        shared += ["fan_out", "batch_size", "batch_parts"]
    settings = {name: getattr(config.training, name) for name in shared}
    mlp = make_config("mlp", dataset=dataset, graph=graph, settings=settings)
    seeds, splits = [r.seed for r in repeats], [r.split for r in repeats]
    trained = repeat(graph, mlp, seeds, splits=splits, device=device, jobs=jobs)
    if len(trained) < len(seeds) or trained[-1].run.interrupted:
        raise KeyboardInterrupt
    return summarise_scores([r.scores for r in trained])


class UnfinishedError(NFCError):
    """A series of runs that ended early, because one of them failed."""

    def __init__(self, reason: str, repeats: Sequence[Repeat]) -> None:
        super().__init__(reason)
        self.repeats = repeats
        """The runs that had ended before."""


def describe(
    graph: Graph,
    config: Config,
    repeats: Sequence[Repeat],
    *,
    device: torch.device,
    command: str | None = None,
    dataset_options: Mapping[str, Any] | None = None,
    selection: Selection | None = None,
    baselines: Mapping[str, TestScores] | None = None,
) -> dict[str, Any]:
    """Return the result of repeated runs as plain values, ready for JSON.

    ``dataset_options`` are those that a built-in dataset was loaded with, None for any other graph. ``selection`` is
    how the settings were chosen, None if they were given. ``baselines`` are the scores of simple models by name.
    """
    split = repeats[0].split
    return {
        "dataset": graph.name,
        "dataset_options": None if dataset_options is None else dict(dataset_options),
        "model": config.name,
        "preset": config.preset,
        "split": split.name,
        "seeds": [r.seed for r in repeats],
        "test_accuracy": summarise([r.test_accuracy for r in repeats]),
        "test_scores": summarise_scores([r.scores for r in repeats]),
        "baselines": dict(baselines or {}),
        "val_accuracy": summarise([r.run.best["val_accuracy"] for r in repeats]),
        "temperatures": [r.run.temperature for r in repeats],
        "epochs": [r.run.best["epoch"] for r in repeats],
        "epochs_run": [len(r.run.history) for r in repeats],
        "seconds": sum(r.run.seconds for r in repeats),
        "interrupted": any(r.run.interrupted for r in repeats),
        "parameters": sum(p.numel() for p in repeats[0].model.parameters()),
        "config": config.values,
        "selection": None if selection is None else selection.describe(),
        "graph": {
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
            "sparse": graph.is_sparse,
        },
        "split_sizes": {"train": len(split.train), "val": len(split.val), "test": len(split.test)},
        "processes": current().count,
        **environment(device),
        "command": command,
    }
