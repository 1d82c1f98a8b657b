"""The files of a run folder: weights as safetensors, the rest as JSON; nothing is ever unpickled.

A folder may be damaged or made by somebody else: it is read from regular files of bounded size, every value is checked,
and a file that is not the one that was written is recognised by its sha256.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import safetensors.torch
import torch

from nfcgcn import files
from nfcgcn.config.registry import Config
from nfcgcn.errors import NFCError
from nfcgcn.graph import Floats, Ints
from nfcgcn.inference.run_split import check_split
from nfcgcn.inference.run_tables import is_memory
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.training.calibration import is_temperature

Built = TypeVar("Built", bound=torch.nn.Module)

FORMAT = 4
"""Version of the run folder's layout. Version 3 had neither checksums nor test nodes; others are refused."""
CONFIG, RESULT, METRICS = "config.json", "result.json", "metrics.jsonl"
WEIGHTS, TEST_NODES, SPLIT = "weights.safetensors", "test_nodes.safetensors", "split.safetensors"
MOST_BYTES = 256 * 2**20
"""No file but the weights may be larger."""
MOST_CLASSES = 100_000
"""With more, the scores of all nodes for all classes would not fit into memory; a page names them all."""
LINKS = "links"
"""What a run folder of link prediction says of itself, as its `task`; it is read by :mod:`nfcgcn.links.run_folder`."""
MOST_HEADER = 16 * 2**20
"""Most bytes that the names and shapes of the weights may take."""
RECOMMEND = "recommend"
"""What the folder of a recommender says of itself, as its `task`."""


class CheckpointError(NFCError):
    """A run folder that cannot be read."""


@dataclass(frozen=True, eq=False)
class Scored:
    """The test nodes of the shown seed, as the report shows them."""

    labels: Ints
    """``[T]``: their classes."""
    predictions: Ints
    """``[T]``"""
    pictured: Ints
    """``[M]``: which of the T are in the picture of the learned representation."""
    embedding: Floats
    """``[M, H]``: the inputs of the model's last layer for those."""
    confidences: npt.NDArray[np.float64] | None = None
    """``[T]``: the probability of each predicted class; older folders do not have it."""


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn every error while reading a run folder into one of ours."""
    if not folder.exists():
        files.recover(folder)
    try:
        yield
    except CheckpointError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(f"{folder} is not a run folder: {Path(error.filename).name} is missing") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {error.filename or folder}: {error.strerror or error}") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise CheckpointError(f"{folder} is damaged or was not written by nfcgcn: {reason}") from error


def read_config(folder: Path) -> dict[str, Any]:
    """Return what config.json holds, with all values of the right kinds."""
    config = files.parse_json(files.read_regular(folder / CONFIG, MOST_BYTES))
    if not isinstance(config, dict):
        raise ValueError(f"{CONFIG} must hold an object")
    if config.get("task") == LINKS:
        raise CheckpointError(
            f"{folder} holds a run of link prediction; use it with `nfcgcn links predict` or `suggest`"
        )
    version = config.get("format")
    if type(version) is not int or version not in (3, FORMAT):
        if config.get("task") == RECOMMEND:
            raise CheckpointError(f"{folder} holds a recommender; use it with `nfcgcn recommend for`")
        if "format" not in config:
            raise ValueError("`format` is missing")
        raise CheckpointError(
            f"{folder} has format {version!r:.40}; this version of nfcgcn reads formats 3 and {FORMAT} and draws "
            "neighbours differently from older versions, so train again"
        )
    if version == 3:
        config["sha256"] = {}
    config = {"temperature": 1.0, "tables": None, "weighted": False, **config}  # folders of earlier versions lack these
    for name, (what, fits) in KEYS.items():
        if name not in config:
            raise ValueError(f"`{name}` is missing")
        if not fits(config[name]):
            raise ValueError(f"`{name}` must be {what}, got {config[name]!r:.40}")
    for names, count in (("feature_names", "num_features"), ("class_names", "num_classes")):
        if config[names] is not None and len(config[names]) != config[count]:
            raise ValueError(f"`{names}` must hold {config[count]} names, got {len(config[names])}")
    return config


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def _is_table(value: Any, *kinds: type) -> bool:
    return isinstance(value, dict) and all(type(v) in kinds for v in value.values())


def _is_names(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value))


KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "model": ("text", lambda v: isinstance(v, str)),
    "settings": ("a table of settings", lambda v: _is_table(v, str, int, float, bool, type(None))),
    "seed": ("a whole number of at least 0", _is_count),
    "num_features": ("a whole number of at least 0", _is_count),
    "num_classes": (f"a whole number up to {MOST_CLASSES:,}", lambda v: _is_count(v) and v <= MOST_CLASSES),
    "feature_names": ("a list of names, or null", _is_names),
    "class_names": ("a list of names, or null", _is_names),
    "dataset": ("text", lambda v: isinstance(v, str)),
    "dataset_options": ("a table of numbers, or null", lambda v: v is None or _is_table(v, int, float)),
    "encoding": ("a table, or null", lambda v: v is None or isinstance(v, dict)),
    "weighted": ("true or false", lambda v: isinstance(v, bool)),
    "sha256": ("a table of checksums", lambda v: _is_table(v, str)),
    "temperature": ("a number from 0.01 to 100", is_temperature),
    "tables": ("a table, or null", lambda v: v is None or is_memory(v)),
}
"""What each value of config.json must be."""


def read_checked(folder: Path, name: str, config: Mapping[str, Any]) -> bytes:
    """Return the content of a file of the run, if it is the one that was written."""
    content = files.read_regular(folder / name, MOST_BYTES)
    _check_sum(name, content, config)
    return content


def _check_sum(name: str, content: bytes, config: Mapping[str, Any]) -> None:
    if config["format"] != 3 and hashlib.sha256(content).hexdigest() != config["sha256"].get(name):
        raise ValueError(f"{name} is not the file that was written; its sha256 differs")


def read_model(path: Path, settings: Config, config: Mapping[str, Any]) -> NodeClassifier:
    """Build the model and load its weights."""

    def build() -> NodeClassifier:
        return settings.build_for(config["num_features"], config["num_classes"], seed=config["seed"])

    model = read_weights(path, build, config, num_layers=getattr(settings.model, "num_layers", 0))
    model.temperature = float(config["temperature"])
    return model


def read_weights(path: Path, build: Callable[[], Built], config: Mapping[str, Any], *, num_layers: int) -> Built:
    """Build a model and load its weights, after a check that their names, shapes and types are the model's."""
    with files.open_regular(path, files.MAX_BYTES) as file:
        start, header = _read_header(file)
        # Each layer has weights. Without this, a million layers would be built before the check that they are too many.
        if num_layers > len(header):
            raise ValueError(f"{WEIGHTS} holds {len(header)} tensors, too few for {num_layers} layers")
        with torch.device("meta"):  # shapes alone, without memory
            empty = build()
        expected = {name: list(tensor.shape) for name, tensor in empty.state_dict().items()}
        grows: frozenset[str] = getattr(empty, "grows", frozenset())  # which only models of nodes have
        for name in grows & header.keys():
            rows = header[name]["shape"][:1]
            expected[name][:1] = rows if all(type(n) is int and n >= 0 for n in rows) else [0]
        for name in sorted({*expected, *header}):
            if name not in header or name not in expected:
                raise ValueError(f"{WEIGHTS} {'lacks' if name in expected else 'has an unknown'} '{name:.80}'")
            stored = (header[name]["dtype"], header[name]["shape"])
            if stored != ("F32", expected[name]):
                raise ValueError(f"'{name}' in {WEIGHTS} must be F32 {expected[name]}, got {stored[0]} {stored[1]}")
        size = 4 * sum(math.prod(shape) for shape in expected.values())
        content = start + file.read(size + 1)
    _check_sum(WEIGHTS, content, config)
    state = safetensors.torch.load(content)
    for name, tensor in state.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"'{name}' in {WEIGHTS} holds a number that is not finite")
    model = build()
    model.load_state_dict(state)
    return model.eval()


