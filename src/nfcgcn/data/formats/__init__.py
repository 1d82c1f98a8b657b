"""A user's own graph: from .npz files, tables or frames of nodes and edges, PyG, NetworkX, igraph; to .npz files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from scipy.sparse import issparse

from nfcgcn.data.formats.additions import add_tables
from nfcgcn.data.formats.frames import from_frames
from nfcgcn.data.formats.networkx import from_igraph, from_networkx, is_igraph, is_networkx
from nfcgcn.data.formats.npz import read_npz, write_npz
from nfcgcn.data.formats.pyg import from_pyg, read_pyg
from nfcgcn.data.formats.tables import SUFFIXES as TABLES
from nfcgcn.data.formats.tables import find_tables, read_folder, read_tables
from nfcgcn.errors import DatasetError, GraphError, option
from nfcgcn.files import is_folder, reading
from nfcgcn.graph import Graph

__all__ = [
    "TABLES",
    "add_tables",
    "find_tables",
    "from_frames",
    "from_igraph",
    "from_memory",
    "from_networkx",
    "is_path",
    "read",
    "read_npz",
    "read_pyg",
    "read_tables",
    "refuse_options",
    "write_npz",
]


def from_memory(thing: Any, **options: Any) -> Graph:
    """Build a graph from one of NetworkX, igraph or PyG, or from a data frame of nodes with ``edges`` beside it."""
    if is_igraph(thing):
        return from_igraph(thing, **options)
    if is_networkx(thing):
        return from_networkx(thing, **options)
    if type(thing).__module__.startswith("torch_geometric."):
        return from_pyg(thing, **options)
    if issparse(thing):
        raise GraphError("a SciPy matrix has only edges; Graph.from_scipy(adjacency, features, labels) makes a graph")
    return from_frames(thing, **options)


def read(path: str | PathLike[str], **options: Any) -> Graph:
    """Read a graph from a file, by its suffix, or from a folder with nodes.csv and edges.csv or similar tables.

    ``options`` are those of :func:`read_tables`: ``edges`` if `path` is a table of nodes, and what columns mean.
    """
    path = Path(path)
    name = path.name.lower()
    if is_folder(path):
        return read_folder(path, **options)
    if name.endswith(TABLES):
        return read_tables(path, **options)
    if not name.endswith((".npz", ".pt")):
        with reading(path):
            path.stat()
        raise DatasetError(
            f"{path} cannot be read as a graph; give a folder with nodes and edges, or a file that ends in "
            f".npz, .pt, {', '.join(TABLES)}"
        )
    refuse_options(path, options)
    return read_npz(path) if name.endswith(".npz") else read_pyg(path)


def refuse_options(path: Path, options: Mapping[str, Any]) -> None:
    """Refuse options about tables for a graph whose features are made already, which need no encoding, either."""
    table_options = [key for key, value in options.items() if value and key != "encoding"]
    if table_options:
        raise DatasetError(
            f"{option(table_options[0])} is for tables of nodes and edges; {path} holds a graph as it is"
        )


def is_path(name: str) -> bool:
    """Return whether `name` is a path: it exists, has a suffix, or contains a folder."""
    path = Path(name)
    if path.suffix or "/" in name or os.sep in name:
        return True
    try:
        return path.exists()
    except OSError:
        return True
