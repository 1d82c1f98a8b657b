"""Who liked what: a log of interactions, with the columns of users and items as features."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.data.formats.edges import plain_ids
from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.formats.frames import FrameTable
from nfcgcn.data.formats.gathering import to_days, to_numbers
from nfcgcn.data.formats.nodes import encode_nodes, gather_nodes, warn_of_unseen
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.roles import make_roles
from nfcgcn.data.formats.table import Cells, Table, require
from nfcgcn.data.formats.tables import checked_ids, open_table
from nfcgcn.errors import GraphError, NFCWarning, unknown
from nfcgcn.graph import Ints
from nfcgcn.settings import one_line

Doubles = npt.NDArray[np.float64]
MOST_RATING = 1e300
"""The largest rating that can be asked for."""


@dataclass(frozen=True, eq=False)
class Kind:
    """The users, or the items: their names, and their features if there is a table of them."""

    names: tuple[str, ...]
    features: sp.csr_array
    """``[count, columns]``, float32; a row of zeros for one that the table lacks."""
    feature_names: tuple[str, ...] = ()
    encoding: Mapping[str, Any] | None = None
    """How the columns of the table were read; None without a table."""

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each name."""
        return {name: number for number, name in enumerate(self.names)}

    def find(self, name: str, what: str) -> int:
        """Return the number of a user or an item; `what` says which of both it is."""
        if name not in self.numbers:
            raise GraphError(unknown(what, name, self.names) if len(self) <= 1000 else _not_known(what, name))
        return self.numbers[name]


def _not_known(what: str, name: str) -> str:
    return f"unknown {what} '{name[:80]}'; it is neither in the interactions nor in the table of {what}s"


@dataclass(frozen=True, eq=False)
class Interactions:
    """A log of interactions between users and items, each pair once.

    >>> log = Interactions.from_pairs([("ann", "tea"), ("ann", "milk"), ("bob", "tea")])
    >>> log
    Interactions(users=2, items=2, pairs=3)
    >>> log.matrix.toarray().astype(int).tolist()  # the items are milk and tea
    [[1, 1], [0, 1]]
    """

    users: Kind
    items: Kind
    pairs: Ints
    """``[2, E]``: the numbers of user and item, ordered by user, then by item; no pair twice."""
    times: Doubles | None = None
    """``[E]``: when, in any unit that grows with time; None if the log does not say."""

    @classmethod
    def from_pairs(cls, pairs: Sequence[tuple[str, str]], times: Sequence[float] | None = None) -> Interactions:
        """Make a log of names; of a pair that comes several times, the earliest time is kept."""
        users, items = (np.array([str(pair[end]) for pair in pairs], dtype=object) for end in (0, 1))
        return _assemble(users, items, None if times is None else np.asarray(times, np.float64), None, None)

    def __repr__(self) -> str:
        return f"Interactions(users={len(self.users)}, items={len(self.items)}, pairs={self.pairs.shape[1]})"

    @cached_property
    def matrix(self) -> sp.csr_array:
        """``[users, items]``: 1 for every pair."""
        ones = np.ones(self.pairs.shape[1], np.float32)
        return sp.csr_array((ones, tuple(self.pairs)), shape=(len(self.users), len(self.items)))

    def subset(self, chosen: npt.NDArray[Any]) -> Interactions:
        """Return the same users and items with some of the pairs, given by their numbers or a mask."""
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else np.sort(chosen)
        return replace(self, pairs=self.pairs[:, chosen], times=None if self.times is None else self.times[chosen])

    def without_features(self) -> Interactions:
        """Return the same log without the columns of users and items."""
        bare = (Kind(kind.names, sp.csr_array((len(kind), 0), dtype=np.float32)) for kind in (self.users, self.items))
        users, items = bare
        return replace(self, users=users, items=items)


