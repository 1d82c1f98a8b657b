"""A description of a graph before anything is trained on it: counts and shares as plain values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse.csgraph import connected_components

from nfcgcn.config.registry import Config, suggest
from nfcgcn.data.store.arrays import row_blocks
from nfcgcn.errors import GraphError, NFCError, NFCWarning
from nfcgcn.graph import Graph, Split
from nfcgcn.training.class_weights import class_weights
from nfcgcn.training.figures import judge

FAR_APART = 10
"""One class having so many times the labels of another is worth a word."""
USUAL_WEIGHT = (0.1, 10.0)
"""The median weight of edges lies in this range, or is far from the weight of a node's own loop."""


def inspect(graph: Graph, *, model: str = "nfc-gcn") -> dict[str, Any]:
    """Describe a graph in plain values, ready for JSON, with suggested settings for `model`.

    Cost: linear in the number of nodes, edges and nonzero feature values.

    >>> import nfcgcn
    >>> facts = nfcgcn.inspect(nfcgcn.load("digits"))
    >>> facts["nodes"], facts["isolated_nodes"], round(facts["homophily"], 2)
    (1797, 0, 0.96)
    """
    nonzeros = 0 if isinstance(graph.features, np.ndarray) else graph.features.nnz
    graph.make_room("edges and features", 24 * graph.adjacency.nnz + 24 * nonzeros)
    suggestions = suggest(graph, model)
    bandwidth = suggestions["bandwidth"].value if "bandwidth" in suggestions else None
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "degrees": _degrees(graph, bandwidth),
        "isolated_nodes": int((_degree(graph) == 0).sum()),
        "components": _components(graph),
        "homophily": homophily(graph),
        "labels": _labels(graph),
        "features": _features(graph),
        "weights": _weights(graph),
        "reading": graph.reading,
        "given_split": None if graph.given is None else _sizes(graph.given),
        "model": model,
        "suggestions": {name: asdict(suggestion) for name, suggestion in suggestions.items()},
    }


def homophily(graph: Graph) -> float | None:
    """Return which share of the edges between labelled nodes join nodes of the same class; None without such edges."""
    a = graph.adjacency
    alike = total = 0
    for first, stop in row_blocks(a.indptr):
        source = np.repeat(graph.labels[first:stop], np.diff(a.indptr[first : stop + 1]))
        target = graph.labels[a.indices[a.indptr[first] : a.indptr[stop]]]
        labelled = (source >= 0) & (target >= 0)
        total += int(labelled.sum())
        alike += int((source[labelled] == target[labelled]).sum())
    return alike / total if total else None


def check_classes(graph: Graph) -> None:
    """Refuse labels from which nothing can be learnt, or among which one is probably a code for "no label"."""
    present = np.unique(graph.labels[graph.labels >= 0])
    if len(present) == 1:
        only = graph.class_name(int(present[0]))
        raise GraphError(f"every label of '{graph.name}' is '{only}': there is nothing to tell apart")
    if graph.class_names is None and len(present) and present[-1] >= len(present):
        gap = int(np.flatnonzero(present != np.arange(len(present)))[0])
        node = int(np.flatnonzero(graph.labels == present[gap])[0])
        raise GraphError(
            f"node {node} of '{graph.name}' has class {present[gap]}, but no node has class {gap}; "
            "write -1 for a missing label, and number the classes from 0 without gaps"
        )


