"""A table of nodes that does not fit into memory: one pass to learn what its columns hold, one to write features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.data.formats.assembly import empty_row
from nfcgcn.data.formats.blocks import count_filled, encode_columns, form_of, join
from nfcgcn.data.formats.columns import Category, Column, HashedText, Text, Words, learn
from nfcgcn.data.formats.encoding import Encoding, Form
from nfcgcn.data.formats.gathering import Pieces, Values
from nfcgcn.data.formats.labels import choose_classes, class_texts, encode_labels, encode_parts, split_of
from nfcgcn.data.formats.nodes import assign_columns, learn_columns, warn_of_filled
from nfcgcn.data.formats.parquet import cells_of_arrow
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.roles import Roles
from nfcgcn.data.formats.table import CHUNK, as_texts
from nfcgcn.data.formats.words import find_separator
from nfcgcn.data.packing.engine import LargeTable
from nfcgcn.data.packing.progress import Progress
from nfcgcn.data.packing.spilled import SpilledPieces
from nfcgcn.data.packing.words import PackedCounts, Vocabulary, separator_of
from nfcgcn.data.store.writing import StoreWriter
from nfcgcn.errors import GraphError
from nfcgcn.graph import Split

MOST_TEXTS = 2**17
"""A column of labels with more different texts is refused before all of it is read."""


@dataclass
class NodeColumns:
    """The columns of a table of nodes by what they are for."""

    table: LargeTable
    roles: Roles
    label: str | None
    split: str | None
    features: dict[str, Column | str]
    hashed: int | None
    """The number of features that each column of text is hashed to; None: a vocabulary is learnt."""
    pieces: Callable[[str], Pieces] = field(repr=False, default=Pieces)

    @classmethod
    def find(cls, table: LargeTable, roles: Roles, hashed: int | None) -> NodeColumns:
        """Give each column its role."""
        label, split, _, features = assign_columns(table, roles)
        return cls(table, roles, label, split, features, hashed, partial(SpilledPieces, table.engine.folder))

    @property
    def wanted(self) -> list[str]:
        """The columns that are read."""
        return [name for name in (self.label, self.split) if name is not None] + list(self.features)

    def cells(self, batch: Any, name: str, *, as_text: bool = False) -> npt.NDArray[Any]:
        """Return the cells of a column."""
        return cells_of_arrow(batch.column(batch.schema.get_field_index(name)), name, self.table.name, as_text=as_text)

    def texts(self, batch: Any, name: str, *, prose: bool) -> Any:
        """Return a column of texts or lists of texts as an Arrow array."""
        import pyarrow as pa

        array = batch.column(batch.schema.get_field_index(name))
        kind = array.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return array
        if not prose and hasattr(kind, "value_type") and pa.types.is_string(kind.value_type):
            return array
        return pa.array(as_texts(self.cells(batch, name, as_text=prose)), pa.string())


def learn_nodes(columns: NodeColumns, rows: int, progress: Progress, problems: Problems) -> Encoding:
    """Read the table once, and return how its columns become features and labels."""
    table, roles = columns.table, columns.roles
    gathered: dict[str, Any] = {}
    for number, (name, how) in enumerate(columns.features.items()):
        if how == "words" or (how == "text" and columns.hashed is None):
            separator = _separator(columns, name) if how == "words" else None
            gathered[name] = Vocabulary(table.engine, number, separator)
        elif how != "text":
            gathered[name] = Values(name, table.name, pieces=columns.pieces)
    classes: Counter[str] = Counter()
    done, where = 0, f"column '{columns.label}' of {table.name}"
    for batch in table.batches([name for name in columns.wanted if name in gathered or name == columns.label]):
        for name, values in gathered.items():
            if isinstance(values, Vocabulary):
                values.add(columns.texts(batch, name, prose=values.separator is None))
            else:
                values.add(columns.cells(batch, name))
        if columns.label is not None and len(classes) <= MOST_TEXTS:
            names = class_texts(columns.cells(batch, columns.label, as_text=True))
            classes.update(name for name in names if name is not None)
        done += batch.num_rows
        progress.show("learning what the columns hold", done, rows)
    chosen: tuple[str, ...] | None = None
    with problems.gather():
        chosen = choose_classes(classes, where)
    learners: dict[str, Callable[[], Column | None]] = {}
    for name in columns.features:
        values = gathered.get(name)
        if values is None:
            learners[name] = partial(HashedText, name, columns.hashed or 0)
        else:
            learners[name] = partial(values.learn, name) if isinstance(values, Vocabulary) else partial(learn, values)
    learned = learn_columns(table, roles, learners, problems)
    problems.check()
    return Encoding(
        learned,
        _form(learned, gathered, done),
        roles.id,
        columns.label,
        chosen,
        columns.split or "split",
        roles.source,
        roles.target,
        roles.weight,
        roles.directed,
        roles.unknown_edges,
    )


def _separator(columns: NodeColumns, name: str) -> str:
    """Return what separates words, by the first rows."""
    table = columns.table
    cells: list[Any] = []
    for batch in table.batches([name]):
        cells += columns.cells(batch, name).tolist()
        if len(cells) >= CHUNK:
            break
    return find_separator(np.array([*cells[:CHUNK], None], dtype=object)[:-1])


def _form(learned: tuple[Column, ...], gathered: dict[str, Any], rows: int) -> Form:
    """Decide between sparse and dense as for tables in memory, one column at a time."""
    size = rows * sum(len(column.feature_names) for column in learned)
    if any(isinstance(column, Text | Words | HashedText) for column in learned):
        return form_of(learned, 0, size)
    filled = 0
    for column in learned:
        (block,), _ = encode_columns([column], {column.name: gathered[column.name]})
        filled += count_filled(block)
    return form_of(learned, filled, size)


def write_nodes(
    columns: NodeColumns, encoding: Encoding, writer: StoreWriter, added: int, rows: int, progress: Progress
) -> Split | None:
    """Read the table again and write features and labels; `added` nodes follow whose cells are all empty."""
    table = columns.table
    features = FeatureWriter(writer, encoding)
    where = f"column '{columns.split}' of {table.name}"
    parts, labelled = [], []
    filled: Counter[str] = Counter()
    with writer.array("labels.npy", "<i8") as out:
        done = 0
        for batch in table.batches(columns.wanted):
            labels = np.full(batch.num_rows, -1, np.int64)
            if columns.label is not None and encoding.classes is not None:
                cells = columns.cells(batch, columns.label, as_text=True)
                labels = encode_labels(cells, encoding.classes, f"column '{columns.label}' of {table.name}")
            out.add(labels)
            if columns.split is not None:
                parts.append(encode_parts(columns.cells(batch, columns.split, as_text=True), where, done=done))
                labelled.append(labels >= 0)
            gathered = {column.name: _gather(columns, column, batch) for column in encoding.columns}
            blocks, empty = encode_columns(encoding.columns, gathered)
            filled.update(empty)
            features.add(join(blocks, batch.num_rows, encoding.form)[0])
            done += batch.num_rows
            progress.show("writing features", done, rows)
        if added:
            out.add(np.full(added, -1, np.int64))
    features.add_empty(added)
    features.close()
    warn_of_filled(table.name, filled)
    return split_of(np.concatenate(parts), np.concatenate(labelled), where) if parts else None


def _gather(columns: NodeColumns, column: Column, batch: Any) -> Any:
    if isinstance(column, Text | Words | HashedText):
        separator = separator_of(column)
        return PackedCounts(columns.texts(batch, column.name, prose=separator is None), separator)
    values = Values(column.name, columns.table.name, known=column.values if isinstance(column, Category) else None)
    values.add(columns.cells(batch, column.name))
    return values


class FeatureWriter:
    """Writes features, dense or sparse, some rows at a time."""

    def __init__(self, writer: StoreWriter, encoding: Encoding) -> None:
        self.writer, self.encoding, self.nonzero = writer, encoding, 0
        self.width = len(encoding.feature_names)
        self.sparse = encoding.form == "sparse"
        self._counts: list[npt.NDArray[np.int32]] = []
        if self.sparse:
            self._indices = writer.open("features_indices.npy", "<i4")
            self._values = writer.open("features_values.npy", "<f4")
        else:
            self._rows = writer.open("features.npy", "<f4", columns=self.width)

    def add(self, rows: Any) -> None:
        """Add some rows."""
        if not self.sparse:
            self._rows.add(rows)
            return
        rows.sort_indices()
        self._indices.add(rows.indices)
        self._values.add(rows.data)
        self._counts.append(np.diff(rows.indptr).astype(np.int32))
        self.nonzero += rows.nnz

    def add_empty(self, count: int) -> None:
        """Add nodes whose cells are all empty."""
        import scipy.sparse as sp

        row = empty_row(self.encoding)[None]
        for at in range(0, count, 2**14):
            some = np.repeat(row, min(2**14, count - at), axis=0)
            self.add(sp.csr_array(some) if self.sparse else some)

    def close(self) -> None:
        """End the files."""
        if not self.sparse:
            self.writer.close(self._rows)
            return
        self.writer.close(self._indices)
        self.writer.close(self._values)
        counts = np.concatenate([np.zeros(0, np.int32), *self._counts])
        self.writer.starts("features", counts, self.width)


def check_structure(roles: Roles, table: LargeTable) -> None:
    """Refuse features from the edges, which need all edges in memory."""
    if roles.structure:
        raise GraphError(
            f"pack makes features of columns alone, and none is left of {table.name}: features from edges need all "
            "edges in memory; use `nfcgcn train --features` on the tables, or add a column"
        )
