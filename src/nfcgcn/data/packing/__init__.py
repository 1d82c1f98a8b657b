"""From tables of any size to a store: DuckDB works on disk, and Python sees some rows at a time."""

from __future__ import annotations

import shutil
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

from nfcgcn.data.formats.assembly import added_nodes, describe_reading, dropped_edges
from nfcgcn.data.formats.edges import edge_columns
from nfcgcn.data.formats.encoding import MOST_BUCKETS, Encoding
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.roles import make_roles
from nfcgcn.data.options import check_integer
from nfcgcn.data.packing.edges import EndColumns, Joined, join_edges, number_nodes, write_edges
from nfcgcn.data.packing.engine import Engine, LargeTable
from nfcgcn.data.packing.nodes import NodeColumns, check_structure, learn_nodes, write_nodes
from nfcgcn.data.packing.progress import Progress
from nfcgcn.data.packing.space import check_space
from nfcgcn.data.store.layout import MAX_NODES, Meta
from nfcgcn.data.store.verification import note
from nfcgcn.data.store.writing import StoreWriter
from nfcgcn.errors import GraphError, NFCWarning
from nfcgcn.files import new_folder

__all__ = ["MEMORY", "Progress", "pack_tables"]

MEMORY = 2 * 10**9
"""Bytes that packing uses by default."""
TEMPORARY = "tmp"
"""The folder of temporary files, inside the draft of the store: who removes the draft removes them."""


def pack_tables(
    nodes: str | PathLike[str],
    edges: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    memory: int = MEMORY,
    hash_text: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    name: str | None = None,
    **options: Any,
) -> Meta:
    """Write a store from tables that need not fit into memory (``pip install nfcgcn[large]``).

    `nodes` and `edges` are paths of CSV, TSV or Parquet files, or patterns such as "nodes-*.parquet". ``options`` are
    those of :func:`nfcgcn.data.formats.read_tables`: what the columns mean, and ``unknown_edges``. The graph of the
    store is that of :func:`nfcgcn.load` for the same tables, except that features are not made from edges. With
    ``hash_text``, each word of the columns in ``text`` counts for one of so many features, by its hash, and no
    vocabulary is learnt.

    Cost: the tables are read twice. DuckDB uses at most 60 % of ``memory`` and then works on disk; the rest is for what
    Python holds: some rows at a time, about 10 bytes per node and, for a column of numbers, 50 bytes per node.
    """
    place, progress = Path(folder), progress or Progress()
    if hash_text is not None:
        check_integer("hash_text", hash_text, low=1, high=MOST_BUCKETS)
    with new_folder(place, force=force, kind="store") as draft:
        engine = Engine(draft / TEMPORARY, memory, store=place)
        try:
            node_table, edge_table = (LargeTable(engine, str(pattern)) for pattern in (nodes, edges))
            name = name or node_table.title or place.resolve().name
            with StoreWriter(draft) as writer:
                meta = _pack(node_table, edge_table, writer, hash_text, name, progress, options)
        finally:
            engine.close()
    note(place, meta)
    return meta


def _pack(
    nodes: LargeTable,
    edges: LargeTable,
    writer: StoreWriter,
    hash_text: int | None,
    name: str,
    progress: Progress,
    options: dict[str, Any],
) -> Meta:
    options.setdefault("id", "id" if "id" in nodes.columns else nodes.columns[0])
    roles = make_roles(nodes, None, has_edges=True, **options)
    check_structure(roles, nodes)
    columns = NodeColumns.find(nodes, roles, hash_text)
    ends = EndColumns(edges, *_three(edge_columns(edges, roles.source, roles.target, roles.weight)))
    rows = check_space(nodes, edges, writer.folder)
    if rows > MAX_NODES:
        raise GraphError(f"{nodes.name} has {rows:,} rows; a store has at most {MAX_NODES:,} nodes")
    whole = all(
        table.is_whole(column)
        for table, column in ((nodes, roles.id or ""), (edges, ends.source), (edges, ends.target))
    )
    problems = Problems()
    with writer.node_names(integers=whole) as names:
        number_nodes(nodes, roles.id or "", names, whole=whole, rows=rows, progress=progress, problems=problems)
        progress.show("finding the nodes of edges", 0, 0)
        joined = join_edges(ends, nodes, rows, whole=whole, unknown_edges=roles.unknown_edges, problems=problems)
        encoding = learn_nodes(columns, rows, progress, problems)
        if joined.added:
            for batch in nodes.engine.stream(f"SELECT id FROM nodes WHERE row >= {rows} ORDER BY row"):
                names.add(batch.column(0))
    nodes.engine.run("DROP TABLE nodes")
    given = write_nodes(columns, encoding, writer, joined.added, rows, progress)
    if given is not None:
        writer.split(given)
    total = rows + joined.added
    written = write_edges(nodes.engine, writer, total, weighted=ends.weight is not None, progress=progress)
    _warn(edges.name, joined, written.edges)
    progress.show("computing checksums", 0, 0)
    reading = describe_reading(
        encoding,
        edges.name,
        nodes=total,
        edges=written.edges,
        loops=written.loops,
        repeated=written.repeated,
        dropped=joined.dropped,
        added=joined.added,
        unused=[c for c in edges.columns if c not in (ends.source, ends.target, ends.weight)],
    )
    shutil.rmtree(writer.folder / TEMPORARY / "spilled", ignore_errors=True)
    return _finish(writer, encoding, name, total, written.edges, given is not None, reading)


def _finish(
    writer: StoreWriter, encoding: Encoding, name: str, nodes: int, edges: int, has_split: bool, reading: str
) -> Meta:
    return writer.finish(
        name=name,
        nodes=nodes,
        edges=edges,
        features=len(encoding.feature_names),
        classes=len(encoding.classes or ()),
        split="given" if has_split else None,
        class_names=encoding.classes,
        feature_names=encoding.feature_names,
        encoding=encoding.to_json(),
        reading=reading,
    )


def _three(names: list[str]) -> tuple[str, str, str | None]:
    return names[0], names[1], names[2] if len(names) > 2 else None


def _warn(where: str, joined: Joined, edges: int) -> None:
    messages = []
    if not edges:
        messages.append(f"{where} holds no edges: every node is judged only by its own features")
    if joined.dropped:
        messages.append(dropped_edges(joined.dropped, where))
    if joined.added:
        messages.append(added_nodes(joined.shown, joined.added, where))
    for message in messages:
        warnings.warn(message, NFCWarning, stacklevel=4)
