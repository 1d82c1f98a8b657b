"""The graph: one frozen value, whose parts fit each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from nfcgcn.errors import GraphError
from nfcgcn.graph.notebook import table_of
from nfcgcn.graph.parts import (
    DIRECTIONS,
    Floats,
    Ints,
    as_features,
    as_labels,
    as_pairs,
    as_weights,
    check_adjacency,
    check_finite,
    have_directions,
    names_of,
    undirected,
)
from nfcgcn.graph.pyg import read_pyg, write_pyg
from nfcgcn.graph.split import Split
from nfcgcn.graph.tensors import Edges, WeightedEdges, csr_tensor

if TYPE_CHECKING:
    from torch_geometric.data import Data

FRAMES = "nfcgcn.data.formats.frames"


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
        check_adjacency(self.adjacency)
        n = self.num_nodes
        if self.features.shape[0] != n:
            raise GraphError(f"`features` must have one row per node: {n} nodes, got {self.features.shape[0]} rows")
        check_finite(self.features)
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
        label. Without ``labels``, all nodes are unlabelled. The columns of a data frame name the features, unless there
        are ``feature_names``. ``weights [E]`` are 0 or more; 0 means no edge. The weights of an edge that is given
        several times add up; if it is given in both directions, the larger sum counts, as in the code that Kipf and
        Welling published with GCN.

        >>> graph = Graph.from_edges([[0, 1, 0], [1, 2, 1]], [[1.0], [2.0], [3.0]], weights=[0.5, 2.0, 1.0])
        >>> graph.adjacency.toarray()[0, 1]
        np.float32(1.5)
        """
        x = as_features(features)
        n = x.shape[0]
        pairs = as_pairs(edges, n)
        if labels is not None:
            labels, class_names = as_labels(labels, n, class_names)
        feature_names = names_of(features) if feature_names is None else feature_names
        return cls(
            adjacency=undirected(pairs, n, None if weights is None else as_weights(weights, pairs.shape[1])),
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
        features: sp.sparray | sp.spmatrix | npt.ArrayLike | None = None,
        labels: npt.ArrayLike | None = None,
        *,
        weighted: bool = False,
        **others: Any,
    ) -> Graph:
        """Build a graph from a SciPy adjacency matrix ``[N, N]``; entries that are not 0 are edges.

        Directions and loops are dropped. With ``weighted``, the entries are the weights of the edges; otherwise every
        edge counts the same. ``others`` are the further arguments of :meth:`from_edges`. For a graph without features,
        :func:`nfcgcn.structural_features` makes some of the matrix.

        >>> import scipy.sparse as sp
        >>> Graph.from_scipy(sp.csr_array([[0, 2.5], [0, 0]]), [[1.0], [3.0]], labels=[0, 1])
        Graph('graph', nodes=2, edges=1, features=1 dense, classes=2)
        """
        if not sp.issparse(adjacency) or adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
            remedy = f"{type(adjacency).__name__}; scipy.sparse.csr_array makes one of an array"
            got = list(adjacency.shape) if sp.issparse(adjacency) else remedy
            raise GraphError(f"`adjacency` must be a square SciPy matrix, got {got}")
        entries = sp.coo_array(adjacency)
        present = entries.data != 0
        if features is None:
            raise GraphError("`features` are missing; nfcgcn.structural_features(adjacency) makes some from the edges")
        x = as_features(features)
        if x.shape[0] != adjacency.shape[0]:
            raise GraphError(
                f"`features` must have one row per node: {adjacency.shape[0]} nodes, got {x.shape[0]} rows"
            )
        pairs, weights = np.stack(entries.coords)[:, present], entries.data[present] if weighted else None
        unused = []
        if weights is None and (entries.data[present] != 1).any():
            unused.append("the entries of the matrix as weights; weighted=True uses them")
        if have_directions(pairs, x.shape[0], weights):
            unused.append(DIRECTIONS)
        if unused:
            others.setdefault("reading", f"not used: {'; '.join(unused)}")
        return cls.from_edges(pairs, x, labels=labels, weights=weights, **others)

    @classmethod
    def from_frames(cls, nodes: Any, edges: Any = None, **options: Any) -> Graph:
        """Build a graph from data frames of nodes and edges: :func:`nfcgcn.from_frames` under another name.

        >>> import pandas as pd
        >>> nodes = pd.DataFrame({"id": ["a", "b", "c"], "size": [1.0, 2.0, 0.5], "label": ["x", "y", None]})
        >>> Graph.from_frames(nodes, pd.DataFrame({"source": ["a"], "target": ["c"]}))
        Graph('graph', nodes=3, edges=1, features=1 dense, classes=2)
        """
        # The readers of tables make graphs, so this module cannot import them; people look for the name here.
        graph: Graph = import_module(FRAMES).from_frames(nodes, edges, **options)
        return graph

    @classmethod
    def from_pyg(cls, data: Data, *, weight: str | None = None, name: str = "graph") -> Graph:
        """Build a graph from a PyTorch Geometric ``Data`` with ``x``, edges and, optionally, ``y`` and masks.

        Edges are ``edge_index`` or, after ``ToSparseTensor``, ``adj_t``. If all three masks are there, they become the
        given split; of several splits the first is taken, with a warning. ``weight`` names the attribute with one
        weight per edge, such as "edge_weight"; "adj_t" stands for the values of that matrix. Without it, every edge
        counts the same.
        """
        parts = read_pyg(data, weight=weight, name=name)
        graph = cls.from_edges(**parts)
        if not have_directions(parts["edges"], graph.num_nodes, parts["weights"]):
            return graph
        return replace(graph, reading=f"{graph.reading or 'not used:'}{';' if graph.reading else ''} {DIRECTIONS}")

    def to_pyg(self, split: Split | None = None, *, dense: bool | None = None) -> Data:
        """Return a PyTorch Geometric ``Data``; a split becomes masks, weights become ``edge_weight``.

        Most transforms of PyG read dense features only. So sparse features become dense if that takes at most 256 MiB;
        larger ones become a torch CSR tensor. ``dense`` decides it otherwise.
        """
        return write_pyg(self, split, dense=dense)

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
        new = as_features(features)
        count, n = new.shape[0], self.num_nodes
        if new.shape[1] != self.num_features:
            raise GraphError(f"`features` must have the graph's {self.num_features} columns, got {new.shape[1]}")
        if (names is None) != (self.node_names is None) or (names is not None and len(names) != count):
            wanted = (
                "None, as the graph's nodes have none" if self.node_names is None else f"{count} names, one per node"
            )
            raise GraphError(f"`names` must be {wanted}, got {'None' if names is None else len(names)}")
        pairs = as_pairs(edges, n + count)
        old = sp.csr_array(
            (self.adjacency.data, self.adjacency.indices, np.pad(self.adjacency.indptr, (0, count), mode="edge")),
            shape=(n + count, n + count),
        )
        given = None if weights is None else as_weights(weights, pairs.shape[1])
        adjacency = sp.csr_array(old.maximum(undirected(pairs, n + count, given)))
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
        return table_of(self)


def _writable(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return `array` as torch can share it: a copy if it has another type or, as a memory map, may not be written."""
    return array if array.flags.writeable and array.dtype == dtype else np.array(array, dtype)
