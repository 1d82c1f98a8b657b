"""The graph and its split: frozen values, checked here and nowhere else."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from nfcgcn.errors import GraphError, NFCWarning

if TYPE_CHECKING:
    from torch_geometric.data import Data

Ints = npt.NDArray[np.int64]
MOST_DENSE = 2**28
"""Sparse features of at most so many bytes become dense for PyTorch Geometric."""
Floats = npt.NDArray[np.float32]
MOST_WEIGHT = float(np.finfo(np.float32).max) / 4
"""The weights of a node's edges add up to at most this; a model adds the weight of the node itself."""
MOST_CLASSES_SHOWN = 8
"""A notebook shows the counts of so many classes, the largest ones."""


class WeightedEdges(NamedTuple):
    """Edges with weights: what models take in place of ``edge_index`` where a graph has weights."""

    edge_index: torch.Tensor
    """``[2, E]``."""
    weight: torch.Tensor
    """``[E]``, above 0; both directions of an edge have the same."""

    def to(self, device: torch.device | str) -> WeightedEdges:
        """Return the edges on another device."""
        return WeightedEdges(self.edge_index.to(device), self.weight.to(device))


Edges = torch.Tensor | WeightedEdges
"""What a model takes as edges: ``edge_index [2, E]``, with or without weights."""


