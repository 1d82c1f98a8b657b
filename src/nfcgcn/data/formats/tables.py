"""A graph from two tables: one of nodes, whose columns become features and labels, and one of edges between ids."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn.data.formats.assembly import assemble
from nfcgcn.data.formats.delimited import DELIMITERS, DelimitedTable
from nfcgcn.data.formats.edges import EdgeList, UnknownEdges, edge_columns, plain_ids, read_edges
from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.formats.nodes import encode_nodes, gather_nodes, warn_of_unseen
from nfcgcn.data.formats.parquet import PARQUET, ParquetTable
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.roles import Columns, Roles, make_roles
from nfcgcn.data.formats.table import Cells, Table
from nfcgcn.data.structure import Structure
from nfcgcn.errors import DatasetError, GraphError, option
from nfcgcn.graph import Graph

SUFFIXES = (*DELIMITERS, *PARQUET)


def read_tables(
    nodes: str | PathLike[str],
    edges: str | PathLike[str] | None = None,
    *,
    id: str | None = None,
    label: str | None = None,
    text: Columns = (),
    words: Columns = (),
    ignore: Columns = (),
    source: str | None = None,
    target: str | None = None,
    split: str | None = None,
    weight: str | None = None,
    directed: bool = False,
    unknown_edges: UnknownEdges | None = None,
    features: Structure | None = None,
    encoding: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Graph:
    """Read a graph from CSV, TSV (also compressed by gzip) or Parquet files.

    `nodes` has one row per node. ``id`` is the column with the ids of the nodes, by default "id" or, without such a
    column, the first. ``label`` is the column with the classes, by default "label"; a row without a label is a node to
    predict. ``split`` (by default "split") is a column with train, val, test or nothing, and becomes the given split.

    All other columns become features, except those in ``ignore``. Columns in ``text`` are read as TF-IDF weights of
    their words, columns in ``words`` as word counts (words are separated by semicolons, commas or spaces). A column of
    numbers becomes one feature. A column with few different texts becomes one feature per text. A column of dates
    (2024-05-31, also with a time) becomes one feature, the days since 1970.

    Numbers are used unchanged if the largest magnitude in their column is between 0.01 and 10; otherwise they are
    standardised. Empty cells in a column of numbers get its mean. A warning reports both.

    `edges` has one row per edge, with the ids of its nodes in the columns ``source`` and ``target`` (by default these
    names); other columns are ignored. ``weight`` is a column with a number from 0 up per edge: the weights in the
    propagation of nfc-gcn, gcn, fastgcn and jknet, and what the draw of neighbours is proportional to. Other models
    refuse weights, except for mlp, which looks at no edge. The weights of an edge that is given several times add up.
    ``directed`` says that edges have directions; every model reads an edge both ways, and ``Graph.reading`` says so.

    ``unknown_edges`` says what happens to edges that name an id without a row: "error" (the default), "drop" them, or
    "add" the id as a node with empty cells. A warning has the counts.

    ``features`` adds features that follow from the edges: "degree", "one-hot", "spectral" or "walk", see
    :func:`nfcgcn.structural_features`. If there is no column to make features of, "spectral" is the default, and a
    warning says so.

    All that is wrong with the tables is reported in one message. ``Graph.reading`` says what was read and what was not
    used.

    With the ``encoding`` of an earlier graph (``Graph.encoding``), columns are read as they were then: the features are
    the same, in the same order, and columns need not be named again. Texts and words that are not among the features
    are left out, with a warning that counts them.
    """
    problems, tables = Problems(), []
    for path in (nodes, *([] if edges is None else [edges])):
        with problems.gather():
            tables.append(open_table(Path(path)))
    problems.check()
    return graph_of_tables(
        tables[0],
        None if edges is None else tables[1],
        id=id,
        label=label,
        text=text,
        words=words,
        ignore=ignore,
        source=source,
        target=target,
        split=split,
        weight=weight,
        directed=directed,
        unknown_edges=unknown_edges,
        features=features,
        encoding=encoding,
        name=name or stem(Path(nodes)),
    )


def graph_of_tables(
    table: Table, edges: Table | None, *, name: str, encoding: Mapping[str, Any] | None = None, **options: Any
) -> Graph:
    """Build a graph from a table of nodes and a table of edges; the options are those of :func:`read_tables`."""
    known = None if encoding is None else Encoding.from_json(encoding)
    roles = make_roles(
        table,
        known,
        has_edges=edges is not None,
        id=options.pop("id", None) or _id_column(table, known),
        **options,
    )
    problems, gathered, ids, edge_list = Problems(), None, None, EdgeList(np.zeros((2, 0), np.int64))
    with problems.gather():
        gathered = gather_nodes(table, roles, known)
        ids = checked_ids(table.name, roles.id or "", gathered.ids, problems)
    with problems.gather():
        edge_list = _edges_of(edges, roles, table.name, ids)
    content = None if gathered is None else encode_nodes(table, gathered, known, problems)
    problems.check()
    assert content is not None and ids is not None  # noqa: S101, PT018  (or there was a problem)
    warn_of_unseen(table.name, content.unseen)
    return assemble(
        content,
        ids.tolist(),
        edge_list,
        name=name,
        where="the edges" if edges is None else edges.name,
        no_edges="no edges were given" if edges is None else "",
    )


def _id_column(table: Table, known: Encoding | None) -> str:
    return (known.id if known else None) or ("id" if "id" in table.columns else table.columns[0])


def _edges_of(edges: Table | None, roles: Roles, nodes: str, ids: Cells | None) -> EdgeList:
    """Read the edges between `ids`; without these, only see whether the columns are there."""
    if edges is None and roles.weight is not None:
        raise GraphError(
            f"{option('weight', roles.weight)} is for a table of edges, and there is none; give {option('edges')}"
        )
    if edges is not None:
        columns = edge_columns(edges, roles.source, roles.target, roles.weight)
        if ids is not None:
            return read_edges(edges, nodes, ids, *columns, unknown_edges=roles.unknown_edges)
    return EdgeList(np.zeros((2, 0), np.int64))


def read_folder(folder: Path, **options: Any) -> Graph:
    """Read a folder with a table of nodes, nodes.csv or similar, and a table of edges."""
    return read_tables(*find_tables(folder), **{"name": stem(folder.resolve()), **options})


def find_tables(folder: Path) -> tuple[Path, Path | None]:
    """Return the table of nodes in a folder, and that of edges, if there is one."""
    try:
        names = sorted(file.name for file in folder.iterdir())
    except OSError as error:
        raise DatasetError(f"cannot read {folder}: {error.strerror or error}") from error
    tables = {}
    for part in ("nodes", "edges"):
        files = [name for name in names if name.lower() in {part + suffix for suffix in SUFFIXES}]
        if len(files) > 1:
            raise DatasetError(f"{folder} holds both {files[0]} and {files[1]}; keep one, or name it by path")
        tables[part] = folder / files[0] if files else None
    if tables["nodes"] is None:
        raise DatasetError(f"{folder} holds no table of nodes; it must be called nodes.csv, nodes.tsv or nodes.parquet")
    return tables["nodes"], tables["edges"]


def open_table(path: Path) -> Table:
    """Open a table by the suffix of its name."""
    name = path.name.lower()
    if name.endswith(PARQUET):
        return ParquetTable(path)
    for suffix, delimiter in DELIMITERS.items():
        if name.endswith(suffix):
            return DelimitedTable(path, delimiter)
    raise DatasetError(f"{path} cannot be read as a table; its name must end in {', '.join(SUFFIXES)}")


def stem(path: Path) -> str:
    """Return the name of a file without its suffix, which may be a double one such as .csv.gz."""
    name = path.name
    suffix = max((s for s in SUFFIXES if name.lower().endswith(s)), key=len, default=path.suffix)
    return name.removesuffix(name[len(name) - len(suffix) :]) if suffix else name or "graph"


def checked_ids(table: str, column: str, cells: Cells, problems: Problems) -> Cells:
    """Return the ids of the nodes, each once; it is a problem if some are missing or there twice."""
    import pandas as pd

    ids = plain_ids(cells)
    empty = pd.isna(ids)
    again = np.asarray(pd.Series(ids).duplicated()) & ~empty
    with problems.gather():
        if empty.any():
            where = f"row {int(empty.argmax()) + 1} of {table} has no id in column '{column}'"
            raise GraphError(f"{where}; fill it in, or choose {option('id')}")
    with problems.gather():
        if again.any():
            second = int(again.argmax())
            first = int((ids == ids[second]).argmax())
            raise GraphError(repeated_id(table, column, ids[second], first + 1, second + 1, int(again.sum())))
    return np.asarray(ids[~(empty | again)])


def repeated_id(table: str, column: str, name: str, first: int, second: int, count: int) -> str:
    """Say that two rows have the same id, and how many rows repeat one."""
    more = f"; {count:,} rows repeat an id" if count > 1 else ""
    return (
        f"column '{column}' of {table} holds '{name[:40]}' in rows {first} and {second}{more}: make ids unique, or "
        f"choose their column with {option('id')}"
    )
