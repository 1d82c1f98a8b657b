"""The runs that experiments ask for: in which order, how long they take, and which are missing."""

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
        """Whether nothing else may run meanwhile, because time and memory are measured."""
        return self.setup.kind == "cost"


def plan(experiments: Iterable[Experiment], seeds: int, device: torch.device) -> list[Task]:
    """List the runs of experiments, those they share once.

    On the CPU all setups with the first seed come first, so that an unfinished series is an even one. On a GPU the
    seeds of one NFC-GCN train side by side.
    """
    kept = {e.setup.id for name in EXPERIMENTS if (known := load_experiment(name)).history for e in entries(known)}
    setups = {entry.setup.id: entry.setup for experiment in experiments for entry in entries(experiment)}
    tasks = []
    for setup in setups.values():
        together = device.type == "cuda" and setup.kind == "train" and MODELS[setup.model].model is NFCGCN
        count = seeds if setup.kind == "train" else 1
        for first in range(0, count, count if together else 1):
            tasks.append(Task(setup, tuple(range(first, count if together else first + 1)), setup.id in kept))

    def rank(task: Task) -> tuple[Any, ...]:
        long = -estimate(task, device)
        return (task.alone, long) if device.type == "cuda" else (task.alone, task.seeds[0], long)

    return sorted(tasks, key=rank)


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
"""Of an epoch on one core for Cora, CiteSeer and PubMed: rough, for the order of runs and the time they will take."""
ACTIVATED = {"nfc-gcn": (7, 6, 6), "nfc-gcn-2d": (16, 14, 11)}
"""How many times that with an activation."""


def estimate(task: Task, device: torch.device) -> float:
    """Guess how many seconds a task takes one process."""
    setup, epochs = task.setup, int(task.setup.values.get("epochs", 0))
    if setup.kind != "train":
        return {"cost": 6.0, "degrees": 0.1}[setup.kind]
    place = {"cora": 0, "citeseer": 1}.get(setup.dataset, 2)
    each = MILLISECONDS.get(setup.model, (30, 40, 200))[place] / 1000
    if setup.values.get("activation", "none") != "none":
        each *= ACTIVATED.get(setup.model, (1, 1, 1))[place]
    if setup.model in ACTIVATED:
        each *= (4 + setup.values["bandwidth"]) / 10 * (3 + setup.values["num_layers"]) / 5
    if device.type == "cuda":
        # Models that sample launch kernel after kernel; the others run as graphs, once these are compiled.
        return {"fastgcn": 3.0, "sage-mean": 1.0}.get(setup.model, 0.0) * epochs * each + 10
    return epochs * each * len(task.seeds)


def missing(tasks: Sequence[Task], ledger: Iterable[Record], place: Mapping[str, str]) -> list[Task]:
    """Return what of `tasks` the ledger does not hold for this machine."""
    done = {key_of(r["setup"], r["seed"], r["where"]) for r in ledger}
    left = []
    for task in tasks:
        seeds = tuple(seed for seed in task.seeds if key_of(task.setup.id, seed, place) not in done)
        if seeds:
            left.append(Task(task.setup, seeds, task.history))
    return left
