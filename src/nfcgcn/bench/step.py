"""Time and memory of a training step, compared in one run with plain PyTorch and PyTorch Geometric."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfcgcn.config.registry import MODELS, Config, make_config, preset_tables
from nfcgcn.data import load
from nfcgcn.errors import NFCError
from nfcgcn.evaluation import environment
from nfcgcn.graph import Graph
from nfcgcn.kernels import contract
from nfcgcn.kernels.threads import one_pool
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.model import NFCGCN
from nfcgcn.randomness import torch_randomness

REPEATS = 9
WARM_UP = 1
REST = 0.03
"""Seconds between two systems."""
STEPPING = tuple(name for name, entry in MODELS.items() if entry.model.reads_features)
"""Models whose training is steps on the graph; the others' is that of a linear layer."""


def plain_nfc_gcn(graph: Graph, config: Config) -> NFCGCN:
    """Return NFC-GCN by the method's own formulas: gather the dense map, drop out, convolve, flatten, multiply."""
    plain = replace(config, model=replace(config.model, backend="reference"))
    model: Any = plain.build(graph, 0)
    return model  # type: ignore[no-any-return]


def pyg_gcn(graph: Graph, config: Config) -> nn.Module:
    """Return PyTorch Geometric's ``GCN`` in the sizes of `config`."""
    from torch_geometric.nn import GCN

    model: nn.Module = GCN(
        graph.num_features, config.model.hidden_channels, 2, graph.num_classes, dropout=0.5, cached=True
    )
    return model


def pyg_gat(graph: Graph) -> nn.Module:
    """Return a GAT made of PyTorch Geometric's layers, in the sizes of its paper."""
    from torch_geometric.nn import GATConv

    class GAT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = GATConv(graph.num_features, 8, heads=8, dropout=0.6)
            self.last = GATConv(64, graph.num_classes, heads=1, dropout=0.6)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = F.elu(self.first(F.dropout(x, 0.6, self.training), edge_index))
            scores: Tensor = self.last(F.dropout(h, 0.6, self.training), edge_index)
            return scores

    return GAT()


def step_config(dataset: str, activation: str, conv: str) -> Config:
    """Return the paper's settings, always with two graph convolutions, so that the hidden size matters.

    A graph that is not in the paper gets the settings of CiteSeer, which has the most features of the paper's graphs.
    """
    model = "nfc-gcn" if conv == "1d" else "nfc-gcn-2d"
    settings = {"activation": activation, "num_layers": 2}
    if dataset in preset_tables("paper", model):
        return make_config(model, dataset=dataset, preset="paper", settings=settings)
    return make_config(model, settings=settings | {"kernel_size": 64, "stride": 32, "learning_rate": 0.002})


