"""A store as PyTorch Geometric's feature store and graph store, which its loaders read in place of a ``Data``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph, edge_parts

NODE, EDGE = "node", ("node", "to", "node")
"""The only type of nodes and the only type of edges."""
READ_ONLY = "a store is never changed; write another one with nfcgcn.write_store"


class StoredFeatures(FeatureStore):  # type: ignore[misc]
    """Features ``x``, labels ``y`` and, with a split, ``train_mask`` and so on of a graph, read row by row.

    Sparse features become dense, as PyG's loaders expect, for the rows that are asked for.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self._masks: dict[str, torch.Tensor] = {}
        for part in ("train", "val", "test") if graph.given is not None else ():
            mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
            mask[torch.from_numpy(np.array(getattr(graph.given, part)))] = True
            self._masks[f"{part}_mask"] = mask

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor | None:
        if attr.group_name != NODE or attr.attr_name not in ("x", "y", *self._masks):
            return None
        rows = self._rows(attr.index)
        if attr.attr_name != "x":
            column = self.graph.labels if attr.attr_name == "y" else self._masks[attr.attr_name].numpy()
            return torch.from_numpy(np.array(column[rows]))
        features = self.graph.features
        taken = features[rows] if isinstance(features, np.ndarray) else features[rows].toarray()
        return torch.from_numpy(np.array(taken, np.float32))

    def _rows(self, index: Any) -> Any:
        if isinstance(index, torch.Tensor):
            return index.cpu().numpy()
        if index is None or (isinstance(index, slice) and index == slice(None)):
            size = 4 * self.graph.num_nodes * self.graph.num_features
            self.graph.make_room("features", size)
            return slice(None)
        return index

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        wide = attr.attr_name == "x"
        return (self.graph.num_nodes, self.graph.num_features) if wide else (self.graph.num_nodes,)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Return what there is."""
        return [TensorAttr(NODE, name) for name in ("x", "y", *self._masks)]

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:  # noqa: ARG002
        raise ConfigError(READ_ONLY)

    def _remove_tensor(self, attr: TensorAttr) -> bool:  # noqa: ARG002
        raise ConfigError(READ_ONLY)

    def __len__(self) -> int:
        return self.graph.num_nodes


class StoredEdges(GraphStore):  # type: ignore[misc]
    """The edges of a graph as ``(row, colptr)``, each in both directions.

    PyG samples from 64-bit numbers in memory: 8 bytes per direction of an edge, and 8 per node.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self._edges: tuple[torch.Tensor, torch.Tensor] | None = None

    def _get_edge_index(self, attr: EdgeAttr) -> tuple[torch.Tensor, torch.Tensor] | None:
        if tuple(attr.edge_type) != EDGE:
            return None
        if attr.layout == EdgeLayout.COO:
            row, col = edge_parts(self.graph.edges)[0]
            return row, col
        if self._edges is None:
            a = self.graph.adjacency
            self.graph.make_room("edges", 8 * (a.nnz + self.graph.num_nodes))
            # Every edge has both directions, so the columns of the matrix are its rows.
            starts, others = (torch.from_numpy(part.astype(np.int64)) for part in (a.indptr, a.indices))
            self._edges = others, starts
        others, starts = self._edges
        return (others, starts) if attr.layout == EdgeLayout.CSC else (starts, others)

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Return what there is."""
        size = (self.graph.num_nodes, self.graph.num_nodes)
        return [EdgeAttr(EDGE, EdgeLayout.CSC, is_sorted=True, size=size)]

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:  # noqa: ARG002
        raise ConfigError(READ_ONLY)

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:  # noqa: ARG002
        raise ConfigError(READ_ONLY)
