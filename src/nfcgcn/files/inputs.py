"""Files that are read: with clear errors, from regular files of bounded size."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from nfcgcn.errors import DatasetError, NFCError, visible

MAX_BYTES = 8 * 2**30
"""A file may unpack to at most this many bytes."""
MAX_RATIO = 200
"""If a file unpacks to more than FREE_BYTES, it may unpack to at most this many times its own size. Single arrays of
normal files reach a thousand times (all ones), complete files about twenty."""
FREE_BYTES = 64 * 2**20


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the system while reading `path` into one of our errors."""
    if "\0" in str(path):
        raise DatasetError(f"{visible(path)} is not a path: it holds a zero byte")
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DatasetError(f"{path} is a folder, not a file")
        if not stat.S_ISREG(mode):  # a pipe or a device may never end, and many files are read more than once
            raise DatasetError(f"{path} is not a regular file")
        path.open("rb").close()  # some readers call a file that may not be read damaged
        yield
    except FileNotFoundError as error:
        raise DatasetError(f"{path} does not exist") from error
    except OSError as error:
        reason = " ".join((error.strerror or str(error)).split())[:200]
        raise DatasetError(f"cannot read {path}: {reason}") from error


def cache_folder() -> Path | None:
    """Return the user's folder for what can be had again; None if NFCGCN_CACHE is not set and pooch is missing."""
    root = os.environ.get("NFCGCN_CACHE")
    if root:
        return Path(root).expanduser()
    try:
        import pooch
    except ImportError:
        return None
    return Path(pooch.os_cache("nfcgcn"))


def is_folder(path: Path) -> bool:
    """Return whether `path` is a folder; False if it cannot be accessed."""
    try:
        return path.is_dir()
    except OSError:
        return False


@contextmanager
def parsing(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises for damaged bytes into one of our errors."""
    try:
        yield
    except (NFCError, OSError):
        raise
    except MemoryError as error:
        raise DatasetError(
            f"{path} needs more memory than there is; read less of it, or on a larger machine"
        ) from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DatasetError(f"{path} is not a valid {kind} file: {reason}") from error


def check_size(path: Path, unpacked: int) -> None:
    """Refuse a file that would unpack to more than we read, or to more than a normal file of its size can."""
    if unpacked > MAX_BYTES:
        raise DatasetError(
            f"{path} would unpack to {unpacked / 2**30:.1f} GiB; at most {MAX_BYTES / 2**30:g} GiB are read from a file"
        )
    size = path.stat().st_size
    if unpacked > FREE_BYTES and unpacked > MAX_RATIO * size:
        raise DatasetError(
            f"{path} would unpack to {unpacked / 2**20:.0f} MiB, {unpacked // max(size, 1)} times its size: "
            f"refused as a decompression bomb (at most {MAX_RATIO} times)"
        )


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes; anything else, as a pipe or a device, is refused.

    The caller handles errors of the system, :class:`FileNotFoundError` among them.
    """
    with open_regular(path, most) as file:
        return file.read(min(most, os.fstat(file.fileno()).st_size))  # a buffer of the size asked for is made first


def open_regular(path: Path, most: int) -> BinaryIO:
    """Open a regular file of at most `most` bytes; see :func:`read_regular`."""
    # Without O_NONBLOCK, opening a named pipe would wait for somebody to write to it.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_size <= most:
        return os.fdopen(handle, "rb")
    os.close(handle)
    if not stat.S_ISREG(status.st_mode):
        raise DatasetError(f"{path} is not a regular file")
    raise DatasetError(f"{path} has {status.st_size / 2**20:.0f} MiB; at most {most / 2**20:.0f} MiB are read")


def to_json(value: Any) -> str:
    """Write a value as indented JSON text."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def parse_json(text: bytes) -> Any:
    """Read JSON, in which every number must be finite."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is not a finite number")
    return number
