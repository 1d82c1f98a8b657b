"""What the columns of a user's tables mean and what else was asked for: options, an earlier graph, or defaults."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nfcgcn.data.formats.edges import check_choice
from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.formats.labels import listed
from nfcgcn.data.formats.table import Table
from nfcgcn.data.structure import DEFAULT, STRUCTURES
from nfcgcn.errors import ConfigError, GraphError, NFCWarning, option, unknown

Columns = Sequence[str] | str
OPTIONS = (
    "id", "label", "text", "words", "ignore", "split", "source", "target", "weight", "directed", "unknown_edges",
    "features", "encoding",
)  # fmt: skip
"""What a user may say about a graph of tables or frames."""


@dataclass(frozen=True)
class Roles:
    """What the columns mean; None stands for the default name, if the table has such a column."""

    id: str | None
    label: str | None
    text: tuple[str, ...]
    words: tuple[str, ...]
    ignore: tuple[str, ...]
    split: str | None
    source: str
    target: str
    weight: str | None
    directed: bool
    unknown_edges: str
    structure: str | None
    """Which features are made from the edges, if any."""


def make_roles(
    table: Table,
    known: Encoding | None,
    *,
    has_edges: bool,
    id: str | None = None,
    label: Any = None,
    text: Columns = (),
    words: Columns = (),
    ignore: Columns = (),
    split: str | None = None,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    directed: bool = False,
    unknown_edges: str | None = None,
    features: str | None = None,
    **unknown_options: Any,
) -> Roles:
    """Check the options of :func:`nfcgcn.data.formats.read_tables`; those not given are as in a `known` encoding."""
    if unknown_options:
        raise ConfigError(unknown("option of a graph", next(iter(unknown_options)), OPTIONS))
    if features is not None and features not in STRUCTURES:
        raise ConfigError(unknown("kind of features", features, STRUCTURES))
    roles = Roles(
        id=id,
        label=_one_label(label),
        text=_as_columns(text),
        words=_as_columns(words),
        ignore=_as_columns(ignore),
        split=split,
        source=source or (known.source if known else "source"),
        target=target or (known.target if known else "target"),
        weight=weight or (known.weight if known else None),
        directed=directed or bool(known and known.directed),
        unknown_edges=check_choice(unknown_edges or (known.unknown_edges if known else "error")),
        structure=known.structure if known else features,
    )
    named = {roles.id, roles.label or "label", roles.split or "split", *roles.ignore}
    if known or features or not has_edges or any(column not in named for column in table.columns):
        return roles
    warnings.warn(
        f"nothing is left of {table.name} to make features of: {DEFAULT} features are made from the edges; "
        f"{option('features')} chooses among {', '.join(STRUCTURES)}",
        NFCWarning,
        stacklevel=4,
    )
    return replace(roles, structure=DEFAULT)


def _as_columns(names: Columns) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _one_label(label: Any) -> str | None:
    """Return the column with the classes; several are refused."""
    names = [label] if label is None or isinstance(label, str) else list(label)
    if len(names) > 1:
        raise GraphError(
            f"`label` must be one column, as a node has one class, got {listed([str(name) for name in names])}; "
            "train one model per column, or make one column of them"
        )
    return names[0] if names else None
