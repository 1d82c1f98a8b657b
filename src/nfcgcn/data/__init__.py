"""Graphs by name: three citation networks, scikit-learn's digits, and generated citation graphs of any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from types import MappingProxyType
from typing import Any

from nfcgcn.data import citations, digits, formats, planetoid, planetoid_files
from nfcgcn.errors import DatasetError, unknown
from nfcgcn.graph import Graph

__all__ = ["DATASETS", "Dataset", "at_hand", "describe", "is_own", "load"]


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


def load(name: Any, *, data_dir: str | PathLike[str] | None = None, **options: Any) -> Graph:
    """Return the graph of that name, or read a graph of your own from a file or a folder.

    ``data_dir`` is the folder with the Planetoid files, which only "cora", "citeseer" and "pubmed" need. Without it,
    they are searched in ``$NFCGCN_DATA/planetoid``, then in the user's cache; if they are in neither, they are
    downloaded into the cache. ``options`` are those of :func:`nfcgcn.data.digits.read` and
    :func:`nfcgcn.data.citations.generate`.

    A path is that of an .npz or .pt file (PyG's ``Data``), of a table of nodes (.csv, .tsv, .parquet; then ``edges`` is
    the path of the table of edges), or of a folder with nodes.csv and edges.csv, or with the same tables in another
    format. For tables, ``options`` say what the columns mean, as in :func:`nfcgcn.data.formats.read_tables`. The name
    of a dataset is never taken as a path.

    Anything else is taken as a data frame of nodes, with ``edges`` the frame of edges, see
    :func:`nfcgcn.data.formats.from_frames`.

    >>> load("citations", nodes=200, features=50)
    Graph('citations', nodes=200, edges=400, features=50 sparse, classes=7)
    """
    if not isinstance(name, str | PathLike):
        return formats.from_frames(name, **options)
    if is_own(name):
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
