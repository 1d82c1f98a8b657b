"""How many threads may work: what the machine grants, what the user wants, and who gets them."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import torch

CGROUP = Path("/sys/fs/cgroup")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Options of glibc's `mallopt`."""

_scope = threading.local()


def available() -> int:
    """Return how many cores this process may use: its affinity mask and its CPU quota decide."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, quota())))


@cache
def quota(root: Path = CGROUP, membership: Path = Path("/proc/self/cgroup")) -> float:
    """Return how many cores' worth of time the control groups (version 1 or 2) grant, infinity without a limit."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:  # not Linux
        return math.inf
    limits = [math.inf]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root if not controllers else next((d for d in (root / controllers, root / "cpu") if d.is_dir()), root)
        place = top / path.lstrip("/")
        # In a container the path is often that of the host and does not exist; its own limits are then at the top.
        for folder in (place, *place.parents):
            limits.append(_limit(folder))
            if folder == top:
                break
    return min(limits)


def _limit(group: Path) -> float:
    """Return the limit that one control group sets."""
    try:
        if (group / "cpu.max").exists():
            granted, period = (group / "cpu.max").read_text().split()
        else:
            granted, period = ((group / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return math.inf if granted in ("max", "-1") else int(granted) / int(period)
    except (OSError, ValueError):
        return math.inf


def allowed() -> int:
    """Return how many threads a kernel may use: as many as torch does, but no more than there are cores for."""
    wanted: int = getattr(_scope, "threads", 0) or torch.get_num_threads()
    return min(wanted, available())


def settle_in() -> None:
    """Prepare a process that is all ours: no more threads than cores, and memory that is freed is kept.

    Every step allocates tensors of some MiB. If their memory went back to the system each time, the system would clear
    it each time: that took a third of GAT's time on PubMed, and more than half of the time of NFC-GCN with
    `representation_dropout`.
    """
    torch.set_num_threads(min(torch.get_num_threads(), available()))
    with suppress(AttributeError, OSError, TypeError):  # another C library than glibc
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def one_pool() -> Iterator[None]:
    """Let the kernels have all threads inside the block, and torch one, so that two pools never wait for each other.

    What torch itself does in a step is short once the kernels run. The number of torch's threads is restored
    afterwards.
    """
    before = torch.get_num_threads()
    if getattr(_scope, "threads", 0) or before == 1:
        yield
        return
    _scope.threads = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _scope.threads = 0
