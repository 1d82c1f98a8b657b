"""Read edges from a table: ids of nodes become row numbers, a column becomes weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from nfcgcn.data.formats.columns import to_numbers
from nfcgcn.data.formats.labels import listed
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.table import MISSING, Cells, Table, require
from nfcgcn.errors import ConfigError, GraphError, unknown
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
    remedy: str = "add the nodes, remove the edges, or choose --unknown-edges drop or add",
) -> EdgeList:
    """Read a table of edges between `ids`, those of the table called `nodes`; `remedy` is for edges to other ids."""
    import pandas as pd

    ends = [source, target]
    index = pd.Index(ids)
    strange = pd.Index([], dtype=object)
    pairs, weights, lost, empty, done = [np.zeros((2, 0), np.int64)], [np.zeros(0)], 0, 0, 0
    first_empty, problems = 0, Problems()
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
        with problems.gather():
            if weight and not problems.messages:
                where = f"column '{weight}' of {table.name}"
                weights.append(read_weights(chunk[weight], where, done)[keep])
        done += places.shape[1]
    with problems.gather():
        if first_empty and unknown_edges != "drop":
            more = f": {empty} rows lack one; --unknown-edges drop leaves them out" if empty > 1 else ""
            raise GraphError(f"row {first_empty} of {table.name} lacks an id; an edge needs both ends{more}")
    with problems.gather():
        if len(strange) and unknown_edges == "error":
            raise GraphError(
                f"{lost} of {done} edges in {table.name} name {len(strange)} ids that no row of {nodes} has: "
                f"{listed(strange.tolist())}; {remedy}"
            )
    problems.check()
    return EdgeList(
        pairs=np.concatenate(pairs, axis=1).astype(np.int64),
        weights=np.concatenate(weights) if weight else None,
        added=tuple(strange) if unknown_edges == "add" else (),
        dropped=done - sum(part.shape[1] for part in pairs),
        unused=tuple(name for name in table.columns if name not in (*ends, weight)),
    )


def edge_columns(table: Table, source: str, target: str, weight: str | None) -> list[str]:
    """Return the columns of a table of edges that are read; refuse one that is missing or named twice."""
    names, problems = [name for name in (source, target, weight) if name is not None], Problems()
    for name in names:
        with problems.gather():
            require(table, name)
    problems.check()
    if names[0] == names[1]:
        raise GraphError(f"edges cannot go from column '{names[0]}' of {table.name} to itself; choose --target")
    if weight in names[:2]:
        raise GraphError(f"column '{weight}' of {table.name} holds ids and cannot be --weight; choose another")
    return names


def read_weights(cells: Cells, where: str, done: int = 0) -> npt.NDArray[np.float64]:
    """Return cells as weights, which must be numbers from 0 up; `done` rows came before them."""
    values = cells.tolist()
    if cells.dtype == object:  # texts, or lists of them, which are no numbers
        numbers = to_numbers([value if isinstance(value, str) else "" for value in values])
    else:
        numbers = cells.astype(np.float64)
    bad = np.flatnonzero(~((numbers >= 0) & (numbers <= np.finfo(np.float32).max)))
    if len(bad):
        value = values[bad[0]]
        shown = "is empty" if value is None or str(value) in MISSING else f"says '{str(value)[:40]}'"
        raise GraphError(
            f"{where} must hold a weight from 0 up for each edge, but row {done + bad[0] + 1} {shown}; correct it"
        )
    return numbers
