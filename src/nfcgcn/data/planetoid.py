"""Cora, CiteSeer and PubMed from the files that Yang, Cohen and Salakhutdinov published (Planetoid, 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.data import unpickle
from nfcgcn.data.planetoid_files import read_parts
from nfcgcn.errors import DatasetError
from nfcgcn.graph import Graph, Ints


def read(name: str, *, data_dir: str | PathLike[str] | None = None) -> Graph:
    """Return "cora", "citeseer" or "pubmed", from files whose sha256 has been checked."""
    return parse(name, read_parts(name, data_dir))


def parse(name: str, parts: Mapping[str, bytes]) -> Graph:
    """Build the graph from the bytes of its parts, which need not be trusted.

    The first nodes are the rows of ``allx``. Row i of ``tx`` is the node whose number is in line i of ``test.index``. A
    node that is in neither has no features and no label.
    """

    def file(part: str) -> str:
        return f"ind.{name}.{part}"

    features = {part: unpickle.read_matrix(parts[part], file(part)) for part in ("allx", "tx")}
    labels = {part: _labels(unpickle.read_array(parts[part], file(part)), file(part)) for part in ("ally", "ty")}
    num_first, num_columns = features["allx"].shape
    test = _test_index(parts["test.index"], num_first, file("test.index"))
    num_nodes = int(test.max()) + 1
    for part, rows, needed in (
        ("ally", len(labels["ally"]), num_first),
        ("tx", features["tx"].shape[0], len(test)),
        ("ty", len(labels["ty"]), len(test)),
    ):
        if rows != needed:
            raise DatasetError(f"{file(part)} is broken: {rows} rows, where the other files need {needed}")
    if features["tx"].shape[1] != num_columns:
        raise DatasetError(
            f"{file('tx')} is broken: {features['tx'].shape[1]} columns, where {file('allx')} has {num_columns}"
        )
    # This comes before anything as large as the number of nodes is allocated: `test.index` could name node 10^15.
    edges = _edges(unpickle.read_lists(parts["graph"], file("graph")), num_nodes, file("graph"))

    all_labels = np.full(num_nodes, -1, np.int64)
    all_labels[:num_first] = labels["ally"]
    all_labels[test] = labels["ty"]
    return Graph.from_edges(
        edges,
        _place_rows(features["allx"], features["tx"], test, num_nodes),
        labels=all_labels,
        name=name,
        test_nodes=np.sort(test),
    )


def _place_rows(first: sp.csr_array, rest: sp.csr_array, nodes: Ints, num_nodes: int) -> sp.csr_array:
    rest = rest.tocoo()
    placed = sp.coo_array(
        (rest.data, (nodes[rest.row] - first.shape[0], rest.col)), shape=(num_nodes - first.shape[0], first.shape[1])
    )
    return sp.vstack([first, placed.tocsr()], format="csr")


def _labels(one_hot: npt.NDArray[Any], file: str) -> Ints:
    """Return the column of the one in each row, or -1 for a row of zeros."""
    if one_hot.ndim != 2 or not np.isin(one_hot, (0, 1)).all() or (one_hot.sum(axis=1) > 1).any():
        raise DatasetError(f"{file} is broken: its rows are not one-hot")
    if one_hot.size == 0:
        return np.full(len(one_hot), -1, np.int64)
    return np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1).astype(np.int64)


def _test_index(data: bytes, num_first: int, file: str) -> Ints:
    lines = data.split()
    if not lines or not all(line.isdigit() and len(line) < 16 for line in lines):
        raise DatasetError(f"{file} is broken: it must have one node per line")
    nodes = np.array([int(line) for line in lines], dtype=np.int64)
    if nodes.min() < num_first or len(np.unique(nodes)) != len(nodes):
        raise DatasetError(f"{file} is broken: it names a node twice or one below {num_first}")
    return nodes


def _edges(neighbours: Mapping[int, list[int]], num_nodes: int, file: str) -> Ints:
    if len(neighbours) != num_nodes:
        raise DatasetError(f"{file} is broken: {len(neighbours)} nodes, where the other files need {num_nodes}")
    ends = list(chain(neighbours, *neighbours.values()))
    if min(ends) < 0 or max(ends) >= num_nodes:
        raise DatasetError(f"{file} is broken: it names a node outside 0 to {num_nodes - 1}")
    starts = np.repeat(np.fromiter(neighbours, np.int64), [len(row) for row in neighbours.values()])
    return np.stack([starts, np.array(ends[len(neighbours) :], dtype=np.int64)])
