"""A model as a program that runs without this package, for any number of nodes and edges: ``torch.export`` or ONNX.

The model's own forward pass is traced, with the formulas of :mod:`nfcgcn.method` in plain PyTorch.
"""

from __future__ import annotations

import copy
import io
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from nfcgcn.baselines import GCN, MLP, FastGCN, JKNet
from nfcgcn.errors import ConfigError
from nfcgcn.files import write_bytes
from nfcgcn.kernels.reference.node_feature_conv import compose
from nfcgcn.method.acceleration import plain_formulas
from nfcgcn.method.features import moderate
from nfcgcn.method.model import NFCGCN
from nfcgcn.method.node_feature_conv import projected
from nfcgcn.method.sampling import DAMPING, LEAST, ROUNDS, NeighbourDraw, SlotOrder, draw_seed
from nfcgcn.randomness import hashed

if TYPE_CHECKING:
    from torch.export import ExportedProgram

NOTES = "nfcgcn.json"
"""The file inside a .pt2 that says what the program takes and gives."""
EXPORTABLE = (NFCGCN, GCN, FastGCN, MLP, JKNet)


def export(
    model: nn.Module,
    path: Path | str | None = None,
    *,
    neighbours: Literal["drawn", "given"] = "drawn",
    notes: Mapping[str, Any] | None = None,
) -> ExportedProgram:
    """Return a model as a program for any number of nodes and edges; with a `path`, also write it as .pt2 or .onnx.

    The program takes dense float32 features ``[N, D]`` before any scaling and ``edge_index [2, E]``, and returns class
    scores before the softmax. It runs wherever PyTorch does, without this package. NFC-GCN's draws the neighbours that
    the model draws; with ``slot_order="similarity"``, neighbours whose similarities are equal but for rounding may
    change places. With ``neighbours="given"`` it takes a neighbour table ``[N, n]`` as a third input, as
    ``model.nfc.table(x, edge_index)`` returns it; so does every NFC-GCN in an .onnx file, as ONNX lacks the whole
    numbers that a draw needs. `notes`, plain JSON values, are written into the file, together with
    the names and shapes of the program's inputs. NFC-GCN, GCN, FastGCN, MLP and JK-Net can be exported.

    >>> import torch, nfcgcn
    >>> model = nfcgcn.NFCGCN(8, 4, 2, 3, filters=2, bandwidth=2, kernel_size=4, stride=2)
    >>> program = nfcgcn.export(model).module()
    >>> program(torch.eye(8), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([8, 3])
    """
    from torch.export import Dim, save
    from torch.export import export as trace

    model = copy.deepcopy(model).cpu().float().eval()
    example = _example(model)
    if path is not None and Path(path).suffix.lower() == ".onnx":
        neighbours = "given"
    whole = model
    if isinstance(model, NFCGCN) and neighbours == "drawn":
        del example["neighbours"]
        whole = _Drawing(model)
    free = {"x": {0: "nodes"}, "edge_index": {1: "edges"}, "neighbours": {0: "nodes"}}
    dims = {name: Dim(name) for name in ("nodes", "edges")}
    shapes = {name: {axis: dims[size] for axis, size in free[name].items()} for name in example}
    with warnings.catch_warnings(), plain_formulas(_by_slots(model) if isinstance(model, NFCGCN) else {}):
        warnings.filterwarnings("ignore", message="The tensor attributes .*lstm")  # the LSTM sets them again, unchanged
        program = trace(whole, tuple(example.values()), dynamic_shapes=shapes)
    if path is not None:
        takes = {name: [free[name].get(axis, n) for axis, n in enumerate(t.shape)] for name, t in example.items()}
        if Path(path).suffix.lower() == ".onnx":
            from nfcgcn.inference.onnx_file import to_onnx

            write_bytes(Path(path), to_onnx(program, takes, (NOTES, dict(notes or {}))))
            return program
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


