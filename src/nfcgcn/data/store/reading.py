"""A graph from a store: the same interface, with memory maps for arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nfcgcn.data.formats.npz import check_text
from nfcgcn.data.store.arrays import Array, map_array
from nfcgcn.data.store.layout import MAX_NAMES, NAMES, NODE_NAMES, PARTS, TYPES, Meta, damaged, folder_of, read_meta
from nfcgcn.data.store.names import NodeNames
from nfcgcn.data.store.verification import check_arrays, check_files, check_sizes, is_noted, note
from nfcgcn.errors import DatasetError, GraphError
from nfcgcn.files import is_folder, parsing, read_regular, reading
from nfcgcn.graph import Graph, Split
from nfcgcn.memory import check_memory

MOST_ONES = 2**24
"""So many weights that are all 1 are held in memory; of more, one number stands for all, which SciPy copies to use."""


class StoredGraph(Graph):
    """A graph whose arrays are mapped from the files of a store, :attr:`Graph.store`.

    It was checked when the store was written, and when it was first opened. Reading rows of ``features`` or of
    ``adjacency.indices`` reads these parts of the files; ``x``, ``edge_index`` and ``y`` read everything into memory,
    and refuse to where there is too little. Features of type float16 are float32 in ``x``.
    """

    def __post_init__(self) -> None:
        pass

    @cached_property
    def is_weighted(self) -> bool:
        """Whether edges differ in weight from 1."""
        if isinstance(self.adjacency.data, np.memmap):  # a store has weights only if some differ
            return True
        return self.adjacency.data.strides != (0,) and bool((self.adjacency.data != 1).any())

    def make_room(self, what: str, size: int) -> None:
        """Refuse to read so many bytes into memory if there is no room."""
        check_memory(
            size,
            f"all {what} of '{self.name}' at once",
            "train with --batch-size, which reads a part at a time, or use a machine with more memory",
        )

    def __reduce__(self) -> Any:
        """Send the path instead of the content of the files; the other process maps them itself."""
        mapped = {
            "adjacency": self.adjacency.indices,
            "features": self.features if isinstance(self.features, np.ndarray) else self.features.indices,
            "labels": self.labels,
        }
        kept = {name for name, array in mapped.items() if isinstance(array, np.memmap)}
        kept |= {"node_names"} if isinstance(self.node_names, NodeNames) else set()
        changed = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in kept}
        return _reopen, (self.store, changed)


def _reopen(store: Path, changed: Mapping[str, Any]) -> Graph:
    return replace(open_store(store, verify=False), **changed)


def open_store(folder: str | PathLike[str], *, verify: bool | None = None) -> Graph:
    """Return the graph of a store, with its files mapped into memory: only what is used of them is read.

    The sizes and types of all files are checked. With ``verify``, every byte is compared with its sha256, and every
    index with the range that it must lie in. By default that happens at each opening of a store of less than 256 MiB,
    and at this user's first opening of a larger one or of one whose files were touched since. False leaves it out.

    >>> import tempfile, nfcgcn
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nfcgcn.write_store(nfcgcn.load("digits"), f"{folder}/digits")
    ...     graph = nfcgcn.open_store(f"{folder}/digits")
    >>> graph
    Graph('digits', nodes=1797, edges=9929, features=64 dense, classes=10)
    """
    place = folder_of(Path(folder))
    if not is_folder(place):
        raise DatasetError(f"{place} is not the folder of a store; `nfcgcn pack` writes one")
    meta = read_meta(place)
    check_sizes(place, meta)
    arrays = {name: map_array(place / name, meta.files[name]) for name in TYPES if name in meta.files}
    if verify or (verify is None and not is_noted(place, meta)):
        check_files(place, meta)
        check_arrays(place, meta, arrays)
        note(place, meta)
    for matrix in ("edges", "features") if meta.sparse else ("edges",):
        starts = arrays[f"{matrix}_indptr.npy"]
        if starts[0] != 0 or starts[-1] != len(arrays[f"{matrix}_indices.npy"]):
            raise damaged(place / f"{matrix}_indptr.npy", "it does not rise from 0 to the number of indices")
    return _graph(place, meta, arrays)


def _graph(folder: Path, meta: Meta, arrays: Mapping[str, Array]) -> Graph:
    names = _read_names(folder, meta)
    entries = 2 * meta.edges
    if meta.weighted:
        weights = arrays["edges_weights.npy"]
    else:
        weights = np.ones(entries, np.float32) if entries <= MOST_ONES else np.broadcast_to(np.float32(1), entries)
    features = arrays.get("features.npy")
    if features is None:
        features = _matrix(arrays, "features", arrays["features_values.npy"], meta.features)
    given = None
    if meta.split is not None:
        train, val, test = (np.asarray(arrays[f"split_{part}.npy"]) for part in PARTS)
        given = Split(train, val, test, name=meta.split)
    try:
        check_text(str(folder), [meta.name], names["classes"] or (), names["features"] or ())
    except GraphError as error:
        raise damaged(folder / NAMES, str(error)) from error
    return StoredGraph(
        adjacency=_matrix(arrays, "edges", weights, meta.nodes),
        features=features,
        labels=arrays["labels.npy"],
        name=meta.name,
        node_names=NodeNames(folder / NODE_NAMES, meta.nodes) if NODE_NAMES in meta.files else None,
        feature_names=names["features"],
        class_names=names["classes"],
        test_nodes=arrays.get("test_nodes.npy"),
        given=given,
        encoding=names["encoding"],
        reading=names["reading"],
        store=folder.resolve(),
    )


def _matrix(arrays: Mapping[str, Array], name: str, values: Array, columns: int) -> sp.csr_array:
    starts, indices = arrays[f"{name}_indptr.npy"], arrays[f"{name}_indices.npy"]
    matrix = sp.csr_array((len(starts) - 1, columns), dtype=np.float32)
    # SciPy's constructor would read all indices to see whether smaller integers would do.
    matrix.data, matrix.indices, matrix.indptr = values, indices, starts
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def _read_names(folder: Path, meta: Meta) -> dict[str, Any]:
    """Return the names of classes and features, and how they came about."""
    path = folder / NAMES
    with reading(path), parsing(path, "JSON"):
        values = json.loads(read_regular(path, MAX_NAMES))
    if not isinstance(values, dict):
        raise damaged(path, "it is not a JSON object")
    checked: dict[str, Any] = {}
    for key, count in (("classes", meta.classes), ("features", meta.features)):
        names = values.get(key)
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise damaged(path, f"`{key}` must be a list of names")
        if names is not None and len(names) != count:
            raise damaged(path, f"`{key}` must hold {count} names, got {len(names)}")
        checked[key] = None if names is None else tuple(names)
    for key, kind in (("encoding", dict), ("reading", str)):
        checked[key] = values.get(key)
        if checked[key] is not None and not isinstance(checked[key], kind):
            raise damaged(path, f"`{key}` has the wrong type")
    return checked
