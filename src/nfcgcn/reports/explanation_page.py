"""An explanation for people: as a table, a picture, a page and a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.data.formats.cells import TableCells
from nfcgcn.graph import Graph
from nfcgcn.inference.explanation import ClassExplanation, Explanation
from nfcgcn.inference.integration import Method
from nfcgcn.reports.figures import contributions as draw_contributions
from nfcgcn.reports.html import fill, image
from nfcgcn.reports.neighbourhood import draw_neighbourhood

MOST_ROWS = 14
"""A picture shows at most this many nodes."""

CELLS = (
    "The cell of the table is what your table of nodes holds: a number before it was standardised, or the text of a "
    "category. An empty cell of numbers counts as the mean of its column. A word of a text has no cell of its own; its "
    "value is its weight (TF-IDF)."
)

Row = tuple[str | int | float, ...]

METHODS: dict[Method, str] = {
    "exact": "The gradient is the same all the way from no features to all features, so each contribution is the value "
    "of the feature times the gradient. It is exact, except for rounding.",
    "integrated gradients": "Each contribution is the value of the feature times the mean gradient on the way from no "
    "features to all features (integrated gradients), at as many points as the sum needs to be accurate.",
}


@dataclass(frozen=True, eq=False)
class Reasons:
    """The reasons for the score of one node, or for the scores of all classes."""

    title: str
    model: str
    graph: str
    cards: Sequence[tuple[str, str, str]]
    """Name, value and a remark of each."""
    columns: Sequence[str]
    """The columns of the table; ">" marks numbers."""
    list_rows: Callable[[], Sequence[Row]]
    """Lists all rows, the most important first."""
    top: Sequence[Row]
    """The rows to show."""
    draw: Callable[[], str]
    caption: str
    how: Sequence[str]
    draw_around: Callable[[], str] | None = None
    """Draws the neighbourhood of a node."""
    explore: str | None = None
    """The address of this node on a page that `nfcgcn explore` wrote, if there is one."""

    @cached_property
    def rows(self) -> Sequence[Row]:
        """All rows, the most important first, listed when they are first asked for."""
        return self.list_rows()

    @cached_property
    def svg(self) -> str:
        """The picture, drawn when it is first asked for."""
        return self.draw()

    @property
    def html(self) -> str:
        """A self-contained HTML page, without scripts."""
        return fill(
            "explanation.html",
            title=self.title,
            model=self.model,
            graph=self.graph,
            cards=self.cards,
            picture=image(self.svg),
            picture_text=f"{self.title}: {self.caption}",
            caption=self.caption,
            around=None if self.draw_around is None else image(self.draw_around()),
            columns=self.columns,
            rows=[[write_cell(cell) for cell in row] for row in self.top],
            how=self.how,
            explore=self.explore,
        )

    @property
    def csv(self) -> str:
        """All rows as CSV, with all digits of the numbers."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(column.lstrip(">") for column in self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def write_cell(cell: str | float) -> str:
    """Write a cell of a table: numbers with four digits, names without control characters."""
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return "".join(letter if letter.isprintable() else " " for letter in str(cell))


def node_reasons(
    explanation: Explanation, graph: Graph, *, model: str, class_name: Callable[[int], str], top: int = 20
) -> Reasons:
    """Return the reasons for the score of a node."""
    e = explanation
    name, target = node_name(graph, e.node), class_name(e.target)
    change = e.score - e.baseline
    added = e.contributions.tocoo()
    givers = added.row[added.data != 0]
    num_givers = len(np.unique(givers))
    cells = None if graph.encoding is None else TableCells(graph.encoding)

    def rows(count: int | None = None) -> list[Row]:
        return [
            (
                *(node_name(graph, j), _label(graph, j), _distance(e, graph, j), feature_name(graph, d)),
                *(() if cells is None else (cells.cell(d, value),)),
                *(value, added),
            )
            for j, d, value, added in e.top(count)
        ]

    cards = [
        (
            "Predicted class",
            class_name(e.predicted),
            f"probability {_share(e, e.predicted)}; the node's own label: {_label(graph, e.node) or 'none'}",
        ),
        *_runner_up(e, class_name),
        (
            f"Score of {target} before the softmax",
            f"{e.score:.4g}",
            f"{e.baseline:.4g} without features, {change:+.4g} from features",
        ),
        ("Features that contribute", f"{len(givers):,}", f"of {num_givers:,} node{'' if num_givers == 1 else 's'}"),
    ]
    if e.own_map is not None:
        own = float(e.own_map.sum())
        cards.append(
            ("Through the node's own map", f"{own:+.4g}", f"{change - own:+.4g} through the maps of other nodes")
        )
    return Reasons(
        title=f"Why node {name} is in class {target}"
        if e.target == e.predicted
        else f"What speaks for class {target} at node {name}",
        model=model,
        graph=graph.name,
        cards=cards,
        columns=(
            *("node", "class", ">edges away", "feature"),
            *(() if cells is None else (">cell of the table",)),
            *(">value", ">contribution"),
        ),
        list_rows=rows,
        top=rows(top),
        draw=lambda: _draw_node(e, graph, top),
        caption=f"What each feature of each node added to the score of {target}. Rows are the node and nodes around "
        "it, columns the features that contribute most. A feature that a node does not have adds nothing.",
        how=(
            METHODS[e.method],
            f"All contributions add up to {change:.6g}, with an error of {abs(e.error):.1g}.",
            *(() if cells is None else (CELLS,)),
        ),
        draw_around=lambda: draw_neighbourhood(
            e,
            graph,
            _nodes_shown(e).tolist(),
            lambda j: " · ".join(filter(None, (node_name(graph, j), _label(graph, j)))),
        ),
    )


