"""What is in the folder of a store: its files, and `meta.json`, which describes them.

Every file has a fixed name; the names of `.npy` files say what they hold. `meta.json` has the counts, and the size,
type, shape and sha256 of every other file. `names.json` has what is text and not one per node.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn.errors import DatasetError
from nfcgcn.files import open_regular, parsing, read_regular, reading

META, NAMES, NODE_NAMES, EDGES = "meta.json", "names.json", "node_names.arrow", "edges_indptr.npy"
FORMAT, VERSION = "nfcgcn store", 1
MAX_NODES, MAX_ENTRIES, MAX_FEATURES, MAX_CLASSES = 2**31 - 2, 2**40, 2**24, 2**20
MAX_META, MAX_NAMES = 2**20, 2**26
"""Bytes of `meta.json` and of `names.json`."""
INDEX = ("<i4", "<i8")
"""Types of `indptr` and `indices`; both have the same, as SciPy wants it."""
PARTS = ("train", "val", "test")
TYPES: Mapping[str, tuple[str, ...]] = {
    "edges_indptr.npy": INDEX,
    "edges_indices.npy": INDEX,
    "edges_weights.npy": ("<f4",),
    "features_indptr.npy": INDEX,
    "features_indices.npy": INDEX,
    "features_values.npy": ("<f4",),
    "features.npy": ("<f4", "<f2"),
    "labels.npy": ("<i8",),
    "test_nodes.npy": ("<i8",),
    **{f"split_{part}.npy": ("<i8",) for part in PARTS},
}
"""All arrays that a store can have, with the types that they can have."""
OTHERS = (NAMES, NODE_NAMES)


@dataclass(frozen=True)
class StoredFile:
    """One file of a store."""

    bytes: int
    sha256: str
    dtype: str | None = None
    """NumPy's name of the type of an array; None for other files."""
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Meta:
    """The content of `meta.json`."""

    name: str
    nodes: int
    edges: int
    """Undirected; `edges_indices.npy` has each twice."""
    features: int
    classes: int
    files: Mapping[str, StoredFile]
    split: str | None = None
    """The name of the split, if there is one."""

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return "edges_weights.npy" in self.files

    @property
    def sparse(self) -> bool:
        """Whether features are a sparse matrix."""
        return "features.npy" not in self.files

    @property
    def size(self) -> int:
        """The bytes of all files together."""
        return sum(file.bytes for file in self.files.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        files = {name: {k: v for k, v in asdict(file).items() if v is not None} for name, file in self.files.items()}
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "files"}
        return {"format": FORMAT, "version": VERSION, **own, "files": files}


def is_store(path: Path) -> bool:
    """Return whether `path` is the folder of a store, or the `meta.json` in it; also if that is damaged or missing."""
    try:
        if path.name != META and (path / EDGES).is_file():
            return True
        with open_regular(meta_of(path), MAX_META) as file:
            return FORMAT.encode() in file.read(200)
    except (OSError, ValueError, DatasetError):
        return False


def folder_of(path: Path) -> Path:
    """Return the folder of a store, which its `meta.json` stands for, too."""
    return path.parent if path.name == META else path


def meta_of(path: Path) -> Path:
    """Return the `meta.json` of a store."""
    return folder_of(path) / META


