"""Run one setup of an experiment and return its results as records for the ledger."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from nfcgcn.bench.step import peak, reset_peak
from nfcgcn.config.registry import Config
from nfcgcn.evaluation import Repeat, environment, processor, repeat
from nfcgcn.graph import Graph
from nfcgcn.reproduction.experiment import Setup
from nfcgcn.reproduction.ledger import CURVES, Record
from nfcgcn.training import Epoch, Run, fit

HORIZON = 200
"""Convergence is judged by this many epochs; some models train longer."""
DIGITS = 5
"""Decimal places of the stored losses and accuracies of each epoch."""


def describe_machine(device: torch.device) -> dict[str, str]:
    """Return what can change a result on another machine: device, processor and versions."""
    versions = environment(device)["versions"]
    return {
        "device": device.type,
        "processor": processor(device),
        "torch": versions["torch"].partition("+")[0],
        "nfcgcn": versions["nfcgcn"],
    }


def measure(
    setup: Setup, graph: Graph, seeds: Sequence[int], *, device: torch.device, history: bool = False
) -> list[Record]:
    """Run a setup once per seed and return one record per run."""
    common = {
        "setup": setup.id,
        "kind": setup.kind,
        "dataset": setup.dataset,
        "model": setup.model,
        "where": describe_machine(device),
        "config": dict(setup.values),
    }
    if setup.kind == "degrees":
        results = [{"seed": seed, "degrees": degrees(graph)} for seed in seeds]
    elif setup.kind == "cost":
        results = [{"seed": seed, **cost(graph, setup.config(), seed, device)} for seed in seeds]
    else:
        repeats = repeat(graph, setup.config(), seeds, device=device)
        results = [_scores(r, together=len(repeats), history=history) for r in repeats]
    provenance = {name: environment(device)[name] for name in ("hardware", "versions", "commit")}
    return [{**common, **result, **provenance} for result in results]


def _scores(r: Repeat, *, together: int, history: bool) -> Record:
    """Return the result of one training; `together` is how many seeds were trained side by side."""
    kept = {name: [round(e[name], DIGITS) for e in r.run.history[:HORIZON]] for name in CURVES}  # type: ignore[literal-required]
    return {
        "seed": r.seed,
        "test_accuracy": r.test_accuracy,
        "val_accuracy": r.run.best["val_accuracy"],
        "best_epoch": r.run.best["epoch"],
        "epochs_run": len(r.run.history),
        "reach99": reach(r.run),
        "seconds": round(r.run.seconds, 3),
        "together": together,
        "parameters": sum(p.numel() for p in r.model.parameters()),
        "test_nodes": len(r.split.test),
        **({"history": kept} if history else {}),
    }


def reach(run: Run, share: float = 0.99) -> int:
    """Return the first epoch whose validation accuracy is at least `share` of the last epoch's, within the horizon."""
    accuracies = [epoch["val_accuracy"] for epoch in run.history[:HORIZON]]
    return 1 + next(i for i, accuracy in enumerate(accuracies) if accuracy >= share * accuracies[-1])


def degrees(graph: Graph) -> dict[str, Any]:
    """Describe the degrees, both without and with the node itself counted."""
    counts = np.bincount(graph.edge_index[0].numpy(), minlength=graph.num_nodes)

    def summary(counts: Any) -> dict[str, float]:
        numbers = {"highest": counts.max(), "lowest": counts.min(), "mean": counts.mean(), "median": np.median(counts)}
        return {name: float(number) for name, number in numbers.items()}

    return {"without_self": summary(counts), "with_self": summary(counts + 1), "isolated": int((counts == 0).sum())}


def cost(graph: Graph, config: Config, seed: int, device: torch.device) -> Record:
    """Measure the time of an epoch, validation included, and the memory that training needs beside graph and model.

    Call it while nothing else runs; on the CPU, call it in a process that has done nothing else.
    """
    split = config.split.make(graph, seed)
    model = config.build(graph, seed)
    parameters = sum(p.numel() for p in model.parameters())
    times: list[float] = []

    def train(epochs: int) -> Run:
        times.clear()
        training = dataclasses.replace(config.training, epochs=epochs, patience=None)
        return fit(config.build(graph, seed), graph, split, training, seed=seed, device=device, on_epoch=tick)

    def tick(_: Epoch) -> None:
        times.append(time.perf_counter())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(2)  # compile or load the kernels, which must not count as part of an epoch
        if device.type == "cpu":
            before = reset_peak()
            train(8)
            extra = peak() - before
            seconds = float(np.median([after - this for this, after in pairwise(times)]))
        else:
            # Epochs run as one CUDA graph and are reported in bulk: the time of one is what more of them add.
            torch.cuda.empty_cache()
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
            few = train(3).seconds
            extra = torch.cuda.max_memory_allocated(device) - before
            more = 200 if few < 1 else 3
            seconds = max(train(3 + more).seconds - few, 0) / more
    return {"seconds_per_epoch": seconds, "peak_mib": extra / 2**20, "parameters": parameters}
