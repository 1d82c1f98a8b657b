"""PyTorch Geometric ``Data`` from .pt files, read without running any code that they may contain."""

from __future__ import annotations

import copy
import pickletools
import warnings
import zipfile
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nfcgcn.data.formats.npz import MAX_CLASSES, MAX_FEATURES, MAX_NODES, check_text
from nfcgcn.data.structure import DEFAULT, STRUCTURES, Structure, structural_features, structural_names
from nfcgcn.errors import DatasetError, GraphError, NFCWarning
from nfcgcn.files import check_size, parsing, reading
from nfcgcn.graph import Graph, quiet_sparse

_MASKS = ("train_mask", "val_mask", "test_mask")
_NAMES = ("node_names", "feature_names", "class_names")
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
}
"""The layouts that sparse features may have, and the tensors that each consists of."""
_ALLOCATES = {"builtins bytearray", "__builtin__ bytearray"}
"""What torch lets a file call, and what fills as much memory as the file asks for."""


def read_pyg(path: str | PathLike[str]) -> Graph:
    """Read a ``Data`` saved by ``torch.save``; if it has all three masks, they become the given split."""
    path = Path(path)
    with reading(path), parsing(path, ".pt"):
        data = _load(path)
        _check(path, data)
        data.name = path.stem
        return Graph.from_pyg(data)


def from_pyg(data: Any, *, features: Structure | None = None, **options: Any) -> Graph:
    """Build a graph from a ``Data``; without ``x``, its features are made from the edges, by default spectral ones.

    ``options`` are those of :meth:`Graph.from_pyg`.
    """
    if type(data).__name__ == "HeteroData" or getattr(data, "x", None) is not None:
        if features is not None:
            raise GraphError(f"features='{features}' is for PyG data without `x`; leave one of the two out")
        return Graph.from_pyg(data, **options)
    if features is None:
        warnings.warn(
            f"the PyG data has no `x`: {DEFAULT} features are made from the edges; `features` chooses among "
            f"{', '.join(STRUCTURES)}",
            NFCWarning,
            stacklevel=4,
        )
    made, count = copy.copy(data), int(data.num_nodes or 0)
    made.x = torch.zeros(count, 0)
    bare = Graph.from_pyg(made, **options)
    x = structural_features(bare.adjacency, features or DEFAULT)
    names = structural_names(features or DEFAULT, x.shape[1], bare.node_names or list(map(str, range(count))))
    note = f"{x.shape[1]} {features or DEFAULT} features made from the edges"
    reading = f"{note}; {bare.reading}" if bare.reading else note
    return replace(bare, features=x, feature_names=tuple(names), reading=reading)


def _load(path: Path) -> Any:
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    if not zipfile.is_zipfile(path):
        raise DatasetError(f"{path} is not a .pt file of PyTorch 1.6 or later; save the data again with torch.save")
    with zipfile.ZipFile(path) as archive:
        check_size(path, sum(member.file_size for member in archive.infolist()))
        pickles = [archive.read(name) for name in archive.namelist() if name.endswith("data.pkl")]
    safe = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    try:
        if any(argument in _ALLOCATES for each in pickles for _, argument, _ in pickletools.genops(each)):
            raise ValueError("it fills memory")
        with torch.serialization.safe_globals(safe), quiet_sparse():
            data = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise _refusal(path) from error
    if type(data) is not Data:
        raise DatasetError(f"{path} holds a {type(data).__name__}, not a torch_geometric.data.Data; save one of those")
    return data


def _refusal(path: Path) -> DatasetError:
    return DatasetError(
        f"{path} holds more than tensors in a PyG Data, or is damaged: refused, as it could run any code; "
        "save a plain torch_geometric.data.Data"
    )


def _check_sparse(path: Path, x: Tensor, key: str) -> None:
    """Refuse a sparse matrix that claims more than it holds; what it claims takes no room in the file."""
    if x.layout not in _PARTS or x.dim() != 2 or x.dense_dim():
        raise GraphError(f"`{key}` in {path} must be a dense, COO, CSR or CSC matrix, got {x.layout} {list(x.shape)}")
    if x.shape[0] > MAX_NODES or x.shape[1] > MAX_FEATURES:
        raise GraphError(
            f"`{key}` in {path} must have at most {MAX_NODES:,} rows and {MAX_FEATURES:,} columns, got {list(x.shape)}"
        )
    parts = [getattr(x, part)() for part in _PARTS[x.layout]]
    check_size(path, sum(part.element_size() * part.numel() for part in parts))
    make: Any = torch.sparse_coo_tensor
    if x.layout != torch.sparse_coo:
        make = partial(torch.sparse_compressed_tensor, layout=x.layout)
    try:
        make(*parts, size=x.shape, check_invariants=True)
    except (RuntimeError, ValueError) as error:
        raise _refusal(path) from error


def _check(path: Path, data: Any) -> None:
    """Refuse parts of the wrong type: a file may hold anything under these names."""
    for key in ("x", "edge_index", "adj_t", "y", *_MASKS):
        part = data.get(key)
        if part is None:
            continue
        if not isinstance(part, Tensor):
            raise GraphError(f"`{key}` in {path} must be a tensor, got {type(part).__name__}")
        # A tensor can claim any size by repeating one number.
        if part.layout == torch.strided:
            check_size(path, part.element_size() * part.numel())
        elif key not in ("x", "adj_t"):
            raise GraphError(f"`{key}` in {path} must be dense, got {part.layout}")
        else:
            _check_sparse(path, part, key)
    if data.get("x") is not None:
        if data.x.dim() != 2 or data.x.is_complex():
            raise GraphError(
                f"`x` in {path} must be numbers [nodes, features], got {data.x.dtype} {list(data.x.shape)}"
            )
        data.x = data.x.float()
    if data.get("y") is not None:
        if data.y.dim() == 2 and data.y.shape[1] == 1:
            data.y = data.y[:, 0]
        if data.y.numel() and not data.y.is_floating_point() and data.y.max() >= MAX_CLASSES:
            raise GraphError(f"`y` in {path} holds {data.y.max()}; a class is a number below {MAX_CLASSES:,}")
    for key in _NAMES:
        names = data.get(key)
        if names is not None:
            if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
                raise GraphError(f"`{key}` in {path} must be a list of texts")
            check_text(str(path), names)
