"""Data frames of nodes and edges: pandas, Polars, and whatever can become a pandas frame."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from nfcgcn.data.formats.table import Cells, Chunk, check_columns, chunk_rows
from nfcgcn.data.formats.tables import graph_of_tables
from nfcgcn.data.formats.values import cells_of
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph


def from_frames(nodes: Any, edges: Any = None, *, name: str = "graph", **options: Any) -> Graph:
    """Build a graph from a data frame of nodes, one row per node, and one of edges, one row per edge.

    ``options`` are those of :func:`nfcgcn.data.formats.read_tables`: what columns mean (``id``, ``label``, ``text``,
    ``words``, ``ignore``, ``split``, ``source``, ``target``, ``weight``), ``directed``, ``unknown_edges``, ``features``
    and ``encoding``. A frame is one of pandas or Polars (a lazy one is collected), or has a method ``to_pandas``. Named
    levels of the index of a pandas frame are columns too.

    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"id": ["a", "b", "c"], "size": [1.0, 2.0, 0.5], "label": ["x", "y", None]})
    >>> from_frames(nodes, pd.DataFrame({"source": ["a"], "target": ["c"]}))
    Graph('graph', nodes=3, edges=1, features=1 dense, classes=2)
    """
    table = None if edges is None else FrameTable(edges, "the frame of edges")
    return graph_of_tables(FrameTable(nodes, "the frame of nodes"), table, name=name, **options)


class FrameTable:
    """A data frame as a table."""

    def __init__(self, frame: Any, name: str) -> None:
        self.name, self.frame = name, _plain_frame(frame, name)
        strange = next((column for column in self.frame.columns if not isinstance(column, str)), None)
        if strange is not None:
            raise GraphError(f"column {strange!r} of {name} has no text as its name; rename it")
        self.columns: tuple[str, ...] = tuple(self.frame.columns)
        check_columns(name, self.columns)

    def chunks(self, wanted: Sequence[str], *, texts: Collection[str]) -> Iterator[Chunk]:
        """Yield the wanted columns, some rows at a time; those in `texts` as exact text."""
        step = chunk_rows(len(wanted))
        for start in range(0, len(self.frame), step):
            yield {name: self._cells(name, slice(start, start + step), as_text=name in texts) for name in wanted}

    def _cells(self, name: str, rows: slice, *, as_text: bool) -> Cells:
        column, where = self.frame[name][rows], f"column '{name}' of {self.name}"
        if hasattr(column, "to_list") and not hasattr(column, "iloc"):  # Polars
            return cells_of(column.to_list(), where, as_text=as_text)
        if not as_text and column.dtype.kind in "iuf":
            return np.asarray(column.to_numpy(np.float64, na_value=np.nan))
        return cells_of(column.astype(object).where(column.notna(), None).tolist(), where, as_text=as_text)


def _plain_frame(frame: Any, name: str) -> Any:
    """Return a frame of pandas or Polars."""
    library = type(frame).__module__.partition(".")[0]
    if library not in ("pandas", "polars") and hasattr(frame, "to_pandas"):
        library, frame = "pandas", frame.to_pandas()
    if library == "polars" and hasattr(frame, "collect"):  # a LazyFrame
        frame = frame.collect()
    if library not in ("pandas", "polars") or not hasattr(frame, "columns"):
        raise GraphError(f"{name} must be a data frame of pandas or Polars, got {type(frame).__name__}")
    if library == "polars":
        return frame
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    return (frame.reset_index(level=named) if named else frame).reset_index(drop=True)
