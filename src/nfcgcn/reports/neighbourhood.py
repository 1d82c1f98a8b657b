"""The surroundings of an explained node as a picture: the nodes whose features counted, and the edges between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nfcgcn.graph import Graph
from nfcgcn.inference.explanation import Explanation
from nfcgcn.reports.drawing import INK, MUTED, PALE, canvas, short, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RING = (1.45, 0.95)
"""Width and height of the first ring around the node, in inches."""
Place = npt.NDArray[np.float64]


def draw_neighbourhood(e: Explanation, graph: Graph, nodes: Sequence[int], name: Callable[[int], str]) -> str:
    """Draw `nodes`, the explained one among them, on rings by their distance: blue for the class, red against it.

    A larger point contributed more. A small grey point is a node on the way to one that is shown; it is not named.
    """
    shown = {int(node) for node in nodes} | {e.node}
    parents = _find_parents(e, graph, shown)
    places = _place(e.node, parents, {node: int(e.hops[node]) for node in parents})
    drawn = np.array(sorted(places))
    sums = np.asarray(e.contributions[drawn].sum(axis=1)).ravel()
    sums[[int(node) not in shown for node in drawn]] = 0
    with canvas() as figure:
        spots = np.array([places[int(node)] for node in drawn])
        room = np.array((1.3, 0.4))
        low, high = spots.min(axis=0) - room, spots.max(axis=0) + room
        figure.set_size_inches(*(high - low))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        axes.set_axis_off()
        _draw_edges(axes, graph, drawn, spots)
        _draw_nodes(axes, spots, sums, np.array([int(node) in shown for node in drawn]), drawn == e.node)
        for node, place in zip(drawn.tolist(), spots, strict=True):
            if node in shown:
                _write_name(axes, place, short(name(node), 26), below=node == e.node or place[1] < 0)
        return svg(figure)


def _find_parents(e: Explanation, graph: Graph, shown: set[int]) -> dict[int, int]:
    """Return the node through which each drawn node is joined to the explained one; -1 if there is no path."""
    parents: dict[int, int] = {}
    adjacency, waiting = graph.adjacency, sorted(shown, key=lambda node: (int(e.hops[node]), node))
    while waiting:
        node = waiting.pop(0)
        if node in parents:
            continue
        around = adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]].tolist()
        nearer = [other for other in around if 0 <= e.hops[other] == e.hops[node] - 1]
        parents[node] = next((o for o in nearer if o in shown), nearer[0] if nearer else -1)
        if parents[node] >= 0:
            waiting.append(parents[node])
    parents[e.node] = -1
    return parents


def _place(centre: int, parents: dict[int, int], hops: dict[int, int]) -> dict[int, Place]:
    """Place the nodes as a tree that grows outwards: each child has a part of its parent's angle, by its leaves."""
    children: dict[int, list[int]] = {node: [] for node in parents}
    for node in sorted(parents):
        if node != centre:
            children[parents[node] if parents[node] in children else centre].append(node)
    ring_of = {hop: ring for ring, hop in enumerate(sorted(set(hops.values())))}
    places: dict[int, Place] = {}

    def leaves(node: int) -> int:
        return sum(map(leaves, children[node])) or 1

    def put(node: int, start: float, end: float) -> None:
        angle, radius = (start + end) / 2, ring_of[hops[node]]
        places[node] = radius * np.array(RING) * (np.cos(angle), np.sin(angle))
        per_leaf = (end - start) / leaves(node)
        for child in children[node]:
            put(child, start, start + per_leaf * leaves(child))
            start += per_leaf * leaves(child)

    put(centre, 0.0, 2 * np.pi)
    return places


def _draw_edges(axes: Axes, graph: Graph, drawn: npt.NDArray[Any], spots: Place) -> None:
    inside = graph.adjacency[drawn][:, drawn].tocoo()
    for one, other in zip(inside.row, inside.col, strict=True):
        if one < other:
            axes.plot(*spots[[one, other]].T, color=PALE, linewidth=1.3, zorder=1)


def _draw_nodes(
    axes: Axes, spots: Place, sums: npt.NDArray[Any], shown: npt.NDArray[Any], centre: npt.NDArray[Any]
) -> None:
    from matplotlib import colormaps

    largest = float(np.abs(sums).max(initial=0)) or 1.0
    share = sums / largest
    faces = colormaps["RdBu"](0.5 + 0.45 * share)
    faces[~shown] = (0.84, 0.86, 0.88, 1)
    edges, lines = np.where(centre, INK, MUTED).tolist(), np.where(centre, 2.0, 0.7).tolist()
    sizes = np.where(shown, 60 + 340 * np.abs(share), 16)
    axes.scatter(spots[:, 0], spots[:, 1], s=sizes, c=faces, edgecolors=edges, linewidths=lines, zorder=2)


def _write_name(axes: Axes, place: Place, name: str, *, below: bool) -> None:
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
    height = place[1] + (-0.19 if below else 0.19)
    where = "top" if below else "bottom"
    axes.text(place[0], height, name, ha="center", va=where, fontsize=7.5, color=INK, bbox=box, zorder=3)
