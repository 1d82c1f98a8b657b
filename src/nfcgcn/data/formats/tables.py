"""A graph from two tables: one of nodes, whose columns become features and labels, and one of edges between ids."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn.data.formats.delimited import DELIMITERS, DelimitedTable
from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.formats.labels import listed
from nfcgcn.data.formats.nodes import Roles, encode_nodes
from nfcgcn.data.formats.parquet import PARQUET, ParquetTable
from nfcgcn.data.formats.table import MISSING, Cells, Table, require
from nfcgcn.errors import DatasetError, GraphError, NFCWarning
from nfcgcn.graph import Graph, Ints

SUFFIXES = (*DELIMITERS, *PARQUET)
Columns = Sequence[str] | str
_WHOLE = re.compile(r"-?[0-9]+\.0")


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
    encoding: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Graph:
    """Read a graph from CSV, TSV (also compressed by gzip) or Parquet files.

    `nodes` has one row per node. ``id`` is the column with the ids of the nodes, by default "id" or, without such a
    column, the first. ``label`` is the column with the classes, by default "label"; a row without a label is a node to
    predict. ``split`` (by default "split") is a column with train, val, test or nothing, and becomes the given split.

    All other columns become features, except those in ``ignore``. Columns in ``text`` are read as TF-IDF weights of
    their words, columns in ``words`` as word counts (words are separated by semicolons, commas or spaces). A column of
    numbers becomes one feature. A column with few different texts becomes one feature per text.

    Numbers are used unchanged if the largest magnitude in their column is between 0.01 and 10; otherwise they are
    standardised. Empty cells in a column of numbers get its mean. A warning reports both.

    `edges` has one row per edge, with the ids of its nodes in the columns ``source`` and ``target`` (by default these
    names); other columns are ignored.

    With the ``encoding`` of an earlier graph (``Graph.encoding``), columns are read as they were then: the features are
    the same, in the same order, new texts and words are left out, and columns need not be named again.
    """
    return graph_of_tables(
        open_table(Path(nodes)),
        None if edges is None else open_table(Path(edges)),
        id=id,
        label=label,
        text=text,
        words=words,
        ignore=ignore,
        source=source,
        target=target,
        split=split,
        encoding=encoding,
        name=name or stem(Path(nodes)),
    )


def graph_of_tables(
    table: Table,
    edges: Table | None,
    *,
    name: str,
    id: str | None = None,
    label: str | None = None,
    text: Columns = (),
    words: Columns = (),
    ignore: Columns = (),
    source: str | None = None,
    target: str | None = None,
    split: str | None = None,
    encoding: Mapping[str, Any] | None = None,
) -> Graph:
    """Build a graph from a table of nodes and a table of edges; the options are those of :func:`read_tables`."""
    known = None if encoding is None else Encoding.from_json(encoding)
    roles = Roles(
        id=id or (known.id if known else None) or ("id" if "id" in table.columns else table.columns[0]),
        label=label,
        text=as_columns(text),
        words=as_columns(words),
        ignore=as_columns(ignore),
        split=split,
        source=source or (known.source if known else "source"),
        target=target or (known.target if known else "target"),
    )
    require(table, roles.id or "")
    content = encode_nodes(table, roles, known)
    ids = checked_ids(table.name, roles.id or "", content.ids)
    pairs = np.zeros((2, 0), np.int64) if edges is None else read_edges(edges, table.name, roles, ids)
    warn_of_no_edges(pairs, "no edges were given" if edges is None else f"{edges.name} holds no edges")
    return Graph.from_edges(
        pairs,
        content.features,
        labels=content.labels,
        name=name,
        node_names=ids.tolist(),
        feature_names=content.encoding.feature_names,
        class_names=content.encoding.classes,
        given=content.given,
        encoding=content.encoding.to_json(),
    )


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


def warn_of_no_edges(pairs: Ints, why: str) -> None:
    """Warn if there are no edges, with the reason `why`."""
    if not pairs.size:
        warnings.warn(f"{why}: every node is judged by its own features alone", NFCWarning, stacklevel=3)


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


def as_columns(names: Columns) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def _plain_ids(cells: Cells) -> Cells:
    """Return ids as text, or None if empty; whole numbers are written without a point, "7.0" as "7"."""
    # The same steps with pandas, on objects, took 50 % longer.
    ids = ["" if cell is None else cell.strip() for cell in cells.tolist()]
    if any(name.endswith(".0") for name in ids):
        ids = [name[:-2] if _WHOLE.fullmatch(name) else name for name in ids]
    return np.array([None if name in MISSING else name for name in ids], dtype=object)


def checked_ids(table: str, column: str, cells: Cells) -> Cells:
    """Return the ids of the nodes as text; refuse empty and repeated ones."""
    import pandas as pd

    ids = _plain_ids(cells)
    empty = np.flatnonzero(pd.isna(ids))
    if len(empty):
        raise GraphError(f"row {empty[0] + 1} of {table} has no id in column '{column}'; fill it in, or choose --id")
    again = pd.Series(ids).duplicated()
    if again.any():
        second = int(again.argmax())
        first = int((ids == ids[second]).argmax())
        raise GraphError(
            f"column '{column}' of {table} holds '{ids[second][:40]}' in rows {first + 1} and {second + 1}; "
            f"{int(again.sum())} rows repeat an id: make ids unique, or choose their column with --id"
        )
    return ids


def read_edges(table: Table, nodes: str, roles: Roles, ids: Cells) -> Ints:
    """Return the edges of a table as pairs of places in `ids`, ``[2, E]``; refuse ids that `nodes`, in words, lack."""
    import pandas as pd

    ends = [require(table, roles.source), require(table, roles.target)]
    if ends[0] == ends[1]:
        raise GraphError(f"edges cannot go from column '{ends[0]}' of {table.name} to itself; choose --target")
    index = pd.Index(ids)
    pairs, strange, lost, done = [np.zeros((2, 0), np.int64)], pd.Index([], dtype=object), 0, 0
    for chunk in table.chunks(ends, texts=ends):
        names = [_plain_ids(chunk[end]) for end in ends]
        places = np.stack([index.get_indexer(some) for some in names])
        bad = places < 0
        if bad.any():
            unknown = np.concatenate([names[0][bad[0]], names[1][bad[1]]])
            if pd.isna(unknown).any():
                row = int((pd.isna(names[0]) | pd.isna(names[1])).argmax())
                raise GraphError(f"row {done + row + 1} of {table.name} lacks an id; an edge needs both ends")
            in_order = np.stack(names, axis=1)[bad.T]
            strange = strange.append(pd.Index(pd.unique(in_order), dtype=object)).drop_duplicates()
            lost += int(bad.any(axis=0).sum())
        pairs.append(places)
        done += places.shape[1]
    if len(strange):
        raise GraphError(
            f"{lost} of {done} edges in {table.name} name {len(strange)} ids that no row of {nodes} has: "
            f"{listed(strange.tolist())}; add the nodes or remove the edges"
        )
    return np.concatenate(pairs, axis=1).astype(np.int64)