def class_reasons(
    explanations: Sequence[ClassExplanation],
    graph: Graph,
    *,
    model: str,
    class_name: Callable[[int], str],
    top: int = 20,
) -> Reasons:
    """Return the features that matter for each class."""
    present = [e for e in explanations if e.num_nodes]
    names = {e.target: class_name(e.target) for e in present}

    def rows(count: int) -> list[Row]:
        return [
            (names[e.target], e.num_nodes, feature_name(graph, d), added) for e in present for d, added in e.top(count)
        ]

    error = max((abs(e.error) for e in present), default=0.0)
    methods = dict.fromkeys(METHODS[e.method] for e in present)
    return Reasons(
        title="Features that matter for each class",
        model=model,
        graph=graph.name,
        cards=(),
        columns=("class", ">nodes", "feature", ">contribution"),
        list_rows=lambda: rows(graph.num_features),
        top=rows(max(1, top // max(len(present), 1))),
        draw=lambda: _draw_classes(present, graph, list(names.values()), top),
        caption="Mean contribution of each feature, from all nodes together, to the score of a class. The mean is "
        "over the nodes that are predicted as this class.",
        how=(*methods, f"Contributions add up to the change in the mean score, with an error of at most {error:.1g}."),
    )


def node_name(graph: Graph, node: int) -> str:
    """Return the name of a node, or its number if it has no name."""
    return graph.node_names[node] if graph.node_names is not None else str(node)


def feature_name(graph: Graph, feature: int) -> str:
    """Return the name of a feature, or its number if it has no name."""
    return graph.feature_names[feature] if graph.feature_names is not None else f"feature {feature}"


def _label(graph: Graph, node: int) -> str:
    label = int(graph.labels[node])
    return graph.class_name(label) if label >= 0 else ""


def _distance(explanation: Explanation, graph: Graph, node: int) -> int | str:
    hops = int(explanation.hops[node])
    return hops if hops < graph.num_nodes else "no path"


def _share(e: Explanation, target: int) -> str:
    """Write a probability; one that is not certain is never written as 0 or 100 %."""
    p = float(e.probabilities[target])
    return "below 0.1 %" if p < 0.0005 else "above 99.9 %" if 0.9995 <= p < 1 else f"{100 * p:.1f} %"


def _runner_up(e: Explanation, class_name: Callable[[int], str]) -> list[tuple[str, str, str]]:
    """Return a card for the class that comes second and, if a third one is explained, a card for that."""
    order = [int(c) for c in np.argsort(-e.probabilities, kind="stable") if c != e.predicted]
    named = [("Runner-up", c) for c in order[:1]]
    named += [("Explained class", e.target)] if e.target not in (e.predicted, *order[:1]) else []
    return [(what, class_name(c), f"probability {_share(e, c)}") for what, c in named]


def _nodes_shown(e: Explanation) -> npt.NDArray[Any]:
    """Return the node and those that contribute most, largest first."""
    size = np.asarray(abs(e.contributions).sum(axis=1)).ravel()
    size[e.node] = np.inf
    return _largest(size, MOST_ROWS)


def _draw_node(e: Explanation, graph: Graph, top: int) -> str:
    nodes = _nodes_shown(e)
    features = _largest(np.asarray(abs(e.contributions).sum(axis=0)).ravel(), top)
    table = np.zeros((len(nodes) + 1, len(features) + 1))
    table[:-1, :-1] = e.contributions[nodes][:, features].toarray()
    by_node, by_feature = (np.asarray(e.contributions.sum(axis=axis)).ravel() for axis in (1, 0))
    table[:-1, -1] = by_node[nodes] - table[:-1, :-1].sum(axis=1)
    table[-1, :-1] = by_feature[features] - table[:-1, :-1].sum(axis=0)
    table[-1, -1] = by_node.sum() - table.sum()
    rounding = 1e-12 * np.abs(e.contributions.data).sum()
    table[np.abs(table) < rounding] = 0

    def row(node: int) -> tuple[str, str, str]:
        away = _distance(e, graph, node)
        where = "itself" if away == 0 else away if isinstance(away, str) else f"{away} edge{'s' * (away > 1)} away"
        return node_name(graph, node), _label(graph, node), where

    return draw_contributions(
        table,
        [row(node) for node in nodes],
        [feature_name(graph, d) for d in features],
        sums="both",
        meaning="contribution to the score before the softmax; blue: for the class, red: against it",
    )


def _draw_classes(explanations: Sequence[ClassExplanation], graph: Graph, names: Sequence[str], top: int) -> str:
    by_class = np.array([e.contributions for e in explanations]).reshape(len(explanations), graph.num_features)
    features = _largest(np.abs(by_class).max(axis=0, initial=0), top)
    table = np.zeros((len(names) + 1, len(features) + 1))
    table[:-1, :-1] = by_class[:, features]
    table[:-1, -1] = np.delete(by_class, features, axis=1).sum(axis=1)
    return draw_contributions(
        table,
        [(name,) for name in names],
        [feature_name(graph, d) for d in features],
        sums="rows",
        meaning="mean contribution to the score before the softmax; blue: for the class, red: against it",
    )


def _largest(sizes: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    order = np.argsort(-sizes, kind="stable")[:count]
    return order[sizes[order] > 0]
