"""Edges that do not fit into memory: DuckDB finds the nodes of their ids and sorts them, NumPy writes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.data.formats.edges import Weights, lacking_id, unknown_ids
from nfcgcn.data.formats.labels import SHOWN, listed
from nfcgcn.data.formats.parquet import cells_of_arrow
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.tables import repeated_id
from nfcgcn.data.packing.engine import Engine, LargeTable, named
from nfcgcn.data.packing.progress import Progress
from nfcgcn.data.store.names import NameWriter
from nfcgcn.data.store.writing import StoreWriter, index_type
from nfcgcn.errors import GraphError, option

Keys = npt.NDArray[np.uint64]
ROWS = 2**20
"""Ids or edges that are looked at together: a few numbers each."""


@dataclass(frozen=True)
class EndColumns:
    """The columns of a table of edges that are read."""

    table: LargeTable
    source: str
    target: str
    weight: str | None


def number_nodes(
    table: LargeTable, column: str, names: NameWriter, *, whole: bool, rows: int, progress: Progress, problems: Problems
) -> None:
    """Write the names of the nodes, and make a table `nodes` of ids and row numbers; ids must be there and differ."""
    engine = table.engine
    kind, expression = ("BIGINT", f"{named(column)}::BIGINT") if whole else ("VARCHAR", table.id_text(column))
    engine.run(f"CREATE TABLE nodes (id {kind}, row INTEGER)")
    done, first_empty = 0, 0
    for batch in engine.stream(f"SELECT {expression} AS id FROM {table.sql}", rows=ROWS):
        ids = batch.column(0)
        if ids.null_count and not first_empty:
            first_empty = done + int(np.argmax(ids.is_null().to_numpy(zero_copy_only=False))) + 1
        insert_nodes(engine, ids, done)
        if not first_empty:
            names.add(ids)
        done += len(ids)
        progress.show("reading ids", done, rows)
    if not done:
        raise GraphError(f"{table.name} has no rows; a graph needs at least one node")
    with problems.gather():
        if first_empty:
            raise GraphError(
                f"row {first_empty} of {table.name} has no id in column '{column}'; fill it in, or choose "
                f"{option('id')}"
            )
    again = (
        "SELECT id, min(row), count(*) AS c, list_sort(list(row))[2] FROM nodes WHERE id IS NOT NULL "
        "GROUP BY id HAVING c > 1"
    )
    repeated = int(engine.row(f"SELECT coalesce(sum(c - 1), 0) FROM ({again})")[0])
    with problems.gather():
        if repeated:
            culprit, first, _, second = engine.row(f"{again} ORDER BY 4 LIMIT 1")
            raise GraphError(repeated_id(table.name, column, str(culprit), first + 1, second + 1, repeated))
    if problems.messages:  # so that problems with edges can be reported, too
        first = "SELECT id, min(row) AS row FROM nodes WHERE id IS NOT NULL GROUP BY id"
        engine.run(f"CREATE OR REPLACE TABLE nodes AS {first}")


def insert_nodes(engine: Engine, ids: Any, first: int) -> None:
    """Add nodes to the table `nodes`, numbered from `first` on."""
    import pyarrow as pa

    numbers = pa.array(np.arange(first, first + len(ids), dtype=np.int32))
    engine.run("INSERT INTO nodes SELECT id, row FROM added", added=pa.table({"id": ids, "row": numbers}))


@dataclass(frozen=True)
class Joined:
    """What became of the edges: the table `pairs` has the row numbers of their ends."""

    rows: int
    dropped: int
    added: int
    shown: tuple[str, ...] = ()
    """The first ids of the nodes that were added."""


def join_edges(
    columns: EndColumns, nodes: LargeTable, num_nodes: int, *, whole: bool, unknown_edges: str, problems: Problems
) -> Joined:
    """Find the nodes of the ids of all edges; an unknown id is a problem, or is dropped or added as a node."""
    table, engine = columns.table, columns.table.engine
    ids = [f"{named(c)}::BIGINT" if whole else table.id_text(c) for c in (columns.source, columns.target)]
    weight = ""
    if columns.weight is not None:
        with problems.gather():
            _check_weights(table, columns.weight)
        weight = f", TRY_CAST({named(columns.weight)} AS DOUBLE) AS w"
    ends = f"SELECT {ids[0]} AS source, {ids[1]} AS target{weight}"
    engine.run("SET preserve_insertion_order = false")  # not needed here, and faster without
    try:
        _join(engine, f"{ends} FROM {table.sql}", weight)
        rows, lost = engine.row("SELECT count(*), count(*) FILTER (a IS NULL OR b IS NULL) FROM pairs")
    finally:
        engine.run("SET preserve_insertion_order = true")
    if not lost or unknown_edges == "drop":
        return Joined(rows, lost if lost else 0, 0)
    numbered = f"{ends}, row_number() OVER () AS n FROM {table.sql}"
    blank, first = engine.row(f"SELECT count(*), min(n) FROM ({numbered}) WHERE source IS NULL OR target IS NULL")
    with problems.gather():
        if blank:
            raise GraphError(lacking_id(table.name, first, blank))
    engine.run(
        f"CREATE TABLE strange AS SELECT id, min(place) AS place FROM (SELECT source AS id, 2 * n AS place FROM "
        f"({numbered}) UNION ALL SELECT target, 2 * n + 1 FROM ({numbered})) e WHERE id IS NOT NULL AND NOT EXISTS "
        f"(SELECT 1 FROM nodes WHERE nodes.id = e.id) GROUP BY id"
    )
    (count,) = engine.row("SELECT count(*) FROM strange")
    shown = tuple(str(name) for (name,) in engine.rows(f"SELECT id FROM strange ORDER BY place LIMIT {SHOWN}"))
    with problems.gather():
        if count and unknown_edges == "error":
            names = listed(shown, count=count)
            raise GraphError(unknown_ids(table.name, nodes.name, names, count, lost - blank, rows))
    if problems.messages:
        return Joined(rows, 0, 0)
    engine.run(f"INSERT INTO nodes SELECT id, {num_nodes} + row_number() OVER (ORDER BY place) - 1 FROM strange")
    engine.run("DROP TABLE pairs")
    _join(engine, f"{ends} FROM {table.sql}", weight)
    return Joined(rows, 0, count, shown)


def _join(engine: Engine, ends: str, weight: str) -> None:
    engine.run(
        f"CREATE TABLE pairs AS SELECT s.row AS a, t.row AS b{', w' if weight else ''} FROM ({ends}) e "
        "LEFT JOIN nodes s ON e.source = s.id LEFT JOIN nodes t ON e.target = t.id"
    )


def _check_weights(table: LargeTable, column: str) -> None:
    weights = Weights(f"column '{column}' of {table.name}")
    for batch in table.batches([column]):
        weights.read(cells_of_arrow(batch.column(0), column, table.name, as_text=False))
    weights.check()


@dataclass(frozen=True)
class Written:
    """What was written of the edges."""

    edges: int
    loops: int
    repeated: int


def write_edges(engine: Engine, writer: StoreWriter, num_nodes: int, *, weighted: bool, progress: Progress) -> Written:
    """Write the table `pairs` as a CSR matrix: both directions of each edge once, sorted, without loops."""
    good = "FROM pairs WHERE a IS NOT NULL AND b IS NOT NULL"
    rows, loops = engine.row(f"SELECT count(*), count(*) FILTER (a = b) {good}")
    key = "(({}::UBIGINT) << 32) | {}::UBIGINT AS k"
    more = (", 0::UTINYINT AS d, w", ", 1::UTINYINT AS d, w", ", d, w") if weighted else ("", "", "")
    both = (
        f"SELECT {key.format('a', 'b')}{more[0]} {good} AND a <> b UNION ALL "
        f"SELECT {key.format('b', 'a')}{more[1]} {good} AND a <> b"
    )
    progress.show("sorting edges", 0, 0)
    degrees = np.zeros(num_nodes, np.int64)
    total, done, is_weighted = 2 * (rows - loops), 0, False
    indices = writer.open("edges_indices.npy", index_type(total, num_nodes))
    weights = writer.open("edges_weights.npy", "<f4") if weighted else None
    batches = engine.stream(f"SELECT * FROM ({both}) ORDER BY k{more[2]}", rows=ROWS)
    for keys, values, count in _weighted(batches) if weighted else _distinct(batches):
        done += count
        if len(keys):
            ends = (keys >> np.uint64(32)).astype(np.int64)
            degrees[ends[0] : ends[-1] + 1] += np.bincount(ends - ends[0])
            indices.add((keys & np.uint64(2**32 - 1)).astype(indices.dtype))
        if weights is not None and values is not None:
            weights.add(values)
            is_weighted |= bool((values != 1).any())
        progress.show("writing edges", done, total)
    writer.close(indices)
    if weights is not None:
        writer.close(weights)
        if not is_weighted:
            writer.drop("edges_weights.npy")
    writer.starts("edges", degrees, num_nodes)
    edges = indices.rows // 2
    return Written(edges, loops, rows - loops - edges)


def _distinct(batches: Iterator[Any]) -> Iterator[tuple[Keys, None, int]]:
    """Yield sorted keys, each once, and how many there were."""
    last: np.uint64 | None = None
    for batch in batches:
        keys = batch.column(0).to_numpy()
        new = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        if last is not None and len(keys):
            new[0] = keys[0] != last
        last = keys[-1] if len(keys) else last
        yield keys[new], None, len(keys)


def _weighted(batches: Iterator[Any]) -> Iterator[tuple[Keys, npt.NDArray[np.float32], int]]:
    """Yield sorted keys, each once, with its weight: the sum of one direction or of the other, whichever is larger.

    Weights are added in rising order, so that the sums do not depend on the order of the rows.
    """
    kept: list[npt.NDArray[Any]] = [np.zeros(0, np.uint64), np.zeros(0, np.uint8), np.zeros(0)]
    for batch in batches:
        parts = [np.concatenate([old, batch.column(i).to_numpy()]) for i, old in enumerate(kept)]
        # The last key may go on in the next batch.
        stop = int(np.searchsorted(parts[0], parts[0][-1])) if len(parts[0]) else 0
        kept = [part[stop:] for part in parts]
        yield *_sums(*(part[:stop] for part in parts)), batch.num_rows
    yield *_sums(*kept), 0


def _sums(
    keys: Keys, directions: npt.NDArray[np.uint8], values: npt.NDArray[np.float64]
) -> tuple[Keys, npt.NDArray[np.float32]]:
    if not len(keys):
        return keys, np.zeros(0, np.float32)
    first = np.flatnonzero(np.append(True, (keys[1:] != keys[:-1]) | (directions[1:] != directions[:-1])))
    sums, keys = np.add.reduceat(values, first), keys[first]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    largest = np.maximum.reduceat(sums, first).astype(np.float32)
    present = largest > 0
    return keys[first][present], largest[present]