class _Drawing(nn.Module):
    """An NFC-GCN that draws its own neighbours, by formulas that can be traced: no size depends on a value."""

    def __init__(self, model: NFCGCN) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the class scores."""
        c, nfc = self.model.config, self.model.nfc
        lists = _lists(edge_index, torch.arange(x.shape[0]))
        size, seed = c.bandwidth - 1, draw_seed(nfc.seed, nfc.draw)
        if c.neighbour_draw == "uniform":
            table = _draw(*lists, size=size, seed=seed)
        else:
            table = _draw_weighted(*lists, _draw_weights(self.model.scale(x), *lists, c.neighbour_draw), size, seed)
        if c.slot_order == "similarity":
            table = _by_similarity(self.model.scale(x), table)
        elif c.slot_order != "random":
            table = _sorted_slots(table, _node_scores(*lists, c.slot_order)[table])
        scores: Tensor = self.model(x, edge_index, table)
        return scores


def _lists(edge_index: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the nodes, their degrees, and one neighbour and one node per edge, sorted; of the rest the node is N."""
    source, target = edge_index[0], edge_index[1]
    count = torch.ones_like(nodes).sum()
    last = count * count
    # One number per edge, those of a node together; loops and repeated edges go to the end, where one always stands.
    edges = torch.where(source == target, last, target * count + source)
    edges = torch.cat([edges, last[None]]).sort().values
    repeated = torch.cat([edges[:1] < 0, edges[1:] == edges[:-1]])
    edges = torch.where(repeated, last, edges).sort().values
    counted = (edges < last).to(torch.int64)
    degrees = torch.zeros_like(nodes).index_add(0, torch.where(edges < last, edges // count, 0), counted)
    return nodes, degrees, edges % count, edges // count


def _draw(nodes: Tensor, degrees: Tensor, neighbours: Tensor, _: Tensor, *, size: int, seed: int) -> Tensor:
    """Return what :func:`nfcgcn.method.sampling.neighbour_table` returns, ``[N, size + 1]``."""
    starts = degrees.cumsum(0) - degrees
    slots, draws = [nodes], list[Tensor]()
    for step in range(size):  # the shuffle of `draw_rows`
        number = hashed(seed, nodes, torch.full_like(nodes, step))
        position = drawn = step + (number * (degrees - step) >> 32)
        for earlier in reversed(range(step)):
            position = torch.where(position == draws[earlier], earlier, position)
        draws.append(drawn)
        left = degrees > step
        slots.append(torch.where(left, neighbours[starts + torch.where(left, position, 0)], nodes))
    return torch.stack(slots, 1)


def _draw_weighted(
    nodes: Tensor, degrees: Tensor, neighbours: Tensor, targets: Tensor, weights: Tensor, size: int, seed: int
) -> Tensor:
    """Return what :func:`nfcgcn.method.sampling.draw_weighted_rows` returns."""
    starts = degrees.cumsum(0) - degrees
    listed = targets < torch.ones_like(nodes).sum()
    at = torch.where(listed, targets, 0)
    places = torch.ones_like(targets).cumsum(0) - 1 - starts[at]
    waiting = -torch.log((hashed(seed, at, places) + 0.5) / 2**32) / weights
    first = torch.where(listed, waiting, torch.inf).sort(stable=True).indices
    order = first[targets[first].sort(stable=True).indices]
    slots = [nodes]
    for step in range(size):
        left = degrees > step
        slots.append(torch.where(left, neighbours[order[torch.where(left, starts + step, 0)]], nodes))
    return torch.stack(slots, 1)


def _draw_weights(
    x: Tensor, nodes: Tensor, degrees: Tensor, neighbours: Tensor, targets: Tensor, by: NeighbourDraw
) -> Tensor:
    """Return what :func:`nfcgcn.method.sampling.draw_weights` returns, or the similarities in its place."""
    listed = targets < torch.ones_like(nodes).sum()
    at = torch.where(listed, targets, 0)
    if by == "similarity":
        unit = _unit_rows(x)
        return (unit[at] * unit[neighbours]).sum(1).clamp(min=0).double() + LEAST
    if by == "degree":
        return degrees.clamp(min=1).double()[neighbours]
    own = 1 / (degrees.double() + 1)
    around = torch.zeros_like(own).index_add(0, at, torch.where(listed, own[neighbours], 0))
    return (own * (own + around))[neighbours]


def _unit_rows(x: Tensor) -> Tensor:
    x = moderate(x)
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(norms > 0, norms, 1)


def _by_similarity(x: Tensor, table: Tensor) -> Tensor:
    """Return what :func:`nfcgcn.method.sampling.order_by_similarity` returns."""
    unit = _unit_rows(x)
    return _sorted_slots(table, torch.stack([(unit * unit[slot]).sum(1) for slot in table.unbind(1)], 1))


def _node_scores(nodes: Tensor, degrees: Tensor, neighbours: Tensor, targets: Tensor, order: SlotOrder) -> Tensor:
    """Return what :func:`nfcgcn.method.sampling.node_scores` returns."""
    ranks = torch.ones_like(nodes).double()
    if order == "degree":
        return degrees.double()
    shares = DAMPING / degrees.clamp(min=1)
    listed = targets < torch.ones_like(nodes).sum()
    at = torch.where(listed, targets, 0)
    for _ in range(ROUNDS):
        parts = torch.where(listed, shares[neighbours] * ranks[neighbours], 0)
        ranks = 1 + torch.zeros_like(ranks).index_add(0, at, parts)
    return ranks


def _sorted_slots(table: Tensor, scores: Tensor) -> Tensor:
    """Sort the slots of each row by their scores ``[N, n]``; the node stays first, and copies of it stay last."""
    scores = torch.where(table != table[:, :1], scores, -torch.inf)
    order = torch.cat([scores[:, :1].new_full(scores[:, :1].shape, torch.inf), scores[:, 1:]], 1)
    return table.gather(1, order.sort(dim=1, descending=True, stable=True).indices)
