"""A generated citation graph as Parquet tables, so that packing large tables can be measured."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn.data import citations
from nfcgcn.data.store.names import need_arrow
from nfcgcn.files import new_file
from nfcgcn.graph import Ints
from nfcgcn.randomness import generator

ROWS = 2**20
"""Edges per row group."""


def write_tables(folder: Path, num_nodes: int, *, degree: float, text_ids: bool = False) -> tuple[Path, Path]:
    """Write `nodes.parquet` (`id`, `words`, `label`) and `edges.parquet` (`source`, `target`), and return their paths.

    The edges come in no order, each in one direction or the other. Memory: that of
    :func:`nfcgcn.data.packing.generated.pack_citations`.
    """
    need_arrow("writing Parquet tables")
    usual = {name: parameter.default for name, parameter in inspect.signature(citations.generate).parameters.items()}
    drawn = citations.draw(**{**usual, "nodes": num_nodes, "degree": degree}, in_pieces=True)
    nodes, edges = folder / "nodes.parquet", folder / "edges.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    _write(nodes, _nodes(drawn, text_ids))
    _write(edges, _edges(drawn.edges, num_nodes, text_ids))
    return nodes, edges


def _nodes(drawn: citations.Drawn, text_ids: bool) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import compute

    vocabulary = pa.array([f"w{number}" for number in range(drawn.num_features)])
    classes, done = pa.array(drawn.class_names), 0
    for counts, words in drawn.words:
        starts = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        lists = pa.ListArray.from_arrays(starts, vocabulary.take(pa.array(words)))
        rows = slice(done, done + len(counts))
        yield pa.table(
            {
                "id": _ids(np.arange(rows.start, rows.stop), text_ids),
                "words": compute.binary_join(lists, " "),
                "label": classes.take(pa.array(drawn.labels[rows])),
            }
        )
        done += len(counts)


def _edges(keys: Ints, num_nodes: int, text_ids: bool) -> Iterator[Any]:
    import pyarrow as pa

    rng = generator(0, "picture")
    rng.shuffle(keys)
    for at in range(0, len(keys), ROWS):
        piece = keys[at : at + ROWS]
        ends = np.stack([piece // num_nodes, piece % num_nodes])
        ends = np.where(rng.random(len(piece)) < 0.5, ends, ends[::-1])
        yield pa.table({"source": _ids(ends[0], text_ids), "target": _ids(ends[1], text_ids)})


def _ids(numbers: Ints, text: bool) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    ids = pa.array(numbers)
    return compute.binary_join_element_wise("P", ids.cast(pa.string()), "") if text else ids


def _write(path: Path, tables: Iterator[Any]) -> None:
    from pyarrow import parquet

    writer: Any = None
    with new_file(path) as file:
        try:
            for table in tables:
                writer = writer or parquet.ParquetWriter(file, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
