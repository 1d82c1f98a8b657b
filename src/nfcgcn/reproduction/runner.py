"""Run experiments in several processes."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import torch

from nfcgcn.data import load
from nfcgcn.errors import NFCError
from nfcgcn.graph import Graph
from nfcgcn.kernels.threads import available, settle_in
from nfcgcn.reproduction.ledger import Key, Ledger, Record, key_of, read
from nfcgcn.reproduction.measurement import describe_machine, measure
from nfcgcn.reproduction.schedule import Task, estimate, unfinished
from nfcgcn.settings import one_line
from nfcgcn.training.processes import can_fork, delayed, end_with_parent, without_fork_warnings

POLL = 0.5
"""Seconds between two checks whether a run that another process claimed is finished."""


class Progress:
    """Receives the progress of a series of runs; this one shows nothing."""

    def begin(self, seconds: float, runs: int) -> None:
        """The series begins: it has so many runs and takes about so many seconds in all."""

    def finished(self, record: Record, seconds: float) -> None:
        """A run is in the ledger; it had been expected to take so many seconds."""

    def waiting(self, names: Sequence[str]) -> None:
        """Runs with these names are under way; called about twice a second."""


@dataclass(frozen=True)
class Outcome:
    """The result of a series of runs."""

    done: int
    """How many runs were added to the ledger."""
    failed: tuple[str, ...]
    """One line per setup that could not be run."""


def remaining(tasks: Sequence[Task], folder: Path, device: torch.device) -> list[Task]:
    """Return those of `tasks`, with their seeds, that the folder does not have from this machine yet."""
    return unfinished(tasks, read(folder), describe_machine(device))


def run(
    tasks: Sequence[Task],
    folder: Path,
    *,
    device: torch.device,
    jobs: int,
    data_dir: Path | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run those of `tasks` that the folder does not have yet, and add each run to its ledger as soon as it ends.

    Other processes may work in the same folder at the same time: each run is done by only one of them. Tasks that must
    be alone come last, one at a time and with all threads.
    """
    progress = progress or Progress()
    left = remaining(tasks, folder, device)
    # Download each dataset once, and report a problem with it once.
    graphs = {name: _load(name, data_dir) for name in sorted({task.setup.dataset for task in left})}
    with Ledger(folder) as ledger:
        series = _Series(ledger, describe_machine(device), progress, graphs)
        progress.begin(sum(estimate(t, device) for t in left), sum(len(t.seeds) for t in left))
        side_by_side = [t for t in left if not t.alone]
        try:
            series.run(side_by_side, device, jobs=min(jobs, len(side_by_side)), threads=1, data_dir=data_dir)
            alone = [t for t in left if t.alone]
            # On the CPU the peak memory of a process includes all it did before; on a GPU the peak can be reset.
            for tasks in [[t] for t in alone] if device.type == "cpu" else [alone]:
                series.run(tasks, device, jobs=1, threads=None, data_dir=data_dir)
        finally:
            series.stop()
    return Outcome(series.done, tuple(series.failed.values()))


