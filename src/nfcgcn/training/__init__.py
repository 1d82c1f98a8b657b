"""Training: Adam on the training nodes, the best epoch chosen on the validation nodes; test labels are never read."""

from __future__ import annotations

import copy
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import torch

from nfcgcn.errors import ConfigError, NFCError
from nfcgcn.graph import Graph, Split
from nfcgcn.kernels.threads import available
from nfcgcn.memory import enough_memory
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.training import cuda_graph, processes
from nfcgcn.training.calibration import calibrated
from nfcgcn.training.loop import fit_in_steps
from nfcgcn.training.ranks import current
from nfcgcn.training.tracking import Tracker
from nfcgcn.training.unfinished import Unfinished
from nfcgcn.training.values import (
    DivergedError,
    Epoch,
    Judges,
    Monitor,
    Run,
    SeriesError,
    Stopping,
    TrainingConfig,
    choose_device,
)

__all__ = [
    "DivergedError",
    "Epoch",
    "Monitor",
    "Run",
    "SeriesError",
    "Stopping",
    "Tracker",
    "TrainingConfig",
    "Unfinished",
    "choose_device",
    "fit",
    "fit_together",
    "warm_up",
]

log = logging.getLogger("nfcgcn")


@enough_memory()
def fit(
    model: NodeClassifier,
    graph: Graph,
    split: Split,
    config: TrainingConfig | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    choose_by: Judges = "val",
    on_epoch: Callable[[Epoch], None] | None = None,
    track: Tracker | None = None,
    keep: Unfinished | None = None,
) -> Run:
    """Train `model`, leave it in the state of its best epoch, and return how it went.

    The loss is the cross-entropy on ``split.train``, weighted as ``config.class_weight`` says. After every epoch the
    model is validated on ``split.val``, by the same loss; ``split.test`` is never read. ``choose_by="train"`` validates
    on the training nodes, for splits without validation nodes. With ``config.batch_size`` every epoch shuffles the
    training nodes and makes one step per batch. With ``config.fan_out`` a step reads of the graph only what the nodes
    of its batch need, with so many neighbours per node, and the graph may be larger than memory.
    ``on_epoch`` is called after each epoch; ``track`` hears of each epoch
    and of the end, see :class:`Tracker`. Ctrl-C ends training early and keeps the best state so far. With ``keep`` the
    place that training has reached is kept on the disk every so often, and training goes on from the place that is
    there, to the same bits.

    On a GPU whole epochs run as CUDA graphs where the model allows it, and no place is kept; where it does not, the
    reason is logged at debug level.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> split = nfcgcn.make_split(graph, "ratio")
    >>> run = fit(nfcgcn.GCN(50, 8, 2, 7), graph, split, TrainingConfig(epochs=3))
    >>> [epoch["epoch"] for epoch in run.history]
    [1, 2, 3]
    """
    tell = _with_tracker(None if on_epoch is None else (lambda _, epoch: on_epoch(epoch)), track, [seed])
    run = _fit(model, graph, split, config, seed, device, choose_by, tell, keep)
    if track is not None:
        track.on_end(seed, run)
    return run


def _fit(
    model: NodeClassifier,
    graph: Graph,
    split: Split,
    config: TrainingConfig | None,
    seed: int,
    device: torch.device | str,
    choose_by: Judges,
    tell: Callable[[int, Epoch], None] | None,
    keep: Unfinished | None,
) -> Run:
    config, device = config or TrainingConfig(), torch.device(device)
    if config.precision != "float32" and device.type != "cuda":
        raise ConfigError(f"`precision` must be float32 on the {device.type.upper()}, got {config.precision}")
    split.check(graph, needed=("train", choose_by))
    if config.calibrate != "none" and choose_by == "train":
        raise ConfigError(f"`calibrate` {config.calibrate} needs validation nodes, and there are none; hold some out")
    judges = getattr(split, choose_by)
    if device.type == "cuda" and config.fan_out is None:
        try:
            parts = [(split.train, judges)]
            (run,) = cuda_graph.fit_as_graph([model], graph, parts, config, seeds=[seed], device=device, on_epoch=tell)
            return calibrated(run, model, graph, judges, config, device)
        except cuda_graph.Refusal as refusal:
            log.debug("no CUDA graph: %s", refusal)
    with warnings.catch_warnings():
        # What a capture tried on a stream of its own before it was refused.
        warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
        on_epoch = None if tell is None else partial(tell, 0)
        nodes = (split.train, judges)
        run = fit_in_steps(model, graph, nodes, config, seed=seed, device=device, on_epoch=on_epoch, keep=keep)
    model.temperature = run.temperature
    return run


def _with_tracker(
    on_epoch: Callable[[int, Epoch], None] | None, track: Tracker | None, seeds: Sequence[int]
) -> Callable[[int, Epoch], None] | None:
    """Return what to call with the number of a run and its epoch, so that both hear of it."""
    if track is None:
        return on_epoch

    def tell(number: int, epoch: Epoch) -> None:
        if on_epoch:
            on_epoch(number, epoch)
        track.on_epoch(seeds[number], epoch)

    return tell


