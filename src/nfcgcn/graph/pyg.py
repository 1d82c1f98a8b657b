"""A graph from, and as, a ``Data`` of PyTorch Geometric."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import scipy.sparse as sp
import torch

from nfcgcn.errors import GraphError, NFCWarning
from nfcgcn.graph.split import Split
from nfcgcn.graph.tensors import edge_parts, quiet_sparse

if TYPE_CHECKING:
    from torch_geometric.data import Data

MOST_DENSE = 2**28
"""Sparse features of at most so many bytes become dense for PyTorch Geometric."""
PARTS = ("train", "val", "test")
NAMES = ("node_names", "feature_names", "class_names")


def read_pyg(data: Data, *, weight: str | None, name: str) -> dict[str, Any]:
    """Return what a ``Data`` holds as the arguments of :meth:`Graph.from_edges`; see :meth:`Graph.from_pyg`."""
    if not hasattr(data, "x") or type(data).__name__ == "HeteroData":
        raise GraphError(
            f"nodes of several types are not supported, got a {type(data).__name__}; "
            "give a torch_geometric.data.Data, for example with to_homogeneous()"
        )
    edge_index = data.edge_index if data.edge_index is not None else _transposed_edges(data.get("adj_t"))
    if edge_index is None:
        raise GraphError("the PyG data has no `edge_index`; a graph needs node features and edges")
    if data.x is None:
        remedy = "nfcgcn.load(data, features='spectral') makes features from the edges"
        raise GraphError(f"the PyG data has no `x`; {remedy}")
    y = data.y
    if y is not None and (y.dim() != 1 or y.is_floating_point()):
        raise GraphError(f"the PyG data's `y` must be one integer class per node, got {y.dtype} {list(y.shape)}")
    name = data.get("name") or name
    return {
        "edges": edge_index.cpu().numpy(),
        "features": _from_tensor(data.x.detach().cpu()),
        "labels": None if y is None else y.cpu().numpy(),
        "weights": None if weight is None else _weights(data, weight),
        "name": name,
        **{key: data.get(key) for key in NAMES},
        "given": _given_split(data, data.x.shape[0], name),
        "reading": _unused(data, weight),
    }


def _unused(data: Data, weight: str | None) -> str | None:
    """Say in one line what the ``Data`` holds that is not used: weights, or masks that are no whole split."""
    notes = []
    keys = [key for key in ("edge_weight", "edge_attr", "adj_t") if weight is None and data.get(key) is not None]
    if keys and (keys[0] != "adj_t" or (data.edge_index is None and _has_weights(data))):
        notes.append(f"`{keys[0]}` as weights; weight='{keys[0]}' uses it")
    masks = [f"{part}_mask" for part in PARTS if data.get(f"{part}_mask") is not None]
    if 0 < len(masks) < len(PARTS):
        missing = next(f"{part}_mask" for part in PARTS if data.get(f"{part}_mask") is None)
        notes.append(f"{' and '.join(f'`{mask}`' for mask in masks)}, as there is no `{missing}`")
    return f"not used: {'; '.join(notes)}" if notes else None


def write_pyg(graph: Any, split: Split | None, *, dense: bool | None) -> Data:
    """Return a graph as a ``Data``; see :meth:`Graph.to_pyg`."""
    from torch_geometric.data import Data

    if dense is None:
        dense = 4 * graph.num_nodes * graph.num_features <= MOST_DENSE
    x = graph.x.to_dense() if dense and graph.is_sparse else graph.x
    data = Data(x=x, edge_index=graph.edge_index, y=graph.y, num_nodes=graph.num_nodes, name=graph.name)
    if graph.is_weighted:
        data.edge_weight = edge_parts(graph.edges)[1]
    for key in NAMES:
        if getattr(graph, key) is not None:
            data[key] = list(getattr(graph, key))
    for part in PARTS if split else ():
        mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
        mask[torch.from_numpy(getattr(split, part))] = True
        data[f"{part}_mask"] = mask
    return data


def _given_split(data: Data, num_nodes: int, name: str) -> Split | None:
    """Return the split that the masks of a PyG ``Data`` give, if it has all three; nodes without a label are left out.

    A mask may have one column per split, and stand beside one that is the same for all splits.
    """
    masks = {part: data.get(f"{part}_mask") for part in PARTS}
    if any(mask is None for mask in masks.values()):
        return None
    counts = {mask.shape[1] for mask in masks.values() if mask.dim() == 2 and mask.shape[1]}
    if len(counts) == 1:
        warnings.warn(f"'{name}' holds {counts.pop()} splits; the first is taken", NFCWarning, stacklevel=4)
        masks = {part: mask[:, 0] if mask.dim() == 2 and mask.shape[1] else mask for part, mask in masks.items()}
    for part, mask in masks.items():
        if mask.dtype != torch.bool or mask.shape != (num_nodes,):
            raise GraphError(
                f"`{part}_mask` of '{name}' must be {num_nodes} booleans, one per node, "
                f"got {mask.dtype} {list(mask.shape)}"
            )
    if data.y is not None and len(data.y) == num_nodes:
        masks = {part: mask.cpu() & (data.y.cpu() >= 0) for part, mask in masks.items()}
    return Split(**{part: mask.cpu().nonzero().squeeze(1).numpy() for part, mask in masks.items()})


def _has_weights(data: Data) -> bool:
    """Return whether the values of ``adj_t`` are not all 1; a matrix of torch_sparse may have none."""
    matrix = data.get("adj_t")
    return (isinstance(matrix, torch.Tensor) or matrix.has_value()) and bool((_weights(data, "adj_t") != 1).any())


def _weights(data: Data, key: str) -> npt.NDArray[Any]:
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
