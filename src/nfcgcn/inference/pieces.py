"""A model's scores layer by layer, a piece of the nodes at a time, for graphs larger than memory.

No neighbour of a graph convolution is left out: the results are those of the whole graph at once. What a layer writes
lies in memory if it is small, else in a file without a name that is mapped into memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from nfcgcn.errors import WriteError
from nfcgcn.graph import Floats, Graph, Ints
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.hops import Hops, LayeredClassifier
from nfcgcn.method.operations import propagate
from nfcgcn.training.batches import Batch, NodeReader, ahead, matrix_of, moved, needs_all
from nfcgcn.training.ranks import Ranks, current

Layer = Literal["last", "first", "scores"]
ROWS, ENTRIES = 2**15, 2**21
"""Nodes per piece, and edges per piece, unless one node has more."""
IN_MEMORY = 2**28
"""Bytes that a layer may take in memory."""
Say = Callable[[int, int], None]
"""Hears how many of how many nodes are done."""


def in_pieces(model: NodeClassifier, graph: Graph) -> bool:
    """Say whether a graph is to be read in pieces: it lies in a store, and the model can."""
    return graph.store is not None and isinstance(model, LayeredClassifier) and needs_all(model) is None


@torch.no_grad()
def compute(
    model: NodeClassifier,
    graph: Graph,
    nodes: Ints | None = None,
    *,
    layer: Layer = "scores",
    device: torch.device | str = "cpu",
    folder: Path | None = None,
    say: Say | None = None,
) -> Floats:
    """Return the class scores of all nodes, or a representation, as :func:`nfcgcn.embed` does: ``[N, channels]``.

    With ``nodes``, only these rows are valid, and only what they depend on is computed. Large results are memory maps
    of a file in ``folder``, by default that of temporary files, which is gone when nobody uses them any more. Several
    ranks share the work, and each gets all rows.
    """
    device = torch.device(device)
    reader = NodeReader(model.to(device).eval(), graph, device=device)
    layers = _Layers(reader, current(), folder, say)
    depth = {"scores": reader.model.num_hops, "last": reader.model.embed_hops, "first": 0}[layer]
    levels = _levels(reader, nodes, depth)
    layers.total = sum(map(len, levels))
    if layer != "scores" and not depth:
        return layers.write(levels[0], partial(_represent, reader), partial(_embedded, layer=layer))
    first = layers.write(levels[0], partial(_represent, reader), lambda m, b: m.read(b.x, b.hops)[: len(b.labels)])
    h, own = _columns(reader.model, first)
    for number in range(depth):
        source = torch.from_numpy(h).to(device)

        def convolve(m: LayeredClassifier, b: Batch, source: Tensor = source, number: int = number) -> Tensor:
            wide = propagate(source, b.hops.matrices[0], reader.self_weight)
            if number + 1 < depth:
                return m.onward(wide, number + 1)
            if layer == "last":
                return wide.relu()
            return m.complete(wide, torch.from_numpy(own[b.labels.cpu().numpy()]).to(device))

        h = layers.write(levels[number + 1], partial(_matrix, reader, number), convolve)
    if not depth:
        h = layers.write(
            levels[0],
            lambda rows: Batch(torch.from_numpy(h[rows]), Hops((), None), torch.from_numpy(rows)),
            lambda m, b: m.complete(b.x, torch.from_numpy(own[b.labels.cpu().numpy()]).to(device)),
        )
    return h


def _embedded(model: LayeredClassifier, batch: Batch, layer: Layer) -> Tensor:
    h: Tensor = model.nfc(model.scale(batch.x), batch.hops) if layer == "first" else model.embed(batch.x, batch.hops)  # type: ignore[operator]
    return (h if h.layout == torch.strided else h.to_dense())[: len(batch.labels)]


def _columns(model: LayeredClassifier, first: Floats) -> tuple[Floats, Floats]:
    """Return the columns that are propagated, as an array of their own, and those about the nodes alone."""
    h, own = model.split(torch.from_numpy(first))
    return (first if own.shape[1] == 0 else np.ascontiguousarray(h.numpy())), own.numpy()


def _represent(reader: NodeReader, rows: Ints) -> Batch:
    x, table = reader.features_of(rows)
    return Batch(x, Hops((), table), torch.from_numpy(rows))


def _matrix(reader: NodeReader, number: int, rows: Ints) -> Batch:
    """Return the rows of the normalised adjacency, over all nodes."""
    matrix = matrix_of(*reader.hop(rows, None, 0, number), (len(rows), reader.graph.num_nodes))
    return Batch(torch.empty(0), Hops((matrix,), None), torch.from_numpy(rows))


def _levels(reader: NodeReader, nodes: Ints | None, depth: int) -> list[Ints]:
    """Return the nodes whose rows each layer must have, from the features up to the result."""
    everyone = np.arange(reader.graph.num_nodes)
    if nodes is None:
        return [everyone] * (depth + 1)
    starts, neighbours, _ = reader.lists
    needed = np.zeros(len(everyone), bool)
    needed[nodes] = True
    levels = [np.flatnonzero(needed)]
    for _ in range(depth):
        for rows in _pieces(levels[0], starts):
            degrees = starts[rows + 1].astype(np.int64) - starts[rows]
            places = np.arange(degrees.sum()) + np.repeat(starts[rows] - (degrees.cumsum() - degrees), degrees)
            needed[neighbours[places]] = True
        levels.insert(0, np.flatnonzero(needed))
    return levels


def _pieces(rows: Ints, starts: Any) -> Iterator[Ints]:
    """Cut nodes into pieces of at most ``ROWS`` nodes and about ``ENTRIES`` edges."""
    for at in range(0, len(rows), ROWS):
        some = rows[at : at + ROWS]
        edges = (starts[some + 1].astype(np.int64) - starts[some]).cumsum()
        cuts = np.flatnonzero(np.diff(edges // ENTRIES)) + 1
        yield from np.split(some, cuts)


class _Layers:
    """Computes layers piece by piece."""

    def __init__(self, reader: NodeReader, ranks: Ranks, folder: Path | None, say: Say | None) -> None:
        self.reader, self.ranks, self.folder, self.say = reader, ranks, folder, say
        self.done = self.total = 0

    def write(
        self, rows: Ints, prepare: Callable[[Ints], Batch], work: Callable[[LayeredClassifier, Batch], Tensor]
    ) -> Floats:
        """Return an array with the results of some rows; the pieces of a round are shared by the ranks."""
        device, count = self.reader.device, self.ranks.count
        pieces = list(_pieces(rows, self.reader.lists[0])) or [rows]
        rounds = [pieces[at : at + count] for at in range(0, len(pieces), count)]
        own = (turn[self.ranks.number] if self.ranks.number < len(turn) else rows[:0] for turn in rounds)
        prepared = moved(ahead(partial(prepare, piece) for piece in own), device)
        out: Floats | None = None
        for turn, batch in zip(rounds, prepared, strict=True):
            result = self.ranks.gather(work(self.reader.model, batch)).cpu().numpy()
            if out is None:
                out = new_array((self.reader.graph.num_nodes, result.shape[1]), self.folder)
            out[np.concatenate(turn)] = result
            self.done += sum(map(len, turn))
            if self.say is not None:
                self.say(self.done, self.total)
        assert out is not None  # noqa: S101
        return out


def new_array(shape: tuple[int, int], folder: Path | None = None) -> Floats:
    """Return an array of zeros, in memory if it is small, else in a file that nobody else sees."""
    size = 4 * shape[0] * shape[1]
    if size <= IN_MEMORY:
        return np.zeros(shape, np.float32)
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="nfcgcn-") as file:
            if hasattr(os, "posix_fallocate"):  # a write to a map on a full disk would end the process
                os.posix_fallocate(file.fileno(), 0, size)
            array: Floats = np.memmap(file, np.float32, "w+", shape=shape)
            return array
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise WriteError(
            f"{where} has no room for {size / 2**30:.1f} GiB of temporary numbers: {error.strerror or error}; "
            "set TMPDIR to a folder on a larger disk"
        ) from error
