"""Read features, labels and a split from a table of nodes: every column has one role."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.data.formats.columns import (
    USUAL,
    Block,
    Category,
    Column,
    Number,
    Text,
    Values,
    Words,
    encode_category,
    encode_number,
    encode_text,
    learn,
    learn_text,
    learn_words,
)
from nfcgcn.data.formats.encoding import Encoding, Form
from nfcgcn.data.formats.labels import encode_labels, encode_split, learn_classes, listed
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.roles import Roles
from nfcgcn.data.formats.table import CHUNK, Cells, Table, require
from nfcgcn.data.formats.words import WordCounts, find_separator
from nfcgcn.errors import GraphError, NFCWarning
from nfcgcn.graph import Ints, Split

DENSE_FROM = 0.1
"""Features are stored dense if at least this share of the values is not zero and no column is text or words."""


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
    problems = Problems()
    for name in (roles.id, roles.label, roles.split, *roles.text, *roles.words, *roles.ignore):
        with problems.gather():
            if name is not None:
                require(table, name)
    problems.check()
    label = None if only_features else _role(table, roles, roles.label, known.label if known else "label")
    split = None if only_features else _role(table, roles, roles.split, known.split if known else "split")
    named = [name for name in (roles.id, label, split) if name is not None]
    _check_roles(table, roles, named)
    features = _features(table, roles, named, known)
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
    if label is not None and not known:
        with problems.gather():
            classes = learn_classes(kept[label], where)
    labels = np.full(kept.rows, -1, np.int64)
    if label is not None and classes is not None:
        labels = encode_labels(kept[label], classes, where)
    given = None
    with problems.gather():
        given = None if split is None else encode_split(kept[split], labels, f"column '{split}' of {table.name}")
    learned = known.columns if known else _learn(table, roles, gathered.cells, problems)
    problems.check()
    unseen = {name: cells.unseen_text for name, cells in gathered.cells.items() if cells.unseen}
    matrix, form = _encode(table, learned, gathered.cells, known.form if known else None, kept.rows)
    return Nodes(
        features=matrix,
        labels=labels,
        given=given,
        encoding=known
        or Encoding(
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
        _warn(f"{table} holds values that are not among the features, and were left out: {', '.join(counts[:5])}{more}")


def _role(table: Table, roles: Roles, named: str | None, default: str | None) -> str | None:
    if named is not None:
        return require(table, named)
    return default if default in table.columns and default not in (*roles.ignore, *roles.text, *roles.words) else None


def _check_roles(table: Table, roles: Roles, named: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in (*named, *roles.text, *roles.words, *roles.ignore):
        if name in seen:
            raise GraphError(f"column '{name}' of {table.name} is given two meanings; name it once")
        seen.add(name)


def _features(table: Table, roles: Roles, named: Sequence[str], known: Encoding | None) -> dict[str, Column | str]:
    """Return the columns that become features, each with what is known about it or how to read it."""
    if known:
        for column in known.columns:
            require(table, column.name, ", which the features were made of")
        return {column.name: column for column in known.columns}
    others = [name for name in table.columns if name not in (*named, *roles.ignore)]
    if not others and not roles.structure:
        raise GraphError(f"{table.name} has no column left to make features of; it has {', '.join(table.columns)}")
    chosen = {name: how for how, names in (("text", roles.text), ("words", roles.words)) for name in names}
    return {name: chosen.get(name, "plain") for name in others}


def _gather(
    table: Table, named: Sequence[str], features: Mapping[str, Column | str]
) -> tuple[_Kept, dict[str, Values | WordCounts]]:
    texts = {name for name, how in features.items() if how == "text" or isinstance(how, Text)}
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
    if isinstance(how, Words):
        return WordCounts(how.separator, vocabulary=how.vocabulary)
    if isinstance(how, str) and how != "plain":
        return WordCounts(find_separator(first) if how == "words" else None)
    return Values(name, table.name, known=how.values if isinstance(how, Category) else None)


def _learn(
    table: Table, roles: Roles, gathered: Mapping[str, Values | WordCounts], problems: Problems
) -> tuple[Column, ...]:
    learned: list[Column] = []
    empty, scaled = [], []
    for name, cells in gathered.items():
        column: Column | None = None
        before = len(problems.messages)
        with problems.gather():
            column = _learn_column(name, cells)
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


def _encode(
    table: Table, learned: Iterable[Column], gathered: dict[str, Values | WordCounts], form: Form | None, rows: int
) -> tuple[sp.csr_array | npt.NDArray[np.float32], Form]:
    blocks: list[Block] = []
    filled = []
    for column in learned:
        cells: Any = gathered.pop(column.name)  # so that the cells of a column and its features are never both kept
        if isinstance(column, Number):
            block, empty = encode_number(column, cells)
            filled += [f"{column.name} ({empty})"] if empty else []
            blocks.append(block)
        elif isinstance(column, Category):
            blocks.append(encode_category(column, cells))
        elif isinstance(column, Text):
            blocks.append(encode_text(column, cells))
        else:
            blocks.append(cells.of(column.vocabulary))
    if filled:
        _warn(
            f"empty cells of {table.name} were filled with their column's mean: {', '.join(filled[:3])}"
            + (f" and {len(filled) - 3} more columns" if len(filled) > 3 else "")
        )
    if not blocks:
        return np.zeros((rows, 0), np.float32), "dense"
    form = form or _form(blocks, any(isinstance(c, Text | Words) for c in learned))
    if form == "sparse":
        return sp.csr_array(sp.hstack([sp.csr_array(block) for block in blocks], format="csr"), dtype=np.float32), form
    return np.hstack([block if isinstance(block, np.ndarray) else block.toarray() for block in blocks]), form


def _form(blocks: Sequence[Block], has_words: bool) -> Form:
    filled = sum(np.count_nonzero(b) if isinstance(b, np.ndarray) else b.nnz for b in blocks)
    size = sum(b.shape[0] * b.shape[1] for b in blocks)
    return "sparse" if has_words or filled < DENSE_FROM * size else "dense"


def _warn(message: str) -> None:
    warnings.warn(message, NFCWarning, stacklevel=2)
