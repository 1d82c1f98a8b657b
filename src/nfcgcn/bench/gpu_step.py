"""How long a training step takes on a GPU compared with others, and how near its kernels are to the device's limits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.bench.step import plain_nfc_gcn, pyg_gat, pyg_gcn, step_config
from nfcgcn.config.registry import Config
from nfcgcn.data import load
from nfcgcn.errors import NFCError
from nfcgcn.evaluation import environment
from nfcgcn.graph import Graph
from nfcgcn.kernels import contract
from nfcgcn.randomness import torch_randomness
from nfcgcn.training import cuda_graph, fit_together
from nfcgcn.training.side_by_side import SideBySide

WARM_UP = 5
REPEATS = 21
SEEDS = 10
BANDWIDTH = 4.8e12
"""Memory bandwidth of an H200 in bytes per second, from its data sheet."""
RATE = 67e12
"""Float32 operations per second of an H200, from its data sheet."""
NEAR, FAR = 33e12, 10e12
"""Bytes per second that programs can read from the multiprocessors' own caches (132 times 128 bytes per cycle at 1.98
GHz) and, approximately, from the cache that they share (5,120 bytes per cycle)."""
LAUNCH = 2e-6
"""Approximate seconds from one kernel of a graph to the next."""


def bench_gpu_step(
    dataset: str,
    *,
    activation: str = "none",
    conv: str = "1d",
    data_dir: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Time one training step with Adam of each system on the GPU, ours as a CUDA graph; return medians of CUDA events.

    The contract of the kernels is checked first; if a kernel breaks it, nothing is timed.
    """
    device = torch.device("cuda")
    graph = load(dataset, data_dir=data_dir)
    config = step_config(dataset, activation, conv)
    say("contract")
    check_gpu_contract()
    split = config.split.make(graph, 0)
    nodes = torch.from_numpy(split.train).to(device)
    dense = graph.x.to(device).to_dense()
    with torch_randomness(0, "weights"):
        others = {
            "plain": plain_nfc_gcn(graph, config),
            "pyg_gcn": pyg_gcn(graph, config),
            "pyg_gat": pyg_gat(graph),
        }
    result: dict[str, Any] = {}
    for name, model in others.items():
        say(name)
        step, evaluate = _eager(model.to(device), dense, graph, nodes)
        result[f"{name}_mib"] = _extra_memory(step)
        result |= {f"{name}_ms": _milliseconds(step), f"{name}_eval_ms": _milliseconds(evaluate)}
        del model, step, evaluate
    del others, dense
    say("ours")
    trainer = _trainer(graph, config, 1)
    result["ours_mib"] = _extra_memory(trainer.train_step)
    step_graph = trainer.capture(trainer.train_step)
    result["ours_ms"] = _milliseconds(step_graph.replay)
    result["ours_eval_ms"] = _milliseconds(trainer.capture(trainer.validate).replay)
    result["ours_without_graph_ms"] = _milliseconds(trainer.train_step)
    result |= _kernels(trainer)
    del trainer, step_graph
    say(f"{SEEDS} seeds")
    trainer = _trainer(graph, config, SEEDS)
    result[f"seeds{SEEDS}_ms"] = _milliseconds(trainer.capture(trainer.train_step).replay)
    result |= {f"seeds{SEEDS}_{name}": value for name, value in _kernels(trainer).items()}
    del trainer
    for count in (1, SEEDS):
        _fit_seconds(graph, config, count)  # compiles what is not compiled yet
        result[f"fit_{count}_s"] = _fit_seconds(graph, config, count)
    return {
        "dataset": graph.name,
        "activation": activation,
        "conv": conv,
        "repeats": REPEATS,
        "graph": True,
        **result,
        "config": config.values,
        **environment(device),
    }


@cache
def check_gpu_contract() -> None:
    """Raise an error if the GPU kernels break their contract; checked once."""
    from nfcgcn.kernels.gpu import node_feature_conv as gpu

    for case in contract.cases():
        if case.dropout == 0.5:
            complaint = contract.violation("projected", gpu.projected, case, torch.float32, device="cuda")
            if complaint:
                raise NFCError(f"the GPU kernel breaks its contract, so nothing is timed: {case.name}: {complaint}")


