"""Mini-batches: what some nodes need of a graph, read from it and nothing else, and prepared ahead of the step.

A batch is made of the nodes to score, the neighbours drawn for each graph convolution, and the features of all nodes
that any map shows. Neighbours are drawn by a hash of (seed, epoch, node, convolution): any process can repeat any draw.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph, Ints, csr_tensor
from nfcgcn.kernels import batches as kernels
from nfcgcn.kernels.sparse import with_transpose
from nfcgcn.kernels.threads import available
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.hops import Hops, LayeredClassifier
from nfcgcn.method.model import NFCGCN
from nfcgcn.method.sampling import draw_seed, draw_weighted_rows
from nfcgcn.randomness import hash_seed
from nfcgcn.training.ranks import Ranks
from nfcgcn.training.recycling import Recycler

T = TypeVar("T")
AHEAD = 2
"""How many batches are prepared before they are needed, at the same time if there are as many cores."""
EVALUATION = 0
"""The number of the draw that evaluation uses; training uses the number of the epoch."""
ORDER = 2**31
"""In place of the number of a graph convolution: what the order of the nodes is hashed from."""


def layered(model: NodeClassifier) -> LayeredClassifier:
    """Return a model that can be computed for some nodes at a time; refuse any other, and settings that need all."""
    if not isinstance(model, LayeredClassifier):
        raise ConfigError(
            f"a {type(model).__name__} reads the whole graph in every step, so `fan_out` must be none; nfc-gcn, "
            "nfc-gcn-2d, gcn and mlp can train in mini-batches"
        )
    name = needs_all(model)
    if name == "slot_order":
        raise ConfigError(
            f"`slot_order` must be random for a part of the nodes at a time, got {model.config.slot_order}; to sort "
            "by it, all of the graph would be read"
        )
    if name is not None:
        raise ConfigError(
            f"`{name}` must be {PARTLY[name]} for a part of the nodes at a time, got {getattr(model.config, name)}; "
            "with it, all of the graph would be read"
        )
    return model


PARTLY = {"slot_order": "random", "neighbour_draw": "uniform", "conv_layers": 1}
"""Settings with which a part of the graph is enough for some nodes."""


def needs_all(model: NodeClassifier) -> str | None:
    """Name the setting of a model for which the maps of some nodes depend on the whole graph; None if none does."""
    if not isinstance(model, NFCGCN):
        return None
    return next((name for name, value in PARTLY.items() if getattr(model.config, name) != value), None)


class Batch(NamedTuple):
    """Some nodes and all that a model needs to score them."""

    x: Tensor
    """Features, one row per node that is read."""
    hops: Hops
    labels: Tensor

    def to(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return the batch with every tensor changed."""
        table = None if self.hops.table is None else change(self.hops.table)
        matrices = tuple(_each(matrix, change) for matrix in self.hops.matrices)
        return Batch(_each(self.x, change), Hops(matrices, table), change(self.labels))


