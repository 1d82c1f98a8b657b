"""A pool of threads for the compiled loops that does not suffer from other busy processes.

OpenMP's threads meet at the end of every parallel loop, and wait there, spinning, also for one that the system has put
to sleep: beside other busy processes a step of 10 ms takes a second. Here the calling thread does the tasks of a loop
itself, and others join in as soon as they run. One that has not begun by the end is not waited for. While waiting for a
thread that has begun takes too long, the pool leaves the others asleep.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from nfcgcn.kernels.cpu.compiler import compiled, peek, relax
from nfcgcn.kernels.threads import allowed

SHARE = 40_000
"""Nanoseconds of work that a thread must get to be worth inviting."""
SPINS = 10_000
"""Looks at the state, some tenths of a millisecond in all, before a thread goes to sleep."""
TURN, OPEN, LEFT = 0, 8, 16
"""Where the state has its numbers, in different cache lines: tasks taken, the open job, threads that have left it."""
TOO_LONG = 2e-4
"""Seconds of waiting for other threads that count as trouble, if the caller's own part did not take as long."""
REST, LONGEST_REST = 0.005, 0.5
"""Seconds without other threads after trouble: the first time, and at most; each time twice as long as before."""


@compiled
def _see(state: Any, seen: Any, spins: Any) -> Any:
    """Wait a while for a job other than `seen` whose caller is at work; return its number, or 0."""
    for _ in range(spins):
        job = peek(state, OPEN)
        if job != 0 and job != seen and peek(state, TURN) > 0:
            return job
        relax()
    return 0


@compiled
def _settle(state: Any, joined: Any, spins: Any) -> Any:
    """Wait a while until all that joined have left; return whether they have."""
    for _ in range(spins):
        if peek(state, LEFT) >= joined:
            return True
        relax()
    return False


class _Pool:
    """Threads that take part in one loop at a time."""

    def __init__(self) -> None:
        self.start_anew()

    def start_anew(self) -> None:
        """Forget all threads: after a fork the child has none of its parent's."""
        self._state = np.zeros(24, np.int64)
        self._turn = self._state[TURN : TURN + 1]
        self._taken, self._lock = threading.Lock(), threading.Lock()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._all_left = threading.Lock()
        self._all_left.acquire()
        self._count = self._asleep = self._jobs = 0
        self._job: tuple[Callable[..., None], tuple[Any, ...]] | None = None
        self._wanted = self._joined = 0
        self._caller_waits = False
        self._error: BaseException | None = None
        self._alone_until, self._rest = 0.0, REST

    def run(self, loop: Callable[..., None], others: int, arguments: tuple[Any, ...]) -> bool:
        """Run a loop with the help of others; return False, and do nothing, if the pool is at work or had trouble."""
        if time.perf_counter() < self._alone_until or not self._taken.acquire(blocking=False):
            return False
        try:
            self._open(loop, others, arguments)
            start = time.perf_counter()
            try:
                loop(self._turn, *arguments)
            finally:
                self._close(start)
            if self._error is not None:
                error, self._error = self._error, None
                raise error
        finally:
            self._taken.release()
        return True

    def _open(self, loop: Callable[..., None], others: int, arguments: tuple[Any, ...]) -> None:
        while self._count < others:
            self._count += 1
            threading.Thread(target=self._serve, name=f"nfcgcn-{self._count}", daemon=True).start()
        self._jobs += 1
        self._job, self._wanted, self._joined = (loop, arguments), others, 0
        self._state[TURN] = self._state[LEFT] = 0
        self._state[OPEN] = self._jobs
        for _ in range(min(self._asleep, others) - self._wake.qsize()):
            self._wake.put(None)

    def _close(self, start: float) -> None:
        """Let nobody else begin, and wait for those who have; the loop began at `start`."""
        end = time.perf_counter()
        with self._lock:
            self._state[OPEN] = 0
            self._job = None
            joined = self._joined
        if not joined or _settle(self._state, joined, SPINS):
            self._rest = REST
            return
        with self._lock:
            self._caller_waits = waits = int(self._state[LEFT]) < joined
        if waits:
            self._all_left.acquire()
        now = time.perf_counter()
        if now - end > max(TOO_LONG, end - start):
            self._alone_until = now + self._rest
            self._rest = min(2 * self._rest, LONGEST_REST)

    def _serve(self) -> None:
        """Do what a thread of the pool does."""
        state, seen = self._state, 0
        while True:
            number = _see(state, seen, SPINS) or int(state[OPEN])
            if number in (0, seen):
                self._asleep += 1
                self._wake.get()
                self._asleep -= 1
                number = int(state[OPEN])
            with self._lock:
                job = self._job
                if job is None or number == seen or state[OPEN] != number or self._joined >= self._wanted:
                    seen = number
                    continue
                self._joined += 1
            seen = number
            loop, arguments = job
            try:
                loop(self._turn, *arguments)
            except BaseException as error:  # no memory, for example; raised again where the loop was called
                self._error = error
            del loop, arguments, job
            with self._lock:
                state[LEFT] += 1
                if self._caller_waits and state[LEFT] == self._joined:
                    self._caller_waits = False
                    self._all_left.release()


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.start_anew)


def run(loop: Callable[..., None], cost: float, *arguments: Any) -> None:
    """Run a compiled loop on as many threads as pay; `cost` is roughly how many nanoseconds one thread needs.

    Every thread calls ``loop(turn, *arguments)`` and takes tasks by the counter ``turn`` until none is left. A short
    loop runs on the calling thread alone.
    """
    others = min(allowed(), int(cost // SHARE)) - 1 if cost >= 2 * SHARE else 0
    if others < 1 or not _pool.run(loop, others, arguments):
        loop(np.zeros(1, np.int64), *arguments)
