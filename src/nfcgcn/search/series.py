"""The parts of a comparison, done in processes and kept in a ledger: choices of settings, runs, and their cost."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from nfcgcn.config.selection import select
from nfcgcn.errors import NFCError
from nfcgcn.evaluation import environment
from nfcgcn.graph import Graph
from nfcgcn.kernels.threads import available
from nfcgcn.memory import available as available_memory
from nfcgcn.reproduction.experiment import Setup
from nfcgcn.reproduction.ledger import Key, Ledger, Record, key_of, read
from nfcgcn.reproduction.measurement import describe_machine, measure
from nfcgcn.reproduction.schedule import Task
from nfcgcn.settings import one_line
from nfcgcn.training import warm_up
from nfcgcn.training.processes import Workers, can_fork, death

POLL = 0.5
"""Seconds between two looks at what other processes have finished."""


class Series:
    """The parts of a comparison that are under way, and what is done."""

    def __init__(
        self,
        ledger: Ledger,
        graphs: Mapping[str, Graph],
        device: torch.device,
        *,
        jobs: int | None,
        on_record: Callable[[Record, int, int], None] | None,
        on_wait: Callable[[list[str], int, int], None] | None,
        total: int,
    ) -> None:
        self.ledger, self.graphs, self.device = ledger, graphs, device
        self.machine = describe_machine(device)
        self.on_record, self.on_wait, self.total, self.done = on_record, on_wait, total, 0
        self.failed: dict[tuple[str, str], str] = {}
        """Why a model could not be run, by graph and model."""
        self.jobs = (jobs or available()) if device.type == "cpu" and can_fork() else 1

    def run(self, wanted: Iterable[Task], *, alone: bool = False) -> None:
        """Do those of the tasks that are not in the ledger yet; wait for those that other processes are doing."""
        tasks = [task for task in wanted if not self._has_failed(task.setup)]
        needed = max((task.setup.config().memory(self.graphs[task.setup.dataset]) for task in tasks), default=0.0)
        jobs = 1 if alone else max(1, min(self.jobs, int(available_memory() / (2 * needed + 1))))
        threads = torch.get_num_threads() if jobs == 1 else 1

        def work(number: int, _: Any) -> list[Record]:
            return self._measure(tasks[number])

        waiting = deque(range(len(tasks)))
        if jobs > 1:
            self._warm_up(tasks)
        with Workers(work, threads) as workers:
            while waiting or workers.running:
                elsewhere = 0
                while waiting and len(workers.running) < jobs and elsewhere < len(waiting):
                    number = waiting.popleft()
                    state = self._claim(tasks[number])
                    if state == "taken":
                        waiting.append(number)
                        elsewhere += 1
                    elif state == "free" and (self.device.type != "cpu" or not can_fork()):
                        self._try_here(tasks[number])
                    elif state == "free":
                        workers.start(number)
                names = [self._name(tasks[number]) for number, _ in workers.running.values()]
                names = names or [f"{self._name(tasks[number])} in another process" for number in waiting]
                if self.on_wait and names:
                    self.on_wait(names, self.done, self.total)
                if workers.running:
                    for number, kind, value in workers.hear(timeout=POLL):
                        self._end(tasks[number], kind, value)
                elif waiting:
                    time.sleep(POLL)

    def chosen(self, setup: Setup, seeds: Iterable[int]) -> dict[int, dict[str, Any]] | None:
        """Return the settings that were chosen for a setup, by seed; None if that failed."""
        if self._has_failed(setup):
            return None
        records = {key_of(r["setup"], r["seed"], r["where"]): r for r in read(self.ledger.path.parent)}
        return {seed: dict(records[key_of(setup.id, seed, self.machine)]["chosen"]) for seed in seeds}

    def _warm_up(self, tasks: Iterable[Task]) -> None:
        """Load or compile what the processes will need, once for all of them."""
        for setup, seeds in {t.setup.id: (t.setup, t.seeds) for t in tasks if not self._is_done(t)}.values():
            graph, config = self.graphs[setup.dataset], setup.config()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                split = config.split.make(graph, seeds[0])
                warm_up(config.build(graph, seeds[0]), graph, split, config.training)

    def _is_done(self, task: Task) -> bool:
        return all(key in self.ledger for key in self._keys(task))

    def _measure(self, task: Task) -> list[Record]:
        graph, setup = self.graphs[task.setup.dataset], task.setup
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if setup.kind != "selection":
                return measure(setup, graph, task.seeds, device=self.device)
            start = setup.config()
            result = select(graph, start, seed=task.seeds[0], held=setup.held, device=self.device)
        common = {name: getattr(setup, name) for name in ("kind", "dataset", "model")}
        provenance = {name: environment(self.device)[name] for name in ("hardware", "versions", "commit")}
        chosen = {"chosen": result.config.values, "selection": result.describe()}
        return [{"setup": setup.id, "seed": task.seeds[0], "where": self.machine, **common, **chosen, **provenance}]

    def _keys(self, task: Task) -> list[Key]:
        return [key_of(task.setup.id, seed, self.machine) for seed in task.seeds]

    def _claim(self, task: Task) -> str:
        """Say whether a task is done, taken by another process, or free; a free one is ours from now on."""
        keys = self._keys(task)
        mine = [key for key in keys if self.ledger.claim(key)]
        if len(mine) == len(keys) and not self._is_done(task):
            return "free"
        for key in mine:
            self.ledger.release(key)
        if len(mine) < len(keys):
            return "taken"
        self.done += len(keys)
        return "done"

    def _try_here(self, task: Task) -> None:
        try:
            self._end(task, "run", self._measure(task))
        except (NFCError, RuntimeError) as error:
            self._end(task, "error", error)

    def _end(self, task: Task, kind: str, value: Any) -> None:
        """Store what a task came to, or why it failed."""
        if kind == "run":
            for record in value:
                self.ledger.add(record)
                self.done += 1
                if self.on_record:
                    self.on_record(record, self.done, self.total)
        elif kind in ("error", "died"):
            error = value if kind == "error" else death(str(task.setup), value)
            reason = f"{self._name(task)}: {one_line(error)}"
            self.failed.setdefault((task.setup.dataset, task.setup.model), reason)
        for key in self._keys(task):
            self.ledger.release(key)

    def _name(self, task: Task) -> str:
        return f"{task.setup.model} on {self.graphs[task.setup.dataset].name}"

    def _has_failed(self, setup: Setup) -> bool:
        return (setup.dataset, setup.model) in self.failed
