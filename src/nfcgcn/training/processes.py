"""Runs that do not depend on each other, each in a process of its own.

A process is a fork of this one: it has the graph and the models already, and shares their memory as long as it does not
write to it. What a run learns comes back through a pipe.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from nfcgcn.errors import NFCError
from nfcgcn.training.values import DiedError, Epoch, Run, SeriesError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 10.0
"""Seconds that an interrupted process gets to hand in its best state."""


def can_fork() -> bool:
    """Say whether runs can have their own processes here: on Linux, where torch sees no GPU.

    Where it sees one, a fork of a process that has asked for it, or has run a backward pass, cannot learn: neither the
    driver nor torch's backward threads survive the fork. ``CUDA_VISIBLE_DEVICES=`` (empty) hides the GPU.
    """
    return sys.platform == "linux" and not torch.cuda.is_available()


def in_processes(
    work: Callable[[int, Callable[[Epoch], None] | None], Run],
    count: int,
    *,
    jobs: int,
    threads: int,
    names: Sequence[str],
    on_epoch: Callable[[int, Epoch], None] | None,
    on_run: Callable[[int, Run], None] | None = None,
) -> list[Run]:
    """Call ``work(number, on_epoch)`` for each number below `count`, at most `jobs` at a time, and return the results.

    Each process uses so many `threads`. Ctrl-C ends all runs; those that have a best state are returned, in order, up
    to the first that has none, and the last of them is marked as interrupted. After an error in one run, which is
    raised here, those before it still end as they would have, those behind it do not; ``names`` says whose a process
    was that died. ``on_run`` is called with every run that ends, in the order in which they end.
    """
    waiting, runs, errors = deque(range(count)), dict[int, Run](), dict[int, Exception]()
    interrupted = False

    def end(number: int, run: Run) -> None:
        runs[number] = run
        if on_run:
            on_run(number, run)

    with Workers(work, threads, report=on_epoch is not None) as workers:
        try:
            while waiting or workers.running:
                while waiting and len(workers.running) < jobs:
                    workers.start(waiting.popleft())
                for number, kind, value in workers.hear():
                    if kind == "epoch" and on_epoch:
                        on_epoch(number, value)
                    elif kind == "run":
                        end(number, value)
                    elif kind in ("error", "died"):
                        errors[number] = value if kind == "error" else death(names[number], value)
                        waiting.clear()
                        workers.stop(lambda other, first=number: other > first)  # type: ignore[misc]
        except KeyboardInterrupt:
            interrupted = True
            for number, run in workers.interrupt().items():
                end(number, run)
            if 0 not in runs:
                raise
    done: list[Run] = []
    while len(done) in runs:
        done.append(runs[len(done)])
    if interrupted:  # also if every run had ended by itself when the signal reached it
        done[-1] = replace(done[-1], interrupted=True)
    if errors:
        error = errors[min(errors)]
        if isinstance(error, SeriesError):
            error.finished = done
        raise error
    return done


def death(name: str, code: int) -> DiedError:
    """Return the error for a process that died."""
    reason = "perhaps for lack of memory; use fewer processes with --jobs"
    return DiedError(f"the process of {name} died (exit code {code}), {reason}")


class Workers:
    """The processes that are running: each calls ``work(number, on_epoch)`` and sends back what that returns."""

    def __init__(self, work: Callable[..., Any], threads: int, *, report: bool = False) -> None:
        self.work, self.threads, self.report = work, threads, report
        self.running: dict[Connection, tuple[int, Any]] = {}
        self.context = get_context("fork")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(lambda _: True)

    def stop(self, which: Callable[[int], bool]) -> None:
        """Kill the runs with these numbers."""
        for pipe, (number, process) in list(self.running.items()):
            if which(number):
                process.kill()
                process.join()
                pipe.close()
                del self.running[pipe]

    def start(self, number: int) -> None:
        """Start a run."""
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=self._live, args=(theirs, number, os.getpid()), daemon=True)
        with delayed(*SIGNALS), without_fork_warnings():
            process.start()
            theirs.close()
            self.running[ours] = number, process

    def hear(self, timeout: float | None = None) -> Iterator[tuple[int, str, Any]]:
        """Wait for messages ``(number, kind, value)``; the last of a process is a run, an error or its death."""
        for pipe in connection.wait(list(self.running), timeout=timeout):
            assert isinstance(pipe, Connection)  # noqa: S101
            if pipe not in self.running:  # stopped since
                continue
            number, process = self.running[pipe]
            try:
                kind, value = pipe.recv()
            except (EOFError, OSError):
                process.join()
                kind, value = "died", process.exitcode
            if kind != "epoch":
                del self.running[pipe]
                pipe.close()
                process.join()
            yield number, kind, _with_tensors(value) if isinstance(value, Run) else value

    def interrupt(self) -> dict[int, Run]:
        """End all runs and return those that have a best state."""
        for _, process in self.running.values():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        runs: dict[int, Run] = {}
        while self.running and connection.wait(list(self.running), timeout=GRACE):
            runs |= {number: value for number, kind, value in self.hear() if kind == "run"}
        return runs

    def _live(self, pipe: Connection, number: int, parent: int) -> None:
        """Do one run in a new process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal's Ctrl-C only the first process takes notice
        signal.signal(signal.SIGTERM, _interrupt_once)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # blocked since before the fork
        torch.set_num_threads(self.threads)
        warnings.simplefilter("ignore")  # the first process has shown them

        def tell(epoch: Epoch) -> None:
            if os.getppid() != parent:
                os._exit(1)
            if self.report:
                pipe.send(("epoch", epoch))

        try:
            result = self.work(number, tell)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # half a message would be worth nothing
            pipe.send(("run", _without_tensors(result) if isinstance(result, Run) else result))
        except KeyboardInterrupt:
            pipe.send(("interrupted", None))
        except Exception as error:
            try:
                pipe.send(("error", error))
            except Exception:  # it cannot be sent
                pipe.send(("error", NFCError(f"{type(error).__name__}: {error}")))


def end_with_parent(parent: int) -> None:
    """Let the system kill this process, a fork on Linux, as soon as the process that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


def _interrupt_once(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def delayed(*numbers: signal.Signals) -> Iterator[None]:
    """Delay signals until the block ends, and block them in processes that are started meanwhile.

    A new process inherits the mask: a half-started one that was interrupted would go on as a copy of this one, or print
    a traceback. For this process the mask is not enough, because another of its threads may receive the signal, and
    Python then interrupts the main thread all the same.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    arrived: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    handlers = {n: signal.signal(n, lambda got, _: arrived.append(got)) for n in numbers} if in_main_thread else {}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for signal_number in dict.fromkeys(arrived):
        signal.raise_signal(signal_number)


@contextmanager
def without_fork_warnings() -> Iterator[None]:
    """Python 3.12 warns of forks beside threads; ours hold no lock that a run would need."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield


def _without_tensors(run: Run) -> Run:
    """Return the run with arrays in place of tensors, which would be sent as files."""
    return replace(run, state={k: v.numpy() for k, v in run.state.items()})  # type: ignore[misc]


def _with_tensors(run: Run) -> Run:
    """Undo `_without_tensors`."""
    return replace(run, state={name: torch.from_numpy(np.array(value)) for name, value in run.state.items()})