@enough_memory()
def fit_together(
    models: Sequence[NodeClassifier],
    graph: Graph,
    splits: Sequence[Split],
    config: TrainingConfig | None = None,
    *,
    seeds: Sequence[int],
    device: torch.device | str = "cpu",
    jobs: int = 1,
    on_epoch: Callable[[int, Epoch], None] | None = None,
    track: Tracker | None = None,
    keep: Unfinished | None = None,
) -> list[Run]:
    """Train several models, each with its own split and seed, and return how each went; see :func:`fit`.

    On a GPU, NFC-GCNs of the same shape on splits of the same size train side by side: one kernel launch serves them
    all. On the CPU up to ``jobs`` models train at the same time, each in a process of its own, on Linux. Otherwise they
    train one after the other, as models do that make a vector per node from the edges alone: all cores make the
    vectors, which scoring needs again. Each result is bit for bit what the model would reach alone. ``on_epoch`` is
    called with the number of the model and its epoch. An interruption ends the series. A run that fails ends it with an
    error, which has the runs before it. With ``keep`` every run that ends is kept on the disk, if there are several.
    """
    config, device = config or TrainingConfig(), torch.device(device)
    if device.type == "cuda" and len(models) > 1 and config.fan_out is None:
        try:
            splits[0].check(graph)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the first check has warned already
                for split in splits[1:]:
                    split.check(graph)
            parts = [(split.train, split.val) for split in splits]
            tell = _with_tracker(on_epoch, track, seeds)
            runs = cuda_graph.fit_as_graph(models, graph, parts, config, seeds=seeds, device=device, on_epoch=tell)
            each = zip(runs, models, parts, strict=True)
            runs = [calibrated(run, model, graph, val, config, device) for run, model, (_, val) in each]
            for seed, run in zip(seeds, runs, strict=True):
                if track is not None:
                    track.on_end(seed, run)
            return runs
        except cuda_graph.Refusal as refusal:
            log.debug("one run after the other: %s", refusal)
    if not all(model.reads_features for model in models):
        jobs = 1
    if device.type == "cpu" and min(jobs, len(models)) > 1 and processes.can_fork() and current().count == 1:
        return _fit_in_processes(models, graph, splits, config, seeds, jobs, on_epoch, track, keep)
    runs = []
    for number, (model, split, seed) in enumerate(zip(models, splits, seeds, strict=True)):
        callback = None if on_epoch is None else partial(on_epoch, number)
        try:
            with warnings.catch_warnings():
                if runs:  # one warning is enough: all runs share the graph
                    warnings.simplefilter("ignore")
                run = fit(
                    model, graph, split, config, seed=seed, device=device, on_epoch=callback, track=track, keep=keep
                )
        except KeyboardInterrupt:
            if not runs:
                raise
            break
        except DivergedError as error:
            error.finished = runs
            raise
        runs.append(run)
        if run.interrupted:
            break
        if keep is not None and len(models) > 1:
            keep.add(seed, run)
    return runs


def warm_up(model: NodeClassifier, graph: Graph, split: Split, config: TrainingConfig) -> None:
    """Train `model` for one epoch, before processes are forked that train others like it.

    That loads or compiles the kernels and makes what depends on the graph alone, and all processes share it. An error
    will come again where it belongs.
    """
    with suppress(NFCError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(model, graph, split, replace(config, epochs=1), seed=0)


def _fit_in_processes(
    models: Sequence[NodeClassifier],
    graph: Graph,
    splits: Sequence[Split],
    config: TrainingConfig,
    seeds: Sequence[int],
    jobs: int,
    on_epoch: Callable[[int, Epoch], None] | None,
    track: Tracker | None,
    keep: Unfinished | None,
) -> list[Run]:
    splits[0].check(graph)  # warnings are shown once, and by this process
    jobs = min(jobs, len(models))
    warm_up(copy.deepcopy(models[0]), graph, splits[0], config)

    def work(number: int, tell: Callable[[Epoch], None] | None) -> Run:
        return fit(models[number], graph, splits[number], config, seed=seeds[number], on_epoch=tell, keep=keep)

    def on_run(number: int, run: Run) -> None:
        if keep is not None:
            keep.add(seeds[number], run)
        if track is not None:
            track.on_end(seeds[number], run)

    names, start = [f"seed {seed}" for seed in seeds], time.perf_counter()
    threads = max(1, min(torch.get_num_threads(), available()) // jobs)
    failure: SeriesError | None = None
    try:
        tell = _with_tracker(on_epoch, track, seeds)
        runs = processes.in_processes(
            work, len(models), jobs=jobs, threads=threads, names=names, on_epoch=tell, on_run=on_run
        )
    except SeriesError as error:
        runs, failure = list(error.finished), error
    seconds = (time.perf_counter() - start) / max(1, len(runs))
    runs = [replace(run, seconds=seconds) for run in runs]
    for model, run in zip(models, runs, strict=False):  # an interrupted series is shorter
        model.load_state_dict(run.state)
        model.temperature = run.temperature
        model.eval()
    if failure is not None:
        failure.finished = runs
        raise failure
    return runs
