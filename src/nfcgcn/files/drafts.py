"""What is being written: hidden drafts beside their place, which take it in one step, or are removed.

A draft, and an old folder on its way out, lie beside the place they belong to, under hidden names by which they are
found again after a process was killed. As long as their process lives, it holds a lock on them.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

DRAFT, OLD = ".nfcgcn-draft", ".nfcgcn-old"
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux


def recover(place: Path) -> None:
    """Finish what a killed process left half done at `place`: put a folder in, and remove drafts that nobody needs."""
    with suppress(OSError):
        for kind in (OLD, DRAFT):
            for left in sorted(place.parent.glob(glob.escape(_prefix(place)) + "*" + kind)):
                with _lock(left) as ours:
                    if kind == OLD and ours is not False and not place.exists():
                        draft = left.with_name(left.name.removesuffix(OLD) + DRAFT)  # it was complete, see `put`
                        (draft if draft.exists() else left).rename(place)
                    if ours:
                        _remove(left)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk; a folder where the system can do that."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that has no such thing
            raise
    finally:
        os.close(handle)


def real(path: Path) -> Path:
    """Follow links, so that what they point to is replaced and not the link."""
    return Path(os.path.realpath(path))


def try_out(place: Path) -> None:
    """Make a file beside `place` and remove it, together with the folders that had to be made for it."""
    made: list[Path] = []
    try:
        make_parents(place, made)
        with suppress(FileNotFoundError):
            place.stat()  # a name that is too long
        with draft_beside(place, make_file):
            pass
    finally:
        for parent in reversed(made):
            with suppress(OSError):
                parent.rmdir()


def make_parents(place: Path, made: list[Path]) -> None:
    """Make the folders above `place` that are missing, and add them to `made`."""
    for parent in reversed([parent for parent in place.parents if not parent.exists()]):
        parent.mkdir(exist_ok=True)
        made.append(parent)
        sync(parent.parent)


def make_file(path: Path) -> None:
    """Make an empty file that nobody else made."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _prefix(place: Path) -> str:
    # A name has at most 255 bytes: of a long one the beginning and a checksum must do.
    return f".{place.name[:40]}-{hashlib.sha256(os.fsencode(place.name)).hexdigest()[:8]}-"


@contextmanager
def draft_beside(place: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Make a hidden file or folder beside `place`; what is there under its name when the block ends is removed."""
    recover(place)
    while True:
        draft = place.with_name(_prefix(place) + secrets.token_hex(4) + DRAFT)
        try:
            make(draft)
            with _lock(draft) as ours:
                if ours is not False:  # else another process took it for left over before we had locked it
                    yield draft
                    return
        finally:
            _remove(draft)


@contextmanager
def _lock(path: Path) -> Iterator[bool | None]:
    """Lock a file or folder until the block ends or the process dies; yield whether it is ours, None without locks."""
    if fcntl is None:
        yield None
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        ours: bool | None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = path.exists() and os.path.samestat(os.fstat(handle), path.stat())
        except BlockingIOError:
            ours = False
        except OSError:  # a file system without locks
            ours = None
        yield ours
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def put(draft: Path, place: Path) -> None:
    """Give a complete folder its place; at every moment the old folder or the new one is there or can be recovered."""
    if not place.exists():
        draft.rename(place)
    elif not _exchange(draft, place):
        old = draft.with_name(draft.name.removesuffix(DRAFT) + OLD)
        with _lock(place):
            try:
                place.rename(old)
                draft.rename(place)
            finally:
                if not place.exists():
                    old.rename(place)
                _remove(old)


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places in one step; return False where the system or the file system cannot do that."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))
