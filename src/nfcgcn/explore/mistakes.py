"""Where the model errs: the confusion matrix with the nodes of each cell, and what tells two classes apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from nfcgcn.evaluation import confusion
from nfcgcn.explore.scene import MOST_NODES, is_whole
from nfcgcn.explore.subject import PARTS, Subject
from nfcgcn.inference.explanation import ClassExplanation

MOST_CLASSES = 60
"""With more there is no matrix; nobody could read it."""
MOST_LISTED = 50
"""Nodes of a cell in its list, and mistakes in theirs."""


def describe_mistakes(subject: Subject, part: str) -> dict[str, Any]:
    """Return the confusion matrix of one part of the split, or of "all", with the nodes in each cell.

    The nodes of a cell come with the most confident first: all of them if the picture shows the whole graph, and the
    first `MOST_LISTED` with their names.
    """
    assert subject.predicted is not None  # noqa: S101
    assert subject.confidence is not None  # noqa: S101
    labels, predicted = subject.labels, subject.predicted
    counted = labels >= 0
    if part != "all":
        counted &= subject.parts == PARTS.index(part)
    nodes = np.flatnonzero(counted)
    nodes = nodes[np.argsort(-subject.confidence[nodes], kind="stable")]
    count = len(subject.classes)
    wrong = nodes[labels[nodes] != predicted[nodes]]
    cells: dict[str, list[int]] = {}
    most = MOST_NODES if is_whole(subject) else MOST_LISTED
    if count <= MOST_CLASSES:
        for node in nodes.tolist():
            listed = cells.setdefault(f"{labels[node]}-{predicted[node]}", [])
            if len(listed) < most:
                listed.append(node)
    matrix = confusion(labels[nodes], predicted[nodes], count).tolist() if count <= MOST_CLASSES else None
    named = sorted({*wrong[:MOST_LISTED].tolist(), *(node for cell in cells.values() for node in cell[:MOST_LISTED])})
    return {
        "part": part,
        "num_nodes": len(nodes),
        "num_wrong": len(wrong),
        "matrix": matrix,
        "cells": cells,
        "confident": wrong[:MOST_LISTED].tolist(),
        "nodes": {str(node): subject.brief(node) for node in named},
    }


def parts_with_labels(subject: Subject) -> list[str]:
    """List the parts of the split that have labelled nodes, the test nodes first, and "all"."""
    parts = [p for p in ("test", "validation", "training") if (subject.parts == PARTS.index(p)).any()]
    return [*parts, "all"]


def separate(subject: Subject, classes: list[ClassExplanation], one: int, other: int) -> dict[str, Any]:
    """Return the features whose mean contributions, as `explain --global` has them, differ most between two classes."""
    first, second = classes[one].contributions, classes[other].contributions
    order = np.argsort(-np.abs(first - second), kind="stable")[:20]
    return {
        "one": one,
        "other": other,
        "num_nodes": [classes[one].num_nodes, classes[other].num_nodes],
        "features": [
            {"feature": int(d), "name": subject.feature(int(d)), "one": float(first[d]), "other": float(second[d])}
            for d in order
            if first[d] != second[d]
        ],
    }
