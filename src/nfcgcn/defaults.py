"""Settings for a graph that no preset knows: each from something in the graph, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from nfcgcn.graph import Graph


@dataclass(frozen=True)
class Suggestion:
    """A setting's value for one graph, and why."""

    value: int | float | str
    reason: str


def suggest(graph: Graph, system: str = "nfc-gcn") -> dict[str, Suggestion]:
    """Return settings of `system` that suit `graph`; what it does not name stays at the default."""
    return {}
