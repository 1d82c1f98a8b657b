"""Draw the figures of the page "The method in pictures": what the library computes for a graph of seven nodes."""

from pathlib import Path

import numpy as np
import torch

import nfcgcn
from nfcgcn.method.node_feature_conv import feature_map
from nfcgcn.reports.drawing import INK, MUTED, PALE, canvas, colour_of, svg

EDGES = [[0, 0, 0, 0, 1, 2, 3, 5], [1, 2, 3, 4, 2, 5, 6, 6]]
PLACES = np.array([[0, 0], [-1, 0.9], [0.9, 1], [1.1, -0.5], [-1.1, -0.6], [2, 0.6], [2.2, -0.6]])
BANDWIDTH, KERNEL, STRIDE, FILTERS = 4, 3, 1, 2
NODE = 0


def make_graph() -> nfcgcn.Graph:
    """Return seven nodes with eight features of 0 and 1."""
    features = (np.random.default_rng(3).random((7, 8)) < 0.4).astype(np.float32)
    return nfcgcn.Graph.from_edges(EDGES, features)


def draw_sampling(graph: nfcgcn.Graph, table: np.ndarray) -> str:
    """Draw the graph, and beside it the table of slots."""
    slot_of = {int(node): slot for slot, node in reversed(list(enumerate(table[NODE])))}
    with canvas() as figure:
        figure.set_size_inches(8.0, 3.0)
        left = figure.add_axes((0, 0, 0.5, 1))
        for one, other in graph.edge_index.t().tolist():
            left.plot(*PLACES[[one, other]].T, color=PALE, linewidth=1.6, zorder=1)
        for node, (x, y) in enumerate(PLACES):
            face = colour_of(slot_of[node]) if node in slot_of else "white"
            left.scatter([x], [y], s=420, color=face, edgecolors=MUTED, zorder=2)
            left.text(x, y, str(node), ha="center", va="center", color="white" if node in slot_of else INK, zorder=3)
        left.set(xlim=(-1.6, 2.7), ylim=(-1.1, 1.5))
        left.set_axis_off()
        right = figure.add_axes((0.56, 0.02, 0.42, 0.84))
        draw_cells(right, table, lambda row, column: colour_of(column) if row == NODE else "white")
        right.set_xticks(np.arange(BANDWIDTH) + 0.5, ["itself", *(f"slot {slot}" for slot in range(1, BANDWIDTH))])
        right.set_yticks(np.arange(len(table)) + 0.5, [f"node {node}" for node in range(len(table))])
        return svg(figure)


def draw_cells(axes, values: np.ndarray, face, text="{:.0f}") -> None:
    """Draw a table of numbers, with a colour per cell."""
    from matplotlib.patches import Rectangle

    rows, columns = values.shape
    for row, column in np.ndindex(rows, columns):
        colour = face(row, column)
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor=PALE))
        ink = INK if colour == "white" or str(colour).endswith("40") else "white"
        axes.text(
            column + 0.5, row + 0.52, text.format(values[row, column]), ha="center", va="center", color=ink, fontsize=8
        )
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.spines[:].set_visible(False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelcolor=INK, labelsize=8)


def slot_face(values: np.ndarray):
    """Return a function that colours a cell by its slot: strong for 1, pale for 0."""
    return lambda row, column: colour_of(row) + ("" if values[row, column] else "40")


def draw_map(values: np.ndarray, row: np.ndarray) -> str:
    """Draw the feature map of the node."""
    with canvas() as figure:
        figure.set_size_inches(6.0, 1.6)
        axes = figure.add_axes((0.02, 0, 0.96, 0.9))
        draw_cells(axes, values, slot_face(values))
        axes.set_xticks(np.arange(values.shape[1]) + 0.5, [f"feature {d}" for d in range(values.shape[1])], fontsize=7)
        axes.set_yticks(np.arange(len(row)) + 0.5, [f"node {node}" for node in row])
        return svg(figure)


def draw_convolution(values: np.ndarray, row: np.ndarray, outputs: np.ndarray) -> str:
    """Draw the map with a filter's first and second place on it, and the outputs of the filters below."""
    from matplotlib.patches import Rectangle

    with canvas() as figure:
        figure.set_size_inches(6.0, 3.2)
        above = figure.add_axes((0.02, 0.5, 0.96, 0.45))
        draw_cells(above, values, slot_face(values))
        above.set_xticks([])
        above.set_yticks(np.arange(len(row)) + 0.5, [f"node {node}" for node in row])
        for place, style in ((0, "-"), (STRIDE, (0, (3, 2)))):
            edge = {"edgecolor": colour_of(5), "linewidth": 2.4, "linestyle": style, "facecolor": "none", "zorder": 5}
            above.add_patch(Rectangle((place, 0.03), KERNEL, len(row) - 0.06, clip_on=False, **edge))
        below = figure.add_axes((0.02, 0.02, 0.96 * outputs.shape[1] / values.shape[1], 0.26))
        draw_cells(below, outputs, lambda *_: "white", text="{:+.2f}")
        below.set_xticks(np.arange(outputs.shape[1]) + 0.5, [f"place {p}" for p in range(outputs.shape[1])], fontsize=7)
        below.set_yticks(np.arange(len(outputs)) + 0.5, [f"filter {f}" for f in range(len(outputs))])
        return svg(figure)


def make_figures() -> dict[str, str]:
    """Return all figures by name."""
    graph = make_graph()
    table = nfcgcn.sample_neighbours(graph, bandwidth=BANDWIDTH, seed=0)
    values = feature_map(graph.x, torch.from_numpy(table))[NODE].numpy()
    torch.manual_seed(0)
    sizes = {"filters": FILTERS, "bandwidth": BANDWIDTH, "kernel_size": KERNEL, "stride": STRIDE}
    layer = nfcgcn.NodeFeatureConv(graph.num_features, seed=0, backend="reference", **sizes).eval()
    with torch.no_grad():
        outputs = layer(graph.x, graph.edge_index)[NODE].reshape(FILTERS, -1).numpy()
    return {
        "sampling": draw_sampling(graph, table),
        "feature_map": draw_map(values, table[NODE]),
        "convolution": draw_convolution(values, table[NODE], outputs),
    }


if __name__ == "__main__":
    for name, drawing in make_figures().items():
        (Path(__file__).parent / f"{name}.svg").write_text(drawing, encoding="utf-8")
