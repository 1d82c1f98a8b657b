"""Read edges from a table: ids of nodes become row numbers, a column becomes weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from nfcgcn.data.formats.columns import LARGEST
from nfcgcn.data.formats.gathering import to_numbers
from nfcgcn.data.formats.labels import listed
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.table import MISSING, Cells, Table, require
from nfcgcn.errors import ConfigError, GraphError, counted, option, unknown
from nfcgcn.graph import Ints

UnknownEdges = Literal["error", "drop", "add"]
_WHOLE = re.compile(r"-?[0-9]+\.0")


@dataclass(frozen=True)
class EdgeList:
    """Edges as they were read, before directions, loops and duplicates are dropped."""

    pairs: Ints
    """``[2, E]``, row numbers of nodes; a number past the last row is that of a node in `added`."""
    weights: npt.NDArray[np.float64] | None = None
    added: tuple[str, ...] = ()
    """Ids that only edges name, and that become nodes."""
    dropped: int = 0
    """Rows that were left out because they name an unknown id, or lack one."""
    unused: tuple[str, ...] = ()
    """Columns or attributes that were not read."""


def check_choice(unknown_edges: str) -> str:
    """Return what to do with edges to unknown ids, if it is one of the choices."""
    if unknown_edges not in get_args(UnknownEdges):
        raise ConfigError(unknown("choice for unknown edges", unknown_edges, get_args(UnknownEdges)))
    return unknown_edges


def plain_ids(cells: Cells) -> Cells:
    """Return ids as text, or None if empty; whole numbers are written without a point, "7.0" as "7"."""
    # The same steps with pandas, on objects, took 50 % longer.
    ids = ["" if cell is None else cell.strip() for cell in cells.tolist()]
    if any(name.endswith(".0") for name in ids):
        ids = [name[:-2] if _WHOLE.fullmatch(name) else name for name in ids]
    return np.array([None if name in MISSING else name for name in ids], dtype=object)


def read_edges(
    table: Table,
    nodes: str,
    ids: Cells,
    source: str,
    target: str,
    weight: str | None = None,
    *,
    unknown_edges: str,
    remedy: str | None = None,
) -> EdgeList:
    """Read a table of edges between `ids`, those of the table called `nodes`; `remedy` is for edges to other ids."""
    import pandas as pd

    ends = [source, target]
    index = pd.Index(ids)
    strange = pd.Index([], dtype=object)
    pairs, weights, lost, empty, done = [np.zeros((2, 0), np.int64)], [np.zeros(0)], 0, 0, 0
    first_empty, problems, reader = 0, Problems(), Weights(f"column '{weight}' of {table.name}")
    for chunk in table.chunks([*ends, *([weight] if weight else [])], texts=ends):
        names = [plain_ids(chunk[end]) for end in ends]
        places = np.stack([index.get_indexer(some) for some in names])
        bad, blank = places < 0, np.stack([pd.isna(some) for some in names])
        if blank.any() and not first_empty:
            first_empty = done + int(blank.any(axis=0).argmax()) + 1
        empty += int(blank.any(axis=0).sum())
        if bad.any():
            in_order = np.stack(names, axis=1)[(bad & ~blank).T]
            strange = strange.append(pd.Index(pd.unique(in_order), dtype=object)).drop_duplicates()
            lost += int((bad & ~blank).any(axis=0).sum())
        keep = np.ones(places.shape[1], bool) if unknown_edges != "drop" else ~bad.any(axis=0)
        if unknown_edges == "add" and bad.any():
            later = np.stack([strange.get_indexer(some) for some in names])
            places = np.where(bad, len(ids) + later, places)
        pairs.append(places[:, keep])
        if weight:
            weights.append(reader.read(chunk[weight])[keep])
        done += places.shape[1]
    with problems.gather():
        reader.check()
    with problems.gather():
        if first_empty and unknown_edges != "drop":
            raise GraphError(lacking_id(table.name, first_empty, empty))
    with problems.gather():
        if len(strange) and unknown_edges == "error":
            shown = listed(strange.tolist())
            raise GraphError(unknown_ids(table.name, nodes, shown, len(strange), lost, done, remedy))
    problems.check()
    return EdgeList(
        pairs=np.concatenate(pairs, axis=1).astype(np.int64),
        weights=np.concatenate(weights) if weight else None,
        added=tuple(strange) if unknown_edges == "add" else (),
        dropped=done - sum(part.shape[1] for part in pairs),
        unused=tuple(name for name in table.columns if name not in (*ends, weight)),
    )


def lacking_id(table: str, row: int, count: int) -> str:
    """Say that a row of a table of edges lacks an id, and how many rows do."""
    more = f": {count} rows lack one; {option('unknown_edges', 'drop')} leaves them out" if count > 1 else ""
    return f"row {row} of {table} lacks an id; an edge needs both ends{more}"


def unknown_ids(table: str, nodes: str, names: str, count: int, lost: int, rows: int, remedy: str | None = None) -> str:
    """Say that `lost` of the `rows` edges of a table name ids without a node."""
    other_column = f"if the ids are in another column, name it with {option('id')}; otherwise " if lost == rows else ""
    add = f"{other_column}add the nodes, remove the edges, or choose {option('unknown_edges', 'drop', 'add')}"
    where = f"in {lost} of {counted(rows, 'edge')}"
    return f"{table} names {counted(count, 'id')} that no row of {nodes} has, {where}: {names}; {remedy or add}"


def edge_columns(table: Table, source: str, target: str, weight: str | None, *, can_choose: bool = True) -> list[str]:
    """Return the columns of a table of edges that are read; refuse one that is missing or named twice.

    `can_choose` says whether the user chooses them by options; otherwise they are those of an earlier table.
    """
    roles = {"source": source, "target": target, "weight": weight}
    names, problems = [name for name in roles.values() if name is not None], Problems()
    for role, name in roles.items():
        with problems.gather():
            if name is not None:
                require(table, name, remedy=f"; name another with {option(role)}" if can_choose else "")
    problems.check()
    if names[0] == names[1]:
        raise GraphError(
            f"edges cannot go from column '{names[0]}' of {table.name} to itself; choose {option('target')}"
        )
    if weight in names[:2]:
        raise GraphError(
            f"column '{weight}' of {table.name} holds ids, not weights; name another with {option('weight')}"
        )
    return names


class Weights:
    """Reads weights of edges, some rows at a time, and counts the rows that hold none."""

    def __init__(self, where: str) -> None:
        self.where, self.rows = where, 0
        self._bad: dict[str, tuple[int, int, str]] = {}
        """By what is wrong: the number of rows, the first of them, and what that one holds."""

    def read(self, cells: Cells) -> npt.NDArray[np.float64]:
        """Return cells as numbers; what is no number from 0 up is counted."""
        values = cells.tolist()
        if cells.dtype == object:  # texts, or lists of them, which are no numbers
            numbers = to_numbers([value if isinstance(value, str) else "" for value in values])
        else:
            numbers = cells.astype(np.float64)
        for place in np.flatnonzero(~((numbers >= 0) & (numbers <= LARGEST))):
            reason = _why_no_weight(values[place], numbers[place])
            count, row, text = self._bad.get(reason, (0, self.rows + int(place) + 1, str(values[place])[:40]))
            self._bad[reason] = (count + 1, row, text)
        self.rows += len(cells)
        return numbers

    def check(self) -> None:
        """Refuse weights of which some are none: all kinds of mistakes in one message."""
        if not self._bad:
            return
        rule, total = f"{self.where} must hold a weight from 0 up for each edge", sum(b[0] for b in self._bad.values())
        if total == 1:
            ((reason, (_, row, text)),) = self._bad.items()
            shown = "is empty" if reason == EMPTY else f"says '{text}'"
            raise GraphError(f"{rule}, but row {row} {shown}; correct it")
        mistakes = [
            f"{count:,} {reason} (first row {row}" + (")" if reason == EMPTY else f", '{text}')")
            for reason, (count, row, text) in self._bad.items()
        ]
        raise GraphError(f"{rule}, but {total:,} of {self.rows:,} rows do not: {', '.join(mistakes)}; correct them")


EMPTY = "empty"


def _why_no_weight(value: object, number: float) -> str:
    if value is None or str(value) in MISSING:
        return EMPTY
    if number < 0:
        return "below 0"
    return "no number" if np.isnan(number) else "too large"
