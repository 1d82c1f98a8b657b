"""The page as one HTML text: its scripts and style stand in it, and nothing else is allowed to run.

The modules in `static/` are written as they are, one after the other, without their import and export lines. A policy
that names the hash of each script is strict, and holds for a file as it does for a server.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files as package_files
from typing import Any, NamedTuple

from nfcgcn.explore.answers import Explorer, questions_for_a_file

MODULES = (
    "elements.js",
    "source.js",
    "colours.js",
    "marks.js",
    "picture.js",
    "search.js",
    "feature_map.js",
    "node.js",
    "what_if.js",
    "filters.js",
    "mistakes.js",
    "main.js",
)
"""In the order of their imports."""
VENDOR = ("graphology.umd.min.js", "sigma.min.js")
MOST_NODES_IN_A_FILE = 100
"""Nodes whose full answers a file holds."""


class Page(NamedTuple):
    """An HTML text and the content security policy that fits it."""

    html: str
    policy: str


def make_page(title: str, data: dict[str, Any] | None = None, *, start: str | None = None) -> Page:
    """Return the page: with `data` it needs no server, without it asks the one that it came from.

    `start` names the node that is shown first.
    """
    scripts, style = (*(_read(f"vendor/{name}") for name in VENDOR), _script()), _style()
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'sha256-{_digest(style)}'; img-src data:; "
        f"connect-src {chr(39)}{'none' if data else 'self'}{chr(39)}; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "title": html.escape(title),
        "policy": html.escape(policy),
        "style": style,
        "data": _json({"start": start, **(data or {})}),
        "scripts": "\n".join(f"<script>{text}</script>" for text in scripts),
    }
    text = re.sub(r"\{\{ (\w+) \}\}", lambda slot: parts[slot[1]], _read("page.html"))
    return Page(text, policy)


def page_file(
    explorer: Explorer, *, first: int | None = None, on_answer: Callable[[int, int], None] | None = None
) -> str:
    """Return the page with the answers in it, for a file that needs no server.

    It holds full answers for the node `first`, then for mistakes and for the least sure nodes, `MOST_NODES_IN_A_FILE`
    in all. `on_answer` is called with the number of answers so far and in all.
    """
    subject = explorer.subject
    nodes = list(dict.fromkeys([*([] if first is None else [first]), *_interesting(explorer)]))[:MOST_NODES_IN_A_FILE]
    scene = explorer.answer(
        {"ask": "scene"} if first is None or explorer.positions else {"ask": "scene", "node": first}
    )
    questions = list(questions_for_a_file(explorer, nodes))
    answers = {}
    for number, question in enumerate(questions):
        answers[json.dumps(question, separators=(",", ":"))] = explorer.answer(question)
        if on_answer is not None:
            on_answer(number + 1, len(questions))
    data = {"scene": scene, "answers": answers, "full": nodes}
    start = None if first is None else subject.name(first)
    return make_page(title_of(explorer), data, start=start).html


def title_of(explorer: Explorer) -> str:
    """Return the title of the page."""
    subject = explorer.subject
    return subject.graph.name if subject.run is None else f"{subject.run.model_name} on {subject.graph.name}"


def _interesting(explorer: Explorer) -> list[int]:
    subject = explorer.subject
    if subject.confidence is None or subject.predicted is None:
        return [int(node) for node in (-subject.degrees).argsort(kind="stable")]
    wrong = (subject.labels >= 0) & (subject.labels != subject.predicted)
    confident = [node for node in (-subject.confidence).argsort(kind="stable").tolist() if wrong[node]]
    half = confident[: MOST_NODES_IN_A_FILE // 2]
    return [*half, *subject.confidence.argsort(kind="stable").tolist()]


@cache
def _script() -> str:
    lines = [line for name in MODULES for line in _read(name).splitlines() if not line.startswith("import ")]
    code = "\n".join(line.removeprefix("export ") for line in lines)
    return f'"use strict";\n(() => {{\n{code}\n}})();\n'


def _style() -> str:
    shared = package_files("nfcgcn.reports").joinpath("templates/style.css").read_text(encoding="utf-8")
    return shared + _read("style.css")


def _read(name: str) -> str:
    return package_files("nfcgcn.explore").joinpath(f"static/{name}").read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: Any) -> str:
    """Write JSON that can stand in a script element: nothing in it can end the element."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