def _each(matrix: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    if matrix.layout != torch.sparse_csr:
        return change(matrix)
    starts, columns, values = (change(part) for part in (matrix.crow_indices(), matrix.col_indices(), matrix.values()))
    return csr_tensor(starts, columns, values, matrix.shape)


class NodeReader:
    """Reads from a graph, in memory or in a store, what a model needs to score some nodes."""

    def __init__(
        self, model: NodeClassifier, graph: Graph, *, seed: int = 0, device: torch.device | None = None
    ) -> None:
        self.model, self.graph, self.seed = layered(model), graph, seed
        self.device = device or torch.device("cpu")
        self.self_weight = float(getattr(model.config, "self_weight", 1.0))
        self.recycler = Recycler()
        a = graph.adjacency
        self.lists = (a.indptr, a.indices, a.data if graph.is_weighted else None)

    def batch(self, nodes: Ints, sizes: Sequence[int | None], draw: int = EVALUATION) -> Batch:
        """Return what is needed to score `nodes`, all different, with so many neighbours per graph convolution."""
        matrices, written = self.sample(nodes, sizes, draw)
        x, table = self.features_of(written, draw)
        if matrices and len(x) > len(written) and self.device.type == "cuda":
            matrices[0] = csr_tensor(
                matrices[0].crow_indices(), matrices[0].col_indices(), matrices[0].values(), (len(matrices[0]), len(x))
            )
        if self.device.type == "cpu" and self.model.training:
            for matrix in matrices:
                with_transpose(matrix)  # for the gradient: remembered, and made here, ahead of the step
        labels = torch.from_numpy(np.asarray(self.graph.labels[nodes], np.int64))
        batch = Batch(x, Hops(tuple(matrices), table), labels)
        return batch.to(Tensor.pin_memory) if self.device.type == "cuda" else batch

    def sample(self, nodes: Ints, sizes: Sequence[int | None], draw: int) -> tuple[list[Tensor], Ints]:
        """Draw neighbours; return the matrix of each graph convolution, and the nodes that the first one reads."""
        matrices: list[Tensor] = []
        written = np.ascontiguousarray(nodes, np.int64)
        for number in reversed(range(len(sizes))):
            rows, columns, values = self.hop(written, sizes[number], draw, number)
            read, places = kernels.renumber(written, columns)
            matrices.insert(0, matrix_of(rows, places, values, (len(written), len(read))))
            written = read
        return matrices, written

    def hop(self, nodes: Ints, size: int | None, draw: int, number: int) -> tuple[Ints, Ints, Any]:
        """Return the rows `nodes` of one graph convolution's matrix: starts, columns, which are nodes, and values."""
        seed = hash_seed(self.seed, "batches", draw, number)
        return kernels.draw_hop(*self.lists, nodes, size=size, seed=seed, self_weight=self.self_weight)

    def features_of(self, nodes: Ints, draw: int = EVALUATION) -> tuple[Tensor, Tensor | None]:
        """Return the features that the model reads to represent `nodes`, theirs first, and the table of neighbours."""
        if not isinstance(self.model, NFCGCN):
            return self.rows(nodes), None
        table = self._table(nodes, draw)
        read, places = kernels.renumber(nodes, table.ravel())
        x, local = self.rows(read), torch.from_numpy(places.reshape(table.shape))
        if self.device.type != "cuda":
            return x, local
        # The kernels of the GPU want one row of the table per row of x; no score depends on the further ones.
        further = torch.arange(len(nodes), len(read))[:, None].expand(-1, table.shape[1])
        return x, torch.cat([local, further])

    def _table(self, nodes: Ints, draw: int) -> Ints:
        assert isinstance(self.model, NFCGCN)  # noqa: S101
        nfc, config, (starts, neighbours, weights) = self.model.nfc, self.model.config, self.lists
        resampled = self.model.training and config.resample == "epoch" and draw != EVALUATION
        seed, size = draw_seed(nfc.seed, 2**62 + draw if resampled else nfc.draw), config.bandwidth - 1
        if weights is None:
            return kernels.draw_table(starts, neighbours, nodes, size=size, seed=seed)
        new, listed, own = kernels.take_rows(starts, neighbours, weights, nodes)
        drawn = draw_weighted_rows(new, listed, own.astype(np.float64), size=size, seed=seed, nodes=nodes)
        table: Ints = drawn.numpy()
        return table

    def rows(self, nodes: Ints) -> Tensor:
        """Return rows of the features, float32."""
        features = self.graph.features
        if isinstance(features, np.ndarray):
            return torch.from_numpy(np.asarray(features[nodes], np.float32))
        arrays = (features.indptr, features.indices, features.data)
        parts = kernels.take_rows(*arrays, nodes, empty=self.recycler.empty)
        return matrix_of(*parts, (len(nodes), features.shape[1]))

    def reach(self, nodes: Ints, most: int) -> int | None:
        """Return how many nodes the exact scores of `nodes` depend on; None if more than `most`."""
        starts, neighbours, _ = self.lists
        reached = np.unique(nodes)
        for _ in range(self.model.num_hops):
            degrees = starts[reached + 1].astype(np.int64) - starts[reached]
            if len(reached) > most or int(degrees.sum()) > 64 * most:
                return None
            places = np.arange(degrees.sum()) + np.repeat(starts[reached] - (degrees.cumsum() - degrees), degrees)
            reached = np.union1d(reached, neighbours[places])
        return len(reached) if len(reached) <= most else None


def matrix_of(starts: Ints, columns: Ints, values: Any, size: tuple[int, int]) -> Tensor:
    """Return a torch CSR matrix of NumPy's arrays."""
    return csr_tensor(torch.from_numpy(starts), torch.from_numpy(columns), torch.from_numpy(values), size)


def ahead(works: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Yield the results of some works in order; other threads do the next ones while the caller uses a result."""
    waiting: deque[Future[T]] = deque()
    # After a fork the first thread that computes makes torch's pool anew, which two at a time must not do.
    torch.set_num_threads(torch.get_num_threads())
    with ThreadPoolExecutor(min(AHEAD, available()), thread_name_prefix="nfcgcn-batches") as threads:
        try:
            for work in works:
                waiting.append(threads.submit(work))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def moved(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """Yield the batches on the device; a GPU copies the next one while it computes with one."""
    if device.type != "cuda":
        yield from batches
        return
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    coming: deque[tuple[Batch, Batch, Any]] = deque()

    def ready() -> Batch:
        _, batch, event = coming.popleft()
        now = torch.cuda.current_stream(device)
        now.wait_event(event)
        batch.to(lambda part: (part.record_stream(now), part)[1])  # type: ignore[func-returns-value]
        return batch

    for batch in batches:
        with torch.cuda.stream(stream):
            copy = batch.to(lambda part: part.to(device, non_blocking=True))
            coming.append((batch, copy, stream.record_event()))
        if len(coming) > 1:
            yield ready()
    while coming:
        yield ready()


class Plan(NamedTuple):
    """The batches of one epoch: whoever knows seed and epoch can make it."""

    order: Ints
    """The training nodes in the order of this epoch."""
    size: int
    num_parts: int
    """Parts of a batch, each with its own dropout masks, which the ranks share."""

    @property
    def num_batches(self) -> int:
        """How many steps the epoch has."""
        return -(-len(self.order) // self.size)

    def nodes(self, batch: int) -> Ints:
        """Return the nodes of a batch."""
        return self.order[batch * self.size : (batch + 1) * self.size]

    def parts(self, batch: int, ranks: Ranks) -> list[tuple[int, Ints]]:
        """Return this rank's parts of a batch, with their numbers; empty parts are left out."""
        parts = enumerate(np.array_split(self.nodes(batch), self.num_parts))
        return [(number, part) for number, part in parts if number % ranks.count == ranks.number and len(part)]


def plan(nodes: Ints, *, seed: int, epoch: int, size: int, num_parts: int) -> Plan:
    """Shuffle the training nodes for an epoch."""
    order = np.random.default_rng(hash_seed(seed, "batches", epoch, ORDER)).permutation(nodes)
    return Plan(order, size, num_parts)