def edge_parts(edges: Edges) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return ``edge_index [2, E]`` and the weights ``[E]``, or None for edges that all count the same."""
    return edges if isinstance(edges, WeightedEdges) else (edges, None)


@dataclass(frozen=True, eq=False)
class Graph:
    r"""An undirected graph :math:`G = (V, E, X)`. All nodes have features, and some have labels.

    Build one with :meth:`from_edges` or :meth:`from_pyg`, which remove loops and duplicate edges; the constructor
    itself only accepts clean parts. Sparse features stay sparse, dense ones stay dense.

    >>> graph = Graph.from_edges([[0, 1, 1], [1, 2, 0]], features=[[1.0], [2.0], [3.0]], labels=[0, 1, -1])
    >>> graph
    Graph('graph', nodes=3, edges=2, features=1 dense, classes=2)
    >>> graph.edge_index
    tensor([[1, 0, 2, 1],
            [0, 1, 1, 2]])
    """

    adjacency: sp.csr_array
    """``[N, N]``, symmetric, no loops, no duplicates, sorted indices; the values are weights above 0, or all ones."""
    features: sp.csr_array | Floats
    """``[N, D]``, SciPy CSR or dense, float32, finite."""
    labels: Ints
    """``[N]``, the class of each node; -1 for a node without a label."""
    name: str = "graph"
    node_names: Sequence[str] | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    test_nodes: Ints | None = None
    """The test nodes that the publisher of the dataset chose, if any; they come after all other labelled nodes."""
    given: Split | None = None
    """The split that the graph came with, if any; the split "given" returns it."""
    encoding: Mapping[str, Any] | None = None
    """How a user's tables became these features, as plain JSON values, so that later tables are read the same way."""
    reading: str | None = None
    """What was read from a user's data and what was not used, in one line."""
    store: Path | None = None
    """The folder whose files are mapped into memory as these arrays; None for a graph in memory."""

    def __post_init__(self) -> None:
        _check_adjacency(self.adjacency)
        n = self.num_nodes
        if self.features.shape[0] != n:
            raise GraphError(f"`features` must have one row per node: {n} nodes, got {self.features.shape[0]} rows")
        _check_finite(self.features)
        if self.labels.shape != (n,) or self.labels.dtype != np.int64:
            raise GraphError(
                f"`labels` must be {n} int64 numbers, one per node, "
                f"got {self.labels.dtype} of shape {self.labels.shape}"
            )
        if n and self.labels.min() < -1:
            raise GraphError(f"`labels` must be classes from 0 up, or -1 for none, got {self.labels.min()}")
        for what, names, count in (
            ("node_names", self.node_names, n),
            ("feature_names", self.feature_names, self.num_features),
        ):
            if names is not None and len(names) != count:
                raise GraphError(f"`{what}` must hold {count} names, got {len(names)}")
        if self.class_names is not None and n and self.labels.max() >= len(self.class_names):
            raise GraphError(
                f"`class_names` holds {len(self.class_names)} names, but a node has label {self.labels.max()}"
            )

    @classmethod
    def from_edges(
        cls,
        edges: npt.ArrayLike,
        features: sp.sparray | sp.spmatrix | npt.ArrayLike,
        *,
        labels: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
        name: str = "graph",
        node_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        test_nodes: Ints | None = None,
        given: Split | None = None,
        encoding: Mapping[str, Any] | None = None,
        reading: str | None = None,
    ) -> Graph:
        """Build a graph from node pairs ``[2, E]``; directions do not matter, loops and duplicates are dropped.

        ``labels [N]`` are class numbers, -1 for none, or class names; a missing one (None, NaN) is a node without a
        label. Without ``labels``, all nodes are unlabelled. ``weights [E]`` are 0 or more; 0 means no edge. The weights
        of an edge that is given several times add up; if it is given in both directions, the larger sum counts, as in
        the code that Kipf and Welling published with GCN.

        >>> graph = Graph.from_edges([[0, 1, 0], [1, 2, 1]], [[1.0], [2.0], [3.0]], weights=[0.5, 2.0, 1.0])
        >>> graph.adjacency.toarray()[0, 1]
        np.float32(1.5)
        """
        x = _as_features(features)
        n = x.shape[0]
        pairs = _as_pairs(edges, n)
        if labels is not None:
            labels, class_names = _as_labels(labels, class_names)
        return cls(
            adjacency=_undirected(pairs, n, None if weights is None else _as_weights(weights, pairs.shape[1])),
            features=x,
            labels=np.full(n, -1, np.int64) if labels is None else labels,
            name=name,
            node_names=None if node_names is None else tuple(node_names),
            feature_names=None if feature_names is None else tuple(feature_names),
            class_names=None if class_names is None else tuple(class_names),
            test_nodes=test_nodes,
            given=given,
            encoding=encoding,
            reading=reading,
        )

    @classmethod
    def from_scipy(
        cls,
        adjacency: sp.sparray | sp.spmatrix,
        features: sp.sparray | sp.spmatrix | npt.ArrayLike,
        labels: npt.ArrayLike | None = None,
        *,
        weighted: bool = False,
        **others: Any,
    ) -> Graph:
        """Build a graph from a SciPy adjacency matrix ``[N, N]``; entries that are not 0 are edges.

        Directions and loops are dropped. With ``weighted``, the entries are the weights of the edges; otherwise every
        edge counts the same. ``others`` are the further arguments of :meth:`from_edges`. For a graph without features,
        :func:`nfcgcn.structural_features` makes some of the matrix.

        >>> Graph.from_scipy(sp.csr_array([[0, 2.5], [0, 0]]), [[1.0], [3.0]], labels=[0, 1])
        Graph('graph', nodes=2, edges=1, features=1 dense, classes=2)
        """
        if not sp.issparse(adjacency) or adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
            got = list(adjacency.shape) if sp.issparse(adjacency) else type(adjacency).__name__
            raise GraphError(f"`adjacency` must be a square SciPy matrix, got {got}")
        entries = sp.coo_array(adjacency)
        present = entries.data != 0
        if features is None:
            raise GraphError("`features` are missing; nfcgcn.structural_features(adjacency) makes some from the edges")
        x = _as_features(features)
        if x.shape[0] != adjacency.shape[0]:
            raise GraphError(
                f"`features` must have one row per node: {adjacency.shape[0]} nodes, got {x.shape[0]} rows"
            )
        weights = entries.data[present] if weighted else None
        if weights is None and (entries.data[present] != 1).any():
            others.setdefault("reading", "not used: the entries of the matrix as weights; weighted=True uses them")
        return cls.from_edges(np.stack(entries.coords)[:, present], x, labels=labels, weights=weights, **others)

    @classmethod
    def from_pyg(cls, data: Data, *, weight: str | None = None, name: str = "graph") -> Graph:
        """Build a graph from a PyTorch Geometric ``Data`` with ``x``, edges and, optionally, ``y`` and masks.

        Edges are ``edge_index`` or, after ``ToSparseTensor``, ``adj_t``. If all three masks are there, they become the
        given split; of several splits the first is taken, with a warning. ``weight`` names the attribute with one
        weight per edge, such as "edge_weight"; "adj_t" stands for the values of that matrix. Without it, every edge
        counts the same.
        """
        if not hasattr(data, "x") or type(data).__name__ == "HeteroData":
            raise GraphError(
                f"nodes of several types are not supported, got a {type(data).__name__}; "
                "give a torch_geometric.data.Data, for example with to_homogeneous()"
            )
        edge_index = data.edge_index if data.edge_index is not None else _transposed_edges(data.get("adj_t"))
        if data.x is None or edge_index is None:
            missing = "x" if data.x is None else "edge_index"
            raise GraphError(f"the PyG data has no `{missing}`; a graph needs node features and edges")
        y = data.y
        if y is not None and (y.dim() != 1 or y.is_floating_point()):
            raise GraphError(f"the PyG data's `y` must be one integer class per node, got {y.dtype} {list(y.shape)}")
        unused = [key for key in ("edge_weight", "edge_attr") if weight is None and data.get(key) is not None]
        return cls.from_edges(
            edge_index.cpu().numpy(),
            _from_tensor(data.x.detach().cpu()),
            labels=None if y is None else y.cpu().numpy(),
            weights=None if weight is None else _pyg_weights(data, weight),
            name=data.get("name") or name,
            node_names=data.get("node_names"),
            feature_names=data.get("feature_names"),
            class_names=data.get("class_names"),
            given=_given_split(data, data.x.shape[0], data.get("name") or name),
            reading=f"not used: `{unused[0]}` as weights; weight='{unused[0]}' uses it" if unused else None,
        )

    def to_pyg(self, split: Split | None = None, *, dense: bool | None = None) -> Data:
        """Return a PyTorch Geometric ``Data``; a split becomes masks, weights become ``edge_weight``.

        Most transforms of PyG read dense features only. So sparse features become dense if that takes at most 256 MiB;
        larger ones become a torch CSR tensor. ``dense`` decides it otherwise.
        """
        from torch_geometric.data import Data

        if dense is None:
            dense = 4 * self.num_nodes * self.num_features <= MOST_DENSE
        x = self.x.to_dense() if dense and self.is_sparse else self.x
        data = Data(x=x, edge_index=self.edge_index, y=self.y, num_nodes=self.num_nodes, name=self.name)
        if self.is_weighted:
            data.edge_weight = edge_parts(self.edges)[1]
        for key in ("node_names", "feature_names", "class_names"):
            if getattr(self, key) is not None:
                data[key] = list(getattr(self, key))
        for part in ("train", "val", "test") if split else ():
            mask = torch.zeros(self.num_nodes, dtype=torch.bool)
            mask[torch.from_numpy(getattr(split, part))] = True
            data[f"{part}_mask"] = mask
        return data

    def extend(
        self,
        features: sp.sparray | sp.spmatrix | npt.ArrayLike,
        edges: npt.ArrayLike,
        *,
        weights: npt.ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> Graph:
        """Return the graph with new, unlabelled nodes appended, for nodes that arrive after training.

        Old nodes keep their numbers; new ones follow. ``edges [2, E]`` join any two nodes, old or new. `names` are the
        names of the new nodes, and are needed if the graph's nodes have names. Without ``weights [E]``, new edges have
        weight 1; of an edge that is there already the larger weight counts.

        Cost: a copy of the graph.
        """
        new = _as_features(features)
        count, n = new.shape[0], self.num_nodes
        if new.shape[1] != self.num_features:
            raise GraphError(f"`features` must have the graph's {self.num_features} columns, got {new.shape[1]}")
        if (names is None) != (self.node_names is None) or (names is not None and len(names) != count):
            wanted = (
                "None, as the graph's nodes have none" if self.node_names is None else f"{count} names, one per node"
            )
            raise GraphError(f"`names` must be {wanted}, got {'None' if names is None else len(names)}")
        pairs = _as_pairs(edges, n + count)
        old = sp.csr_array(
            (self.adjacency.data, self.adjacency.indices, np.pad(self.adjacency.indptr, (0, count), mode="edge")),
            shape=(n + count, n + count),
        )
        given = None if weights is None else _as_weights(weights, pairs.shape[1])
        adjacency = sp.csr_array(old.maximum(_undirected(pairs, n + count, given)))
        rows: sp.csr_array | Floats
        if isinstance(self.features, np.ndarray):
            rows = np.concatenate([self.features, new if isinstance(new, np.ndarray) else new.toarray()])
        else:
            rows = sp.vstack([self.features, sp.csr_array(new)], format="csr")
        return replace(
            self,
            adjacency=adjacency,
            features=rows,
            labels=np.concatenate([self.labels, np.full(count, -1, np.int64)]),
            node_names=None if self.node_names is None else (*self.node_names, *(names or ())),
            store=None,
        )

    @property
    def num_nodes(self) -> int:
        return int(self.adjacency.shape[0])

    @property
    def num_edges(self) -> int:
        """The number of undirected edges."""
        return int(self.adjacency.nnz) // 2

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def num_classes(self) -> int:
        if self.class_names is not None:
            return len(self.class_names)
        return int(self.labels.max()) + 1 if self.num_nodes else 0

    @property
    def is_sparse(self) -> bool:
        return not isinstance(self.features, np.ndarray)

    @cached_property
    def x(self) -> torch.Tensor:
        """The features as a torch tensor, sparse CSR or dense; every call returns the same object."""
        if isinstance(self.features, np.ndarray):
            self.make_room("features", 4 * self.features.size)
            return torch.from_numpy(_writable(self.features, np.float32))
        matrix = self.features
        self.make_room("features", 8 * self.num_nodes + 12 * matrix.nnz)
        starts, columns = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
        return csr_tensor(starts, columns, torch.from_numpy(_writable(matrix.data, np.float32)), matrix.shape)

    @cached_property
    def edge_index(self) -> torch.Tensor:
        """``[2, 2E]``: each undirected edge in both directions, sorted."""
        self.make_room("edges", 44 * self.adjacency.nnz)  # 16 of them stay
        coo = self.adjacency.tocoo()
        return torch.from_numpy(np.stack([coo.col, coo.row]).astype(np.int64))

    @cached_property
    def is_weighted(self) -> bool:
        """Whether edges differ in weight from 1."""
        return bool((self.adjacency.data != 1).any())

    @cached_property
    def edges(self) -> Edges:
        """The edges as a model takes them: ``edge_index``, with weights if the graph has weights."""
        if not self.is_weighted:
            return self.edge_index
        return WeightedEdges(self.edge_index, torch.from_numpy(self.adjacency.data.astype(np.float32)))

    @cached_property
    def y(self) -> torch.Tensor:
        return torch.from_numpy(_writable(self.labels, np.int64))

    def make_room(self, what: str, size: int) -> None:
        """Refuse to read so many bytes of a store into memory if there is no room; in memory, they are there."""

    def class_name(self, label: int) -> str:
        return self.class_names[label] if self.class_names is not None else str(label)

    def find_node(self, name: str) -> int:
        """Return the node with this name or, if the nodes have no names, with this number."""
        if self.node_names is None:
            if name.isascii() and name.isdecimal() and int(name) < self.num_nodes:
                return int(name)
            raise GraphError(f"unknown node '{name}'; the nodes of {self.name} are numbered 0 to {self.num_nodes - 1}")
        if name in self.node_names:
            return self.node_names.index(name)
        near = get_close_matches(name, self.node_names, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"the first one is {self.node_names[0]!r}"
        raise GraphError(f"unknown node '{name}'; {hint}")

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        # A frozen value needs no copy; scikit-learn's `clone`, which copies deeply, would copy it for every fold.
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # without the cached tensors

    def __repr__(self) -> str:
        form = "sparse" if self.is_sparse else "dense"
        weighted = " weighted" if self.is_weighted else ""
        return (
            f"Graph('{self.name}', nodes={self.num_nodes}, edges={self.num_edges}{weighted}, "
            f"features={self.num_features} {form}, classes={self.num_classes})"
        )

    def _repr_html_(self) -> str:
        """Return a small table for notebooks."""
        counts = np.bincount(self.labels[self.labels >= 0], minlength=self.num_classes)
        largest = np.argsort(-counts, kind="stable")[:MOST_CLASSES_SHOWN]
        classes = ", ".join(f"{self.class_name(int(c))} ({counts[c]:,})" for c in largest)
        more = self.num_classes - len(largest)
        rows = {
            "nodes": f"{self.num_nodes:,}",
            "edges": f"{self.num_edges:,}",
            "features": f"{self.num_features:,}, {'sparse' if self.is_sparse else 'dense'}",
            "classes": f"{self.num_classes:,}: {classes}" + f" and {more:,} more" * (more > 0),
            "without a label": f"{int((self.labels < 0).sum()):,}",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
        return f"<table><caption>{escape(self.name)}</caption>{cells}</table>"


@dataclass(frozen=True, eq=False)
class Split:
    """Which nodes are for training, for validation (to choose the best epoch and settings) and for testing.

    >>> Split(train=np.array([0, 1]), val=np.array([2]), test=np.array([3, 4, 5]))
    Split('given', train=2, val=1, test=3)
    """

    train: Ints
    val: Ints
    test: Ints
    name: str = "given"

    def __post_init__(self) -> None:
        for part in ("train", "val", "test"):
            nodes = getattr(self, part)
            if nodes.dtype != np.int64 or nodes.ndim != 1:
                raise GraphError(f"the split's `{part}` must be a list of node ids, got {nodes.dtype} {nodes.shape}")
        everything = np.concatenate([self.train, self.val, self.test])
        nodes, counts = np.unique(everything, return_counts=True)
        if (counts > 1).any():
            raise GraphError(f"the split uses node {nodes[counts > 1][0]} twice; its parts must be disjoint")

    @classmethod
    def from_pyg(cls, data: Data) -> Split:
        """Read the ``train_mask``, ``val_mask`` and ``test_mask`` of a PyTorch Geometric ``Data``."""
        masks = {}
        for part in ("train", "val", "test"):
            mask = data.get(f"{part}_mask")
            if mask is None or mask.dim() != 1:
                raise GraphError(f"the PyG data needs a one-dimensional `{part}_mask` to give a split")
            masks[part] = mask.cpu().nonzero().squeeze(1).numpy()
        return cls(**masks)

    def check(self, graph: Graph, *, needed: Sequence[str] = ("train", "val")) -> None:
        """Refuse a split that does not fit `graph`; warn of classes without training nodes."""
        for part in ("train", "val", "test"):
            nodes = getattr(self, part)
            if len(nodes) and (nodes.min() < 0 or nodes.max() >= graph.num_nodes):
                raise GraphError(f"the split's `{part}` names a node outside 0 to {graph.num_nodes - 1}")
            unlabelled = nodes[graph.labels[nodes] < 0]
            if len(unlabelled):
                raise GraphError(f"the split's `{part}` holds node {unlabelled[0]}, which has no label; leave it out")
        for part, why in (("train", "learn from"), ("val", "choose the best epoch by")):
            if part in needed and not len(getattr(self, part)):
                raise GraphError(
                    f"the split '{self.name}' has no labelled {part} node to {why}; label nodes or change the split"
                )
        present = np.unique(graph.labels[graph.labels >= 0])
        unseen = np.setdiff1d(present, graph.labels[self.train])
        if len(unseen):
            names = ", ".join(f"'{graph.class_name(int(c))}'" for c in unseen)
            warnings.warn(
                f"no training node has class {names}; the model can never predict it", NFCWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        return f"Split('{self.name}', train={len(self.train)}, val={len(self.val)}, test={len(self.test)})"


def _writable(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return `array` as torch can share it: a copy if it has another type or, as a memory map, may not be written."""
    return array if array.flags.writeable and array.dtype == dtype else np.array(array, dtype)


def _as_pairs(edges: npt.ArrayLike, n: int) -> Ints:
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = np.zeros((2, 0), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        turned = "; give its transpose" if pairs.ndim == 2 and pairs.shape[1] == 2 else ""
        raise GraphError(f"`edges` must have shape [2, number of edges], got {list(pairs.shape)}{turned}")
    if not np.issubdtype(pairs.dtype, np.integer):
        raise GraphError(f"`edges` must hold integer node ids, got {pairs.dtype}")
    outside = (pairs < 0) | (pairs >= n)
    if outside.any():
        where = int(outside.any(axis=0).argmax())
        culprit = int(pairs[:, where][outside[:, where]][0])
        raise GraphError(
            f"edge {where} names node {culprit}, but the graph has {n} nodes (ids 0 to {n - 1}); "
            "correct the edge or add the node's features"
        )
    return pairs.astype(np.int64)


def _as_weights(weights: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
    values = np.asarray(weights)
    if values.shape != (count,) or values.dtype.kind not in "biuf":
        raise GraphError(f"`weights` must be {count} numbers, one per edge, got {values.dtype} {list(values.shape)}")
    values = values.astype(np.float64)
    bad = np.flatnonzero(~((values >= 0) & (values <= np.finfo(np.float32).max)))
    if len(bad):
        raise GraphError(
            f"`weights` must be finite and at least 0, got {values[bad[0]]:g} for edge {bad[0]}; correct {len(bad)} of "
            f"{count} weights"
        )
    return values


def _undirected(pairs: Ints, n: int, weights: npt.NDArray[np.float64] | None = None) -> sp.csr_array:
    keep = pairs[0] != pairs[1]
    if weights is not None:
        one_way = sp.csr_array((weights[keep], (pairs[0, keep], pairs[1, keep])), shape=(n, n))
        one_way.sum_duplicates()
        with np.errstate(over="ignore"):  # which `_check_adjacency` finds
            matrix = sp.csr_array(one_way.maximum(one_way.T), dtype=np.float32)
        matrix.eliminate_zeros()  # also what rounds to 0
        return matrix
    pairs = pairs[:, keep]
    rows, cols = np.concatenate([pairs, pairs[::-1]], axis=1)
    matrix = sp.csr_array((np.ones(len(rows), np.float32), (rows, cols)), shape=(n, n))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def _as_features(features: Any) -> sp.csr_array | Floats:
    if sp.issparse(features):
        matrix = sp.csr_array(features, dtype=np.float32)
        matrix.sum_duplicates()
        return matrix
    dense = np.ascontiguousarray(features, dtype=np.float32)
    if dense.ndim != 2:
        raise GraphError(f"`features` must have two dimensions [nodes, features], got {dense.ndim}")
    return dense


def _as_labels(labels: npt.ArrayLike, names: Sequence[str] | None) -> tuple[Ints, Sequence[str] | None]:
    """Return class numbers, -1 for a missing label, and the names of the classes, which labels may be themselves."""
    array = np.asarray(labels)
    if np.issubdtype(array.dtype, np.integer):
        return array.astype(np.int64), names
    if array.ndim == 1 and array.dtype.kind in "fOUT":
        from pandas import isna

        known = ~np.asarray(isna(array), bool)
        given = array[known].tolist()
        numbers = np.full(len(array), -1, np.int64)
        if all(isinstance(label, str) for label in given):
            names = sorted(set(given)) if names is None else names
            place = {name: number for number, name in enumerate(names)}
            if strange := sorted(set(given) - set(place)):
                raise GraphError(f"`labels` holds '{strange[0]}', which is not among `class_names`; add it")
            numbers[known] = [place[label] for label in given]
            return numbers, names
        if all(isinstance(label, int | float | np.number) and label == int(label) for label in given):
            numbers[known] = given
            return numbers, names
    raise GraphError(f"`labels` must be whole numbers or class names, one class per node, got {array.dtype}")


def _check_adjacency(a: sp.csr_array) -> None:
    if a.shape[0] != a.shape[1]:
        raise GraphError(f"`adjacency` must be square, got {a.shape[0]} x {a.shape[1]}")
    if a.nnz and (a.indices.min() < 0 or a.indices.max() >= a.shape[0]):
        raise GraphError(f"`adjacency` names a node outside 0 to {a.shape[0] - 1}")
    sums = np.asarray(a.sum(axis=1, dtype=np.float64)).ravel()
    if sums.max(initial=0) > MOST_WEIGHT:
        raise GraphError(
            f"the weights of the edges of node {sums.argmax()} add up to {sums.max():g}, more than float32 can reckon "
            "with; divide all weights by the same number"
        )
    sound = a.has_canonical_format and bool(((a.data > 0) & (a.data <= np.finfo(np.float32).max)).all())
    if not sound or a.diagonal().any() or (a != a.T).nnz:
        raise GraphError(
            "`adjacency` must be symmetric, of weights above 0, without loops or duplicates; "
            "`Graph.from_edges` makes it so"
        )


def _check_finite(features: sp.csr_array | Floats) -> None:
    values = features if isinstance(features, np.ndarray) else features.data
    if values.dtype != np.float32:
        raise GraphError(f"`features` must be float32, got {values.dtype}")
    bad = np.flatnonzero(~np.isfinite(values).ravel())
    if len(bad):
        if isinstance(features, np.ndarray):
            row, column = divmod(int(bad[0]), features.shape[1])
        else:
            row = int(np.searchsorted(features.indptr, bad[0], side="right")) - 1
            column = int(features.indices[bad[0]])
        value = values.ravel()[bad[0]]
        raise GraphError(
            f"feature {column} of node {row} is {value}; {len(bad)} values are not finite: fill in or drop them first"
        )


@contextmanager
def quiet_sparse() -> Iterator[None]:
    """Silence torch's warnings that CSR is in beta and that it does not check sparse tensors; we have checked ours."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Sparse (CSR tensor support is in beta|invariant checks are implicitly)"
        )
        yield


def csr_tensor(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Build a torch CSR matrix from parts that are known to be valid."""
    with quiet_sparse():
        return torch.sparse_csr_tensor(starts, columns, values, size=tuple(size), check_invariants=False)


def _given_split(data: Data, num_nodes: int, name: str) -> Split | None:
    """Return the split that the masks of a PyG ``Data`` give, if it has all three."""
    masks = {part: data.get(f"{part}_mask") for part in ("train", "val", "test")}
    if any(mask is None for mask in masks.values()):
        return None
    if all(mask.dim() == 2 and mask.shape[1] for mask in masks.values()):
        count = masks["train"].shape[1]
        warnings.warn(f"'{name}' holds {count} splits; the first is taken", NFCWarning, stacklevel=3)
        masks = {part: mask[:, 0] for part, mask in masks.items()}
    for part, mask in masks.items():
        if mask.dtype != torch.bool or mask.shape != (num_nodes,):
            raise GraphError(
                f"`{part}_mask` of '{name}' must be {num_nodes} booleans, one per node, "
                f"got {mask.dtype} {list(mask.shape)}"
            )
    return Split(**{part: mask.cpu().nonzero().squeeze(1).numpy() for part, mask in masks.items()})


def _pyg_weights(data: Data, key: str) -> npt.NDArray[Any]:
    """Return the weights of a PyG ``Data``, in the order of its edges."""
    values = data.get(key)
    if isinstance(values, torch.Tensor) and key == "adj_t":
        with quiet_sparse():
            values = values.to_sparse(layout=torch.sparse_coo).coalesce().values()
    elif values is not None and key == "adj_t":  # of torch_sparse
        values = values.coo()[2]
    if not isinstance(values, torch.Tensor):
        raise GraphError(f"the PyG data has no weights `{key}`; it has {', '.join(data.keys())}")
    array: npt.NDArray[Any] = values.detach().cpu().numpy()
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _transposed_edges(adjacency: Any) -> torch.Tensor | None:
    """Return the edges of PyG's ``adj_t``, whose rows are targets: a torch or a torch_sparse matrix."""
    if adjacency is None:
        return None
    if isinstance(adjacency, torch.Tensor):
        with quiet_sparse():
            rows, columns = adjacency.to_sparse(layout=torch.sparse_coo).coalesce().indices()
    else:
        rows, columns, _ = adjacency.coo()
    return torch.stack([columns, rows])


def _from_tensor(x: torch.Tensor) -> sp.csr_array | npt.NDArray[Any]:
    if x.layout == torch.strided:
        return x.numpy()
    with quiet_sparse():
        x = x.to_sparse_csr()
    return sp.csr_array((x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()), shape=tuple(x.shape))
