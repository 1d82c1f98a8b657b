"""Files: read with clear errors and bounded sizes, written completely or not at all."""

from __future__ import annotations

import ctypes
import errno
import glob
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from nfcgcn.errors import DatasetError, NFCError, WriteError, visible

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAX_BYTES = 8 * 2**30
"""A file may unpack to at most this many bytes."""
MAX_RATIO = 200
"""If a file unpacks to more than FREE_BYTES, it may unpack to at most this many times its own size. Single arrays of
normal files reach a thousand times (all ones), complete files about twenty."""
FREE_BYTES = 64 * 2**20
UNFINISHED = "unfinished"
"""The folder, inside that of a run, with what is kept of the run before it ends."""
MARKS = {"run": ("config.json", "sha256"), "store": ("meta.json", "files")}
"""By what a folder holds: the file by which we recognise it as ours, and the key under which that lists the others."""
LATER = {"report.html", "explore.html", "layout.safetensors", UNFINISHED}
"""What commands add to the folder of a run later."""
MOST_JSON = 256 * 2**20
"""A larger file of JSON is not ours."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the system while reading `path` into one of our errors."""
    if "\0" in str(path):
        raise DatasetError(f"{visible(path)} is no path: it holds a zero byte")
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
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and found.st_size <= most:
        return os.fdopen(handle, "rb")
    os.close(handle)
    if not stat.S_ISREG(found.st_mode):
        raise DatasetError(f"{path} is not a regular file")
    raise DatasetError(f"{path} has {found.st_size / 2**20:.0f} MiB; at most {most / 2**20:.0f} MiB are read")


def check_free(folder: Path, *, force: bool, resume: bool = False, kind: str = "run") -> None:
    """Refuse a folder that cannot be made, or that is not empty and holds no earlier run that `force` may replace.

    With `resume` an unfinished run may be in it. `kind` is what is to be written: a "run" or a "store".
    """
    with _writing(folder):
        place = _real(folder)
        recover(place)
        if place.is_dir() and os.path.ismount(place):
            raise OSError(errno.EBUSY, "a disk is mounted there; name a folder below it")
        _try_out(place)
        if not place.exists() or (place.is_dir() and not any(place.iterdir())):
            return
    own = _own_files(place, kind)
    unfinished = place / UNFINISHED
    is_unfinished = kind == "run" and unfinished.is_dir() and not unfinished.is_symlink()
    if own is None and (not is_unfinished or len(list(place.iterdir())) > 1):
        raise WriteError(f"{folder} exists and is no {kind} of nfcgcn; choose another folder with --out")
    others = sorted(path.name for path in place.iterdir() if own and path.name not in own and not _is_hidden(path))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise WriteError(
            f"{folder} holds {others[0]}{more} beside an earlier {kind}, which would be lost; move it away, or choose "
            "another folder with --out"
        )
    if is_unfinished and not (force or resume):
        raise WriteError(f"{folder} holds an unfinished run; go on with --resume or replace it by --force")
    if not (force or (resume and is_unfinished)):
        raise WriteError(f"{folder} holds an earlier {kind}; choose another folder with --out or replace it by --force")


@contextmanager
def new_folder(folder: Path, *, force: bool = False, resume: bool = False, kind: str = "run") -> Iterator[Path]:
    """Yield an empty folder to write to; it replaces `folder` only if the block ends without an error.

    All its files are on the disk before it has its name. For `force`, `resume` and `kind` see :func:`check_free`.
    """
    check_free(folder, force=force, resume=resume, kind=kind)
    with _writing(folder):
        place = _real(folder)
        _make_parents(place, [])
        with _draft(place, os.mkdir) as draft:
            yield draft
            for path in draft.rglob("*"):
                sync(path)
            sync(draft)
            _put(draft, place)
            sync(place.parent)


def check_writable(path: Path, inputs: Iterable[Path] = (), *, outside: Path | None = None) -> None:
    """Refuse a file that cannot be written, before starting work that would be lost.

    None of the `inputs` may be written, and nothing in the folder `outside`, which is written as a whole.
    """
    with _writing(path):
        place = _real(path)
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if place.exists() and not place.is_file():
            raise OSError(errno.EINVAL, "it is not a regular file")
        if any(place == _real(other) for other in inputs):
            raise OSError(errno.EINVAL, "it is read as input")
        if outside is not None and _real(outside) in (place, *place.parents):
            raise OSError(errno.EINVAL, f"it lies in {outside}, which is written as a whole")
        _try_out(place)


