"""Suggested settings for a graph without a preset: each follows from a property of the graph, and has a reason.

They were chosen by validation accuracy, never by test accuracy, with 20 labels per class on Cora, CiteSeer, PubMed,
digits, generated citations, Amazon Photo and Coauthor CS; with two or three seeds each, and not every setting on every
graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nfcgcn.graph import Graph

MOST_SLOTS = 6
KERNEL_SIZE, STRIDE = 32, 16
LARGE = 10.0
"""Features with negative values are scaled if the magnitude of a value is larger than this."""


@dataclass(frozen=True)
class Suggestion:
    """A value of a setting for one graph, and the reason for it."""

    value: int | float | str
    reason: str


MONITOR = Suggestion(
    "loss", "on most graphs tried, choosing the epoch by validation loss gave higher accuracy on other nodes"
)


def for_any_model(graph: Graph) -> dict[str, Suggestion]:
    """Return what suits a graph with any model."""
    suggestions = {"split": Suggestion("ratio", "the graph came without a split; 60 % of the labelled nodes train")}
    if graph.given is not None:
        suggestions["split"] = Suggestion("given", "the graph came with a split")
    if scale := _feature_scale(graph):
        suggestions["feature_scale"] = scale
    return suggestions


def for_gcn() -> dict[str, Suggestion]:
    """Return what suits GCN on any graph."""
    return {
        "hidden_channels": Suggestion(64, "16 was no better on Amazon Photo"),
        "weight_decay": Suggestion(5e-4, "as chosen by the authors of GCN"),
        "monitor": MONITOR,
    }


def for_vectors() -> dict[str, Suggestion]:
    """Return what suits a linear classifier on vectors of nodes, on any graph."""
    return {"weight_decay": Suggestion(0.05, "less decay was worse on validation nodes of Cora and CiteSeer")}


def for_nfc_gcn(graph: Graph) -> dict[str, Suggestion]:
    """Return what suits NFC-GCN on a graph."""
    bandwidth = _bandwidth(graph)
    kernel_size, stride = window(graph.num_features)
    suggestions = {
        "bandwidth": bandwidth,
        "kernel_size": kernel_size,
        "stride": stride,
        "hidden_channels": Suggestion(64, "better than 16 on Cora, CiteSeer and PubMed, as good on Amazon Photo"),
        "learning_rate": Suggestion(0.01, "a third of it was slower and no better on the graphs tried"),
        "weight_decay": Suggestion(5e-4, "nothing from 1e-4 to 1e-2 was clearly better on the graphs tried"),
        "monitor": MONITOR,
        "epochs": Suggestion(200, "on the graphs tried, the best epoch came before epoch 185"),
        "patience": Suggestion(60, "stops a run that no longer improves"),
    }
    if int(bandwidth.value) < 3:
        suggestions["kernel_width"] = Suggestion(bandwidth.value, "a 2D filter is at most as wide as the map")
    return suggestions


def _feature_scale(graph: Graph) -> Suggestion | None:
    values = graph.features if isinstance(graph.features, np.ndarray) else graph.features.data
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if low >= 0:
        return Suggestion(
            "row-norm", "no value is below 0, as with word counts: the proportions within a node matter, not the total"
        )
    if max(-low, high) > LARGE:
        return Suggestion(
            "row-norm", f"with values from {low:g} to {high:g}, the first training steps would be too large"
        )
    return None


def _bandwidth(graph: Graph) -> Suggestion:
    if not graph.num_edges:
        return Suggestion(1, "there are no edges, so there are no neighbours")
    quartile = int(np.percentile(np.diff(graph.adjacency.indptr), 75, method="inverted_cdf"))
    reason = f"one slot for the node itself; three nodes in four have at most {quartile} neighbours"
    if 1 + quartile > MOST_SLOTS:
        return Suggestion(
            MOST_SLOTS, f"{reason}, but more slots took longer and gave no better accuracy on the graphs tried"
        )
    return Suggestion(max(1 + quartile, 2), reason)


def window(num_features: int, kernel_size: int = KERNEL_SIZE, stride: int = STRIDE) -> tuple[Suggestion, Suggestion]:
    """Return kernel size, `kernel_size` or more, and stride such that the last window ends with the last feature."""
    d = max(num_features, 1)
    if d < 2 * kernel_size:
        return Suggestion(d, f"one window covers all {d} features"), Suggestion(d, "there is only one window")
    rest = (d - kernel_size) % stride
    windows = (d - kernel_size) // stride + 1
    size = f"{kernel_size} + {rest}" if rest else f"{kernel_size}"
    reason = f"{size}, so that {windows} windows cover all {d} features"
    overlap = f"half of {kernel_size}, so that most features are in two windows"
    return Suggestion(kernel_size + rest, reason), Suggestion(stride, overlap)
