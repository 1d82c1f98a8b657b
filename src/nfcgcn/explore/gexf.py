"""The graph as GEXF, which Gephi and others read: with labels, predictions and positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

from nfcgcn.explore.answers import Explorer
from nfcgcn.explore.subject import PARTS

SCALE = 1000
"""Positions run from -1 to 1; programs for graphs expect larger numbers."""
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold."""


def to_gexf(explorer: Explorer) -> str:
    """Return the graph as GEXF 1.3: class, prediction, confidence, degree and part of each node, weights of edges."""
    return "\n".join(_lines(explorer)) + "\n"


def _lines(explorer: Explorer) -> Iterator[str]:
    subject = explorer.subject
    graph, predicted, confidence = subject.graph, subject.predicted, subject.confidence
    columns: list[tuple[str, str]] = [("class", "string"), ("degree", "integer"), ("part", "string")]
    if predicted is not None:
        columns += [("predicted", "string"), ("confidence", "double"), ("wrong", "boolean")]
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield '<gexf xmlns="http://gexf.net/1.3" xmlns:viz="http://gexf.net/1.3/viz" version="1.3">'
    yield '<graph defaultedgetype="undirected" mode="static">'
    yield '<attributes class="node">'
    for name, kind in columns:
        yield f'<attribute id="{name}" title="{name}" type="{kind}"/>'
    yield "</attributes>"
    yield "<nodes>"
    places = explorer.positions
    for node in range(graph.num_nodes):
        label = int(subject.labels[node])
        values: list[Any] = [subject.class_name(label) or "", int(subject.degrees[node]), PARTS[subject.parts[node]]]
        if predicted is not None and confidence is not None:
            wrong = label >= 0 and label != int(predicted[node])
            values += [subject.classes[int(predicted[node])], float(confidence[node]), str(wrong).lower()]
        yield f'<node id="{node}" label={_quoted(subject.name(node))}>'
        yield "<attvalues>"
        for (name, _), value in zip(columns, values, strict=True):
            yield f'<attvalue for="{name}" value={_quoted(value)}/>'
        yield "</attvalues>"
        if places is not None:
            x, y = SCALE * places.get("learned", places["structure"])[node]
            yield f'<viz:position x="{x:.3f}" y="{y:.3f}" z="0"/>'
        yield "</node>"
    yield "</nodes>"
    yield "<edges>"
    pairs = graph.adjacency.tocoo()
    one_way = pairs.row < pairs.col
    ends = (part[one_way].tolist() for part in (pairs.row, pairs.col, pairs.data))
    for number, (one, other, size) in enumerate(zip(*ends, strict=True)):
        weight = f' weight="{size:.6g}"' if graph.is_weighted else ""
        yield f'<edge id="{number}" source="{one}" target="{other}"{weight}/>'
    yield "</edges>"
    yield "</graph>"
    yield "</gexf>"


def _quoted(value: Any) -> str:
    return quoteattr(FORBIDDEN.sub("\ufffd", str(value)))
