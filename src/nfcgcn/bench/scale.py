"""What large graphs cost: packing, mini-batches from a store and from memory, two processes instead of one.

Every figure comes from a process of its own, so that one measurement's memory is not another's.
"""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nfcgcn.bench.tables import write_tables
from nfcgcn.config.registry import Config, make_config
from nfcgcn.data.packing import pack_tables
from nfcgcn.data.packing.generated import pack_citations
from nfcgcn.data.store import open_store
from nfcgcn.errors import NFCError
from nfcgcn.evaluation import environment
from nfcgcn.graph import Graph, Ints
from nfcgcn.inference.pieces import compute
from nfcgcn.kernels.threads import one_pool
from nfcgcn.randomness import generator
from nfcgcn.settings import one_line
from nfcgcn.training.adam import Adam
from nfcgcn.training.batch_steps import MiniBatches
from nfcgcn.training.batches import NodeReader
from nfcgcn.training.processes import can_fork
from nfcgcn.training.ranks import joined

PYG_MISSING = "PyG's NeighborLoader needs pyg-lib or torch-sparse, and neither is installed"
Figures = dict[str, Any]


def bench_scale(
    stores: Sequence[Path],
    *,
    batch_size: int = 1024,
    fan_out: str = "10",
    num_batches: int = 20,
    num_layers: int = 2,
    inference: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Figures:
    """Measure an NFC-GCN on each of some stores.

    Returns, per store, figures of the same batches from the store, from the store with nothing of it in the file cache,
    and from memory; of a process on one core and of two on a core each that share every batch; and of drawing
    neighbours alone, beside PyTorch Geometric where it can.
    """
    settings = {"batch_size": batch_size, "fan_out": fan_out, "num_batches": num_batches, "num_layers": num_layers}
    results = []
    say("loading the kernels, which the processes share")
    _measure(stores[0], "store", {**settings, "num_batches": 1, "batch_size": 8})
    for store in stores:
        result: Figures = {"store": str(store), **_sizes(store)}
        for kind in ("cold", "store", "memory", "sampling", *(["inference"] if inference else [])):
            say(f"{store}: {kind}")
            (result[kind],) = in_processes(partial(_measure, store, kind, settings))
        halves = {**settings, "batch_parts": 2}
        for name, count in (("one process", 1), ("two processes", 2)):
            say(f"{store}: {name}")
            figures = in_processes(partial(_measure, store, "store", halves), count=count, own_core=True)
            result[name] = {**max(figures, key=lambda f: f["seconds"]), "losses": figures[0]["losses"]}
        pairs = zip(result["one process"]["losses"], result["two processes"]["losses"], strict=True)
        result["loss difference"] = max(abs(one - two) for one, two in pairs)
        results.append(result)
    return {**settings, "stores": results, **environment(torch.device("cpu"))}


def write_citations(folder: Path, num_nodes: int, *, degree: float = 20.0) -> Path:
    """Write a store of a generated citation graph, with 20 words per node, and return it."""
    store = folder / f"citations-{num_nodes}"
    pack_citations(store, nodes=num_nodes, degree=_degree(num_nodes, degree))
    return store


def pack_written_tables(
    folder: Path, num_nodes: int, *, memory: int, degree: float = 20.0, say: Callable[[str], None] = lambda _: None
) -> tuple[Path, Figures]:
    """Write the same graph as Parquet tables, measure how they are packed, and return the store and the figures."""
    store, tables = folder / f"citations-{num_nodes}", folder / f"tables-{num_nodes}"
    say(f"writing tables of {num_nodes:,} nodes")

    def write() -> Figures:
        write_tables(tables, num_nodes, degree=_degree(num_nodes, degree))
        return {}

    def pack() -> Figures:
        with _watched() as memory_used:
            start, spent = time.perf_counter(), time.process_time()
            nodes, edges = (tables / name for name in ("nodes.parquet", "edges.parquet"))
            pack_tables(nodes, edges, store, memory=memory, words="words", label="label")
            seconds, spent = time.perf_counter() - start, time.process_time() - spent
            return {"memory": memory, "seconds": seconds, "cpu_seconds": spent, **memory_used.figures}

    in_processes(write)
    say(f"packing {num_nodes:,} nodes")
    (figures,) = in_processes(pack)
    return store, figures


def _degree(num_nodes: int, degree: float) -> float:
    return min(degree, num_nodes / 40)


def _sizes(store: Path) -> Figures:
    graph = open_store(store)
    return {"nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}


def in_processes(work: Callable[[], Figures], *, count: int = 1, own_core: bool = False) -> list[Figures]:
    """Do some work in a process of its own, or in several that train together, and return the figures of each.

    With `own_core` each process has one thread for its loops and one core, which all its threads share.
    """
    if not can_fork():
        raise NFCError("`bench scale` measures in processes of its own, which it can start on Linux only")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = get_context("fork")
    cores = sorted(os.sched_getaffinity(0))
    started = []
    for number in range(count):
        ours, theirs = context.Pipe(duplex=False)
        shared = {"WORLD_SIZE": str(count), "RANK": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        core = cores[number % len(cores)] if own_core else None
        process = context.Process(target=_live, args=(theirs, work, core, shared), daemon=True)
        process.start()
        theirs.close()
        started.append((process, ours))
    results: list[Any] = []
    for process, pipe in started:
        try:
            results.append(pipe.recv())
        except EOFError:
            process.join()
            results.append(NFCError(f"a process that was measured died (exit code {process.exitcode})"))
    for process, _ in started:
        process.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def _live(pipe: Any, work: Callable[[], Figures], core: int | None, shared: Mapping[str, str]) -> None:
    os.environ.update(shared)
    if core is not None:
        os.sched_setaffinity(0, {core})
        torch.set_num_threads(1)
    try:
        pipe.send(work())
    except NFCError as error:
        pipe.send(error)
    except Exception as error:
        pipe.send(NFCError(f"a process that was measured failed: {one_line(error) or type(error).__name__}"))


class _Memory:
    """The most memory that this process has taken for itself, without files that are mapped, looked at now and then."""

    def __init__(self) -> None:
        self.most = 0.0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while True:
            self.most = max(self.most, anonymous_bytes())
            if self.done.wait(0.02):
                return

    @property
    def figures(self) -> Figures:
        """MiB: of its own, and all that was ever resident, pages of mapped files included."""
        return {
            "own_mib": self.most / 2**20,
            "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        }


def anonymous_bytes() -> float:
    """Return the bytes of memory that are this process's own; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0.0)


@contextmanager
def _watched() -> Iterator[_Memory]:
    memory = _Memory()
    memory.thread.start()
    try:
        yield memory
    finally:
        memory.done.set()
        memory.thread.join()


def _config(graph: Graph, settings: Mapping[str, Any]) -> Config:
    kernel = min(32, graph.num_features)
    own = {"bandwidth": 6, "kernel_size": kernel, "stride": max(1, kernel // 2), "filters": 64}
    given = {key: settings[key] for key in ("batch_size", "fan_out", "num_layers", "batch_parts") if key in settings}
    return make_config("nfc-gcn", settings={**own, **given})


def _chosen(graph: Graph, count: int) -> Ints:
    """Return some labelled nodes, drawn at random."""
    labelled = np.flatnonzero(graph.labels >= 0)
    return np.sort(generator(0, "split").choice(labelled, min(count, len(labelled)), replace=False))


def _measure(store: Path, kind: str, settings: Mapping[str, Any]) -> Figures:
    with _watched() as memory:
        if kind == "cold":
            forget(store)
        graph = open_store(store, verify=False)
        if kind == "memory":
            graph = _in_memory(graph)
        config = _config(graph, settings)
        if kind == "sampling":
            return _sampling(graph, config, settings)
        if kind == "inference":
            start = time.perf_counter()
            with one_pool():
                compute(config.build(graph, 0), graph)
            seconds = time.perf_counter() - start
            return {"seconds": seconds, "nodes_per_s": graph.num_nodes / seconds, **memory.figures}
        return {**_train(graph, config, settings), **memory.figures}


def forget(store: Path) -> None:
    """Let the system drop the pages of a store's files that it has in its cache."""
    for path in store.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _in_memory(graph: Graph) -> Graph:
    """Return the graph with its arrays read into memory."""

    def read(matrix: Any) -> Any:
        if isinstance(matrix, np.ndarray):
            return np.array(matrix)
        copy = matrix.__class__(matrix.shape, dtype=np.float32)
        copy.data, copy.indices, copy.indptr = np.array(matrix.data), np.array(matrix.indices), np.array(matrix.indptr)
        return copy

    return replace(graph, adjacency=read(graph.adjacency), features=read(graph.features), labels=np.array(graph.labels))


def _train(graph: Graph, config: Config, settings: Mapping[str, Any]) -> Figures:
    """Train for so many batches, after a few that are not counted, and return the rates."""
    size, warm = settings["batch_size"], 2
    nodes = _chosen(graph, size * (settings["num_batches"] + warm) + 64)
    device = torch.device("cpu")
    with joined(device), one_pool():
        model = config.build(graph, 0)
        optimizer = Adam(model, config.training)
        judges = nodes[:64]

        sums: list[float] = []

        def epoch(number: int, some: Ints) -> float:
            work = MiniBatches(model, graph, (some, judges), config.training, 0, device)
            sums.clear()
            return work.train(number, optimizer, None, lambda within: sums.append(within.loss))["train_loss"]

        epoch(1, nodes[64 : 64 + size * warm])
        counted = nodes[64 + size * warm :]
        start, spent = time.perf_counter(), time.process_time()
        loss = epoch(2, counted)
        seconds, spent = time.perf_counter() - start, time.process_time() - spent
    num_batches = -(-len(counted) // size)
    return {
        "seconds": seconds,
        "nodes_per_s": len(counted) / seconds,
        "ms_per_batch": 1000 * seconds / num_batches,
        "cpu_ms_per_batch": 1000 * spent / num_batches,
        "loss": loss,
        "losses": (np.diff([0.0, *sums, loss * len(counted)]) / size).tolist(),
    }


def _sampling(graph: Graph, config: Config, settings: Mapping[str, Any]) -> Figures:
    """Return the milliseconds per batch of drawing neighbours alone, ours and PyTorch Geometric's."""
    size = settings["batch_size"]
    nodes = _chosen(graph, size * settings["num_batches"])
    batches = np.split(nodes, range(size, len(nodes), size))
    reader = NodeReader(config.build(graph, 0), graph)
    assert config.training.fan_out is not None  # noqa: S101
    sizes = config.training.fan_out.sizes(settings["num_layers"])
    reader.sample(batches[0], sizes, 1)
    start = time.perf_counter()
    for number, some in enumerate(batches):
        reader.sample(some, sizes, 1 + number)
    ours = 1000 * (time.perf_counter() - start) / len(batches)
    return {"ms_per_batch": ours, "pyg_ms_per_batch": _pyg_sampling(graph, nodes, size, sizes[::-1])}


def _pyg_sampling(graph: Graph, nodes: Ints, size: int, sizes: Sequence[int]) -> float | None:
    if find_spec("pyg_lib") is None and find_spec("torch_sparse") is None:
        return None
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    data = Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    loader = NeighborLoader(data, list(sizes), input_nodes=torch.from_numpy(nodes), batch_size=size)
    next(iter(loader))
    start = time.perf_counter()
    count = sum(1 for _ in loader)
    return 1000 * (time.perf_counter() - start) / count
