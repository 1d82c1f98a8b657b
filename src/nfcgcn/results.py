"""A run's result: its figures, with everything one needs to get them again."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from nfcgcn.evaluation import Repeat, summarise
from nfcgcn.graph import Graph
from nfcgcn.systems import Config


def describe(
    graph: Graph,
    config: Config,
    repeats: Sequence[Repeat],
    *,
    device: torch.device,
    command: str | None = None,
    dataset_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the result of repeated runs as plain values, ready for JSON.

    ``dataset_options`` are those that a built-in dataset was loaded with, None for any other graph.
    """
    split = repeats[0].split
    return {
        "dataset": graph.name,
        "dataset_options": None if dataset_options is None else dict(dataset_options),
        "model": config.system,
        "preset": config.preset,
        "split": split.name,
        "seeds": [r.seed for r in repeats],
        "test_accuracy": summarise([r.test_accuracy for r in repeats]),
        "val_accuracy": summarise([r.run.best["val_accuracy"] for r in repeats]),
        "epochs": [r.run.best["epoch"] for r in repeats],
        "epochs_run": [len(r.run.history) for r in repeats],
        "seconds": sum(r.run.seconds for r in repeats),
        "interrupted": any(r.run.interrupted for r in repeats),
        "parameters": sum(p.numel() for p in repeats[0].model.parameters()),
        "config": config.values,
        "graph": {
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
            "sparse": graph.is_sparse,
        },
        "split_sizes": {"train": len(split.train), "val": len(split.val), "test": len(split.test)},
        **environment(device),
        "command": command,
    }


def environment(device: torch.device) -> dict[str, Any]:
    """Tell on what, with which versions and from which commit a figure came."""
    return {
        "device": device.type,
        "hardware": hardware(device),
        "versions": {
            "python": platform.python_version(),
            "nfcgcn": _nfcgcn_version(),
            **{package: version(package) for package in ("torch", "numpy", "scipy", "numba")},
        },
        "commit": commit(),
    }


def hardware(device: torch.device) -> str:
    """Name the processor that the run used, and how many threads of it."""
    name = processor(device)
    return name if device.type == "cuda" else f"{name}, {torch.get_num_threads()} threads"


def processor(device: torch.device) -> str:
    """Name the processor or the graphics card."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return name


def commit() -> str | None:
    """Return what ``NFCGCN_COMMIT`` says, or the commit of the source tree that is running, or None."""
    if told := os.environ.get("NFCGCN_COMMIT"):
        return told
    root = Path(__file__).resolve().parents[2]
    git = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        if not (root / ".git").exists():
            raise FileNotFoundError(root / ".git")
        done = subprocess.run(git, capture_output=True, text=True, timeout=5, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _nfcgcn_version() -> str:
    from nfcgcn import __version__

    return __version__
