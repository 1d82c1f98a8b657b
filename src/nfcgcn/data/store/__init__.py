"""Graphs larger than memory: a store is a folder of plain arrays that are mapped into memory instead of read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nfcgcn.data.store.layout import is_store
from nfcgcn.data.store.names import NodeNames
from nfcgcn.data.store.reading import StoredGraph, open_store
from nfcgcn.data.store.writing import StoreWriter, write_store
from nfcgcn.graph import Graph

if TYPE_CHECKING:
    from nfcgcn.data.store.pyg import StoredEdges, StoredFeatures

__all__ = ["NodeNames", "StoreWriter", "StoredGraph", "is_store", "open_store", "pyg_stores", "write_store"]


def pyg_stores(graph: Graph) -> tuple[StoredFeatures, StoredEdges]:
    """Return a graph, usually that of a store, as PyTorch Geometric's feature store and graph store for its loaders.

    Nodes are of type "node", edges of type ("node", "to", "node"). Features are read for the nodes of a batch alone;
    edges must fit into memory, 16 bytes for each, as PyG samples from them.

    >>> import nfcgcn, torch
    >>> features, edges = pyg_stores(nfcgcn.load("digits"))
    >>> features.get_tensor(group_name="node", attr_name="x", index=torch.tensor([0, 5])).shape
    torch.Size([2, 64])

    With pyg-lib: ``NeighborLoader((features, edges), [10, 10], input_nodes=("node", nodes))``.
    """
    from nfcgcn.data.store.pyg import StoredEdges, StoredFeatures

    return StoredFeatures(graph), StoredEdges(graph)
