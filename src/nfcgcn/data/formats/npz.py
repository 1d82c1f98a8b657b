"""Graphs as .npz files: CSR arrays with the names of gnn-benchmark, and plain text. Nothing is ever unpickled.

``adj_data``, ``adj_indices``, ``adj_indptr`` and ``adj_shape`` hold the edges, in one direction or both. ``attr_data``
and so on, or a dense ``attr_matrix``, hold the features. ``labels`` has one class per node, -1 for none. Optional are
``node_names``, ``attr_names`` and ``class_names``, as arrays of text. Our own files also have ``name``, ``test_nodes``,
the given split as ``given_train``, ``given_val`` and ``given_test``, and ``encoding`` as JSON; with
``adj_weighted``, ``adj_data`` holds the weights of edges, which are otherwise not used.
"""

from __future__ import annotations

import json
import math
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.errors import DatasetError, GraphError
from nfcgcn.files import check_size, draft_of, parsing, reading
from nfcgcn.graph import Graph, Ints, Split

Array = npt.NDArray[Any]

MAX_CLASSES = 2**20
"""A larger label must be a mistake; a model would need as many outputs."""
MAX_NODES = 2**26
MAX_FEATURES = 2**24
"""Sparse features can claim any number of columns at no cost; what is computed per column cannot be had at no cost."""
_CSR = ("data", "indices", "indptr", "shape")
_NAMES = {"node_names": "node_names", "feature_names": "attr_names", "class_names": "class_names"}
_PARTS = ("train", "val", "test")
_KNOWN = {
    *(f"{matrix}_{part}" for matrix in ("adj", "attr") for part in _CSR),
    *(f"given_{part}" for part in _PARTS),
    *_NAMES.values(),
    *("attr_matrix", "labels", "name", "test_nodes", "encoding", "adj_weighted"),
}


def read_npz(path: str | PathLike[str]) -> Graph:
    """Read a graph. Files that would unpack to too much, or hold pickled objects, are refused before they are read."""
    path = Path(path)
    with reading(path), parsing(path, ".npz"):
        return _build(_Arrays(path, _load_arrays(path)))


def write_npz(graph: Graph, path: str | PathLike[str]) -> None:
    """Write `graph` completely or not at all; :func:`read_npz` returns the same graph.

    >>> import tempfile, nfcgcn
    >>> graph = nfcgcn.Graph.from_edges([[0], [1]], [[1.0], [2.0]], labels=[0, 1], name="pair")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_npz(graph, f"{folder}/pair.npz")
    ...     nfcgcn.load(f"{folder}/pair.npz")
    Graph('pair', nodes=2, edges=1, features=1 dense, classes=2)
    """
    path = Path(path)
    arrays = _arrays_of(graph)
    try:
        with draft_of(path) as draft:
            _write_arrays(draft, arrays, zipfile.ZIP_DEFLATED)
            unpacked = sum(array.nbytes for array in arrays.values())
            try:
                check_size(draft, unpacked)
            except DatasetError:  # it packs so well that a reader would refuse it: write it unpacked
                _write_arrays(draft, arrays, zipfile.ZIP_STORED)
                check_size(draft, unpacked)
    except OSError as error:
        raise DatasetError(f"cannot write {path}: {error.strerror or error}; choose another place") from error


