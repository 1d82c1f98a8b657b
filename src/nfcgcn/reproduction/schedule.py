"""The runs that experiments need: in which order, how long they take, and which are still to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nfcgcn.config.registry import MODELS
from nfcgcn.method.model import NFCGCN
from nfcgcn.reproduction.experiment import EXPERIMENTS, Experiment, Setup, entries, load_experiment
from nfcgcn.reproduction.ledger import Record, key_of


@dataclass(frozen=True)
class Task:
    """Runs of one setup that one process does in one go."""

    setup: Setup
    seeds: tuple[int, ...]
    history: bool

    @property
    def alone(self) -> bool:
        """Whether nothing else may run at the same time, because time and memory are measured."""
        return self.setup.kind == "cost"


def plan(experiments: Iterable[Experiment], seeds: int, device: torch.device) -> list[Task]:
    """List the runs of experiments; a run that several experiments need is listed once.

    On the CPU the first seed of every setup comes first, then the second, so that an interrupted series has about as
    many seeds of each setup. On a GPU all seeds of an NFC-GCN train side by side.
    """
    kept = {e.setup.id for name in EXPERIMENTS if (known := load_experiment(name)).history for e in entries(known)}
    setups = {entry.setup.id: entry.setup for experiment in experiments for entry in entries(experiment)}
    tasks = []
    for setup in setups.values():
        together = device.type == "cuda" and setup.kind == "train" and MODELS[setup.model].model is NFCGCN
        count = seeds if setup.kind == "train" else 1
        for first in range(0, count, count if together else 1):
            tasks.append(Task(setup, tuple(range(first, count if together else first + 1)), setup.id in kept))

    def order(task: Task) -> tuple[Any, ...]:
        longest_first = -estimate(task, device)
        return (task.alone, longest_first) if device.type == "cuda" else (task.alone, task.seeds[0], longest_first)

    return sorted(tasks, key=order)


MILLISECONDS = {
    "nfc-gcn": (10, 16, 56),
    "nfc-gcn-2d": (13, 25, 62),
    "gcn": (4, 6, 26),
    "gat": (19, 30, 230),
    "sage-mean": (28, 45, 200),
    "fastgcn": (27, 32, 270),
    "gcn-5": (5, 7, 25),
    "gat-5": (6, 8, 34),
}
"""Rough time of an epoch on one core for Cora, CiteSeer and PubMed, to order the runs and to estimate the total."""
ACTIVATED = {"nfc-gcn": (7, 6, 6), "nfc-gcn-2d": (16, 14, 11)}
"""How many times as long an epoch takes with an activation."""


def estimate(task: Task, device: torch.device) -> float:
    """Estimate roughly how many seconds one process needs for a task."""
    setup, epochs = task.setup, int(task.setup.values.get("epochs", 0))
    if setup.kind != "train":
        return {"cost": 6.0, "degrees": 0.1}[setup.kind]
    column = {"cora": 0, "citeseer": 1}.get(setup.dataset, 2)
    each = MILLISECONDS.get(setup.model, (30, 40, 200))[column] / 1000
    if setup.values.get("activation", "none") != "none":
        each *= ACTIVATED.get(setup.model, (1, 1, 1))[column]
    if setup.model in ACTIVATED:
        each *= (4 + setup.values["bandwidth"]) / 10 * (3 + setup.values["num_layers"]) / 5
    if device.type == "cuda":
        # Models that sample neighbours launch one kernel after another; the others run as CUDA graphs once compiled.
        return {"fastgcn": 3.0, "sage-mean": 1.0}.get(setup.model, 0.0) * epochs * each + 10
    return epochs * each * len(task.seeds)


def unfinished(tasks: Sequence[Task], records: Iterable[Record], machine: Mapping[str, str]) -> list[Task]:
    """Return those of `tasks`, with their seeds, that have no record from this machine."""
    done = {key_of(r["setup"], r["seed"], r["where"]) for r in records}
    left = []
    for task in tasks:
        seeds = tuple(seed for seed in task.seeds if key_of(task.setup.id, seed, machine) not in done)
        if seeds:
            left.append(Task(task.setup, seeds, task.history))
    return left
