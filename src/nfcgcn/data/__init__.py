"""Graphs by name: three citation networks, scikit-learn's digits, and generated citation graphs of any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nfcgcn.data import citations, digits, formats, planetoid, planetoid_files
from nfcgcn.data.formats.edges import UnknownEdges
from nfcgcn.data.formats.roles import Columns
from nfcgcn.data.store import is_store, open_store
from nfcgcn.data.structure import structural_features
from nfcgcn.errors import ConfigError, DatasetError, unknown
from nfcgcn.graph import Graph

__all__ = ["DATASETS", "Dataset", "at_hand", "describe", "is_own", "load", "structural_features"]


@dataclass(frozen=True)
class Dataset:
    """What is known about a dataset before it is loaded; a count is "any" if an option sets it."""

    name: str
    summary: str
    nodes: int | str
    edges: int | str
    """Undirected, without loops and duplicates."""
    features: int | str
    classes: int | str
    source: str
    options: tuple[str, ...] = ()


_PLANETOID = "github.com/kimiyoung/planetoid"

DATASETS: Mapping[str, Dataset] = MappingProxyType(
    {
        dataset.name: dataset
        for dataset in (
            Dataset("cora", "machine-learning papers, words present or absent", 2708, 5278, 1433, 7, _PLANETOID),
            Dataset("citeseer", "computer-science papers, words present or absent", 3327, 4552, 3703, 6, _PLANETOID),
            Dataset("pubmed", "diabetes papers, words weighted by TF-IDF", 19717, 44324, 500, 3, _PLANETOID),
            Dataset(
                "digits",
                "handwritten digits, 8 x 8 pixels, joined to their nearest neighbours",
                1797,
                9929,
                64,
                10,
                "scikit-learn",
                ("neighbours",),
            ),
            Dataset(
                "citations",
                "generated papers of any number, with topics and cited classics",
                "any",
                "any",
                "any",
                "any",
                "generated",
                ("nodes", "seed", "classes", "features", "words", "degree", "homophily"),
            ),
        )
    }
)
"""Every dataset by name, in the order to show them."""


def load(
    name: Any,
    *,
    data_dir: str | PathLike[str] | None = None,
    edges: Any = None,
    id: str | None = None,
    label: str | None = None,
    text: Columns = (),
    words: Any = (),
    ignore: Columns = (),
    split: str | None = None,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    directed: bool = False,
    unknown_edges: UnknownEdges | None = None,
    features: Any = None,
    encoding: Mapping[str, Any] | None = None,
    **options: Any,
) -> Graph:
    """Return the graph of that name, or read a graph of your own from a file, a folder or what is in memory.

    Args:
        name: a name from ``nfcgcn datasets``, which is never taken as a path; the path of an .npz or .pt file (PyG's
            ``Data``), of a table of nodes (.csv, .tsv, .parquet), or of a folder with nodes.csv and edges.csv, or with
            the same tables in another format; of a store (see :func:`nfcgcn.write_store`); a data frame of nodes; a
            graph of NetworkX or igraph; PyG's ``Data``.
        data_dir: the folder with the Planetoid files, which only "cora", "citeseer" and "pubmed" need. Without it, they
            are searched in ``$NFCGCN_DATA/planetoid``, then in the user's cache; if they are in neither, they are
            downloaded into the cache.
        edges: the table of edges, a path or a data frame, if `name` is a table of nodes.
        id: column with the ids of the nodes; by default "id" or, without such a column, the first.
        label: column with the classes; by default "label". A row without a label is a node to predict.
        text: columns to read as TF-IDF weights of their words.
        words: columns to read as word counts.
        ignore: columns to leave out. All other columns become features.
        split: column with train, val, test or nothing; by default "split".
        source: column of edges with the id of the first node; by default "source".
        target: column of edges with the id of the second node; by default "target".
        weight: column of edges with a number from 0 up per edge.
        directed: edges have directions. Every model reads an edge both ways; ``Graph.reading`` says so.
        unknown_edges: what to do with edges to ids without a node: "error", "drop" or "add".
        features: "degree", "one-hot", "spectral" or "walk": features to make from the edges.
        encoding: ``Graph.encoding`` of an earlier graph: columns are read as they were then.
        options: those of :func:`nfcgcn.data.digits.read` and :func:`nfcgcn.data.citations.generate`, where
            ``features`` and ``words`` are numbers.

    How columns become features is described at :func:`nfcgcn.data.formats.read_tables`.

    >>> load("digits", neighbours=3)
    Graph('digits', nodes=1797, edges=3884, features=64 dense, classes=10)
    """
    given = {
        "edges": edges, "id": id, "label": label, "text": text, "words": words, "ignore": ignore, "split": split,
        "source": source, "target": target, "weight": weight, "directed": directed, "unknown_edges": unknown_edges,
        "features": features, "encoding": encoding,
    }  # fmt: skip
    own = not isinstance(name, str | PathLike) or is_own(name)
    if own and options:
        raise ConfigError(unknown("option of a graph", next(iter(options)), given))
    options |= {key: value for key, value in given.items() if not _is_default(value)}
    if not isinstance(name, str | PathLike):
        return formats.from_memory(name, **options)
    if own and is_store(Path(name)):
        formats.refuse_options(Path(name), options)
        return open_store(name)
    if own:
        return formats.read(name, **options)
    name = str(name)
    dataset = describe(name)
    for option in options:
        if option not in dataset.options:
            known = ", ".join(f"`{known}`" for known in dataset.options) or "none"
            raise DatasetError(f"dataset '{name}' takes no option `{option}`; it takes {known}")
    if name == "digits":
        return digits.read(**options)
    if name == "citations":
        return citations.generate(**options)
    return planetoid.read(name, data_dir=data_dir)


def _is_default(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str | tuple | list) and not value)


def is_own(name: str | PathLike[str]) -> bool:
    """Return whether `name` is the path of a user's own graph, rather than the name of a dataset."""
    return name not in DATASETS and (not isinstance(name, str) or formats.is_path(name))


def at_hand(name: str, data_dir: str | PathLike[str] | None = None) -> str:
    """Return where :func:`load` would get the dataset from: "bundled", "generated", a folder or "to download".

    "missing" means that the user's folder lacks some of the files, which :func:`load` refuses. Files are not opened.
    """
    describe(name)
    if name == "digits":
        return "bundled"
    if name == "citations":
        return "generated"
    return planetoid_files.whereabouts(name, data_dir)


def describe(name: str) -> Dataset:
    """Return what is known about the dataset of that name."""
    if name not in DATASETS:
        raise DatasetError(unknown("dataset", name, DATASETS))
    return DATASETS[name]
