"""How much memory there is, and a refusal of what would need more, before any of it is taken."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nfcgcn.errors import ConfigError, NFCError, OutOfMemoryError, visible


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Refuse work for which `what` is the reason if it would need more bytes than are available."""
    left = available()
    if needed > left:
        raise ConfigError(
            f"{what} would need about {in_words(needed)} of memory, but only {in_words(left)} are available; {remedy}"
        )


@contextmanager
def enough_memory() -> Iterator[None]:
    """Say in one line if memory runs out inside the block; an estimate is no promise, and others take memory, too."""
    try:
        yield
    except Exception as error:
        if not is_shortage(error):
            raise
        asked = re.search(r"tried to allocate (\d+) bytes", str(error))  # by torch, in a line about its own source
        reason = f"{in_words(float(asked[1]))} more were asked for" if asked else _first_line(error) or "none is left"
        raise OutOfMemoryError(f"there is not enough memory: {reason}; use a smaller graph or settings") from error


def is_shortage(error: Exception) -> bool:
    """Say whether an error of Python, NumPy or torch is a lack of memory."""
    if isinstance(error, NFCError):
        return False
    of_system = isinstance(error, OSError) and error.errno == errno.ENOMEM  # a fork, or a file that is mapped
    if isinstance(error, ImportError):  # a library that has no room to be loaded
        return "failed to map segment" in str(error)
    text = str(error) if isinstance(error, RuntimeError) else ""
    of_torch = ("memory" in text and "alloc" in text) or "bad_alloc" in text
    return isinstance(error, MemoryError) or of_system or of_torch


def _first_line(error: Exception) -> str:
    text = error.strerror or "" if isinstance(error, OSError) else str(error)
    return visible(text.strip().partition("\n")[0])[:200]


def in_words(size: float) -> str:
    """Write a number of bytes for people."""
    for unit, name in ((2**60, "EiB"), (2**50, "PiB"), (2**40, "TiB")):
        if size >= 10 * unit:
            return f"{size / unit:,.0f} {name}" if size < 1000 * 2**60 else "more than 1,000 EiB"
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.1f} MiB"


def available(root: Path = Path("/")) -> float:
    """Return how many bytes this process can still take: the least of what machine, container and limits leave."""
    return min((_machine(root), *_containers(root), _own_limit(root)), default=math.inf)


def _machine(root: Path) -> float:
    left = _field(root / "proc/meminfo", "MemAvailable:")
    if left is not None:
        return left * 1024
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # another system: nothing is known
        return math.inf


def _containers(root: Path) -> Iterator[float]:
    """Yield what each control group that this process belongs to leaves; groups above it count as well."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds == "":  # version 2
            names = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            names = ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        top = root / names[0]
        inside = top / path.lstrip("/")
        for group in (folder for folder in (inside, *inside.parents) if folder.is_relative_to(top)):
            limit, used = (_text(group / name).strip() for name in names[1:3])
            if limit.isdecimal() and used.isdecimal():
                cached = _field(group / "memory.stat", names[3]) or 0.0  # given back when somebody needs it
                yield max(0.0, float(limit) - float(used) + cached)


def _own_limit(root: Path) -> float:
    try:
        import resource
    except ImportError:
        return math.inf
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = _field(root / "proc/self/status", "VmSize:")
    return math.inf if limit == resource.RLIM_INFINITY else max(0.0, limit - (used or 0.0) * 1024)


def _field(path: Path, name: str) -> float | None:
    """Return the number after `name` in a file with one pair per line."""
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdecimal():
            return float(words[1])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
