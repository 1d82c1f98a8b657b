"""Which setting makes a model too large for the memory at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from nfcgcn.graph import Graph
from nfcgcn.memory import available, check_memory
from nfcgcn.settings import Settings, settings_of

T = TypeVar("T", bound=Settings)


def check_sizes(config: T, estimate: Callable[[T], float], of: str, *, also: str, remedy: str) -> None:
    """Refuse settings that need more bytes than are available, by an `estimate`, and name the one that is to blame.

    Where none is, the message is about the model and its input, `also`, and says what to do, `remedy`.
    """
    needed = estimate(config)
    if needed <= available():
        return
    smaller = {
        name: estimate(replace(config, **{name: s.default}))
        for name, s in settings_of(type(config)).items()
        if s.type is int and getattr(config, name) > s.default
    }
    name = min(smaller, key=lambda name: smaller[name], default=None)
    if name and (smaller[name] <= available() or smaller[name] < needed / 100):
        check_memory(needed, f"`{name}` {getattr(config, name)} of {of}", "lower it")
    check_memory(needed, of + also, remedy)


def with_outputs(graph: Graph, outputs: int) -> Graph:
    """Return the graph as one of an encoder whose vectors have so many numbers: classes stand for them."""
    names = tuple(map(str, range(outputs)))
    return replace(graph, labels=np.full(graph.num_nodes, -1, np.int64), class_names=names, given=None)
