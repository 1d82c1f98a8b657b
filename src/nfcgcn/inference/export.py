"""A model as a programme of its own: ``torch.export``, for any number of nodes and edges.

The layers as they train remember what they computed from a graph, check what they are given and run kernels that
``torch.export`` cannot look into. Here they are once more, in plain PyTorch.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.baselines import GCN
from nfcgcn.errors import ConfigError
from nfcgcn.files import write_bytes
from nfcgcn.kernels.node_feature_conv.reference import ACTIVATIONS, compose
from nfcgcn.method.layers import Linear
from nfcgcn.method.model import NFCGCN, divide_by_row_sums

if TYPE_CHECKING:
    from torch.export import ExportedProgram

NOTES = "nfcgcn.json"
"""The file inside a .pt2 that says what the programme takes and gives."""


class PlainGCN(nn.Module):
    """GCN's evaluation: ``scores(x, edge_index)``, ``x`` dense."""

    def __init__(self, model: GCN) -> None:
        super().__init__()
        self.feature_scale = model.feature_scale
        self.weights = nn.ParameterList(p.detach().clone() for p in model.parameters())

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return class scores ``[N, C]``."""
        if self.feature_scale == "row-sum":
            x = divide_by_row_sums(x)
        for layer, weight in enumerate(self.weights):
            x = propagate((F.relu(x) if layer else x) @ weight, edge_index)
        return x


class PlainNFCGCN(nn.Module):
    """NFC-GCN's evaluation: ``scores(x, edge_index, neighbours)``, ``x`` dense.

    Without an activation the maps are never laid out: each slot has one matrix, composed beforehand.
    """

    def __init__(self, model: NFCGCN) -> None:
        super().__init__()
        nfc = model.nfc
        self.stride, self.activation = nfc.stride, nfc.activation
        layers: list[Any] = [*model.hidden, model.output]
        first, *further = (layer.weight.mT if isinstance(layer, Linear) else layer.weight for layer in layers)
        filters, first = nfc.weight.detach(), first.detach()
        if nfc.activation == "none":
            sizes = {"bandwidth": nfc.bandwidth, "num_features": nfc.in_channels, "stride": nfc.stride}
            first = compose(filters, first, **sizes)
        else:
            self.filters = nn.Parameter(filters.clone())
        self.first = nn.Parameter(first.clone(memory_format=torch.contiguous_format))
        self.weights = nn.ParameterList(weight.detach().clone() for weight in further)
        self.bias = nn.Parameter(model.output.bias.detach().clone()) if isinstance(model.output, Linear) else None
        self.classifier: nn.Linear | None = None
        if model.classifier is not None:
            self.classifier = nn.Linear(*model.classifier.weight.shape)
            self.classifier.load_state_dict(model.classifier.state_dict())

    def forward(self, x: Tensor, edge_index: Tensor, neighbours: Tensor) -> Tensor:
        """Return class scores ``[N, C]``."""
        h = self.read_maps(x, neighbours)
        if self.bias is not None:
            return h + self.bias
        h = propagate(h, edge_index)
        for weight in self.weights:
            h = propagate(F.relu(h) @ weight, edge_index)
        return h if self.classifier is None else self.classifier(F.relu(h))

    def read_maps(self, x: Tensor, neighbours: Tensor) -> Tensor:
        """Return ``H(0) W``, ``[N, H]``."""
        if self.activation == "none":
            slots = [(x @ matrix)[slot] for matrix, slot in zip(self.first, neighbours.unbind(1), strict=True)]
            return torch.stack(slots).sum(0)
        maps = x[neighbours]
        h = F.conv2d(maps.unsqueeze(1), self.filters.unsqueeze(1), stride=(1, self.stride))
        return ACTIVATIONS[self.activation](h.transpose(1, 2).flatten(1)) @ self.first


def propagate(h: Tensor, edge_index: Tensor) -> Tensor:
    """Return ``A_hat h``; loops in `edge_index` do not count, since every node has one."""
    source, target = edge_index[0], edge_index[1]
    weight = (source != target).to(h.dtype)
    scale = torch.ones_like(h[:, 0]).index_add(0, target, weight).rsqrt()
    weight = weight * scale[source] * scale[target]
    return (h * scale.square()[:, None]).index_add(0, target, h[source] * weight[:, None])


def export(
    model: nn.Module, path: Path | str | None = None, *, notes: Mapping[str, Any] | None = None
) -> ExportedProgram:
    """Return NFC-GCN or GCN as a programme for any number of nodes and edges; with a `path`, also write it as .pt2.

    It takes dense float32 features ``[N, D]``, ``edge_index [2, E]`` and, for NFC-GCN, a neighbour table ``[N, n]`` as
    ``model.nfc.table(x, edge_index)`` gives it, and returns class scores before the softmax. It runs where PyTorch
    does, without this package. `notes`, plain JSON values, go into the file beside what the programme takes.
    """
    from torch.export import Dim, save
    from torch.export import export as trace

    plain, example = _plain(copy.deepcopy(model).cpu().float().eval())
    free = {"x": {0: "nodes"}, "edge_index": {1: "edges"}, "neighbours": {0: "nodes"}}
    dims = {name: Dim(name) for name in ("nodes", "edges")}
    shapes = {name: {axis: dims[size] for axis, size in free[name].items()} for name in example}
    programme = trace(plain, tuple(example.values()), dynamic_shapes=shapes)
    if path is not None:
        takes = {name: [free[name].get(axis, n) for axis, n in enumerate(t.shape)] for name, t in example.items()}
        buffer = io.BytesIO()
        save(programme, buffer, extra_files={NOTES: json.dumps({"takes": takes, **(notes or {})}, indent=2)})
        write_bytes(Path(path), buffer.getvalue())
    return programme


def _plain(model: nn.Module) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return the plain form of a model, and inputs of some size to try it on."""
    nodes = torch.arange(97)
    example = {"edge_index": torch.stack([nodes[:83], nodes[1:84]])}
    if isinstance(model, NFCGCN):
        x, table = torch.zeros(97, model.nfc.in_channels), nodes[:, None].repeat(1, model.nfc.bandwidth)
        return PlainNFCGCN(model), {"x": x, **example, "neighbours": table}
    if isinstance(model, GCN):
        plain = PlainGCN(model)
        return plain, {"x": torch.zeros(97, len(plain.weights[0])), **example}
    raise ConfigError(f"{type(model).__name__} cannot be exported; NFCGCN and GCN can")
