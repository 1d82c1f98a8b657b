"""A run of link prediction on the disk: the same files, checksums and care as for classification.

See :mod:`nfcgcn.inference.run_folder`; in place of test nodes and classes there are edges.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch

from nfcgcn import files
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph, Ints
from nfcgcn.inference.checkpoint import SavedGraph
from nfcgcn.inference.run_folder import (
    CONFIG,
    KEYS,
    LINKS,
    METRICS,
    MOST_BYTES,
    RESULT,
    SPLIT,
    WEIGHTS,
    CheckpointError,
    read_checked,
    read_weights,
    reading,
)
from nfcgcn.links.config import LinkSetup, make_link_setup
from nfcgcn.links.evaluation import Judged
from nfcgcn.links.model import LinkModel
from nfcgcn.links.scores import Doubles
from nfcgcn.links.splits import EdgeSplit, pair_keys, pairs_of
from nfcgcn.links.training import LinkEpoch

FORMAT = 1
"""Version of the layout of a run folder of link prediction."""
TEST_PAIRS = "test_pairs.safetensors"
OWN_KEYS = (
    "model", "settings", "seed", "num_features", "feature_names", "dataset", "dataset_options", "encoding", "weighted",
    "sha256", "tables",
)  # fmt: skip
"""The values that config.json shares with that of classification."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedLinkRun(SavedGraph):
    """The contents of a run folder: the model, and what is needed to apply it to another graph."""

    setup: LinkSetup
    seed: int
    model: LinkModel
    split: EdgeSplit
    num_nodes: int
    read: Ints
    """The edges that the model read when it was judged."""

    def check_edges(self, graph: Graph) -> None:
        """Refuse a graph that lacks edges of the training graph: the run's split says nothing about it."""
        own = np.concatenate([self.split.train, self.split.val, self.split.test], axis=1)
        same = graph.num_nodes == self.num_nodes
        if not same or not np.isin(pair_keys(own, self.num_nodes), pair_keys(pairs_of(graph), self.num_nodes)).all():
            raise GraphError(
                f"'{graph.name}' is not the graph that the run was trained on; leave out --read, to read all its edges"
            )


@dataclass(frozen=True, eq=False)
class LinkOutcome:
    """What a run folder says about the run itself, for its report."""

    result: dict[str, Any]
    histories: list[list[LinkEpoch]]
    """One history per seed, in the order of ``result["seeds"]``."""
    seed: int
    """The seed that the scores are about."""
    edges: Ints
    """``[2, T]``: its test edges."""
    others: Ints
    """``[2, T]``: as many pairs without an edge."""
    edge_scores: Doubles
    other_scores: Doubles
    node_names: tuple[str, ...] | None


def is_link_run(folder: Path) -> bool:
    """Say whether a folder says that it holds a run of link prediction; what else it says may be wrong."""
    try:
        config = json.loads(files.read_regular(folder / CONFIG, MOST_BYTES))
    except Exception:
        return False
    return isinstance(config, dict) and config.get("task") == LINKS


def save_link_run(
    folder: Path,
    graph: Graph,
    result: Mapping[str, Any],
    judged: Sequence[Judged],
    shown: Judged,
    tables: Mapping[str, Any] | None = None,
) -> None:
    """Write settings, result, every epoch of all seeds, and the model, split and test scores of the seed `shown`.

    The folder is one that :func:`nfcgcn.files.new_folder` made, so that all files appear at once.
    """
    run = shown.run
    lines = [json.dumps({"seed": j.run.seed, **epoch}) for j in judged for epoch in j.run.history]
    tested = {
        "edges": run.split.test,
        "others": shown.others,
        "edge_scores": shown.edge_scores,
        "other_scores": shown.other_scores,
    }
    split = {**{part: getattr(run.split, part) for part in ("train", "val", "test")}, "read": run.read}
    contents = {
        WEIGHTS: safetensors.torch.save(
            {name: tensor.contiguous() for name, tensor in run.model.state_dict().items()}, metadata={"format": "pt"}
        ),
        RESULT: files.to_json(result).encode(),
        METRICS: ("\n".join(lines) + "\n").encode(),
        SPLIT: safetensors.numpy.save({name: np.ascontiguousarray(a) for name, a in split.items()}),
        TEST_PAIRS: safetensors.numpy.save({name: np.ascontiguousarray(a) for name, a in tested.items()}),
    }
    config = {
        "task": LINKS,
        "format": FORMAT,
        "model": result["model"],
        "settings": result["config"],
        "seed": run.seed,
        "num_nodes": graph.num_nodes,
        "num_features": graph.num_features,
        "feature_names": graph.feature_names,
        "node_names": None if graph.node_names is None else list(graph.node_names),  # a store reads its own bit by bit
        "dataset": result["dataset"],
        "dataset_options": result["dataset_options"],
        "encoding": graph.encoding,
        "weighted": graph.is_weighted,
        "split": run.split.name,
        "tables": tables,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    }
    for name, content in {**contents, CONFIG: files.to_json(config).encode()}.items():
        (folder / name).write_bytes(content)


