"""What X and y of an estimator mean: the nodes of a graph, the graph of a frame, and labels, some of them missing."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d
from torch import Tensor

from nfcgcn.data.formats import from_frames
from nfcgcn.data.formats.edges import plain_ids
from nfcgcn.data.formats.encoding import check_encoding
from nfcgcn.data.formats.labels import refuse_several
from nfcgcn.data.formats.values import cells_of
from nfcgcn.errors import ConfigError, GraphError, NFCWarning
from nfcgcn.graph import Graph, Ints


def without_labels(graph: Any) -> Graph:
    """Return the user's graph without labels, class names and split."""
    if not isinstance(graph, Graph):
        from torch_geometric.data import Data

        if not isinstance(graph, Data):
            raise ConfigError(
                f"`graph` must be an nfcgcn.Graph or a PyTorch Geometric Data, got {type(graph).__name__}; nfcgcn.load "
                "makes a graph of frames, NetworkX and igraph, or give features as X instead"
            )
        bare = copy.copy(graph)
        bare.y = None
        return replace(Graph.from_pyg(bare), given=None)
    labels = np.full(graph.num_nodes, -1, np.int64)
    return replace(graph, labels=labels, class_names=None, test_nodes=None, given=None)


def with_same_features(graph: Graph, fitted: Graph) -> Graph:
    """Return `graph`, if its features are those of the graph of ``fit``."""
    remedy = "read it with `encoding=graph.encoding`, `graph` being the one of `fit`"
    check_encoding(graph, fitted.encoding, remedy=remedy)
    names, known = graph.feature_names, fitted.feature_names
    if graph.num_features != fitted.num_features:
        more = "" if fitted.encoding is None else f"; {remedy}"
        raise GraphError(
            f"`graph` must have the {fitted.num_features} features of `fit`, got {graph.num_features}{more}"
        )
    if names is not None and known is not None and names != known:
        place = next(i for i in range(len(known)) if names[i] != known[i])
        raise GraphError(f"feature {place} of `graph` is {names[place]!r}, in `fit` it was {known[place]!r}")
    return graph


def with_labels(graph: Graph, nodes: Ints, labels: Ints, classes: Any) -> Graph:
    """Return the graph with these labels of some nodes, and with no other labels."""
    all_labels = np.full(graph.num_nodes, -1, np.int64)
    all_labels[nodes] = labels
    return replace(graph, labels=all_labels, class_names=tuple(str(c) for c in classes))


def as_edges(edge_index: Any) -> npt.NDArray[Any]:
    """Return edges as an array ``[2, E]``; None means that there are none."""
    if edge_index is None:
        return np.zeros((2, 0), np.int64)
    return edge_index.cpu().numpy() if isinstance(edge_index, Tensor) else np.asarray(edge_index)


def is_frame(thing: Any) -> bool:
    """Return whether it has columns, as frames of pandas and Polars do."""
    return hasattr(thing, "columns")


def graph_of_frames(nodes: Any, edges: Any, y: Any, encoding: Mapping[str, Any] | None) -> Graph:
    """Build the graph of two frames, as an earlier one was read if there is an `encoding`; `y` is no feature."""
    if not is_frame(nodes):
        raise GraphError(f"edges in a frame join nodes by id, so X must be a frame too, got {type(nodes).__name__}")
    ignore = [] if encoding is not None else _columns_of(y, nodes)
    try:
        return without_labels(from_frames(nodes, edges, ignore=ignore, encoding=encoding))
    except GraphError as error:
        if encoding is not None:
            raise
        remedy = "options are for nfcgcn.from_frames(nodes, edges, ...), whose graph NFCClassifier(graph) takes"
        raise GraphError(f"{error}; {remedy}") from error


def _columns_of(y: Any, frame: Any) -> list[str]:
    """Return the column of a frame that `y` was taken from: the one of its name, or those that hold the same."""
    import pandas as pd

    names = list(frame.columns)
    if getattr(y, "name", None) in names:
        return [y.name]
    labels = pd.Series(list(() if y is None else y), dtype=object)
    return [name for name in names if labels.equals(pd.Series(list(frame[name]), dtype=object))]


def refuse_told_labels(y: Any, graph: Graph) -> None:
    """Refuse a column of labels that the features of the graph were made of: every score would be too good."""
    name = getattr(y, "name", None)
    if isinstance(name, str) and any(column["name"] == name for column in (graph.encoding or {}).get("columns", ())):
        raise GraphError(
            f"`y` is the column '{name}', which is among the features of the graph too; read the graph with "
            f"label='{name}', or leave the column out with ignore='{name}'"
        )


def _ids_of(X: Any, graph: Graph) -> npt.NDArray[Any] | None:  # noqa: N803
    """Return the ids in X as text, if it is the column of ids of the graph's table, or a frame with that column."""
    column = (graph.encoding or {}).get("id")
    if column is not None and is_frame(X) and column in list(X.columns):
        X = X[column]  # noqa: N806
    elif column is None or is_frame(X) or getattr(X, "name", None) != column:
        return None
    return plain_ids(cells_of(list(X), f"column '{column}' of X", as_text=True))


