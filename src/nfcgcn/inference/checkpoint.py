"""Run folders: written whole or not at all, weights as safetensors, the rest as JSON; nothing is ever unpickled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from nfcgcn.config.registry import make_config
from nfcgcn.errors import GraphError, NFCError
from nfcgcn.files import to_json, write_bytes, write_text
from nfcgcn.graph import Graph, Ints
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.training import Run

FORMAT = 3
"""Version of the run folder's layout; a reader refuses versions it does not know."""


class CheckpointError(NFCError):
    """A run folder that cannot be read."""


def save_run(folder: Path, graph: Graph, result: Mapping[str, Any], runs: Mapping[int, Run], shown: int) -> None:
    """Write config, result, the metrics of every epoch of `runs` by seed, and the weights of the seed `shown`."""
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
    }
    write_text(folder / "config.json", to_json(config))
    write_text(folder / "result.json", to_json(result))
    lines = [json.dumps({"seed": seed, **epoch}) for seed, run in runs.items() for epoch in run.history]
    write_text(folder / "metrics.jsonl", "\n".join(lines) + "\n")
    write_bytes(folder / "weights.safetensors", save(runs[shown].state, metadata={"format": "pt"}))


@dataclass(frozen=True)
class SavedRun:
    """The contents of a run folder: the model, and what is needed to apply it to another graph."""

    folder: Path
    model: NodeClassifier
    model_name: str
    settings: dict[str, Any]
    seed: int
    num_features: int
    num_classes: int
    feature_names: tuple[str, ...] | None
    class_names: tuple[str, ...] | None
    dataset: str
    dataset_options: dict[str, Any] | None
    """The options of the built-in dataset it was trained on; None for any other training graph."""
    encoding: dict[str, Any] | None
    """How the columns of the training graph's tables were read; None where it did not come from tables."""

    def class_name(self, label: int) -> str:
        """Name a class as the training graph did."""
        return self.class_names[label] if self.class_names is not None else str(label)

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
        if ours and theirs and ours != theirs:
            place = next(i for i in range(len(ours)) if ours[i] != theirs[i])
            raise GraphError(
                f"'{graph.name}' has the features of the training graph in another order: column {place} is "
                f"{theirs[place]!r}, in training it was {ours[place]!r}; put the columns in the order of training"
            )

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
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        format_found = config["format"]
        if format_found != FORMAT:
            raise CheckpointError(
                f"{folder} has format {format_found}; this version of nfcgcn reads only format {FORMAT} and draws "
                "neighbours differently from older versions, so train again"
            )
        weights = folder / "weights.safetensors"
        weights.stat()  # if the file is missing, this error names it; that of safetensors does not
        state = load_file(weights)
        model = make_config(config["model"], settings=config["settings"]).build_for(
            int(config["num_features"]), int(config["num_classes"]), seed=int(config["seed"])
        )
        model.load_state_dict(state)
        return SavedRun(
            folder=folder,
            model=model.eval(),
            model_name=config["model"],
            settings=dict(config["settings"]),
            seed=int(config["seed"]),
            num_features=int(config["num_features"]),
            num_classes=int(config["num_classes"]),
            feature_names=None if config["feature_names"] is None else tuple(config["feature_names"]),
            class_names=None if config["class_names"] is None else tuple(config["class_names"]),
            dataset=config["dataset"],
            dataset_options=None if config["dataset_options"] is None else dict(config["dataset_options"]),
            encoding=config["encoding"],
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(f"{folder} is not a run folder: {Path(error.filename).name} is missing") from error
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(f"{folder} is damaged or was not written by nfcgcn: {reason}") from error


def load_model(folder: Path | str) -> NodeClassifier:
    """Rebuild the model of a run folder, in evaluation mode."""
    return load_run(folder).model


def _column(names: Sequence[str] | None, number: int) -> str:
    return f"column {number}" if names is None else repr(names[number])


def _first_three(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
    return ", ".join(columns[:3]) + more