class _Series:
    """The state of a series: its processes, their tasks, and what is done."""

    def __init__(
        self, ledger: Ledger, machine: Mapping[str, str], progress: Progress, graphs: Mapping[str, Graph]
    ) -> None:
        self.ledger, self.machine, self.progress, self.graphs = ledger, machine, progress, graphs
        self.done = 0
        self.failed: dict[str, str] = {}
        self._workers: list[_Worker] = []

    def run(
        self, tasks: Sequence[Task], device: torch.device, *, jobs: int, threads: int | None, data_dir: Path | None
    ) -> None:
        """Distribute `tasks` among `jobs` processes until all are done, by us or by others."""
        waiting = deque(tasks)
        while waiting or any(worker.task for worker in self._workers):
            taken_elsewhere = 0
            for number in range(jobs):
                if number == len(self._workers):
                    self._workers.append(self._start(device, threads, data_dir))
                worker = self._workers[number]
                while waiting and worker.task is None and taken_elsewhere < len(waiting):
                    task = waiting.popleft()
                    mine, others = self._claim(task)
                    if others:
                        waiting.append(Task(task.setup, others, task.history))
                        taken_elsewhere += 1
                    if mine:
                        worker.give(Task(task.setup, mine, task.history))
            self._collect(device)
        self.stop()

    def _start(self, device: torch.device, threads: int | None, data_dir: Path | None) -> _Worker:
        """Start a process: a fork of this one, which has all modules and graphs, where a run does not mind.

        A run whose memory is measured, or that uses several threads, gets a new process.
        """
        if device.type == "cpu" and threads == 1 and can_fork():
            beside = [worker.pipe for worker in self._workers]
            return _Worker("fork", device, threads, self.graphs.__getitem__, beside)
        return _Worker("spawn", device, threads, partial(_load, data_dir=data_dir))

    def stop(self) -> None:
        """End all processes; their unfinished runs are lost."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def _claim(self, task: Task) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the seeds to run now, and those that another process is running."""
        mine, others = [], []
        for seed in task.seeds:
            key = self._key(task, seed)
            if not self.ledger.claim(key):
                others.append(seed)
            elif key in self.ledger:
                self.ledger.release(key)
            else:
                mine.append(seed)
        return tuple(mine), tuple(others)

    def _collect(self, device: torch.device) -> None:
        busy = {worker.pipe: worker for worker in self._workers if worker.task}
        self.progress.waiting([str(worker.task.setup) for worker in busy.values() if worker.task])
        if not busy:
            time.sleep(POLL)
            return
        for pipe in connection.wait(list(busy), timeout=POLL):
            worker = busy[pipe]  # type: ignore[index]
            task = worker.task
            assert task is not None  # noqa: S101
            records, error = worker.take()
            for record in records:
                self.done += self.ledger.add(record)
                self.progress.finished(record, estimate(task, device) / len(task.seeds))
            if error:
                self.failed.setdefault(task.setup.id, f"{task.setup}: {error}")
            for seed in task.seeds:
                self.ledger.release(self._key(task, seed))
            if not worker.alive:
                self._workers.remove(worker)

    def _key(self, task: Task, seed: int) -> Key:
        return key_of(task.setup.id, seed, self.machine)


class _Worker:
    """A process that runs one task at a time. It ends soon after the process that started it has ended."""

    def __init__(
        self,
        way: Literal["fork", "spawn"],
        device: torch.device,
        threads: int | None,
        graphs: Callable[[str], Graph],
        beside: Sequence[Connection] = (),
    ) -> None:
        self.pipe, theirs = connection.Pipe()
        arguments = (theirs, str(device), threads, graphs)
        self.process: BaseProcess
        if way == "fork":
            inherited = [*beside, self.pipe]
            self.process = get_context("fork").Process(target=_work_in_fork, args=(os.getpid(), inherited, *arguments))
        else:
            self.process = get_context("spawn").Process(target=_work, args=arguments)
            resource_tracker.ensure_running()  # otherwise `start` would start it, which unblocks Ctrl-C again
        self.process.daemon = True
        with delayed(signal.SIGINT, signal.SIGTERM), without_fork_warnings():
            self.process.start()
        theirs.close()
        self.task: Task | None = None

    @property
    def alive(self) -> bool:
        return not self.pipe.closed

    def give(self, task: Task) -> None:
        self.task = task
        with suppress(OSError):  # it died, which `take` will report
            self.pipe.send(task)

    def take(self) -> tuple[list[Record], str]:
        """Return the records of the task, or the reason why there are none."""
        self.task = None
        try:
            result: tuple[list[Record], str] = self.pipe.recv()
        except (EOFError, OSError):
            self.stop()
            code = self.process.exitcode
            return (
                [],
                f"its process died (exit code {code}), perhaps for lack of memory; use fewer processes with --jobs",
            )
        return result

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _work_in_fork(parent: int, pipes: Sequence[Connection], *arguments: Any) -> None:
    """Run tasks in a fork, which must not keep open what the process that started it has open for others."""
    end_with_parent(parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for pipe in pipes:
        pipe.close()
    _work(*arguments)


def _work(pipe: Connection, device: str, threads: int | None, graphs: Callable[[str], Graph]) -> None:
    """Run tasks from the pipe until it closes."""
    if threads:
        torch.set_num_threads(threads)
        settle_in()
    graph_of = cache(graphs)
    try:
        while True:
            pipe.send(_try(pipe.recv(), graph_of, torch.device(device)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _load(dataset: str, data_dir: Path | None) -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its flaws are known
        return load(dataset, data_dir=data_dir)


def _try(task: Task, graphs: Callable[[str], Graph], device: torch.device) -> tuple[list[Record], str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = graphs(task.setup.dataset)
            return measure(task.setup, graph, task.seeds, device=device, history=task.history), ""
    except (NFCError, RuntimeError) as error:  # out of memory, for example
        return [], one_line(error)


def choose_jobs(device: torch.device) -> int:
    """Return how many processes suit this machine."""
    cores = available()
    # A GPU waits for the processes that compile and launch kernels; more than a dozen only fill its memory.
    return cores if device.type == "cpu" else max(1, min(12, cores - 2))
