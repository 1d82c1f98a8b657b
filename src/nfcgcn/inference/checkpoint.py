"""Runs: written to a folder and read back, to be applied to other graphs or reported; see :mod:`run_folder`."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch

from nfcgcn import files
from nfcgcn.config.registry import make_config
from nfcgcn.data.formats.encoding import check_encoding
from nfcgcn.errors import GraphError, NFCWarning
from nfcgcn.graph import Graph, Ints, Split
from nfcgcn.inference.run_folder import (
    CONFIG,
    FORMAT,
    METRICS,
    RESULT,
    SPLIT,
    TEST_NODES,
    WEIGHTS,
    CheckpointError,
    Scored,
    read_checked,
    read_config,
    read_model,
    read_scored,
    read_split,
    reading,
)
from nfcgcn.inference.run_split import remember_split
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.training import Epoch, Run

__all__ = [
    "CONFIG",
    "RESULT",
    "CheckpointError",
    "Outcome",
    "SavedRun",
    "Scored",
    "load_model",
    "load_outcome",
    "load_run",
    "save_run",
]


def save_run(
    folder: Path,
    graph: Graph,
    result: Mapping[str, Any],
    runs: Mapping[int, Run],
    shown: int,
    scored: Scored | None = None,
    split: Split | None = None,
    tables: Mapping[str, Any] | None = None,
) -> None:
    """Write config, result, the metrics of every epoch of `runs` by seed, and the weights of the seed `shown`.

    With `scored`, the test nodes of that seed, a report can be drawn from the folder alone. With its `split`,
    predictions say what each node was used for; `tables` are where the graph was read from. The folder is one that
    :func:`nfcgcn.files.new_folder` made, so that all files appear at once.
    """
    lines = [json.dumps({"seed": seed, **epoch}) for seed, run in runs.items() for epoch in run.history]
    contents = {
        WEIGHTS: safetensors.torch.save(runs[shown].state, metadata={"format": "pt"}),
        RESULT: files.to_json(result).encode(),
        METRICS: ("\n".join(lines) + "\n").encode(),
    }
    if scored is not None:
        contents[TEST_NODES] = safetensors.numpy.save(
            {name: np.ascontiguousarray(a) for name, a in vars(scored).items() if a is not None}
        )
    if split is not None:
        contents[SPLIT] = safetensors.numpy.save(remember_split(graph, split))
    config = {
        "format": FORMAT,
        "model": result["model"],
        "settings": result["config"],
        "seed": shown,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "feature_names": graph.feature_names,
        "class_names": graph.class_names,
        "dataset": result["dataset"],
        "dataset_options": result["dataset_options"],
        "encoding": graph.encoding,
        "weighted": graph.is_weighted,
        "temperature": runs[shown].temperature,
        "tables": tables,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    }
    for name, content in {**contents, CONFIG: files.to_json(config).encode()}.items():
        (folder / name).write_bytes(content)


@dataclass(frozen=True, kw_only=True)
class SavedGraph:
    """What a run folder says about the graph of training, and what is needed to read that graph, or another, again."""

    folder: Path
    num_features: int
    feature_names: tuple[str, ...] | None
    dataset: str
    dataset_options: dict[str, Any] | None
    """The options of the built-in dataset it was trained on; None for any other training graph."""
    encoding: dict[str, Any] | None
    """How the columns of the training graph's tables were read; None where it did not come from tables."""
    weighted: bool = False
    """Whether the edges of the training graph had weights."""
    tables: dict[str, Any] | None = None
    """Where the training graph was read from, see :mod:`run_tables`; None for a built-in dataset."""

    def check_features(self, graph: Graph) -> None:
        """Raise an error that names the differing columns if `graph` does not have the features of the training graph.

        Names are compared if both have them, else the numbers of columns.
        """
        ours, theirs = self.feature_names, graph.feature_names
        if ours is None or theirs is None:
            missing = [_column(ours, i) for i in range(graph.num_features, self.num_features)]
            extra = [_column(theirs, i) for i in range(self.num_features, graph.num_features)]
        else:
            missing = [repr(name) for name in (Counter(ours) - Counter(theirs)).elements()]
            extra = [repr(name) for name in (Counter(theirs) - Counter(ours)).elements()]
        if missing or extra:
            parts = (("lacks", missing), ("adds", extra))
            differences = " and ".join(f"{verb} {_first_three(columns)}" for verb, columns in parts if columns)
            raise GraphError(
                f"'{graph.name}' does not have the same features as the training graph: it {differences}; "
                "give it the same columns"
            )
        check_encoding(graph, self.encoding, remedy="give its tables instead, which are read as those of the run were")
        if self.weighted != graph.is_weighted:
            trained, has = ("with", "none") if self.weighted else ("without", "some")
            warnings.warn(
                f"the run was trained {trained} edge weights, but '{graph.name}' has {has}",
                NFCWarning,
                stacklevel=2,
            )
        if ours and theirs and ours != theirs:
            place = next(i for i in range(len(ours)) if ours[i] != theirs[i])
            raise GraphError(
                f"'{graph.name}' has the features of the training graph in another order: column {place} is "
                f"{theirs[place]!r}, in training it was {ours[place]!r}; put the columns in the order of training"
            )


