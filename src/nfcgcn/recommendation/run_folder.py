"""A recommender on the disk: the same files, checksums and care as for classification, and the log it reads.

See :mod:`nfcgcn.inference.run_folder`. The folder holds the names and interactions of all users: treat it as the log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch
import scipy.sparse as sp

from nfcgcn import files
from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.inference.run_folder import (
    CONFIG,
    MOST_BYTES,
    RECOMMEND,
    RESULT,
    WEIGHTS,
    CheckpointError,
    read_checked,
    read_weights,
    reading,
)
from nfcgcn.recommendation.bipartite import Layout
from nfcgcn.recommendation.interactions import Interactions, Kind
from nfcgcn.recommendation.recommender import Recommender, build_encoder
from nfcgcn.recommendation.settings import make_settings

FORMAT = 1
"""Version of the layout of a run folder of recommendation."""
READING = ("user", "item", "rating", "at_least", "time", "user_id", "item_id")
"""The options that say how a log is read."""
NAMES, LOG, METRICS = "names.json", "log.safetensors", "metrics.jsonl"


def save_recommender(
    folder: Path, recommender: Recommender, result: Mapping[str, Any], reading: Mapping[str, Any] | None = None
) -> None:
    """Write a recommender into a folder that :func:`nfcgcn.files.new_folder` made, so that all files appear at once.

    ``reading`` says how the log was read: options of :func:`read_interactions`, for further interactions.
    """
    log, layout = recommender.log, recommender.layout
    arrays = {
        "pairs": log.pairs,
        "identified": layout.identified,
        **({} if log.times is None else {"times": log.times}),
        **_of_matrix("user", log.users.features),
        **_of_matrix("item", log.items.features),
    }
    kinds = {"users": log.users, "items": log.items}
    names = {
        what: {"names": kind.names, "features": kind.feature_names, "encoding": kind.encoding}
        for what, kind in kinds.items()
    }
    state = recommender.encoder.state_dict()
    contents = {
        WEIGHTS: safetensors.torch.save(
            {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, metadata={"format": "pt"}
        ),
        RESULT: files.to_json(result).encode(),
        METRICS: "".join(json.dumps(epoch) + "\n" for epoch in recommender.history).encode(),
        NAMES: files.to_json(names).encode(),
        LOG: safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()}),
    }
    config = {
        "task": RECOMMEND,
        "format": FORMAT,
        "model": recommender.settings.name,
        "settings": recommender.settings.values,
        "seed": recommender.seed,
        "num_users": layout.num_users,
        "num_items": layout.num_items,
        "best_epoch": recommender.best_epoch,
        "reading": dict(reading or {}),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    }
    for name, content in {**contents, CONFIG: files.to_json(config).encode()}.items():
        (folder / name).write_bytes(content)


def _of_matrix(what: str, matrix: sp.csr_array) -> dict[str, Any]:
    parts = {
        "starts": matrix.indptr.astype(np.int64),
        "columns": matrix.indices.astype(np.int64),
        "values": matrix.data,
    }
    return {f"{what}_{name}": part for name, part in parts.items()}


def load_recommender(folder: Path | str) -> Recommender:
    """Read a recommender back from the folder that ``nfcgcn recommend train`` wrote.

    >>> import tempfile
    >>> from nfcgcn.recommendation.recommender import fit_recommender
    >>> log = Interactions.from_pairs([(u, i) for u in "abcd" for i in ("wxy" if u in "ab" else "uvw")])
    >>> fitted = fit_recommender(log, settings={"channels": 4, "epochs": 2})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_recommender(Path(folder), fitted, {})
    ...     again = load_recommender(folder)
    >>> again.recommend("a", top=1) == fitted.recommend("a", top=1)
    True
    """
    folder = Path(folder)
    with reading(folder):
        config = _read_config(folder)
        settings = make_settings(config["model"], config["settings"])
        names = files.parse_json(read_checked(folder, NAMES, config))
        arrays = safetensors.numpy.load(read_checked(folder, LOG, config))
        log = _read_log(names, arrays)
        counts = config["num_users"], config["num_items"]
        if counts[0] > len(log.users) or counts[1] > len(log.items):
            raise ValueError(f"{NAMES} holds fewer users or items than the {counts[0]} and {counts[1]} of training")
        identified = arrays["identified"]
        if identified.dtype != bool or identified.shape != (sum(counts),):
            raise ValueError(f"`identified` in {LOG} must say yes or no for each of {sum(counts)} users and items")
        layout = Layout(*counts, identified, log.users.feature_names, log.items.feature_names)
        encoder = read_weights(
            folder / WEIGHTS,
            lambda: build_encoder(settings, layout.num_features, seed=config["seed"]),
            config,
            # Layers without weights, as LightGCN's, are no modules: so that many cost nothing to make.
            num_layers=0 if config["model"] == "lightgcn" else getattr(settings.encoder, "num_layers", 0),
        )
        history = [files.parse_json(line) for line in read_checked(folder, METRICS, config).splitlines()]
        return Recommender(encoder, settings, config["seed"], layout, log, tuple(history), config["best_epoch"])


def load_result(folder: Path | str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read what a run folder says about the run itself, and its epochs, for the report."""
    folder = Path(folder)
    with reading(folder):
        config = _read_config(folder)
        epochs = [files.parse_json(line) for line in read_checked(folder, METRICS, config).splitlines()]
        result: dict[str, Any] = files.parse_json(read_checked(folder, RESULT, config))
        return result, epochs


