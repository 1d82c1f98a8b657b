"""A graph as a notebook shows it."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

MOST_CLASSES_SHOWN = 8
"""The counts of so many classes are shown, the largest ones."""


def table_of(graph: Any) -> str:
    """Return a small HTML table of a graph's sizes and classes."""
    counts = np.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes)
    largest = np.argsort(-counts, kind="stable")[:MOST_CLASSES_SHOWN]
    classes = ", ".join(f"{graph.class_name(int(c))} ({counts[c]:,})" for c in largest)
    more = graph.num_classes - len(largest)
    rows = {
        "nodes": f"{graph.num_nodes:,}",
        "edges": f"{graph.num_edges:,}",
        "features": f"{graph.num_features:,}, {'sparse' if graph.is_sparse else 'dense'}",
        "classes": f"{graph.num_classes:,}: {classes}" + f" and {more:,} more" * (more > 0),
        "without a label": f"{int((graph.labels < 0).sum()):,}",
    }
    cells = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table><caption>{escape(graph.name)}</caption>{cells}</table>"
