"""What every kind of table offers: named columns, whose cells come in chunks of rows as text, numbers or lists."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import numpy.typing as npt

from nfcgcn.errors import GraphError

Cells = npt.NDArray[Any]
"""Some rows of a column: float64 with NaN for an empty cell; or objects: text, lists of texts, None for empty."""
Chunk = dict[str, Cells]
CHUNK = 20_000
CELLS = 2**20
"""At most so many rows, and about so many cells, are read at a time; limits the memory beside the result."""
MISSING = frozenset({"", "nan", "NaN", "<NA>"})
"""Texts that mean an empty cell in any column."""
_SHOWN = 20


class Table(Protocol):
    """A table that can be read more than once."""

    name: str
    columns: tuple[str, ...]

    def chunks(self, wanted: Sequence[str], *, texts: Collection[str]) -> Iterator[Chunk]:
        """Yield the wanted columns, some rows at a time; those in `texts` as exact text."""
        ...


def chunk_rows(num_columns: int) -> int:
    """Return how many rows of a table with so many columns are read at a time."""
    return max(1, min(CHUNK, CELLS // max(1, num_columns)))


def check_columns(table: str, columns: Sequence[str]) -> None:
    """Refuse a table without columns, with a column without a name, or with two columns of the same name."""
    if not columns:
        raise GraphError(f"{table} is empty; its first line must name the columns")
    seen: set[str] = set()
    for place, name in enumerate(columns, 1):
        if not name:
            raise GraphError(
                f"column {place} of {table} has no name; name it, or leave it out (pandas: to_csv(index=False))"
            )
        if name in seen:
            raise GraphError(f"{table} has two columns called '{name}'; rename one")
        seen.add(name)


def require(table: Table, name: str, why: str = "", *, remedy: str = "") -> str:
    """Return `name` if the table has that column; otherwise raise an error that lists its columns."""
    if name not in table.columns:
        more = f" and {len(table.columns) - _SHOWN} more" if len(table.columns) > _SHOWN else ""
        columns = ", ".join(table.columns[:_SHOWN]) + more or "none"
        raise GraphError(f"{table.name} has no column '{name}'{why}; it has {columns}{remedy}")
    return name


def as_texts(cells: Cells) -> list[Any]:
    """Return each cell as text, or None if it is empty; lists stay lists."""
    if cells.dtype != object:
        return [None if value != value else plain_number(value) for value in cells.tolist()]  # NaN differs from itself
    return [None if isinstance(cell, str) and cell in MISSING else cell for cell in cells.tolist()]


def plain_number(value: float) -> str:
    """Write a number as text; whole ones without a point."""
    return str(int(value)) if value.is_integer() else repr(value)
