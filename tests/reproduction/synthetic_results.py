"""Made-up records of runs, for tests of what is computed from stored results."""

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
    """A little noise, different for our models and for others; over three seeds its mean is 0, its deviation 0.1."""
    return ((0.1, -0.1, 0.0) if ours(entry) else (0.0, 0.1, -0.1))[seed % 3]


def make_record(
    entry: Entry, seed: int, value: Any, *, where: Mapping[str, str] = WHERE, **more: Any
) -> dict[str, Any]:
    """A record whose result is `value`: an accuracy in %, the seconds of an epoch, or several numbers by name."""
    numbers: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {}
    if entry.setup.kind == "train":
        percent = 80.0 if numbers else float(value)
        curve = [1 - 1 / epoch for epoch in range(1, 201)]
        numbers = {
            "test_accuracy": round(percent / 100, 4), "val_accuracy": 0.9, "best_epoch": 100, "epochs_run": 200,
            "reach99": 30, "seconds": 2.0, "parameters": 1234, "test_nodes": 1000,
            "history": {"train_loss": curve[::-1], "train_accuracy": curve, "val_loss": curve[::-1],
                        "val_accuracy": curve},
            **numbers,
        }  # fmt: skip
    elif entry.setup.kind == "cost":
        numbers = {"seconds_per_epoch": 0.01 if numbers else value, "peak_mib": 12.5, "parameters": 1234, **numbers}
    else:
        counts = {"highest": 168.0, "lowest": 1.0, "mean": 3.9, "median": 3.0}
        more = {"degrees": {"without_self": counts, "with_self": counts, "isolated": 0}, **more}
    return {
        "setup": entry.setup.id, "kind": entry.setup.kind, "dataset": entry.setup.dataset, "model": entry.setup.model,
        "seed": seed, "config": dict(entry.setup.values), "where": dict(where), **numbers,
        "hardware": "a quick machine", "versions": {"torch": "9.8.7"}, "commit": "0123abc", **more,
    }  # fmt: skip


def make_records(
    experiment: Experiment, value: Callable[[Entry], Any], *, seeds: int = 6, noise: bool = True, **more: Any
) -> list[dict[str, Any]]:
    """Records of an experiment: `value` returns the result of an entry, or None if it was not run."""
    records = []
    for entry in entries(experiment):
        result = value(entry)
        for seed in range(seeds if entry.setup.kind == "train" else 1) if result is not None else ():
            noisy = noise and entry.setup.kind == "train" and not isinstance(result, Mapping)
            records.append(make_record(entry, seed, result + wobble(entry, seed) if noisy else result, **more))
    return records


def write_ledger(folder: Path, records: Iterable[Mapping[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cells.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
