"""Suggested links as a file, written some nodes at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn import files
from nfcgcn.cli.console import Lines, err
from nfcgcn.graph import Graph
from nfcgcn.links.prediction import Suggestions


def namer(graph: Graph) -> Callable[[int], str]:
    """Return what names a node as the graph does."""
    return str if graph.node_names is None else graph.node_names.__getitem__


def with_progress(blocks: Iterator[Suggestions], total: int) -> Iterator[Suggestions]:
    """Pass blocks on and say how far it is."""
    lines, done = Lines(), 0
    with err.status("scoring") as status:
        for block in blocks:
            done += len(np.unique(block.nodes))
            if err.is_terminal:
                status.update(f"{done:,} of {total:,} nodes")
            lines.show(f"{done:,} of {total:,} nodes")
            yield block


def write_suggestions(path: Path, graph: Graph, blocks: Iterator[Suggestions]) -> int:
    """Write blocks one after the other, so that no more than one is in memory; return the number of rows."""
    names, count = namer(graph), 0

    def columns(block: Suggestions) -> dict[str, Any]:
        ids = [names(node) for node in block.nodes.tolist()], [names(node) for node in block.others.tolist()]
        return {"node": ids[0], "rank": block.ranks, "suggestion": ids[1], "probability": block.probabilities}

    with files.new_file(path) as file:
        if path.suffix == ".csv":
            text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(["node", "rank", "suggestion", "probability"])
            for block in blocks:
                rows = zip(*(list(column) for column in columns(block).values()), strict=True)
                writer.writerows((a, r, b, f"{p:.6g}") for a, r, b, p in rows)
                count += len(block.nodes)
            text.flush()
            text.detach()
            return count
        import pyarrow
        import pyarrow.parquet

        kinds = (pyarrow.string(), pyarrow.int64(), pyarrow.string(), pyarrow.float64())
        schema = pyarrow.schema(list(zip(("node", "rank", "suggestion", "probability"), kinds, strict=True)))
        with pyarrow.parquet.ParquetWriter(file, schema) as parquet:
            for block in blocks:
                parquet.write_table(pyarrow.table(columns(block), schema=schema))
                count += len(block.nodes)
    return count