def warn_of_numbers(X: Any, graph: Graph) -> None:  # noqa: N803
    """Warn if X holds numbers of nodes that are names of other nodes."""
    names = graph.node_names
    if names is None or _ids_of(X, graph) is not None or not np.issubdtype(np.asarray(X).dtype, np.integer):
        return
    known = {name: i for i, name in enumerate(names)}
    number = next((i for i in np.ravel(X).tolist() if known.get(str(i), i) != i), None)
    if number is not None:
        warnings.warn(
            f"X holds whole numbers, which count the nodes from 0: {number} is the node '{names[number]}', not the one "
            f"called '{number}'; to use names, give them as text",
            NFCWarning,
            stacklevel=3,
        )


def read_nodes(X: Any, graph: Graph) -> Ints:  # noqa: N803
    """Return the numbers of the nodes that X names, ``[n]`` or ``[n, 1]``, or of the ids in a frame's column."""
    ids = _ids_of(X, graph)
    nodes = np.asarray(X) if ids is None else ids
    if nodes.ndim == 2 and nodes.shape[1] == 1:
        nodes = nodes[:, 0]
    if nodes.ndim != 1 or not len(nodes):
        raise GraphError(
            f"with `graph`, X must be a single column with at least one node of it, got shape {list(nodes.shape)}"
        )
    if np.issubdtype(nodes.dtype, np.integer):
        outside = nodes[(nodes < 0) | (nodes >= graph.num_nodes)]
        if len(outside):
            named = str(outside[0]) in (graph.node_names or ())
            raise GraphError(
                f"X names node {outside[0]}, but the graph has {graph.num_nodes} nodes (0 to {graph.num_nodes - 1})"
                + f"; '{outside[0]}' is a name: give names as text, such as str({outside[0]})" * named
            )
        return nodes.astype(np.int64)
    if not all(isinstance(name, str) for name in nodes.tolist()):
        raise GraphError(f"with `graph`, X must hold node numbers or node names, got {nodes.dtype}")
    if graph.node_names is None:
        raise GraphError(f"X names node '{nodes[0]}', but the nodes of the graph have no names; use their numbers")
    number = {name: i for i, name in enumerate(graph.node_names)}
    unknown = [name for name in nodes if name not in number]
    if unknown:
        known = ", ".join(f"'{name}'" for name in graph.node_names[:3])
        raise GraphError(
            f"X names {len(unknown)} nodes that the graph does not have, first '{unknown[0]}'; its own names start "
            f"with {known}"
        )
    return np.array([number[name] for name in nodes], np.int64)


def with_missing(y: Any, nodes: Ints, graph: Any) -> Any:
    """Return `y` with None for each -1 that is no class: where `y` is what the user's graph has itself as labels."""
    own = graph.labels if isinstance(graph, Graph) else getattr(graph, "y", None)
    given = np.asarray(y)
    if own is None or given.dtype.kind != "i" or not np.array_equal(given, np.asarray(own)[nodes]):
        return y
    return np.where(given < 0, None, given) if (given < 0).any() else y  # type: ignore[call-overload]


def read_labels(y: Any, rows: Ints, estimator: str) -> tuple[npt.NDArray[Any], Ints, Ints]:
    """Return the classes, the labelled nodes, each once, and the class number of each of these nodes."""
    if y is None:
        raise ValueError(f"{estimator} requires y to be passed, but the target y is None")
    y = column_or_1d(y, warn=True)
    check_consistent_length(rows, y)
    known = ~missing(y)
    if not known.any():
        raise GraphError("every label in `y` is missing; there is nothing to learn from")
    if y.dtype.kind == "f":
        assert_all_finite(y, allow_nan=True, input_name="y")
    given = plain(y[known])
    check_classification_targets(given)
    if given.dtype.kind == "U":
        refuse_several(Counter(given.tolist()), "`y`")
    classes, labels = np.unique(given, return_inverse=True)
    nodes, first, back = np.unique(rows[known], return_index=True, return_inverse=True)
    clash = np.flatnonzero(labels != labels[first][back])
    if len(clash):
        node = nodes[back[clash[0]]]
        one, other = classes[labels[first[back[clash[0]]]]], classes[labels[clash[0]]]
        raise GraphError(f"node {node} is given twice, with the labels '{one}' and '{other}'; keep one")
    return classes, nodes, labels[first].astype(np.int64)


def missing(y: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mark the labels that are NaN, None or pandas' NA."""
    if y.dtype != object:
        return np.isnan(y) if y.dtype.kind == "f" else np.zeros(len(y), bool)
    from pandas import isna

    return np.asarray(isna(y), bool)


def plain(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert an object array, from which missing labels were removed, to the type of its labels."""
    if labels.dtype != object:
        return labels
    if len({isinstance(label, str) for label in labels}) > 1:
        raise GraphError("`y` mixes text and numbers; make all labels one or the other")
    return np.array(labels.tolist())
