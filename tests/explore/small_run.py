"""A small graph with hostile names, and a run on it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from nfcgcn import cli, write_npz
from nfcgcn.graph import Graph

HOSTILE = "<script>alert(1)</script>"
SETTINGS = (
    "epochs=4",
    "filters=3",
    "kernel_size=4",
    "stride=2",
    "bandwidth=3",
    "hidden_channels=4",
    "train_per_class=8",
)


def small_graph() -> Graph:
    """Forty nodes in two groups that show in the features, a node without a neighbour, one without a label.

    Node 4 has more neighbours than slots.
    """
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    x = (rng.random((40, 12)) < np.where(labels[:, None] == np.arange(12) % 2, 0.6, 0.15)).astype(np.float32)
    source, target = rng.integers(39, size=(2, 300))
    edges = np.stack([source, target])[:, (source - target) % 2 == 0][:, :60]
    edges = np.concatenate([edges, [[4] * 7, [6, 8, 10, 12, 14, 16, 3]]], axis=1)
    labels[38] = -1
    return Graph.from_edges(
        edges,
        x * rng.uniform(0.5, 1.5, x.shape).astype(np.float32),
        labels=labels,
        name="small",
        node_names=[HOSTILE, *(f"node {i}" for i in range(1, 40))],
        feature_names=[f"{HOSTILE} word", *(f"word {d}" for d in range(1, 12))],
        class_names=["apples", f"{HOSTILE} pears"],
    )


def train(folder: Path, *options: str) -> Path:
    """Train on the small graph, in this process."""
    write_npz(small_graph(), folder / "small.npz")
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    with pytest.MonkeyPatch.context() as patch:
        command = ["train", folder / "small.npz", "--no-select", "--split", "per-class", *settings, *options]
        patch.setattr(sys, "argv", ["nfcgcn", *map(str, command), "--out", str(folder / "run"), "--jobs", "1"])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        assert not leaving.value.code
    return folder / "run"
