"""What training costs where others work too: beside busy processes, and with one core of several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from nfcgcn.bench.step import pyg_gcn
from nfcgcn.config.registry import make_config
from nfcgcn.data import load
from nfcgcn.errors import NFCError
from nfcgcn.evaluation import environment
from nfcgcn.kernels.threads import available
from nfcgcn.training import fit

SYSTEMS = ("nfc-gcn", "gcn", "pyg-gcn")
"""Ours, trained by `fit`, and PyTorch Geometric's GCN in a loop as people write it."""
SPIN = "while True: pass"


def bench_busy(
    dataset: str,
    *,
    seconds: float = 4.0,
    data_dir: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return the milliseconds per epoch of each system in each situation, each in a new process.

    An epoch is a training step and a validation. "quiet" says how fast the machine is, "one thread" what one thread
    alone would do; "one core" binds the process to one core, with the number of threads left as it is.
    """
    cores = available()
    situations: dict[str, tuple[int, Mapping[str, str], bool]] = {
        "quiet": (0, {}, False),
        "busy": (cores, {}, False),
        "very busy": (2 * cores, {}, False),
        "one thread": (0, {"OMP_NUM_THREADS": "1"}, False),
        "one core": (0, {}, True),
    }
    result: dict[str, dict[str, float]] = {}
    for situation, (others, variables, bound) in situations.items():
        for system in SYSTEMS:
            say(f"{situation}, {system}")
            with busy_processes(others):
                result.setdefault(situation, {})[system] = _in_a_process(
                    system, dataset, seconds, data_dir, variables, bound=bound
                )
    return {
        "dataset": dataset,
        "cores": cores,
        "seconds": seconds,
        "ms_per_epoch": result,
        **environment(torch.device("cpu")),
    }


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep so many processes busy inside the block."""
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]  # noqa: S603
    try:
        if others:
            time.sleep(0.5)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _in_a_process(
    system: str, dataset: str, seconds: float, data_dir: Path | None, variables: Mapping[str, str], *, bound: bool
) -> float:
    # The command line lets waiting threads sleep; here each system runs as in any program.
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    arguments = json.dumps([system, dataset, seconds, None if data_dir is None else str(data_dir), bound])
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "nfcgcn.bench.busy", arguments],
        env=inherited | dict(variables),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NFCError(
            f"the process that was timed failed: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}"
        )
    return float(done.stdout)


def _measure(system: str, dataset: str, seconds: float, data_dir: Path | None) -> float:
    """Train for so many seconds and return the milliseconds per epoch, without the first few."""
    times: list[float] = []

    class EnoughError(Exception):
        pass

    def tick(_: object = None) -> None:
        times.append(time.perf_counter())
        if len(times) > 5 and times[-1] - times[3] > seconds:
            raise EnoughError

    graph = load(dataset, data_dir=data_dir)
    config = make_config("nfc-gcn" if system == "nfc-gcn" else "gcn", dataset=dataset, settings={"epochs": 100_000})
    split = config.split.make(graph, 0)
    try:
        if system == "pyg-gcn":
            _train_pyg(graph, config, split, tick)
        else:
            fit(config.build(graph, 0), graph, split, config.training, on_epoch=tick)
    except EnoughError:
        pass
    return 1000 * (times[-1] - times[3]) / (len(times) - 4)


def _train_pyg(graph: Any, config: Any, split: Any, tick: Callable[[], None]) -> None:
    model = pyg_gcn(graph, config)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, edges, y = graph.x.to_dense(), graph.edge_index, graph.y
    train, val = torch.from_numpy(split.train), torch.from_numpy(split.val)
    while True:
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges)[train], y[train]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        model.eval()
        with torch.no_grad():
            (model(x, edges)[val].argmax(1) == y[val]).float().mean().item()
        tick()


def _main(arguments: Sequence[str]) -> None:
    system, dataset, seconds, data_dir, bound = json.loads(arguments[0])
    if bound:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(_measure(system, dataset, seconds, None if data_dir is None else Path(data_dir)))


if __name__ == "__main__":
    _main(sys.argv[1:])