def _read_header(file: BinaryIO) -> tuple[bytes, dict[str, Any]]:
    """Return the first bytes of a safetensors file, up to its data, and the name, type and shape of each tensor."""
    length = file.read(8)
    size = int.from_bytes(length, "little")
    if len(length) < 8 or size > min(MOST_HEADER, os.fstat(file.fileno()).st_size - 8):
        raise ValueError(f"{WEIGHTS} is cut short")
    text = file.read(size)
    header = files.parse_json(text)
    if not isinstance(header, dict):
        raise ValueError(f"the header of {WEIGHTS} must be an object")
    header.pop("__metadata__", None)
    return length + text, header


def read_scored(folder: Path, config: Mapping[str, Any]) -> Scored:
    """Return the test nodes of a run."""
    num_classes = config["num_classes"]
    scored = Scored(**safetensors.numpy.load(read_checked(folder, TEST_NODES, config)))
    count, shown = scored.labels.shape, scored.pictured.shape
    for name, limit in (("labels", num_classes), ("predictions", num_classes), ("pictured", len(scored.labels))):
        numbers = getattr(scored, name)
        if numbers.dtype != np.int64 or numbers.ndim != 1 or ((numbers < 0) | (numbers >= limit)).any():
            raise ValueError(f"`{name}` in {TEST_NODES} must be whole numbers from 0 to {limit - 1}")
    if scored.predictions.shape != count or scored.embedding.shape[:1] != shown or scored.embedding.ndim != 2:
        raise ValueError(f"the arrays in {TEST_NODES} differ in length")
    if scored.embedding.dtype != np.float32:
        raise ValueError(f"`embedding` in {TEST_NODES} must be float32, got {scored.embedding.dtype}")
    sure = scored.confidences
    if sure is not None and (sure.dtype != np.float64 or sure.shape != count or not ((sure >= 0) & (sure <= 1)).all()):
        raise ValueError(f"`confidences` in {TEST_NODES} must be one number from 0 to 1 per node")
    return scored


def read_split(folder: Path, config: Mapping[str, Any]) -> dict[str, Ints] | None:
    """Return what the run remembers of its split; None if the folder lacks it."""
    if SPLIT not in config["sha256"]:
        return None
    stored: dict[str, Ints] = safetensors.numpy.load(read_checked(folder, SPLIT, config))
    check_split(stored)
    return stored