def in_folder(folder: Path, name: str) -> Path:
    """Return the path of a file that we write into a folder which others may have made; refuse a link there.

    What a link leads to would be written over, and may be any file of the user's.
    """
    path = folder / name
    if path.is_symlink():
        raise WriteError(f"{path} is a link, which nfcgcn does not write to; remove it")
    return path


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Yield the path of an empty file to write; it replaces `path` only if the block ends without an error.

    Its content is on the disk before it has its name. Its mode is what the umask leaves of rw-rw-rw-.
    """
    with _writing(path):
        place = _real(path)
        _make_parents(place, [])
        with _draft(place, _make_file) as draft:
            yield draft
            sync(draft)
            draft.replace(place)
            sync(place.parent)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write bytes to; it replaces `path` only if the block ends without an error."""
    with draft_of(path) as draft, draft.open("wb") as file:
        yield file


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    with new_file(path) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    write_bytes(path, text.encode(errors="backslashreplace"))  # half a surrogate pair, from a path that is not UTF-8


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


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}; choose another place") from error


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


# A draft, and an old folder on its way out, lie beside the place they belong to, under hidden names by which they are
# found again after a process was killed. As long as their process lives, it holds a lock on them.

DRAFT, OLD = ".nfcgcn-draft", ".nfcgcn-old"
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux


def recover(place: Path) -> None:
    """Finish what a killed process left half done at `place`: put a folder in, and remove drafts that nobody needs."""
    with suppress(OSError):
        for kind in (OLD, DRAFT):
            for left in sorted(place.parent.glob(glob.escape(_prefix(place)) + "*" + kind)):
                with _lock(left) as ours:
                    if kind == OLD and ours is not False and not place.exists():
                        draft = left.with_name(left.name.removesuffix(OLD) + DRAFT)  # it was complete, see `_put`
                        (draft if draft.exists() else left).rename(place)
                    if ours:
                        _remove(left)


def _own_files(place: Path, kind: str) -> set[str] | None:
    """Return the names of what a folder of ours may hold; None if it is not ours, empty if it does not say."""
    mark, listed = MARKS[kind]
    try:
        description = parse_json(read_regular(place / mark, MOST_JSON))
    except (OSError, ValueError, RecursionError, DatasetError):
        return None
    if not isinstance(description, dict) or "format" not in description:
        return None
    names = description.get(listed)
    return {mark, *names, *LATER} if isinstance(names, dict) else set()


def _is_hidden(path: Path) -> bool:
    """Return whether a path is what a killed process of ours left behind."""
    return path.name.endswith((DRAFT, OLD))


def _real(path: Path) -> Path:
    """Follow links, so that what they point to is replaced and not the link."""
    return Path(os.path.realpath(path))


def _try_out(place: Path) -> None:
    """Make a file beside `place` and remove it, together with the folders that had to be made for it."""
    made: list[Path] = []
    try:
        _make_parents(place, made)
        with suppress(FileNotFoundError):
            place.stat()  # a name that is too long
        with _draft(place, _make_file):
            pass
    finally:
        for parent in reversed(made):
            with suppress(OSError):
                parent.rmdir()


def _make_parents(place: Path, made: list[Path]) -> None:
    """Make the folders above `place` that are missing, and add them to `made`."""
    for parent in reversed([parent for parent in place.parents if not parent.exists()]):
        parent.mkdir(exist_ok=True)
        made.append(parent)
        sync(parent.parent)


def _make_file(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _prefix(place: Path) -> str:
    # A name has at most 255 bytes: of a long one the beginning and a checksum must do.
    return f".{place.name[:40]}-{hashlib.sha256(os.fsencode(place.name)).hexdigest()[:8]}-"


@contextmanager
def _draft(place: Path, make: Callable[[Path], None]) -> Iterator[Path]:
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


def _put(draft: Path, place: Path) -> None:
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
