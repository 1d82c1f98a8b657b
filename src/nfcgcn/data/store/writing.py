"""Write a store: a folder that appears complete or not at all, and is never changed afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from nfcgcn.data.formats.npz import check_text
from nfcgcn.data.store.arrays import BLOCK, HEADER, Array, ArrayWriter, row_blocks
from nfcgcn.data.store.layout import MAX_NAMES, META, NAMES, NODE_NAMES, PARTS, TYPES, Meta, StoredFile, read_meta
from nfcgcn.data.store.names import BATCH, NameWriter
from nfcgcn.data.store.verification import note, sha256_of
from nfcgcn.errors import ConfigError, GraphError, unknown
from nfcgcn.files import new_folder, to_json
from nfcgcn.graph import Graph, Split

Precision = Literal["float32", "float16"]


class StoreWriter:
    """Writes the files of a store into an empty folder, in any order, each from its front to its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._arrays: dict[str, ArrayWriter] = {}
        self._others: list[str] = []
        self._opened: list[ArrayWriter] = []

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for array in self._opened:
            array.abandon()

    def open(self, name: str, dtype: str, *, columns: int | None = None) -> ArrayWriter:
        """Return a writer of one of the arrays; :data:`TYPES` has their names and types."""
        assert np.dtype(dtype).str in TYPES[name]  # noqa: S101
        self._opened.append(ArrayWriter(self.folder / name, dtype, columns=columns))
        return self._opened[-1]

    def close(self, array: ArrayWriter) -> None:
        """End an array."""
        array.close()
        self._arrays[array.path.name] = array

    @contextmanager
    def array(self, name: str, dtype: str, *, columns: int | None = None) -> Iterator[ArrayWriter]:
        """Yield a writer of one of the arrays, and end it."""
        with self.open(name, dtype, columns=columns) as writer:
            yield writer
        self._arrays[name] = writer

    def drop(self, name: str) -> None:
        """Remove an array after all."""
        self._arrays.pop(name).path.unlink()

    def starts(self, name: str, counts: Array, columns: int) -> None:
        """Write the ``indptr`` of a matrix from the counts of its rows; its ``indices`` are written already."""
        ends = np.cumsum(counts, dtype=np.int64)
        dtype = index_type(int(ends[-1]) if len(ends) else 0, columns)
        with self.array(f"{name}_indptr.npy", dtype) as array:
            array.add(np.zeros(1, np.int64))
            array.add(ends)
        indices = self._arrays[f"{name}_indices.npy"]
        if indices.dtype != np.dtype(dtype):
            self._retype(indices, dtype)

    def _retype(self, array: ArrayWriter, dtype: str) -> None:
        """Write an array again with another type, which its size asks for."""
        old = array.path.with_suffix(".old")
        array.path.rename(old)
        numbers = np.memmap(old, array.dtype, "r", offset=HEADER, shape=array.shape)
        with self.array(array.path.name, dtype) as copy:
            for at in range(0, len(numbers), BLOCK):
                copy.add(numbers[at : at + BLOCK])
        old.unlink()

    @contextmanager
    def node_names(self, *, integers: bool = False) -> Iterator[NameWriter]:
        """Yield a writer of the names of nodes."""
        self._others.append(NODE_NAMES)
        writer = NameWriter(self.folder / NODE_NAMES, integers=integers)
        try:
            yield writer
        finally:
            writer.close()

    def split(self, split: Split) -> None:
        """Write a split."""
        for part in PARTS:
            with self.array(f"split_{part}.npy", "<i8") as writer:
                writer.add(getattr(split, part))

    def finish(
        self,
        *,
        name: str,
        nodes: int,
        edges: int,
        features: int,
        classes: int,
        split: str | None = None,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        encoding: Mapping[str, Any] | None = None,
        reading: str | None = None,
    ) -> Meta:
        """Write `names.json` and, with the sha256 of everything, `meta.json`."""
        check_text("the graph", [name], class_names or (), feature_names or ())
        names = {"classes": class_names, "features": feature_names, "encoding": encoding, "reading": reading}
        text = json.dumps(names, allow_nan=False).encode()
        if len(text) > MAX_NAMES:
            raise GraphError(
                f"the names of {features:,} features take {len(text) / 2**20:.0f} MiB, but at most "
                f"{MAX_NAMES / 2**20:.0f} MiB are stored; leave `feature_names` out"
            )
        (self.folder / NAMES).write_bytes(text)
        files = {}
        for file in (*self._arrays, *self._others, NAMES):
            path, array = self.folder / file, self._arrays.get(file)
            described = (None, None) if array is None else (array.dtype.str, array.shape)
            files[file] = StoredFile(path.stat().st_size, sha256_of(path), *described)
        meta = Meta(name, nodes, edges, features, classes, files, split)
        (self.folder / META).write_text(to_json(meta.to_json()), encoding="utf-8")
        return read_meta(self.folder)  # which refuses what nobody could open


