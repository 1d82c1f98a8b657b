"""Read features, labels and a split from a table of nodes: every column has one role."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.data.formats.blocks import choose_form, encode_columns, join
from nfcgcn.data.formats.columns import (
    USUAL,
    Category,
    Column,
    HashedText,
    Number,
    Text,
    Words,
    learn,
    learn_text,
    learn_words,
)
from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.formats.gathering import Values
from nfcgcn.data.formats.labels import encode_labels, encode_split, learn_classes, listed
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.roles import Roles
from nfcgcn.data.formats.table import CHUNK, Cells, Table, require
from nfcgcn.data.formats.words import WordCounts, find_separator
from nfcgcn.errors import GraphError, NFCWarning, UnseenWarning
from nfcgcn.graph import Ints, Split


@dataclass(frozen=True)
class Nodes:
    """The content of a table of nodes."""

    features: sp.csr_array | npt.NDArray[np.float32]
    labels: Ints
    given: Split | None
    encoding: Encoding
    unseen: Mapping[str, str]
    """With a known encoding: how many cells or words of a column it does not know, in words, by column."""


class _Kept:
    """Columns that are stored as text until all rows are read."""

    def __init__(self, names: Sequence[str]) -> None:
        self.rows = 0
        self.parts: dict[str, list[Cells]] = {name: [] for name in names}

    def __getitem__(self, name: str) -> Cells:
        return np.concatenate(self.parts[name])


@dataclass(frozen=True)
class Gathered:
    """The cells of a table of nodes, read but not yet made sense of."""

    roles: Roles
    label: str | None
    split: str | None
    kept: _Kept
    cells: dict[str, Values | WordCounts]

    @property
    def ids(self) -> Cells:
        """The cells of the column of ids."""
        return self.kept[self.roles.id or ""]


def gather_nodes(
    table: Table, roles: Roles, known: Encoding | None, *, num_rows: int = 0, only_features: bool = False
) -> Gathered:
    """Read the cells of a table of nodes; `num_rows` is for a table without any column.

    With `only_features` no column is a label or a split, whatever it is called.
    """
    label, split, named, features = assign_columns(table, roles, known, only_features=only_features)
    kept, cells = _gather(table, named, features)
    kept.rows = kept.rows or num_rows
    if not kept.rows:
        raise GraphError(f"{table.name} has no rows; a graph needs at least one node")
    return Gathered(roles, label, split, kept, cells)


def encode_nodes(table: Table, gathered: Gathered, known: Encoding | None, problems: Problems) -> Nodes:
    """Make features and labels by a `known` encoding; without one, learn it. What is wrong joins other `problems`."""
    roles, label, split, kept = gathered.roles, gathered.label, gathered.split, gathered.kept
    classes = known.classes if known else None
    where = f"column '{label}' of {table.name}"
    if label is not None and classes is None:
        with problems.gather():
            classes = learn_classes(kept[label], where)
    labels = np.full(kept.rows, -1, np.int64)
    if label is not None and classes is not None:
        labels = encode_labels(kept[label], classes, where)
    given = None
    with problems.gather():
        given = None if split is None else encode_split(kept[split], labels, f"column '{split}' of {table.name}")
    learners = {name: partial(_learn_column, name, cells) for name, cells in gathered.cells.items()}
    learned = known.columns if known else learn_columns(table, roles, learners, problems)
    problems.check()
    unseen = {name: cells.unseen_text for name, cells in gathered.cells.items() if cells.unseen}
    blocks, filled = encode_columns(learned, gathered.cells)
    warn_of_filled(table.name, filled)
    matrix, form = join(blocks, kept.rows, known.form if known else choose_form(blocks, learned))
    return Nodes(
        features=matrix,
        labels=labels,
        given=given,
        encoding=replace(known, label=label or known.label, classes=classes)
        if known
        else Encoding(
            learned,
            form,
            roles.id,
            label,
            classes,
            split or "split",
            roles.source,
            roles.target,
            roles.weight,
            roles.directed,
            roles.unknown_edges,
            roles.structure,
        ),
        unseen=unseen,
    )


def warn_of_unseen(table: str, unseen: Mapping[str, str]) -> None:
    """Warn of texts and words of a table that are not among the features."""
    if unseen:
        counts = [f"{name} ({count})" for name, count in unseen.items()]
        more = f" and {len(counts) - 5} more columns" if len(counts) > 5 else ""
        warnings.warn(
            f"{table} holds values that are not among the features, and were left out: {', '.join(counts[:5])}{more}",
            UnseenWarning,
            stacklevel=3,
        )


def find_role(table: Table, roles: Roles, named: str | None, default: str | None) -> str | None:
    """Return the column that was `named` for a role, or the `default` one if there is such a column."""
    if named is not None:
        return require(table, named)
    return default if default in table.columns and default not in (*roles.ignore, *roles.text, *roles.words) else None


class Assigned(NamedTuple):
    """The columns of a table of nodes by what they are for."""

    label: str | None
    split: str | None
    named: list[str]
    """Those of ids, labels and split, as far as there are any."""
    features: dict[str, Column | str]
    """The columns that become features, each with what is known about it or how to read it."""


def assign_columns(
    table: Table, roles: Roles, known: Encoding | None = None, *, only_features: bool = False
) -> Assigned:
    """Give each column its role; refuse roles of columns that are not there, and two roles of one column."""
    problems = Problems()
    for name in (roles.id, roles.label, roles.split, *roles.text, *roles.words, *roles.ignore):
        with problems.gather():
            if name is not None:
                require(table, name)
    problems.check()
    label = None if only_features else find_role(table, roles, roles.label, known.label if known else "label")
    split = None if only_features else find_role(table, roles, roles.split, known.split if known else "split")
    named = [name for name in (roles.id, label, split) if name is not None]
    _check_roles(table, roles, named)
    return Assigned(label, split, named, _feature_columns(table, roles, named, known))


def _check_roles(table: Table, roles: Roles, named: Sequence[str]) -> None:
    """Refuse a column that is given two roles."""
    seen: set[str] = set()
    for name in (*named, *roles.text, *roles.words, *roles.ignore):
        if name in seen:
            raise GraphError(f"column '{name}' of {table.name} is given two meanings; name it once")
        seen.add(name)


def _feature_columns(
    table: Table, roles: Roles, named: Sequence[str], known: Encoding | None
) -> dict[str, Column | str]:
    """Return the columns that become features, each with what is known about it or how to read it."""
    if known:
        for column in known.columns:
            require(table, column.name, ", which the features were made of")
        return {column.name: column for column in known.columns}
    others = [name for name in table.columns if name not in (*named, *roles.ignore)]
    if not others and not roles.structure:
        columns = ", ".join(table.columns) or "none"
        raise GraphError(f"{table.name} has no column left to make features of; it has {columns}")
    chosen = {name: how for how, names in (("text", roles.text), ("words", roles.words)) for name in names}
    return {name: chosen.get(name, "plain") for name in others}


def _gather(
    table: Table, named: Sequence[str], features: Mapping[str, Column | str]
) -> tuple[_Kept, dict[str, Values | WordCounts]]:
    texts = {name for name, how in features.items() if how == "text" or isinstance(how, Text | HashedText)}
    kept = _Kept(named)
    gathered: dict[str, Values | WordCounts] = {}
    waiting: dict[str, list[Cells]] = {name: [] for name in features}
    for chunk in table.chunks([*named, *features], texts={*named, *texts}) if named or features else ():
        for name in named:
            kept.parts[name].append(chunk[name])
        kept.rows += len(next(iter(chunk.values())))
        for name, how in features.items():
            waiting[name].append(chunk.pop(name))
            if how != "words" or kept.rows >= CHUNK:  # what separates words shows in the first rows, however wide
                _add(table, name, how, waiting, gathered)
    for name, how in features.items():
        _add(table, name, how, waiting, gathered)
    return kept, {name: gathered[name] for name in features if name in gathered}


def _add(
    table: Table,
    name: str,
    how: Column | str,
    waiting: dict[str, list[Cells]],
    gathered: dict[str, Values | WordCounts],
) -> None:
    if waiting[name] and name not in gathered:
        gathered[name] = _gatherer(table, name, how, np.concatenate(waiting[name]))
    for cells in waiting[name]:
        gathered[name].add(cells)
    waiting[name].clear()


def _gatherer(table: Table, name: str, how: Column | str, first: Cells) -> Values | WordCounts:
    if isinstance(how, Text):
        return WordCounts(vocabulary=how.vocabulary)
    if isinstance(how, HashedText):
        return WordCounts()
    if isinstance(how, Words):
        return WordCounts(how.separator, vocabulary=how.vocabulary)
    if isinstance(how, str) and how != "plain":
        return WordCounts(find_separator(first) if how == "words" else None)
    return Values(name, table.name, known=how.values if isinstance(how, Category) else None)


def learn_columns(
    table: Table, roles: Roles, learners: Mapping[str, Callable[[], Column | None]], problems: Problems
) -> tuple[Column, ...]:
    """Decide what each column holds, and say which ones are empty or get another scale.

    A learner returns what its column holds, or None if it is empty.
    """
    learned: list[Column] = []
    empty, scaled = [], []
    for name, learner in learners.items():
        column: Column | None = None
        before = len(problems.messages)
        with problems.gather():
            column = learner()
        if column is not None:
            learned.append(column)
        elif len(problems.messages) == before:
            empty.append(name)
        if isinstance(column, Number) and (column.shift, column.scale) != (0, 1) and not column.dates:
            scaled.append(name)
    problems.check()
    if not learned and not roles.structure:
        raise GraphError(f"all columns of {table.name} that could be features are empty: {listed(empty)}")
    if empty:
        _warn(f"columns of {table.name} without a value or word were left out: {listed(empty)}")
    if scaled:
        low, high = USUAL
        _warn(
            f"columns of {table.name} whose largest value is not between {low:g} and {high:g} were standardised: "
            f"{listed(scaled)}"
        )
    return tuple(learned)


def _learn_column(name: str, cells: Values | WordCounts) -> Column | None:
    """Return what a column holds, or None if it is empty."""
    if isinstance(cells, Values):
        return learn(cells)
    if not cells.places:
        return None
    return learn_text(name, cells) if cells.separator is None else learn_words(name, cells)


def warn_of_filled(table: str, filled: Mapping[str, int]) -> None:
    """Warn of empty cells that were filled, by column."""
    counts = [f"{name} ({count})" for name, count in filled.items() if count]
    if counts:
        _warn(
            f"empty cells of {table} were filled with their column's mean: {', '.join(counts[:3])}"
            + (f" and {len(counts) - 3} more columns" if len(counts) > 3 else "")
        )


def _warn(message: str) -> None:
    warnings.warn(message, NFCWarning, stacklevel=2)