def read_meta(folder: Path) -> Meta:
    """Read `meta.json` and check all that it says on its own."""
    path = folder / META
    with reading(path), parsing(path, "store"):
        values = json.loads(read_regular(path, MAX_META))
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise DatasetError(f"{path} does not describe a store of nfcgcn; `nfcgcn pack` writes one")
    if values.get("version") != VERSION:
        raise DatasetError(
            f"{folder} is a store of version {str(values.get('version'))[:20]}, and this version of nfcgcn reads "
            f"{VERSION}; pack it again"
        )
    counts = {
        key: _count(path, values, key, most)
        for key, most in (
            ("nodes", MAX_NODES), ("edges", MAX_ENTRIES // 2), ("features", MAX_FEATURES), ("classes", MAX_CLASSES)
        )
    }  # fmt: skip
    name, split, files = values.get("name"), values.get("split"), values.get("files")
    if not isinstance(name, str) or not (split is None or isinstance(split, str)) or not isinstance(files, dict):
        raise damaged(path, "`name`, `split` or `files` has the wrong type")
    meta = Meta(name, **counts, split=split, files={key: _file(path, key, value) for key, value in files.items()})
    _check_shapes(path, meta)
    return meta


def damaged(path: Path, reason: str) -> DatasetError:
    """Return the error for a file of a store that cannot be right."""
    return DatasetError(f"{path} is damaged: {reason}; pack the store again")


def _count(path: Path, values: Mapping[str, Any], key: str, most: int) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise damaged(path, f"`{key}` must be a whole number from 0 to {most:,}, got {str(value)[:40]}")
    return value


def _file(path: Path, name: str, value: Any) -> StoredFile:
    known = name in TYPES or name in OTHERS
    if not known or not isinstance(value, dict):
        raise damaged(path, f"'{name[:80]}' is not a file of a store")
    size = _count(path, value, "bytes", 2**60)
    checksum, dtype, shape = value.get("sha256"), value.get("dtype"), value.get("shape")
    if not isinstance(checksum, str) or not re.fullmatch(r"[0-9a-f]{64}", checksum):
        raise damaged(path, f"the sha256 of {name} is not one")
    if name in OTHERS:
        return StoredFile(size, checksum)
    if dtype not in TYPES[name]:
        raise damaged(path, f"{name} must have type {' or '.join(TYPES[name])}, got {str(dtype)[:40]}")
    if not isinstance(shape, list) or not all(isinstance(n, int) and 0 <= n <= MAX_ENTRIES for n in shape):
        raise damaged(path, f"the shape of {name} is {str(shape)[:40]}")
    if size <= math.prod(shape) * np.dtype(dtype).itemsize:  # a header comes before the numbers
        raise damaged(path, f"{name} has {size:,} bytes, too few for its shape {shape}")
    return StoredFile(size, checksum, dtype, tuple(shape))


def _check_shapes(path: Path, meta: Meta) -> None:
    """Refuse files that do not belong together."""
    shapes = {name: file.shape for name, file in meta.files.items()}
    n, entries = meta.nodes, 2 * meta.edges
    wanted: dict[str, tuple[int, ...] | None] = {
        "edges_indptr.npy": (n + 1,), "edges_indices.npy": (entries,), "labels.npy": (n,), NAMES: None
    }  # fmt: skip
    if meta.weighted:
        wanted["edges_weights.npy"] = (entries,)
    if meta.sparse:
        filled = shapes.get("features_indices.npy")
        if filled is None or len(filled) != 1:
            raise damaged(path, "it names no features")
        wanted |= {"features_indptr.npy": (n + 1,), "features_indices.npy": filled, "features_values.npy": filled}
    else:
        wanted["features.npy"] = (n, meta.features)
    lists = ["test_nodes.npy"] if "test_nodes.npy" in shapes else []
    lists += [f"split_{part}.npy" for part in PARTS] if meta.split is not None else []
    for name in lists:
        shape = shapes.get(name)
        wanted[name] = (shape[0],) if shape is not None and len(shape) == 1 and shape[0] <= n else (0,)
    if NODE_NAMES in shapes:
        wanted[NODE_NAMES] = None
    for name in sorted({*wanted, *shapes}):
        if name not in wanted or name not in shapes:
            raise damaged(path, f"it {'lacks' if name in wanted else 'must not name'} {name}")
        if wanted[name] != shapes[name]:
            raise damaged(path, f"{name} must have shape {list(wanted[name] or ())}, got {list(shapes[name] or ())}")
    for matrix in ("edges", "features") if meta.sparse else ("edges",):
        if meta.files[f"{matrix}_indptr.npy"].dtype != meta.files[f"{matrix}_indices.npy"].dtype:
            raise damaged(path, f"{matrix}_indptr.npy and {matrix}_indices.npy must have the same type")
