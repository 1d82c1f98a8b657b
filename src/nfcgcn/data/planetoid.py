"""Cora, CiteSeer and PubMed from the files that Yang, Cohen and Salakhutdinov published (Planetoid, 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.data.planetoid_files import read_parts
from nfcgcn.data.unpickle import read_pickle
from nfcgcn.graph import Graph, Ints


def read(name: str, *, data_dir: str | PathLike[str] | None = None) -> Graph:
    """Return "cora", "citeseer" or "pubmed", from files whose sha256 is the published one."""
    return parse(name, read_parts(name, data_dir))


def parse(name: str, parts: Mapping[str, bytes]) -> Graph:
    """Build the graph from the bytes of its parts, whose sums must have been checked.

    Nodes up to the number of rows of ``allx`` are those rows; the node that line i of ``test.index`` names is row i of
    ``tx``. A node that is in neither has no features and no label.
    """
    allx, ally, tx, ty, neighbours = (
        read_pickle(parts[part], f"ind.{name}.{part}") for part in ("allx", "ally", "tx", "ty", "graph")
    )
    test = np.array(parts["test.index"].split(), dtype=np.int64)
    num_first, num_nodes = len(ally), int(test.max()) + 1
    labels = np.full(num_nodes, -1, np.int64)
    labels[:num_first] = _labels(ally)
    labels[test] = _labels(ty)
    return Graph.from_edges(
        _edges(neighbours),
        _place_rows(sp.csr_array(allx), sp.coo_array(tx), test, num_nodes),
        labels=labels,
        name=name,
        test_nodes=np.sort(test),
    )


def _place_rows(first: sp.csr_array, rest: sp.coo_array, nodes: Ints, num_nodes: int) -> sp.csr_array:
    placed = sp.coo_array(
        (rest.data, (nodes[rest.row] - first.shape[0], rest.col)), shape=(num_nodes - first.shape[0], first.shape[1])
    )
    return sp.vstack([first, placed.tocsr()], format="csr")


def _labels(one_hot: npt.NDArray[Any]) -> Ints:
    """Return the column of each row's one, or -1 for a row of zeros."""
    return np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1).astype(np.int64)


def _edges(neighbours: Mapping[int, list[int]]) -> Ints:
    starts = np.repeat(np.fromiter(neighbours, np.int64), [len(row) for row in neighbours.values()])
    return np.stack([starts, np.fromiter(chain(*neighbours.values()), np.int64)])
