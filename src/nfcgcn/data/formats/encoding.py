"""How tables become features, as a value: learned once, stored with a run as JSON, and used for later tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import zip_longest
from typing import Any, Literal, get_args, get_type_hints

from nfcgcn.data.formats.columns import Category, Column, HashedText, Number, Text, Words
from nfcgcn.data.formats.edges import UnknownEdges
from nfcgcn.data.structure import OF_ONE_GRAPH, STRUCTURES
from nfcgcn.errors import GraphError, option
from nfcgcn.graph import Graph

FORMAT = 1
"""Version of the JSON; other versions are refused."""
MOST_BUCKETS = 2**20
Form = Literal["sparse", "dense"]
_KINDS: dict[str, type] = {"number": Number, "category": Category, "text": Text, "words": Words, "hashed": HashedText}


@dataclass(frozen=True)
class Encoding:
    """Everything learned from a graph's tables."""

    columns: tuple[Column, ...]
    """In the order of their features."""
    form: Form
    id: str | None
    label: str | None
    classes: tuple[str, ...] | None
    split: str
    source: str
    target: str
    weight: str | None = None
    """The column with the weights of edges."""
    directed: bool = False
    """Whether the edges were declared to have directions, which no model uses."""
    unknown_edges: str = "error"
    """What happens to edges that name an id without a node."""
    structure: str | None = None
    """Which features were made from the edges, if any; they follow those of the columns."""
    structure_names: tuple[str, ...] = ()
    edges_sha256: str | None = None
    """Checksum of the edges that these features were made from."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of all features, in order."""
        return (*(name for column in self.columns for name in column.feature_names), *self.structure_names)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        columns = [{"kind": kind_of(column), **_plain(column)} for column in self.columns]
        return {"format": FORMAT, **_plain(self), "columns": columns}

    @classmethod
    def from_json(cls, values: Any) -> Encoding:
        """Read what :meth:`to_json` returned; anything else is refused with the reason."""
        if not isinstance(values, Mapping):
            raise _damaged("it is not a JSON object")
        if values.get("format") != FORMAT:
            raise GraphError(
                f"the encoding has format {values.get('format')!r}, this version of nfcgcn reads {FORMAT}; train anew"
            )
        columns = values.get("columns")
        if not isinstance(columns, list) or not (columns or values.get("structure")):
            raise _damaged("`columns` must be a list of columns")
        read = tuple(_read_column(column) for column in columns)
        if len({column.name for column in read}) != len(read):
            raise _damaged("`columns` names a column twice")
        encoding = cls(**{**_read_fields(cls, values, skip="columns"), "columns": read})
        if encoding.structure not in (None, *STRUCTURES) or encoding.unknown_edges not in get_args(UnknownEdges):
            raise _damaged("`structure` or `unknown_edges` is not one of its choices")
        return encoding


def check_encoding(graph: Graph, known: Mapping[str, Any] | None, *, remedy: str) -> None:
    """Refuse a graph whose tables became features in another way than those of training, if both are known."""
    if graph.encoding is None or known is None:
        return
    here, there = Encoding.from_json(graph.encoding), Encoding.from_json(known)
    place = f"'{graph.name}' was not read in the same way as the training graph"
    for column, other in zip_longest(here.columns, there.columns):
        if column != other:
            raise GraphError(f"{place}: {_difference(column, other)}; {remedy}")
    if here.structure != there.structure:
        kinds = f"{here.structure or 'no'} features made from the edges, there {there.structure or 'none'}"
        raise GraphError(f"{place}: it has {kinds}; {remedy}")
    if here.structure in OF_ONE_GRAPH and here.edges_sha256 != there.edges_sha256:
        raise GraphError(of_one_graph(here.structure or "", graph.name))


def _difference(column: Column | None, other: Column | None) -> str:
    if column is None or other is None:
        return f"only one of the two has the column '{(column or other).name}'"  # type: ignore[union-attr]
    if column.name != other.name:
        return f"it has the column '{column.name}' where there was '{other.name}'"
    if type(column) is not type(other):
        return f"column '{column.name}' was read as {kind_of(column)}, there as {kind_of(other)}"
    what = "another mean or scale" if isinstance(column, Number) else "other texts or words"
    return f"column '{column.name}' has {what}"


def of_one_graph(kind: str, name: str) -> str:
    """Say that features of this kind mean something else on a graph with other edges."""
    return (
        f"the {kind} features of training belong to its nodes and edges, and those of '{name}' differ; train anew, "
        f"with {option('features', 'degree', 'walk')} if graphs are to change"
    )


def kind_of(column: Column) -> str:
    """Return the kind of a column: "number", "category", "text", "words" or "hashed"."""
    return next(kind for kind, known in _KINDS.items() if isinstance(column, known))


def _plain(value: Any) -> dict[str, Any]:
    return {key: list(part) if isinstance(part, tuple) else part for key, part in asdict(value).items()}


def _damaged(reason: str) -> GraphError:
    return GraphError(f"the encoding is damaged: {reason}; train anew")


def _read_column(values: Any) -> Column:
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise _damaged(f"a column must be of kind {', '.join(_KINDS)}, got {kind!r}")
    column: Column = _KINDS[kind](**_read_fields(_KINDS[kind], values))
    if isinstance(column, Text) and len(column.idf) != len(column.vocabulary):
        raise _damaged(f"column '{column.name}' has {len(column.vocabulary)} words, but {len(column.idf)} weights")
    if isinstance(column, Number) and column.scale <= 0:
        raise _damaged(f"column '{column.name}' has scale {column.scale:g}, which must be above 0")
    if isinstance(column, HashedText) and not 1 <= column.buckets <= MOST_BUCKETS:
        raise _damaged(f"column '{column.name}' must have 1 to {MOST_BUCKETS:,} buckets, got {column.buckets}")
    if isinstance(column, Words) and not column.separator:
        raise _damaged(f"column '{column.name}' has an empty separator")
    if len(set(column.feature_names)) != len(column.feature_names):
        raise _damaged(f"column '{column.name}' holds the same word twice")
    return column


def _read_fields(kind: type, values: Mapping[str, Any], *, skip: str = "") -> dict[str, Any]:
    hints = get_type_hints(kind)
    read = {}
    for field in fields(kind):
        if field.name == skip:
            continue
        if field.name not in values:
            if field.default is not MISSING:  # a file from before this field was there
                continue
            raise _damaged(f"`{field.name}` is missing")
        value = values[field.name]
        if not _fits(value, hints[field.name]):
            raise _damaged(f"`{field.name}` is {str(value)[:40]!r}")
        read[field.name] = tuple(value) if isinstance(value, list) else value
    return read


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a JSON value has the type of a field: text, a number, a list of either, a choice, or none."""
    if hint is str:
        return isinstance(value, str)
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint in (tuple[str, ...], tuple[float, ...]):
        return isinstance(value, list) and all(_fits(item, get_args(hint)[0]) for item in value)
    if hint == Form:
        return value in get_args(Form)
    return any(_fits(value, part) if part is not type(None) else value is None for part in get_args(hint))