def read_interactions(
    interactions: Any,
    *,
    user: str,
    item: str,
    rating: str | None = None,
    at_least: float | None = None,
    time: str | None = None,
    users: Any = None,
    items: Any = None,
    user_id: str | None = None,
    item_id: str | None = None,
    text: Sequence[str] = (),
    words: Sequence[str] = (),
    ignore: Sequence[str] = (),
    known: Interactions | None = None,
) -> Interactions:
    """Read a log of interactions from a table: a path (CSV, TSV, Parquet) or a data frame.

    ``user`` and ``item`` are the columns with the identifiers. With ``rating`` and ``at_least``, only rows whose rating
    is at least that much count. ``time`` is a column of numbers or dates. A pair that comes several times counts once,
    with its earliest time; a warning has the number of such rows.

    ``users`` and ``items`` are tables with one row per user or item. Their identifiers are in the column ``user_id``
    or ``item_id``, by default the one called as in the log, else "id", else the first. All other columns become
    features as in ``nfcgcn train`` (`text`, `words`, `ignore` name columns of either table), each kind its own. Users
    and items without an interaction are kept: they are judged by their features. Those without a row have no features.

    With a ``known`` log, columns are read as they were for it, and its users and items keep their numbers; the result
    has all users and items, and the interactions of the new table alone. There need not be one.

    >>> import pandas as pd
    >>> log = pd.DataFrame({"who": ["ann", "bob", "bob"], "what": ["tea", "tea", "milk"], "stars": [5, 2, 4]})
    >>> read_interactions(log, user="who", item="what", rating="stars", at_least=4)
    Interactions(users=2, items=2, pairs=2)
    """
    nothing = np.array([], dtype=object)
    pairs: tuple[Cells, Cells] = (nothing, nothing)
    times, where = None, "the interactions"
    if interactions is not None or known is None:
        table = _open(interactions, where)
        where, (pairs, times) = table.name, _read_pairs(table, user, item, rating, at_least, time)
    options = {"text": text, "words": words, "ignore": ignore}
    _check_columns(options, [_open(t, name) for t, name in ((users, "users"), (items, "items")) if t is not None])
    kinds = []
    for given, name, id_column, column, before in (
        (users, "the users", user_id, user, None if known is None else known.users),
        (items, "the items", item_id, item, None if known is None else known.items),
    ):
        kinds.append(None if given is None else _read_kind(_open(given, name), id_column, column, options, before))
    log = _assemble(pairs[0], pairs[1], times, kinds[0], kinds[1], known=known)
    if known is None:
        check_usable(log, where)
    return log


def check_usable(log: Interactions, where: str) -> None:
    """Refuse a log from which nothing can be learned."""
    num_users, num_items = (len(np.unique(ends)) for ends in log.pairs)
    if not log.pairs.shape[1]:
        raise GraphError(f"{where} holds no interaction; lower --at-least, or give another file")
    for count, what in ((num_users, "user"), (num_items, "item")):
        if count < 2:
            raise GraphError(f"{where} has interactions of one {what} only; at least two are needed to learn a taste")


def _open(given: Any, name: str) -> Table:
    return open_table(Path(given)) if isinstance(given, str | PathLike) else FrameTable(given, name)


def _check_columns(options: Mapping[str, Sequence[str]], tables: Sequence[Table]) -> None:
    for role, names in options.items():
        for name in names:
            if not any(name in table.columns for table in tables):
                where = " or ".join(table.name for table in tables) or "the interactions, which have no features"
                raise GraphError(f"--{role} names '{name}', which is not a column of {where}")


def _read_pairs(
    table: Table, user: str, item: str, rating: str | None, at_least: float | None, time: str | None
) -> tuple[tuple[Cells, Cells], Doubles | None]:
    problems = Problems()
    names = [name for name in (user, item, rating, time) if name is not None]
    for name in names:
        with problems.gather():
            require(table, name)
    problems.check()
    if len(set(names)) < len(names):
        raise GraphError(f"a column of {table.name} is named for two purposes; got {', '.join(names)}")
    if (rating is None) != (at_least is None):
        raise GraphError("--rating and --at-least go together: the column, and the lowest rating that counts as liked")
    if at_least is not None and not abs(at_least) <= MOST_RATING:  # nor NaN
        raise GraphError(f"--at-least must be a number of at most {MOST_RATING:g}, got {one_line(at_least)}")
    ends: tuple[list[Cells], list[Cells]] = ([], [])
    moments: list[Doubles] = []
    done = 0
    for chunk in table.chunks(names, texts={user, item}):
        kept = np.ones(len(chunk[user]), bool)
        if rating is not None and at_least is not None:
            kept = _numbers(chunk[rating], rating, table.name, done) >= at_least
        for place, column in enumerate((user, item)):
            ids = plain_ids(chunk[column])
            empty = np.flatnonzero([name is None for name in ids])
            if len(empty):
                raise GraphError(f"row {done + empty[0] + 1} of {table.name} has no {column}; fill it in or remove it")
            ends[place].append(ids[kept])
        if time is not None:
            moments.append(_numbers(chunk[time], time, table.name, done, dates=True)[kept])
        done += len(kept)
    if not done:
        raise GraphError(f"{table.name} has no rows; each row is one interaction")
    users, items = (np.concatenate(part) for part in ends)
    return (users, items), np.concatenate(moments) if time is not None else None


