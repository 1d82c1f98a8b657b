"""Records of runs that never were, for the tests of what is made of stored results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from nfcgcn.reproduction.experiment import Entry, Experiment, entries

WHERE = {"device": "cpu", "processor": "a quick one", "torch": "9.8.7", "nfcgcn": "0.1.0"}


def ours(entry: Entry) -> bool:
    return entry.setup.model.startswith("nfc")


def wobble(entry: Entry, seed: int) -> float:
    """A little noise, another for ours than for theirs; three seeds have the mean 0 and the deviation 0.1."""
    return ((0.1, -0.1, 0.0) if ours(entry) else (0.0, 0.1, -0.1))[seed % 3]


def make_record(
    entry: Entry, seed: int, value: Any, *, where: Mapping[str, str] = WHERE, **more: Any
) -> dict[str, Any]:
    """A record whose figure is `value`: an accuracy in %, an epoch's seconds, or several figures by name."""
    figures: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {}
    if entry.setup.kind == "train":
        percent = 80.0 if figures else float(value)
        curve = [1 - 1 / epoch for epoch in range(1, 201)]
        figures = {
            "test_accuracy": round(percent / 100, 4), "val_accuracy": 0.9, "best_epoch": 100, "epochs_run": 200,
            "reach99": 30, "seconds": 2.0, "parameters": 1234, "test_nodes": 1000,
            "history": {"train_loss": curve[::-1], "train_accuracy": curve, "val_loss": curve[::-1],
                        "val_accuracy": curve},
            **figures,
        }  # fmt: skip
    elif entry.setup.kind == "cost":
        figures = {"seconds_per_epoch": 0.01 if figures else value, "peak_mib": 12.5, "parameters": 1234, **figures}
    else:
        counts = {"highest": 168.0, "lowest": 1.0, "mean": 3.9, "median": 3.0}
        more = {"degrees": {"without_self": counts, "with_self": counts, "isolated": 0}, **more}
    return {
        "setup": entry.setup.id, "kind": entry.setup.kind, "dataset": entry.setup.dataset, "model": entry.setup.model,
        "seed": seed, "config": dict(entry.setup.values), "where": dict(where), **figures,
        "hardware": "a quick machine", "versions": {"torch": "9.8.7"}, "commit": "0123abc", **more,
    }  # fmt: skip


def make_records(
    experiment: Experiment, value: Callable[[Entry], Any], *, seeds: int = 6, noise: bool = True, **more: Any
) -> list[dict[str, Any]]:
    """Run an experiment in mind: `value` says what an entry comes to, None that it was not run."""
    found = []
    for entry in entries(experiment):
        told = value(entry)
        for seed in range(seeds if entry.setup.kind == "train" else 1) if told is not None else ():
            noisy = noise and entry.setup.kind == "train" and not isinstance(told, Mapping)
            found.append(make_record(entry, seed, told + wobble(entry, seed) if noisy else told, **more))
    return found


def write_ledger(folder: Path, records: Iterable[Mapping[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cells.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