def bench_step(
    dataset: str,
    *,
    activation: str = "none",
    conv: str = "1d",
    threads: int = 2,
    data_dir: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Time one training step (forward, loss, backward) of each system, interleaved, and return medians.

    The contract of the kernels is checked first; if a kernel breaks it, nothing is timed.
    """
    config = step_config(dataset, activation, conv)
    graph = load(dataset, data_dir=data_dir)
    say("contract")
    check_contract()
    torch.set_num_threads(threads)
    x, nodes = graph.x.to_dense(), torch.from_numpy(config.split.make(graph, 0).train)
    with torch_randomness(0, "weights"):
        models = {
            "plain": (plain_nfc_gcn(graph, config), x),
            "ours": (config.build(graph, 0), graph.x),
            "pyg_gcn": (pyg_gcn(graph, config), x),
            "pyg_gat": (pyg_gat(graph), x),
        }
    jobs: dict[str, Callable[[], None]] = {}
    for name, (model, features) in models.items():
        step, evaluate = _train_step(model, features, graph, nodes), _eval_pass(model, features, graph)
        if name == "ours":  # as `fit` and `predict` run it
            step, evaluate = one_pool()(step), one_pool()(evaluate)
        jobs |= {f"{name}_ms": step, f"{name}_eval_ms": evaluate}
    result: dict[str, Any] = _interleaved(jobs, say)
    say("memory")
    for which in ("plain", "ours"):
        result[f"{which}_mib"] = _memory_in_a_process(which, dataset, activation, conv, threads, data_dir)
    return {
        "dataset": dataset,
        "activation": activation,
        "conv": conv,
        "threads": threads,
        "repeats": REPEATS,
        **result,
        "config": config.values,
        **environment(torch.device("cpu")),
    }


def bench_models(
    dataset: str, *, threads: int = 2, data_dir: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Time one training step (forward, loss, backward) of every system with features and of PyG's ``GCN``, interleaved.

    Each system has the settings of its preset for FastGCN's split, or of its own paper. These settings decide whether a
    step covers all training nodes or one batch. PyG's ``GCN`` has the sizes of ours and runs on dense and on sparse
    features, but without dropout on its input.
    """
    graph = load(dataset, data_dir=data_dir)
    configs = {name: make_config(name, dataset=dataset, settings={"split": "fastgcn"}) for name in STEPPING}
    torch.set_num_threads(threads)
    nodes = torch.from_numpy(configs["gcn"].split.make(graph, 0).train)
    jobs = {
        name: _train_step(config.build(graph, 0), graph.x, graph, nodes[: config.training.batch_size])
        for name, config in configs.items()
    }
    with torch_randomness(0, "weights"):
        for form, x in (("dense", graph.x.to_dense()), ("sparse", graph.x)):
            jobs[f"PyG's GCN, {form} input"] = _train_step(pyg_gcn(graph, configs["gcn"]), x, graph, nodes)
    return {
        "dataset": dataset,
        "threads": threads,
        "repeats": REPEATS,
        "step_ms": _interleaved(jobs, say),
        "config": {name: config.values for name, config in configs.items()},
        **environment(torch.device("cpu")),
    }


def _interleaved(jobs: dict[str, Callable[[], None]], say: Callable[[str], None]) -> dict[str, float]:
    """Run the jobs in turns and return the median milliseconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    with torch_randomness(0, "training"):
        for repeat in range(WARM_UP + REPEATS):
            say(f"timing {repeat + 1} of {WARM_UP + REPEATS}")
            for name, job in jobs.items():
                # The last system's threads spin for a while after their work: wait until they sleep, then wake ours.
                time.sleep(REST)
                job()
                start = time.perf_counter()
                job()
                if repeat >= WARM_UP:
                    seconds[name].append(time.perf_counter() - start)
    return {name: 1000 * float(np.median(times)) for name, times in seconds.items()}


@cache
def check_contract() -> None:
    """Raise an error if the CPU kernels break their contract."""
    from nfcgcn.kernels.cpu import node_feature_conv as cpu

    for case in contract.cases():
        if case.dropout in (0.0, 0.5):
            complaint = contract.violation("projected", cpu.projected, case, torch.float32)
            if complaint:
                raise NFCError(f"the CPU kernel breaks its contract, so nothing is timed: {case.name}: {complaint}")


def _train_step(model: nn.Module, x: Tensor, graph: Graph, nodes: Tensor) -> Callable[[], None]:
    labels = graph.y[nodes]

    def step() -> None:
        model.train()
        model.zero_grad()
        if isinstance(model, NodeClassifier):
            scores = model.score_nodes(x, graph.edge_index, nodes)
        else:
            scores = model(x, graph.edge_index)[nodes]
        F.cross_entropy(scores, labels).backward()  # type: ignore[no-untyped-call]

    return step


def _eval_pass(model: nn.Module, x: Tensor, graph: Graph) -> Callable[[], None]:
    @torch.no_grad()
    def run() -> None:
        model.eval()
        model(x, graph.edge_index)

    return run


def _memory_in_a_process(*arguments: Any) -> float:
    """Measure in a separate process, in which nothing else has raised the peak before."""
    code = f"from nfcgcn.bench.step import peak_memory; print(peak_memory(*{[_plain(a) for a in arguments]!r}))"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "ignore", "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NFCError(f"the memory of '{arguments[0]}' could not be measured: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def peak_memory(
    which: str, dataset: str, activation: str, conv: str, threads: int, data_dir: str | None = None
) -> float:
    """Return by how many MiB training steps raise the resident memory above that of the loaded graph and model."""
    torch.set_num_threads(threads)
    config = step_config(dataset, activation, conv)
    graph = load(dataset, data_dir=data_dir)
    x = graph.x.to_dense() if which == "plain" else graph.x
    model = plain_nfc_gcn(graph, config) if which == "plain" else config.build(graph, 0)
    nodes = torch.from_numpy(config.split.make(graph, 0).train)
    if which == "ours":  # compile or load the kernels, which is not part of a step
        small = load("citations", nodes=300, features=100, words=5)
        warm = make_config(config.name, settings={"activation": activation, "kernel_size": 32}).build(small, 0)
        _train_step(warm, small.x, small, torch.arange(10))()
    before = reset_peak()
    step = _train_step(model, x, graph, nodes)
    for _ in range(3):
        step()
    return (peak() - before) / 2**20


def reset_peak() -> int:
    """Reset the peak if the system can (Linux), and return the memory in use now."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        trim = getattr(
            ctypes.CDLL(None), "malloc_trim", None
        )  # return freed memory to the system, so that it does not count
        if trim is not None:
            trim(0)
        clear.write_text("5")
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return peak()


def peak() -> int:
    """Return the peak memory of the process, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