def load_reading(folder: Path | str) -> dict[str, Any]:
    """Return how the log of a run was read: options of :func:`read_interactions`."""
    folder = Path(folder)
    with reading(folder):
        stored: dict[str, Any] = _read_config(folder)["reading"]
        for name, value in stored.items():
            if name not in READING or not isinstance(value, float | int if name == "at_least" else str):
                raise ValueError(f"`reading` in {CONFIG} says '{name!s:.40}', which is not an option")
    return {"user": "user", "item": "item", **stored}


def is_recommender(folder: Path) -> bool:
    """Say whether a folder says that it holds a recommender; what else it says may be wrong."""
    try:
        config = json.loads(files.read_regular(folder / CONFIG, MOST_BYTES))
    except Exception:
        return False
    return isinstance(config, dict) and config.get("task") == RECOMMEND


def _read_config(folder: Path) -> dict[str, Any]:
    config = files.parse_json(files.read_regular(folder / CONFIG, MOST_BYTES))
    if not isinstance(config, dict):
        raise ValueError(f"{CONFIG} must hold an object")
    if config.get("task") != RECOMMEND:
        raise CheckpointError(f"{folder} holds no recommender; give a folder that `nfcgcn recommend train` wrote")
    if config.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder} has format {config.get('format')!r:.40}; this version reads format {FORMAT}: train again"
        )
    for name in ("seed", "num_users", "num_items", "best_epoch"):
        if type(config.get(name)) is not int or not 0 <= config[name] < 2**62:
            raise ValueError(f"`{name}` must be a whole number of at least 0, got {config.get(name)!r:.40}")
    for name, kind in (("model", str), ("settings", dict), ("sha256", dict), ("reading", dict)):
        if not isinstance(config.get(name), kind):
            raise ValueError(f"`{name}` must be of type {kind.__name__}, got {config.get(name)!r:.40}")
    return config


def _read_log(names: Any, arrays: Mapping[str, Any]) -> Interactions:
    kinds = {}
    for what, prefix in (("users", "user"), ("items", "item")):
        part = names[what]
        known = [part["names"], part["features"]]
        if not all(isinstance(some, list) and all(isinstance(name, str) for name in some) for some in known):
            raise ValueError(f"{NAMES} must hold lists of names")
        if len(set(part["names"])) < len(part["names"]):
            raise ValueError(f"{NAMES} names one of the {what} twice")
        if part["encoding"] is not None and not isinstance(part["encoding"], dict):
            raise ValueError(f"`encoding` in {NAMES} must be a table, or null")
        named = tuple(part["features"])
        if named and part["encoding"] and Encoding.from_json(part["encoding"]).feature_names != named:
            raise ValueError(f"`encoding` in {NAMES} is for other features than those of the {what}")
        shape = len(part["names"]), len(part["features"])
        kinds[what] = Kind(
            tuple(part["names"]), _read_matrix(arrays, prefix, shape), tuple(part["features"]), part["encoding"]
        )
    pairs, times = arrays["pairs"], arrays.get("times")
    sizes = np.array([[len(kinds["users"])], [len(kinds["items"])]])
    if pairs.dtype != np.int64 or pairs.ndim != 2 or len(pairs) != 2 or ((pairs < 0) | (pairs >= sizes)).any():
        raise ValueError(f"`pairs` in {LOG} must be numbers of users and items")
    if times is not None and (
        times.dtype != np.float64 or times.shape != pairs.shape[1:] or not np.isfinite(times).all()
    ):
        raise ValueError(f"`times` in {LOG} must be one number per pair")
    log = Interactions(kinds["users"], kinds["items"], pairs, times)
    if log.matrix.nnz and log.matrix.data.max() > 1:
        raise ValueError(f"`pairs` in {LOG} holds a pair twice")
    return log


def _read_matrix(arrays: Mapping[str, Any], prefix: str, shape: tuple[int, int]) -> sp.csr_array:
    starts, columns, values = (arrays[f"{prefix}_{name}"] for name in ("starts", "columns", "values"))
    fits = starts.dtype == columns.dtype == np.int64 and values.dtype == np.float32 and columns.shape == values.shape
    fits = fits and starts.shape == (shape[0] + 1,) and starts[0] == 0 and starts[-1] == len(values)
    if not fits or (np.diff(starts) < 0).any() or ((columns < 0) | (columns >= max(shape[1], 1))).any():
        raise ValueError(f"the features of {prefix}s in {LOG} are damaged")
    if not np.isfinite(values).all():
        raise ValueError(f"the features of {prefix}s in {LOG} hold a number that is not finite")
    return sp.csr_array((values, columns, starts), shape=shape)