def foresee(graph: Graph, config: Config) -> tuple[list[str], list[str]]:
    """Return what would stop training on `graph` with these settings, and what would make it worse; nothing is trained.

    The classes, the split of seed 0, the weights of the classes, the figure that chooses the epoch and the model are
    tried; a model that needs more memory than there is, is refused before it takes any.
    """
    problems: list[str] = []
    splits: list[Split] = []
    attempts: list[Callable[[], object]] = [
        lambda: check_classes(graph),
        lambda: splits.append(_checked_split(graph, config)),
        lambda: [class_weights(config.training.class_weight, graph, split.train) for split in splits],
        lambda: _check_monitor(graph, config, splits),
        lambda: config.build(graph, 0) if graph.num_classes else None,  # without classes there is no model
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for attempt in attempts:
            try:
                attempt()
            except NFCError as error:
                problems.append(str(error))
    cautions = [str(warning.message) for warning in caught if issubclass(warning.category, NFCWarning)]
    return problems, [*cautions, *_shortages(graph, splits), *_rare_classes(graph, config), *_oddities(graph)]


def _checked_split(graph: Graph, config: Config) -> Split:
    split = config.split.make(graph, 0)
    split.check(graph)
    if not len(split.test):
        raise GraphError(f"the split '{split.name}' leaves no labelled node to test on; change its sizes")
    return split


def _check_monitor(graph: Graph, config: Config, splits: Sequence[Split]) -> None:
    for split in splits:
        y = torch.from_numpy(np.asarray(graph.labels[split.val]))
        judge(torch.zeros(len(y), graph.num_classes), y, None, config.training.monitor)


def _shortages(graph: Graph, splits: Sequence[Split]) -> Iterator[str]:
    """Say which classes have no node in a part of the split; those without training nodes are known already."""
    present = np.unique(graph.labels[graph.labels >= 0])
    for split in splits:
        for part, what in (("val", "validation"), ("test", "test")):
            missing = np.setdiff1d(present, graph.labels[getattr(split, part)])
            if len(missing):
                names = ", ".join(
                    f"'{graph.class_name(int(c))}' ({int((graph.labels == c).sum())} labels)" for c in missing[:3]
                )
                more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
                yield f"no {what} node has class {names}{more}; label more nodes of this class, or merge classes"


def _rare_classes(graph: Graph, config: Config) -> Iterator[str]:
    """Say that one class has far fewer labels than another, unless the settings make up for it."""
    counts = np.bincount(graph.labels[graph.labels >= 0], minlength=1)
    most, least = int(counts.argmax()), int(np.where(counts > 0, counts, counts.max()).argmin())
    if config.training.class_weight is None and counts[most] >= FAR_APART * counts[least] > 0:
        yield (
            f"class '{graph.class_name(most)}' has {counts[most]:,} labels, class '{graph.class_name(least)}' has "
            f"{counts[least]:,}: accuracy says little about rare classes; `class_weight=balanced` makes all classes "
            "count the same in training, `monitor=macro-f1` in the choice of the epoch"
        )


def _oddities(graph: Graph) -> Iterator[str]:
    degree, features = _degree(graph), _features(graph)
    if not graph.num_edges:
        yield "there are no edges: every node is judged only by its own features"
    elif isolated := int((degree == 0).sum()):
        yield f"{isolated:,} of {graph.num_nodes:,} nodes have no edge and are judged only by their own features"
    if features["constant_columns"]:
        yield f"{features['constant_columns']:,} of {graph.num_features:,} features are the same for every node"
    if features["zero_rows"]:
        yield f"{features['zero_rows']:,} nodes have only zeros as features"
    if graph.is_weighted:
        middle = float(np.median(graph.adjacency.data))
        if not USUAL_WEIGHT[0] <= middle <= USUAL_WEIGHT[1]:
            yield (
                f"half of the weights are {'above' if middle > 1 else 'below'} {middle:g}, while a node's own loop has "
                "weight 1; divide the weights by it, or set `self_weight`"
            )


def _degree(graph: Graph) -> npt.NDArray[np.integer[Any]]:
    return np.asarray(np.diff(graph.adjacency.indptr))


def _degrees(graph: Graph, bandwidth: Any) -> dict[str, Any]:
    degree = _degree(graph)
    if not len(degree):
        return {"min": 0, "median": 0.0, "mean": 0.0, "max": 0, "unfilled": None}
    return {
        "min": int(degree.min()),
        "median": float(np.median(degree)),
        "mean": float(degree.mean()),
        "max": int(degree.max()),
        # The share of nodes with fewer neighbours than slots: copies of the node itself fill the other slots.
        "unfilled": None if bandwidth is None else float(np.mean(degree < bandwidth - 1)),
    }


def _components(graph: Graph) -> dict[str, int]:
    if not graph.num_nodes:
        return {"count": 0, "largest": 0}
    count, member = connected_components(graph.adjacency, directed=False)
    return {"count": int(count), "largest": int(np.bincount(member).max())}


def _labels(graph: Graph) -> dict[str, Any]:
    counts = np.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes)
    return {
        "classes": graph.num_classes,
        "counts": {graph.class_name(label): int(count) for label, count in enumerate(counts)},
        "unlabelled": int((graph.labels < 0).sum()),
    }


def _features(graph: Graph) -> dict[str, Any]:
    n, d = graph.num_nodes, graph.num_features
    counts: dict[str, Any] = {"count": d, "form": "sparse" if graph.is_sparse else "dense"}
    if not n or not d:
        return {**counts, "density": 0.0, "zero_rows": n, "constant_columns": d, "min": None, "max": None}
    if isinstance(graph.features, np.ndarray):
        x = graph.features
        filled = x != 0
        nonzero, per_row = int(filled.sum()), filled.any(axis=1)
        low, high = x.min(axis=0), x.max(axis=0)
    else:
        matrix = graph.features
        nonzero = int(np.count_nonzero(matrix.data))
        rows = np.repeat(np.arange(n), np.diff(matrix.indptr))[matrix.data != 0]
        per_row = np.bincount(rows, minlength=n) > 0
        low, high = (np.asarray(part.todense()).ravel() for part in (matrix.min(axis=0), matrix.max(axis=0)))
    return {
        **counts,
        "density": nonzero / (n * d),
        "zero_rows": int((~per_row).sum()),
        "constant_columns": int((low == high).sum()),
        "min": float(low.min()),
        "max": float(high.max()),
    }


def _weights(graph: Graph) -> dict[str, float] | None:
    if not graph.is_weighted:
        return None
    values = graph.adjacency.data
    return {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}


def _sizes(split: Split) -> dict[str, int]:
    return {part: len(getattr(split, part)) for part in ("train", "val", "test")}
