"""Questions and answers: plain values in, plain values out. All that the page shows comes through here."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from nfcgcn.errors import ConfigError, unknown
from nfcgcn.explore.filters import Filters
from nfcgcn.explore.layout import Array, positions
from nfcgcn.explore.mistakes import describe_mistakes, parts_with_labels, separate
from nfcgcn.explore.node import describe_node, describe_reasons
from nfcgcn.explore.scene import describe_scene, is_whole, search
from nfcgcn.explore.subject import PARTS, Subject
from nfcgcn.explore.what_if import what_if
from nfcgcn.inference.explanation import ClassExplanation, explain_classes
from nfcgcn.kernels.threads import one_pool

MOST_KEPT = 500
"""Answers that are kept for the next time."""
LONGEST = 200
"""Letters of a search."""

Question = Mapping[str, Any]


class Explorer:
    """Answers questions about a graph and a run; `folder` keeps the layout. Several threads may ask at once."""

    def __init__(self, subject: Subject, *, folder: Path | None = None) -> None:
        self.subject, self.folder = subject, folder
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._ways: dict[str, tuple[Callable[[Question], Any], bool]] = {
            "scene": (self._scene, True),
            "search": (lambda q: search(subject, self._text(q)), False),
            "node": (lambda q: describe_node(subject, self._node(q)), True),
            "why": (lambda q: describe_reasons(subject, self._node(q), self._class(q, "target")), True),
            "what if": (self._what_if, False),
            "filters": (lambda _: self.filters.list(), True),
            "filter": (lambda q: self.filters.describe(_whole(q, "filter", len(self.filters.weight))), True),
            "mistakes": (lambda q: describe_mistakes(subject, self._part(q)), True),
            "separate": (self._separate, True),
        }

    def prepare(self) -> None:
        """Compute what the first answers need, and compile what they use."""
        self.answer({"ask": "scene"})
        if self.subject.run is not None and self.subject.graph.num_nodes:
            self.answer({"ask": "why", "node": 0, "target": 0})
            self.answer({"ask": "what if", "node": 0})

    def answer(self, question: Question) -> Any:
        """Answer a question, such as ``{"ask": "node", "node": 3}``; a bad one raises an :class:`NFCError`."""
        kind = question.get("ask") if isinstance(question, Mapping) else None
        if not isinstance(kind, str) or kind not in self._ways:
            raise ConfigError(unknown("question", str(kind)[:40], self._ways))
        if self.subject.run is None and kind not in ("scene", "search", "node"):
            raise ConfigError(f"'{kind}' needs a trained run; `nfcgcn train` makes one")
        if self.subject.convolved is None and kind in ("filters", "filter"):
            raise ConfigError("the model has no node-feature convolution, and so no filters")
        way, keeps = self._ways[kind]
        key = repr(sorted(question.items())) if keeps else ""
        with self._lock, one_pool():
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            answer = way(question)
            if keeps:
                self._kept[key] = answer
                while len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
        return answer

    @cached_property
    def positions(self) -> dict[str, Array] | None:
        """Where the nodes stand; None for a graph that is too large to be drawn as a whole."""
        return positions(self.subject, self.folder) if is_whole(self.subject) else None

    @cached_property
    def filters(self) -> Filters:
        """The filters of the model."""
        return Filters(self.subject)

    @cached_property
    def classes(self) -> list[ClassExplanation]:
        """What each feature adds to each class, over all nodes."""
        assert self.subject.run is not None  # noqa: S101
        return explain_classes(self.subject.run.model, self.subject.graph)

    def _scene(self, question: Question) -> Any:
        node = self._node(question) if question.get("node") is not None else None
        answer = describe_scene(self.subject, self.positions, None if self.positions else node)
        return {**answer, "mistakes": parts_with_labels(self.subject) if self.subject.run else []}

    def _what_if(self, question: Question) -> Any:
        features, node = question.get("features", {}), self._node(question)
        lists = {name: question.get(name, []) for name in ("add", "remove")}
        if not isinstance(features, dict) or not all(
            isinstance(key, str) and key.isascii() and key.isdigit() and type(value) in (int, float)
            for key, value in features.items()
        ):
            raise ConfigError("`features` must map numbers of features to values")
        for name, numbers in lists.items():
            if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
                raise ConfigError(f"`{name}` must be a list of node numbers")
        changed = {int(key): float(value) for key, value in features.items()}
        draw = _whole(question, "draw", 2**31) if "draw" in question else 0
        return what_if(self.subject, node, features=changed, draw=draw, **lists)

    def _separate(self, question: Question) -> Any:
        one, other = self._class(question, "one"), self._class(question, "other")
        return separate(self.subject, self.classes, one, other)

    def _node(self, question: Question) -> int:
        return _whole(question, "node", self.subject.graph.num_nodes)

    def _class(self, question: Question, name: str) -> int:
        return _whole(question, name, len(self.subject.classes))

    def _part(self, question: Question) -> str:
        part = question.get("part")
        if part not in (*PARTS, "all"):
            raise ConfigError(unknown("part", str(part)[:40], (*PARTS, "all")))
        return str(part)

    def _text(self, question: Question) -> str:
        text = question.get("text")
        if not isinstance(text, str) or len(text) > LONGEST:
            raise ConfigError(f"`text` must be text of at most {LONGEST} letters")
        return text


def questions_for_a_file(explorer: Explorer, nodes: list[int]) -> Iterator[dict[str, Any]]:
    """List what a page without a server must know: of `nodes` everything, of all others what the picture shows."""
    subject = explorer.subject
    for node in nodes:
        yield {"ask": "node", "node": node}
    if subject.run is None:
        return
    count = len(subject.classes)
    for part in parts_with_labels(subject):
        yield {"ask": "mistakes", "part": part}
    if subject.convolved is not None:
        yield {"ask": "filters"}
        yield from ({"ask": "filter", "filter": number} for number in range(len(explorer.filters.weight)))
    if count <= MOST_COMPARED:
        yield from (
            {"ask": "separate", "one": one, "other": other} for one in range(count) for other in range(one + 1, count)
        )
    for node in nodes:
        targets = (
            subject.probabilities[node].argsort()[::-1][:MOST_COMPARED] if subject.probabilities is not None else ()
        )
        yield from ({"ask": "why", "node": node, "target": int(target)} for target in targets)


MOST_COMPARED = 10
"""Classes that a file compares and explains for each node: the most probable ones."""


def _whole(question: Question, name: str, below: int) -> int:
    number = question.get(name)
    if type(number) is not int or not 0 <= number < below:
        raise ConfigError(f"`{name}` must be a whole number from 0 to {below - 1}, got {str(number)[:40]}")
    return number