def _eager(model: nn.Module, x: Tensor, graph: Graph, nodes: Tensor) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return a training step with Adam and an evaluation pass, as usually written in PyTorch."""
    edge_index, y = graph.edge_index.to(x.device), graph.y.to(x.device)[nodes]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step() -> None:
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index)[nodes], y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    @torch.no_grad()
    def evaluate() -> None:
        model.eval()
        model(x, edge_index)

    return step, evaluate


def _trainer(graph: Graph, config: Config, count: int) -> cuda_graph.Trainer:
    models = [config.build(graph, seed).to("cuda") for seed in range(count)]
    splits = [config.split.make(graph, seed) for seed in range(count)]
    parts = [(split.train, split.val) for split in splits]
    device = torch.device("cuda")
    net = cuda_graph.make_net(models, graph, config.training, device)
    return cuda_graph.Trainer(net, graph, parts, config.training, range(count), device)


def _fit_seconds(graph: Graph, config: Config, count: int) -> float:
    """Return how many seconds `count` runs of all epochs take together, from built models to their best states."""
    models = [config.build(graph, seed) for seed in range(count)]
    splits = [config.split.make(graph, seed) for seed in range(count)]
    start = time.perf_counter()
    fit_together(models, graph, splits, config.training, seeds=range(count), device="cuda")
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _milliseconds(job: Callable[[], Any]) -> float:
    for _ in range(WARM_UP):
        job()
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        job()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return float(np.median(times))


def _extra_memory(job: Callable[[], Any]) -> float:
    """Return the extra device memory in MiB that a job needs, measured over two calls, as if nothing ran before."""
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        job()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def _kernels(trainer: cuda_graph.Trainer) -> dict[str, Any]:
    """List the kernels of one training step, with launches, microseconds and a lower bound on these; and the sums.

    The bound is the largest of the times that these take at the device's rates: the launches, the bytes that must come
    from memory, each counted once, the bytes that must come from caches, and the operations.
    """
    from torch.profiler import ProfilerActivity, profile

    trainer.train_step()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        trainer.train_step()
        torch.cuda.synchronize()
    micros: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for event in profiler.key_averages():
        if event.device_time_total > 0:
            micros[event.key[:60]] += event.device_time_total
            launches[event.key[:60]] += event.count
    work = _work(trainer)
    kernels: list[dict[str, Any]] = [
        {
            "kernel": name,
            "launches": launches[name],
            "us": round(spent, 1),
            "floor_us": round(1e6 * max(LAUNCH * launches[name], work.get(name, Work()).seconds), 1),
        }
        for name, spent in micros.most_common()
    ]
    return {
        "kernels": kernels,
        "launches": sum(launches.values()),
        "kernels_ms": sum(micros.values()) / 1000,
        "floor_ms": sum(k["floor_us"] for k in kernels) / 1000,
    }


class Work(NamedTuple):
    """What a kernel must at least do: bytes from memory, from the shared and from the own caches; operations."""

    memory: float = 0
    far: float = 0
    near: float = 0
    operations: float = 0

    @property
    def seconds(self) -> float:
        """The least time that it takes."""
        return max(self.memory / BANDWIDTH, self.far / FAR, self.near / NEAR, self.operations / RATE)


def _work(trainer: cuda_graph.Trainer) -> dict[str, Work]:
    """Return what our main kernels must do in one training step, dropped nonzeros not counted."""
    net = trainer.net
    assert isinstance(net, SideBySide)  # noqa: S101
    tables = net.tables
    of = dict(zip(net.names, net.stacked, strict=True))
    weight, matrix = of["nfc.weight"], of["layers.0.weight"]
    num_runs, filters, _, size = weight.shape
    hidden = matrix.shape[2]
    stride = next(iter(net.options.values())).stride
    nodes = num_runs * tables.num_nodes
    entries = tables.room(0, tables.x.shape[1])
    left = entries * (1 - net.map_dropout)
    met = left * size / stride
    h0 = nodes * matrix.shape[1]
    slots = 4 * num_runs * tables.bandwidth * tables.x.shape[1] * hidden
    out = 4 * nodes * hidden
    edges = num_runs * net.adjacency[0].values().numel()
    # Each nonzero that is left reads a row of `hidden` numbers; each of its meetings with a window, one of `filters`.
    rows, meetings = 4 * left * hidden, 4 * met * filters
    # The filters of a run fit into the caches of a multiprocessor; rows of nodes and of slots only into the shared one.
    return {
        "gather": Work(8 * len(tables.features.values) + slots + out, rows, 0, 2 * left * hidden),
        "gather_backward": Work(8 * entries + slots + out, rows, 0, 2 * left * hidden),
        "keep_in_map": Work(8 * entries + 8 * left, 0, 0, 40 * entries),
        "keep_in_list": Work(8 * entries + 8 * left, 0, 0, 60 * entries),
        "project": Work(8 * left + 4 * matrix.numel() + out, 0, meetings, 2 * met * filters + (2 * hidden + 20) * h0),
        "project_backward": Work(8 * left + 4 * h0 + out, 0, meetings, 2 * met * filters + (4 * hidden + 24) * h0),
        "convolve_backward": Work(8 * left + 4 * h0, meetings, 0, 2 * met * filters),
        "_propagate": Work(4 * (12 * edges + 2 * out), 16 * edges * hidden, 0, 8 * edges * hidden),
    }