@dataclass(frozen=True, kw_only=True)
class SavedRun(SavedGraph):
    """The contents of a run folder: the model, and what is needed to apply it to another graph."""

    model: NodeClassifier
    model_name: str
    settings: dict[str, Any]
    seed: int
    num_classes: int
    class_names: tuple[str, ...] | None
    split: dict[str, Ints] | None = None
    """What each node was used for, see :mod:`run_split`; None if the folder does not say."""

    def _repr_html_(self) -> str:
        """Return a small table for notebooks."""
        rows = {
            "model": self.model_name,
            "trained on": self.dataset,
            "features": f"{self.num_features:,}",
            "classes": ", ".join(self.class_name(label) for label in range(min(self.num_classes, 12)))
            + " and more" * (self.num_classes > 12),
            "seed": str(self.seed),
            "settings": ", ".join(f"{name} {value}" for name, value in self.settings.items()),
        }
        cells = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
        return f"<table><caption>{escape(str(self.folder))}</caption>{cells}</table>"

    def class_name(self, label: int) -> str:
        """Name a class as the training graph did."""
        return self.class_names[label] if self.class_names is not None else str(label)

    def read_labels(self, graph: Graph) -> Ints:
        """Return the labels of `graph` as the run numbers its classes; -1 for no label or an unknown class.

        Names are compared if both have them, else numbers.
        """
        if self.class_names is None or graph.class_names is None:
            return np.where(graph.labels < self.num_classes, graph.labels, -1)
        number = {name: label for label, name in enumerate(self.class_names)}
        known = np.array([number.get(name, -1) for name in graph.class_names] + [-1], np.int64)
        return known[graph.labels]  # the label -1 is the last entry


def load_run(folder: Path | str) -> SavedRun:
    """Read a run folder back; its model is in evaluation mode."""
    folder = Path(folder)
    with reading(folder):
        config = read_config(folder)
        settings = make_config(config["model"], settings=config["settings"])
        return SavedRun(
            folder=folder,
            model=read_model(folder / WEIGHTS, settings, config),
            model_name=config["model"],
            settings=config["settings"],
            seed=config["seed"],
            num_features=config["num_features"],
            num_classes=config["num_classes"],
            feature_names=None if config["feature_names"] is None else tuple(config["feature_names"]),
            class_names=None if config["class_names"] is None else tuple(config["class_names"]),
            dataset=config["dataset"],
            dataset_options=config["dataset_options"],
            encoding=config["encoding"],
            weighted=config["weighted"],
            tables=config["tables"],
            split=read_split(folder, config),
        )


@dataclass(frozen=True)
class Outcome:
    """What a run folder says about the run itself, for its report."""

    result: dict[str, Any]
    histories: list[list[Epoch]]
    """One history per seed, in the order of ``result["seeds"]``."""
    seed: int
    """The seed that `scored` is about."""
    class_names: list[str]
    scored: Scored


def load_outcome(folder: Path | str) -> Outcome:
    """Read from a run folder what its report shows."""
    folder = Path(folder)
    with reading(folder):
        config = read_config(folder)
        if TEST_NODES not in config["sha256"]:
            raise CheckpointError(f"{folder} has no {TEST_NODES}, from which its report could be drawn; train again")
        result = files.parse_json(read_checked(folder, RESULT, config))
        epochs = [files.parse_json(line) for line in read_checked(folder, METRICS, config).splitlines()]
        return Outcome(
            result=result,
            histories=[[epoch for epoch in epochs if epoch["seed"] == seed] for seed in result["seeds"]],
            seed=config["seed"],
            class_names=config["class_names"] or [str(number) for number in range(config["num_classes"])],
            scored=read_scored(folder, config),
        )


def load_model(folder: Path | str) -> NodeClassifier:
    """Rebuild the model of a run folder, in evaluation mode.

    >>> import nfcgcn
    >>> model = load_model("runs/demo")  # which `make demo` wrote
    >>> nfcgcn.predict(model, nfcgcn.load("digits")).shape
    (1797,)
    """
    return load_run(folder).model


def _column(names: Sequence[str] | None, number: int) -> str:
    return f"column {number}" if names is None else repr(names[number])


def _first_three(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
    return ", ".join(columns[:3]) + more