def _numbers(cells: Cells, column: str, table: str, done: int, *, dates: bool = False) -> Doubles:
    numbers: Doubles = to_numbers(cells) if cells.dtype == object else cells.astype(np.float64)
    if dates and cells.dtype == object and np.isnan(numbers).any():
        numbers = to_days(["" if cell is None else str(cell) for cell in cells.tolist()])
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        what = "a number or a date" if dates else "a number"
        text = str(cells[bad[0]])[:40]
        raise GraphError(f"column '{column}' of {table} must hold {what}, but row {done + bad[0] + 1} says '{text}'")
    return numbers


def _read_kind(
    table: Table, id_column: str | None, as_in_log: str, options: Mapping[str, Sequence[str]], before: Kind | None
) -> Kind:
    """Read a table of users or items; with an earlier one, as its columns were read then."""
    known = None if before is None or before.encoding is None else Encoding.from_json(before.encoding)
    default = next((name for name in (as_in_log, "id") if name in table.columns), table.columns[0])
    name = id_column or (known.id if known else None) or default
    chosen = {role: [column for column in names if column in table.columns] for role, names in options.items()}
    roles = make_roles(table, known, has_edges=False, id=name, **chosen)  # type: ignore[arg-type]
    problems = Problems()
    gathered = gather_nodes(table, roles, known, only_features=True)
    ids = checked_ids(table.name, name, gathered.ids, problems)
    content = encode_nodes(table, gathered, known, problems)
    problems.check()
    assert ids is not None  # noqa: S101  (or there was a problem)
    warn_of_unseen(table.name, content.unseen)
    encoding = content.encoding
    return Kind(tuple(ids.tolist()), sp.csr_array(content.features), encoding.feature_names, encoding.to_json())


def _assemble(
    users: Cells,
    items: Cells,
    times: Doubles | None,
    user_table: Kind | None,
    item_table: Kind | None,
    *,
    known: Interactions | None = None,
) -> Interactions:
    import pandas as pd

    kinds, ends = [], []
    for names, table, before in (
        (users, user_table, None if known is None else known.users),
        (items, item_table, None if known is None else known.items),
    ):
        kind = _join(names, table, before)
        kinds.append(kind)
        ends.append(pd.Index(kind.names).get_indexer(names).astype(np.int64))
    pairs = np.stack(ends) if len(users) else np.zeros((2, 0), np.int64)
    order = np.lexsort((*(() if times is None else (times,)), pairs[1], pairs[0]))
    pairs = pairs[:, order]
    first = np.ones(pairs.shape[1], bool)
    first[1:] = (np.diff(pairs, axis=1) != 0).any(axis=0)
    if not first.all():
        again = int((~first).sum())
        warnings.warn(f"{again} interactions repeat a pair of user and item, and count once", NFCWarning, stacklevel=3)
    return Interactions(kinds[0], kinds[1], pairs[:, first], None if times is None else times[order][first])


def _join(names: Cells, table: Kind | None, before: Kind | None) -> Kind:
    """Return all users or items: those known before, those of the table, then those that only the log names."""
    import pandas as pd

    parts = [list(kind.names) for kind in (before, table) if kind is not None]
    everyone = pd.unique(np.array([*(name for part in parts for name in part), *sorted(set(names.tolist()))], object))
    index = pd.Index(everyone)
    columns = next((kind.features.shape[1] for kind in (table, before) if kind is not None), 0)
    features = sp.csr_array((len(everyone), columns), dtype=np.float32)
    for kind in (before, table):  # a row of the new table replaces the earlier one
        if kind is not None and kind.features.shape[1]:
            rows = index.get_indexer(list(kind.names))
            keep = np.ones(len(everyone), np.float32)
            keep[rows] = 0
            place = sp.csr_array(
                (np.ones(len(rows), np.float32), (rows, np.arange(len(rows)))), shape=(len(everyone), len(rows))
            )
            features = sp.csr_array(sp.diags_array(keep) @ features + place @ kind.features, dtype=np.float32)
    source = table or before
    return Kind(
        tuple(everyone.tolist()),
        features,
        () if source is None else source.feature_names,
        None if source is None else source.encoding,
    )