class _Arrays:
    """The arrays of a file by name; each is checked when it is used."""

    def __init__(self, path: Path, arrays: Mapping[str, Array]) -> None:
        self.path = path
        self.arrays = arrays

    def __contains__(self, key: str) -> bool:
        return key in self.arrays

    def take(self, key: str, kinds: str, *, dimensions: int) -> Array:
        """Return the array of that name; `kinds` are NumPy's letters for the types it may have."""
        if key not in self.arrays:
            raise GraphError(f"{self.path} holds no `{key}`; {_NEEDED}")
        array = self.arrays[key]
        if array.dtype.kind not in kinds or array.ndim != dimensions:
            raise GraphError(
                f"`{key}` in {self.path} must be {_KINDS[kinds]} in {dimensions} dimensions, "
                f"got {array.dtype} of shape {list(array.shape)}"
            )
        return array

    def ints(self, key: str) -> Ints:
        array = self.take(key, "iu", dimensions=1)
        if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise GraphError(f"`{key}` in {self.path} holds {array.max()}, more than any node or class can be")
        return array.astype(np.int64)

    def floats(self, key: str, *, dimensions: int) -> Array:
        array = self.take(key, "biuf", dimensions=dimensions)
        if array.dtype.kind == "f" and array.size and not (np.abs(array) <= np.finfo(np.float32).max).all():
            raise GraphError(f"`{key}` in {self.path} holds values that are not finite or too large; correct them")
        return array.astype(np.float32)

    def texts(self, key: str) -> tuple[str, ...] | None:
        if key not in self.arrays:
            return None
        return tuple(self.take(key, "U", dimensions=1).tolist())

    def csr(self, matrix: str) -> sp.csr_array:
        values = self.floats(f"{matrix}_data", dimensions=1)
        indices, starts, shape = (self.ints(f"{matrix}_{part}") for part in _CSR[1:])
        where = f"the matrix `{matrix}_*` in {self.path}"
        most = [MAX_NODES, MAX_NODES if matrix == "adj" else MAX_FEATURES]
        if shape.shape != (2,) or shape.min() < 0 or (shape > most).any():
            raise GraphError(
                f"{where} must have at most {most[0]:,} rows and {most[1]:,} columns, got {shape.tolist()[:5]}"
            )
        rows, columns = shape.tolist()
        if len(starts) != rows + 1 or starts[0] != 0 or starts[-1] != len(indices) or (np.diff(starts) < 0).any():
            raise GraphError(
                f"{where} is damaged: `{matrix}_indptr` must rise from 0 to {len(indices)} in {rows} steps"
            )
        if len(values) != len(indices):
            raise GraphError(f"{where} is damaged: {len(indices)} indices, but {len(values)} values")
        if len(indices) and (indices.min() < 0 or indices.max() >= columns):
            raise GraphError(f"{where} is damaged: `{matrix}_indices` must lie between 0 and {columns - 1}")
        return sp.csr_array((values, indices, starts), shape=(rows, columns))


_NEEDED = "a graph needs `adj_data`, `adj_indices`, `adj_indptr`, `adj_shape`, and `attr_*` alike or `attr_matrix`"
_KINDS = {"iu": "whole numbers", "biuf": "numbers", "U": "text"}


def _build(arrays: _Arrays) -> Graph:
    adjacency = arrays.csr("adj")
    n = adjacency.shape[0]
    if adjacency.shape[1] != n:
        raise GraphError(f"`adj_shape` in {arrays.path} must be square, got {list(adjacency.shape)}")
    features = arrays.floats("attr_matrix", dimensions=2) if "attr_matrix" in arrays else arrays.csr("attr")
    if features.shape[0] != n:
        raise GraphError(f"{arrays.path} has {n} nodes, but features of {features.shape[0]}")
    labels = arrays.ints("labels") if "labels" in arrays else None
    if labels is not None and labels.size and labels.max() >= MAX_CLASSES:
        raise GraphError(f"`labels` in {arrays.path} holds {labels.max()}; a class is a number below {MAX_CLASSES:,}")
    adjacency.eliminate_zeros()
    edges = adjacency.tocoo()
    name = arrays.take("name", "U", dimensions=0).item() if "name" in arrays else arrays.path.stem
    names: dict[str, Any] = {field: arrays.texts(key) for field, key in _NAMES.items()}
    graph = Graph.from_edges(
        np.stack([edges.row, edges.col]).astype(np.int64),
        features,
        labels=labels,
        weights=edges.data if "adj_weighted" in arrays else None,
        name=name,
        test_nodes=_nodes(arrays, "test_nodes", n) if "test_nodes" in arrays else None,
        given=_given(arrays, n),
        encoding=_encoding(arrays),
        **names,
    )
    check_text(str(arrays.path), [name], *(getattr(graph, field) or () for field in _NAMES))
    return graph