def write_store(
    graph: Graph,
    folder: str | PathLike[str],
    *,
    split: Split | None = None,
    precision: Precision = "float32",
    force: bool = False,
) -> None:
    """Write a graph as a store, a folder of plain arrays that :func:`open_store` maps into memory.

    The folder appears when all of it is on the disk. ``split`` becomes :attr:`Graph.given` of the stored graph; by
    default the graph keeps its own. ``precision`` is that of dense features; sparse ones are float32. ``force``
    replaces an earlier store. Names of nodes need pyarrow (``pip install nfcgcn[large]``).

    >>> import tempfile, nfcgcn
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nfcgcn.write_store(nfcgcn.load("digits"), f"{folder}/digits", precision="float16")
    ...     print(nfcgcn.load(f"{folder}/digits").features.dtype)
    float16
    """
    folder = Path(folder)
    if precision not in get_args(Precision):
        raise ConfigError(unknown("precision", str(precision), get_args(Precision)))
    given = graph.given if split is None else split
    if split is not None:
        split.check(graph, needed=())
    with new_folder(folder, force=force, kind="store") as draft, StoreWriter(draft) as writer:
        _write_matrix(writer, "edges", graph.adjacency)
        if graph.is_weighted:
            with writer.array("edges_weights.npy", "<f4") as array:
                for at in range(0, graph.adjacency.nnz, BLOCK):
                    array.add(graph.adjacency.data[at : at + BLOCK])
        _write_features(writer, graph, precision)
        for name, numbers in (("labels.npy", graph.labels), ("test_nodes.npy", graph.test_nodes)):
            if numbers is not None:
                with writer.array(name, "<i8") as array:
                    array.add(numbers)
        if given is not None:
            writer.split(given)
        if graph.node_names is not None:
            check_text("`node_names`", graph.node_names)
            with writer.node_names() as names:
                for at in range(0, graph.num_nodes, BATCH):
                    names.add(list(graph.node_names[at : at + BATCH]))
        meta = writer.finish(
            name=graph.name,
            nodes=graph.num_nodes,
            edges=graph.num_edges,
            features=graph.num_features,
            classes=graph.num_classes,
            split=None if given is None else given.name,
            class_names=graph.class_names,
            feature_names=graph.feature_names,
            encoding=graph.encoding,
            reading=graph.reading,
        )
    note(folder, meta)


def index_type(entries: int, columns: int) -> str:
    """Return the type for ``indptr`` and ``indices`` of a matrix."""
    return "<i4" if max(entries, columns) < 2**31 else "<i8"


def _write_matrix(writer: StoreWriter, name: str, matrix: Any) -> None:
    dtype = index_type(matrix.nnz, matrix.shape[1])
    for part in ("indptr", "indices"):
        numbers = getattr(matrix, part)
        with writer.array(f"{name}_{part}.npy", dtype) as array:
            for at in range(0, len(numbers), BLOCK):
                array.add(numbers[at : at + BLOCK])


def _write_features(writer: StoreWriter, graph: Graph, precision: Precision) -> None:
    if isinstance(graph.features, np.ndarray):
        most = float(np.finfo(precision).max)
        with writer.array(
            "features.npy", {"float32": "<f4", "float16": "<f2"}[precision], columns=graph.num_features
        ) as array:
            step = max(1, BLOCK // max(1, graph.num_features))
            for at in range(0, graph.num_nodes, step):
                rows = graph.features[at : at + step]
                if rows.size and float(np.abs(rows).max()) > most:
                    raise GraphError(f"a feature is beyond {most:g}, the largest {precision}; use precision='float32'")
                array.add(rows)
        return
    matrix = graph.features
    if not matrix.has_sorted_indices:
        matrix = matrix.sorted_indices()
    _write_matrix(writer, "features", matrix)
    with writer.array("features_values.npy", "<f4") as array:
        for first, stop in row_blocks(matrix.indptr):
            array.add(matrix.data[matrix.indptr[first] : matrix.indptr[stop]])
