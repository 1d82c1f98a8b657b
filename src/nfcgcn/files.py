"""Files: read with clear errors and bounded sizes, written completely or not at all."""

from __future__ import annotations

import errno
import json
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from nfcgcn.errors import DatasetError, NFCError, WriteError

MAX_BYTES = 8 * 2**30
"""A file may unpack to at most this many bytes."""
MAX_RATIO = 200
"""If a file unpacks to more than FREE_BYTES, it may unpack to at most this many times its own size. Single arrays of
normal files reach a thousand times (all ones), complete files about twenty."""
FREE_BYTES = 64 * 2**20


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the system while reading `path` into one of our errors."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DatasetError(f"{path} is a folder, not a file")
        if stat.S_ISREG(mode):
            path.open("rb").close()  # some readers call a file that may not be read damaged
        yield
    except FileNotFoundError as error:
        raise DatasetError(f"{path} does not exist") from error
    except OSError as error:
        reason = " ".join((error.strerror or str(error)).split())[:200]
        raise DatasetError(f"cannot read {path}: {reason}") from error


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


def check_free(folder: Path, *, force: bool) -> None:
    """Refuse a folder that is not empty, unless it holds an earlier run and `force` is on."""
    with _writing(folder):
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return
    if not (folder / "config.json").is_file():
        raise WriteError(f"{folder} exists and is no run of nfcgcn; choose another folder with --out")
    if not force:
        raise WriteError(f"{folder} holds an earlier run; choose another folder with --out or replace it by --force")


@contextmanager
def new_folder(folder: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder to write to; it replaces `folder` only if the block ends without an error."""
    check_free(folder, force=force)
    with _writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            draft.chmod(0o755)
            yield draft
            if folder.exists():
                old = draft.with_name(draft.name + "-old")
                folder.rename(old)
                draft.rename(folder)
                shutil.rmtree(old)
            else:
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before starting work whose result would be lost."""
    with _writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file to write; it replaces `path` only if the block ends without an error."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as made:
            draft = Path(made.name)
        try:
            yield draft
            draft.chmod(0o644)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


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
    write_bytes(path, text.encode())


def to_json(value: Any) -> str:
    """Write a value as indented JSON text."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