def load_link_run(folder: Path | str) -> SavedLinkRun:
    """Read a run folder back; its model is in evaluation mode."""
    folder = Path(folder)
    with reading(folder):
        config = _read_config(folder)
        setup = make_link_setup(config["model"], settings=config["settings"])
        stored = _read_arrays(folder, SPLIT, config, dict.fromkeys(("train", "val", "test", "read"), np.int64))

        def build() -> LinkModel:
            return setup.build_for(config["num_features"], seed=config["seed"])

        return SavedLinkRun(
            folder=folder,
            num_features=config["num_features"],
            feature_names=_names(config["feature_names"]),
            dataset=config["dataset"],
            dataset_options=config["dataset_options"],
            encoding=config["encoding"],
            weighted=config["weighted"],
            tables=config["tables"],
            setup=setup,
            seed=config["seed"],
            model=read_weights(folder / WEIGHTS, build, config, num_layers=getattr(setup.model, "num_layers", 0)),
            split=EdgeSplit(stored["train"], stored["val"], stored["test"], config["split"]),
            num_nodes=config["num_nodes"],
            read=stored["read"],
        )


def load_link_outcome(folder: Path | str) -> LinkOutcome:
    """Read from a run folder what its report shows."""
    folder = Path(folder)
    with reading(folder):
        config = _read_config(folder)
        result = files.parse_json(read_checked(folder, RESULT, config))
        epochs = [files.parse_json(line) for line in read_checked(folder, METRICS, config).splitlines()]
        kinds = {"edges": np.int64, "others": np.int64, "edge_scores": np.float64, "other_scores": np.float64}
        tested = _read_arrays(folder, TEST_PAIRS, config, kinds)
        for pairs, scores in (("edges", "edge_scores"), ("others", "other_scores")):
            if tested[scores].shape != tested[pairs].shape[1:] or not len(tested[scores]):
                raise ValueError(f"the arrays in {TEST_PAIRS} differ in length or are empty")
        return LinkOutcome(
            result=result,
            histories=[[epoch for epoch in epochs if epoch["seed"] == seed] for seed in result["seeds"]],
            seed=config["seed"],
            node_names=_names(config["node_names"]),
            **tested,
        )


def _read_config(folder: Path) -> dict[str, Any]:
    """Return what config.json holds, with all values of the right kinds."""
    config = files.parse_json(files.read_regular(folder / CONFIG, MOST_BYTES))
    if not isinstance(config, dict):
        raise ValueError(f"{CONFIG} must hold an object")
    if config.get("task") != LINKS:
        raise CheckpointError(f"{folder} holds no run of link prediction; `nfcgcn links train` writes one")
    if config.get("format") != FORMAT:
        raise CheckpointError(f"{folder} has format {config.get('format')!r:.40}; this version reads format {FORMAT}")
    count, names, text = KEYS["seed"], KEYS["feature_names"], KEYS["dataset"]
    rules = {**{name: KEYS[name] for name in OWN_KEYS}, "num_nodes": count, "node_names": names, "split": text}
    for name, (what, fits) in rules.items():
        if name not in config:
            raise ValueError(f"`{name}` is missing")
        if not fits(config[name]):
            raise ValueError(f"`{name}` must be {what}, got {config[name]!r:.40}")
    for key, size in (("feature_names", "num_features"), ("node_names", "num_nodes")):
        if config[key] is not None and len(config[key]) != config[size]:
            raise ValueError(f"`{key}` must hold {config[size]} names, got {len(config[key])}")
    return config


def _read_arrays(folder: Path, file: str, config: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of a file: pairs of node numbers ``[2, E]`` of the graph, or finite numbers ``[E]``."""
    stored = safetensors.numpy.load(read_checked(folder, file, config))
    if set(stored) != set(kinds):
        raise ValueError(f"{file} must hold {', '.join(kinds)}")
    for name, kind in kinds.items():
        values = stored[name]
        if kind == np.int64:
            fits = values.ndim == 2 and len(values) == 2 and values.dtype == kind
            if not fits or ((values < 0) | (values >= config["num_nodes"])).any():
                raise ValueError(f"`{name}` in {file} must be pairs of nodes from 0 to {config['num_nodes'] - 1}")
        elif values.dtype != kind or values.ndim != 1 or not np.isfinite(values).all():
            raise ValueError(f"`{name}` in {file} must be finite numbers")
    return stored


def _names(values: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