def check_text(where: str, *names: Sequence[str]) -> None:
    """Refuse names that cannot be written to a file: those with half a surrogate pair."""
    for some in names:
        try:
            "".join(some).encode()
        except UnicodeEncodeError as error:
            raise GraphError(
                f"a name in {where} is not valid text: {error.object[error.start : error.end]!r}; rename it"
            ) from error


def _nodes(arrays: _Arrays, key: str, n: int) -> Ints:
    nodes = arrays.ints(key)
    if nodes.size and (nodes.min() < 0 or nodes.max() >= n):
        raise GraphError(f"`{key}` in {arrays.path} names a node outside 0 to {n - 1}")
    return nodes


def _given(arrays: _Arrays, n: int) -> Split | None:
    if not any(f"given_{part}" in arrays for part in _PARTS):
        return None
    train, val, test = (_nodes(arrays, f"given_{part}", n) for part in _PARTS)
    return Split(train, val, test)


def _encoding(arrays: _Arrays) -> dict[str, Any] | None:
    if "encoding" not in arrays:
        return None
    encoding = json.loads(arrays.take("encoding", "U", dimensions=0).item())
    if not isinstance(encoding, dict):
        raise GraphError(f"`encoding` in {arrays.path} must be a JSON object")
    return encoding


def _load_arrays(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        # zipfile never reads more of a member than its declared size, so these sizes are a limit.
        check_size(path, sum(member.file_size for member in members))
        known = {key: m for m in members if (key := m.filename.removesuffix(".npy")) in _KNOWN}
        return {key: _read_array(archive, member, key) for key, member in known.items()}


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, key: str) -> Array:
    with archive.open(member) as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of headers that Python 2 wrote
        version = np.lib.format.read_magic(stream)
        headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in headers:
            raise GraphError(f"`{key}` in {archive.filename} has .npy version {version[0]}.{version[1]}; 1.0 is read")
        shape, fortran, dtype = headers[version](stream)
        if dtype.hasobject:
            raise DatasetError(
                f"`{key}` in {archive.filename} holds pickled Python objects, which could run any code: refused; "
                "store numbers or text arrays"
            )
        size = math.prod(shape) * dtype.itemsize
        if dtype.names or not dtype.itemsize or size != member.file_size - stream.tell():
            raise GraphError(
                f"`{key}` in {archive.filename} declares {dtype} of shape {list(shape)}, but differs in size"
            )
        flat = np.frombuffer(stream.read(), dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _arrays_of(graph: Graph) -> dict[str, Array]:
    arrays: dict[str, Array] = dict(_parts_of("adj", graph.adjacency))
    if isinstance(graph.features, np.ndarray):
        arrays["attr_matrix"] = graph.features
    else:
        arrays |= dict(_parts_of("attr", graph.features))
    if graph.is_weighted:
        arrays["adj_weighted"] = np.array(True)
    arrays["labels"] = graph.labels
    arrays["name"] = _as_text("name", [graph.name])[0]
    for field, key in _NAMES.items():
        if getattr(graph, field) is not None:
            arrays[key] = _as_text(field, getattr(graph, field))
    if graph.test_nodes is not None:
        arrays["test_nodes"] = graph.test_nodes
    if graph.given is not None:
        arrays |= {f"given_{part}": getattr(graph.given, part) for part in _PARTS}
    if graph.encoding is not None:
        arrays["encoding"] = np.array(json.dumps(graph.encoding, allow_nan=False))
    return arrays


def _parts_of(matrix: str, values: sp.csr_array) -> Iterator[tuple[str, Array]]:
    for part in ("data", "indices", "indptr"):
        yield f"{matrix}_{part}", getattr(values, part)
    yield f"{matrix}_shape", np.array(values.shape, np.int64)


def _as_text(what: str, names: Sequence[str]) -> Array:
    check_text(f"`{what}`", names)
    cut = next((name for name in names if name.endswith("\0")), None)
    if cut is not None:
        raise GraphError(f"`{what}` holds {cut!r}, whose last character NumPy would drop; rename it")
    return np.array(list(names), dtype=np.str_)


def _write_arrays(path: Path, arrays: Mapping[str, Array], compression: int) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for key, array in arrays.items():
            # A fixed date, so that the same graph is the same file.
            member = zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.compress_type = compression
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
