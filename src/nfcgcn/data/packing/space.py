"""Room on the disk, looked for before packing starts."""

from __future__ import annotations

import shutil
from pathlib import Path

from nfcgcn.data.packing.engine import LargeTable
from nfcgcn.errors import WriteError
from nfcgcn.memory import in_words

PER_EDGE, PER_BYTE, PER_CELL = 60, 3, 12
"""Bytes on disk per row of edges, per byte of the (unpacked) table of nodes, and per cell of it, at the fullest moment:
the store, and what DuckDB writes while it joins and sorts."""
PACKED = 8
"""What gzip saves, roughly."""


def check_space(nodes: LargeTable, edges: LargeTable, folder: Path) -> int:
    """Refuse tables for which there is no room on the disk of `folder`; return the number of nodes, for progress."""
    rows, size = _measure(nodes)
    num_edges, _ = _measure(edges)
    needed = PER_EDGE * num_edges + PER_BYTE * size + PER_CELL * rows * len(nodes.columns)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise WriteError(
            f"packing {rows:,} nodes and {num_edges:,} edges needs about {in_words(needed)} on the disk of "
            f"{folder.parent}, but only {in_words(free)} are free; choose another place with --out"
        )
    return rows


def _measure(table: LargeTable) -> tuple[int, int]:
    """Return the number of rows and the size of a table."""
    rows = table.count()
    if table.is_text:
        return rows, sum(p.stat().st_size * (PACKED if p.suffix.lower() == ".gz" else 1) for p in table.paths)
    from pyarrow import parquet

    groups = [meta.row_group(i) for meta in map(parquet.read_metadata, table.paths) for i in range(meta.num_row_groups)]
    return rows, sum(group.total_byte_size for group in groups)
