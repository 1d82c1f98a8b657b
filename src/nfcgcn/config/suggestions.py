"""Settings for a graph that no preset knows: each from something in the graph, with the reason.

Chosen by validation accuracy, never by test accuracy, with 20 labels a class on Cora, CiteSeer, PubMed, digits,
generated citations, Amazon Photo and Coauthor CS; two or three seeds each, and not every setting on every graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nfcgcn.graph import Graph

MOST_SLOTS = 6
KERNEL_SIZE, STRIDE = 32, 16
LARGE = 10.0
"""Features with negative values are scaled where some value is larger than this."""


@dataclass(frozen=True)
class Suggestion:
    """A setting's value for one graph, and why."""

    value: int | float | str
    reason: str


MONITOR = Suggestion("loss", "on most graphs tried the epoch of least loss did better elsewhere than that of most hits")


def for_any_model(graph: Graph) -> dict[str, Suggestion]:
    """Return what suits a graph whatever the model."""
    found = {"split": Suggestion("ratio", "the graph came without a split; three labels in five train")}
    if graph.given is not None:
        found["split"] = Suggestion("given", "the graph came with a split")
    if scale := _feature_scale(graph):
        found["feature_scale"] = scale
    return found


def for_gcn() -> dict[str, Suggestion]:
    """Return what suits all graphs in GCN."""
    return {
        "hidden_channels": Suggestion(64, "16 was no better on Amazon Photo"),
        "weight_decay": Suggestion(5e-4, "as the authors of GCN have it"),
        "monitor": MONITOR,
    }


def for_nfc_gcn(graph: Graph) -> dict[str, Suggestion]:
    """Return what suits a graph in NFC-GCN."""
    bandwidth = _bandwidth(graph)
    kernel_size, stride = _window(graph.num_features)
    found = {
        "bandwidth": bandwidth,
        "kernel_size": kernel_size,
        "stride": stride,
        "hidden_channels": Suggestion(64, "better than 16 on Cora, CiteSeer and PubMed, like it on Amazon Photo"),
        "learning_rate": Suggestion(0.01, "a third of it was no better on the graphs tried, and slower"),
        "weight_decay": Suggestion(5e-4, "nothing from 1e-4 to 1e-2 was clearly better on the graphs tried"),
        "monitor": MONITOR,
        "epochs": Suggestion(200, "the best epoch of the graphs tried came before the 185th"),
        "patience": Suggestion(60, "ends a run that has stopped improving"),
    }
    if int(bandwidth.value) < 3:
        found["kernel_width"] = Suggestion(bandwidth.value, "a 2D filter is at most as wide as the map")
    return found


def _feature_scale(graph: Graph) -> Suggestion | None:
    values = graph.features if isinstance(graph.features, np.ndarray) else graph.features.data
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if low >= 0:
        return Suggestion("row-norm", "no value is below 0, as with words: a node's proportions tell, not its sum")
    if max(-low, high) > LARGE:
        return Suggestion("row-norm", f"values from {low:g} to {high:g} would make the first steps too long")
    return None


def _bandwidth(graph: Graph) -> Suggestion:
    if not graph.num_edges:
        return Suggestion(1, "there are no edges, hence no neighbours")
    quartile = int(np.percentile(np.diff(graph.adjacency.indptr), 75, method="inverted_cdf"))
    reason = f"the node itself, and three nodes in four have at most {quartile} neighbours"
    if 1 + quartile > MOST_SLOTS:
        return Suggestion(MOST_SLOTS, f"{reason}; more slots take longer and gained nothing where tried")
    return Suggestion(max(1 + quartile, 2), reason)


def _window(num_features: int) -> tuple[Suggestion, Suggestion]:
    """Return kernel and stride such that the last window ends with the last column."""
    d = max(num_features, 1)
    if d < 2 * KERNEL_SIZE:
        return Suggestion(d, f"one window sees all {d} features"), Suggestion(d, "there is one window")
    rest = (d - KERNEL_SIZE) % STRIDE
    windows = (d - KERNEL_SIZE) // STRIDE + 1
    more = f", and {rest} more so" if rest else ", so"
    why = f"{KERNEL_SIZE}{more} that {windows} windows reach all {d} features"
    return Suggestion(KERNEL_SIZE + rest, why), Suggestion(STRIDE, f"half of {KERNEL_SIZE}: features are seen twice")
