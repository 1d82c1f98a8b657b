"""Training: Adam on the training nodes, the best epoch chosen on the validation nodes; test labels are never read."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch

from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph, Split
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.training import cuda_graph
from nfcgcn.training.loop import fit_in_steps
from nfcgcn.training.values import Epoch, Judges, Monitor, Run, Stopping, TrainingConfig, choose_device

__all__ = ["Epoch", "Monitor", "Run", "Stopping", "TrainingConfig", "choose_device", "fit", "fit_together"]

log = logging.getLogger("nfcgcn")


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
) -> Run:
    """Train `model`, leave it in the state of its best epoch, and return how it went.

    The loss is the cross-entropy on ``split.train``. After every epoch the model is validated on ``split.val``;
    ``split.test`` is never read. ``choose_by="train"`` validates on the training nodes, for splits without validation
    nodes. With ``config.batch_size`` every epoch shuffles the training nodes and makes one step per batch.
    ``on_epoch`` is called after each epoch. Ctrl-C ends training early and keeps the best state so far.

    On a GPU whole epochs run as CUDA graphs where the model allows it; where it does not, the reason is logged at debug
    level.
    """
    config, device = config or TrainingConfig(), torch.device(device)
    if config.precision != "float32" and device.type != "cuda":
        raise ConfigError(f"`precision` must be float32 on the {device.type.upper()}, got {config.precision}")
    split.check(graph, needed=("train", choose_by))
    judges = getattr(split, choose_by)
    if device.type == "cuda":
        try:
            callback = None if on_epoch is None else (lambda _, epoch: on_epoch(epoch))
            parts = [(split.train, judges)]
            (run,) = cuda_graph.fit_as_graph(
                [model], graph, parts, config, seeds=[seed], device=device, on_epoch=callback
            )
            return run
        except cuda_graph.Refusal as refusal:
            log.debug("no CUDA graph: %s", refusal)
    with warnings.catch_warnings():
        # What a capture tried on a stream of its own before it was refused.
        warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
        return fit_in_steps(model, graph, (split.train, judges), config, seed=seed, device=device, on_epoch=on_epoch)


def fit_together(
    models: Sequence[NodeClassifier],
    graph: Graph,
    splits: Sequence[Split],
    config: TrainingConfig | None = None,
    *,
    seeds: Sequence[int],
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, Epoch], None] | None = None,
) -> list[Run]:
    """Train several models, each with its own split and seed, and return how each went; see :func:`fit`.

    On a GPU, NFC-GCNs of the same shape on splits of the same size train side by side: one kernel launch serves them
    all, and each result is bit for bit what the model would reach alone. Otherwise they train one after the other.
    ``on_epoch`` is called with the number of the model and its epoch. An interruption ends the series.
    """
    config, device = config or TrainingConfig(), torch.device(device)
    if device.type == "cuda" and len(models) > 1:
        try:
            splits[0].check(graph)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the first check has warned already
                for split in splits[1:]:
                    split.check(graph)
            parts = [(split.train, split.val) for split in splits]
            return cuda_graph.fit_as_graph(models, graph, parts, config, seeds=seeds, device=device, on_epoch=on_epoch)
        except cuda_graph.Refusal as refusal:
            log.debug("one run after the other: %s", refusal)
    runs: list[Run] = []
    for number, (model, split, seed) in enumerate(zip(models, splits, seeds, strict=True)):
        callback = None if on_epoch is None else partial(on_epoch, number)
        try:
            with warnings.catch_warnings():
                if runs:  # one warning is enough: all runs share the graph
                    warnings.simplefilter("ignore")
                runs.append(fit(model, graph, split, config, seed=seed, device=device, on_epoch=callback))
        except KeyboardInterrupt:
            if not runs:
                raise
            break
        if runs[-1].interrupted:
            break
    return runs
