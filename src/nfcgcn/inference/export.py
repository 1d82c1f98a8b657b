"""A model as a program that runs without this package: ``torch.export``, for any number of nodes and edges.

The model's own forward pass is traced, with the formulas of :mod:`nfcgcn.method` in plain PyTorch.
"""

from __future__ import annotations

import copy
import io
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nfcgcn.baselines import GCN, MLP, JKNet
from nfcgcn.errors import ConfigError
from nfcgcn.files import write_bytes
from nfcgcn.kernels.reference.node_feature_conv import compose
from nfcgcn.method.acceleration import plain_formulas
from nfcgcn.method.model import NFCGCN
from nfcgcn.method.node_feature_conv import projected

if TYPE_CHECKING:
    from torch.export import ExportedProgram

NOTES = "nfcgcn.json"
"""The file inside a .pt2 that says what the program takes and gives."""
EXPORTABLE = (NFCGCN, GCN, MLP, JKNet)


def export(
    model: nn.Module, path: Path | str | None = None, *, notes: Mapping[str, Any] | None = None
) -> ExportedProgram:
    """Return a model as a program for any number of nodes and edges; with a `path`, also write it as .pt2.

    The program takes dense float32 features ``[N, D]`` before any scaling, ``edge_index [2, E]`` and, for NFC-GCN, a
    neighbour table ``[N, n]`` as ``model.nfc.table(x, edge_index)`` returns it. It returns class scores before the
    softmax. It runs wherever PyTorch does, without this package. `notes`, plain JSON values, are written into the file,
    together with the names and shapes of the program's inputs. NFC-GCN, GCN, FastGCN, MLP and JK-Net can be exported.

    >>> import torch, nfcgcn
    >>> program = export(nfcgcn.GCN(5, 4, 2, 3))
    >>> program.module()(torch.eye(5), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([5, 3])
    """
    from torch.export import Dim, save
    from torch.export import export as trace

    model = copy.deepcopy(model).cpu().float().eval()
    example = _example(model)
    free = {"x": {0: "nodes"}, "edge_index": {1: "edges"}, "neighbours": {0: "nodes"}}
    dims = {name: Dim(name) for name in ("nodes", "edges")}
    shapes = {name: {axis: dims[size] for axis, size in free[name].items()} for name in example}
    with warnings.catch_warnings(), plain_formulas(_by_slots(model) if isinstance(model, NFCGCN) else {}):
        warnings.filterwarnings("ignore", message="The tensor attributes .*lstm")  # the LSTM sets them again, unchanged
        program = trace(model, tuple(example.values()), dynamic_shapes=shapes)
    if path is not None:
        takes = {name: [free[name].get(axis, n) for axis, n in enumerate(t.shape)] for name, t in example.items()}
        buffer = io.BytesIO()
        save(program, buffer, extra_files={NOTES: json.dumps({"takes": takes, **(notes or {})}, indent=2)})
        write_bytes(Path(path), buffer.getvalue())
    return program


def _example(model: nn.Module) -> dict[str, Tensor]:
    """Return example inputs to trace a model with; their sizes are arbitrary."""
    nodes = torch.arange(97)
    edge_index = torch.stack([nodes[:83], nodes[1:84]])
    if isinstance(model, NFCGCN):
        table = nodes[:, None].repeat(1, model.config.bandwidth)
        return {"x": torch.zeros(97, model.nfc.in_channels), "edge_index": edge_index, "neighbours": table}
    if isinstance(model, EXPORTABLE):
        return {"x": torch.zeros(97, model.in_channels), "edge_index": edge_index}
    known = ", ".join(kind.__name__ for kind in EXPORTABLE)
    raise ConfigError(f"{type(model).__name__} cannot be exported; {known} can")


def _by_slots(model: NFCGCN) -> dict[Any, Callable[..., Tensor]]:
    """Return a function for ``H(0) W`` that builds no map: without an activation, one matrix per slot is enough."""
    c = model.config
    if c.activation != "none":
        return {}
    sizes = {"bandwidth": c.bandwidth, "num_features": model.nfc.in_channels, "stride": c.stride}
    slots = compose(model.nfc.weight.detach(), model.first_matrix.detach(), **sizes).contiguous()

    def by_slots(x: Tensor, neighbours: Tensor, *_: Tensor, **__: Any) -> Tensor:
        parts = [(x @ matrix)[slot] for matrix, slot in zip(slots, neighbours.unbind(1), strict=True)]
        return torch.stack(parts).sum(0)

    return {projected: by_slots}
