"""Files and folders that are written: completely or not at all, and over nothing that is not ours."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nfcgcn.errors import DatasetError, WriteError
from nfcgcn.files.drafts import DRAFT, OLD, draft_beside, make_file, make_parents, put, real, recover, sync, try_out
from nfcgcn.files.inputs import parse_json, read_regular

UNFINISHED = "unfinished"
"""The folder, inside that of a run, with what is kept of the run before it ends."""
MARKS = {"run": ("config.json", "sha256"), "store": ("meta.json", "files")}
"""By what a folder holds: the file by which we recognise it as ours, and the key under which that lists the others."""
LATER = {"report.html", "explore.html", "layout.safetensors", UNFINISHED}
"""What commands add to the folder of a run later."""
MOST_JSON = 256 * 2**20
"""A larger file of JSON is not ours."""


def check_free(folder: Path, *, force: bool, resume: bool = False, kind: str = "run") -> None:
    """Refuse a folder that cannot be made, or that is not empty and holds no earlier run that `force` may replace.

    With `resume` an unfinished run may be in it. `kind` is what is to be written: a "run" or a "store".
    """
    with _writing(folder):
        place = real(folder)
        recover(place)
        if place.is_dir() and os.path.ismount(place):
            raise OSError(errno.EBUSY, "a disk is mounted there; name a folder below it")
        try_out(place)
        if not place.exists() or (place.is_dir() and not any(place.iterdir())):
            return
    own = _own_files(place, kind)
    unfinished = place / UNFINISHED
    is_unfinished = kind == "run" and unfinished.is_dir() and not unfinished.is_symlink()
    if own is None and (not is_unfinished or len(list(place.iterdir())) > 1):
        raise WriteError(f"{folder} exists and is not a {kind} of nfcgcn; choose another folder with --out")
    others = sorted(path.name for path in place.iterdir() if own and path.name not in own and not _is_hidden(path))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise WriteError(
            f"{folder} holds {others[0]}{more} beside an earlier {kind}, which would be lost; move it away, or choose "
            "another folder with --out"
        )
    if is_unfinished and not (force or resume):
        raise WriteError(f"{folder} holds an unfinished run; go on with --resume, or replace it with --force")
    if not (force or (resume and is_unfinished)):
        remedy = "choose another folder with --out, or replace it with --force"
        raise WriteError(f"{folder} holds an earlier {kind}; {remedy}")


@contextmanager
def new_folder(folder: Path, *, force: bool = False, resume: bool = False, kind: str = "run") -> Iterator[Path]:
    """Yield an empty folder to write to; it replaces `folder` only if the block ends without an error.

    All its files are on the disk before it has its name. For `force`, `resume` and `kind` see :func:`check_free`.
    """
    check_free(folder, force=force, resume=resume, kind=kind)
    with _writing(folder):
        place = real(folder)
        make_parents(place, [])
        with draft_beside(place, os.mkdir) as draft:
            yield draft
            for path in draft.rglob("*"):
                sync(path)
            sync(draft)
            put(draft, place)
            sync(place.parent)


def check_writable(path: Path, inputs: Iterable[Path] = (), *, outside: Path | None = None) -> None:
    """Refuse a file that cannot be written, before starting work that would be lost.

    None of the `inputs` may be written, and nothing in the folder `outside`, which is written as a whole.
    """
    with _writing(path):
        place = real(path)
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if place.exists() and not place.is_file():
            raise OSError(errno.EINVAL, "it is not a regular file")
        if any(place == real(other) for other in inputs):
            raise OSError(errno.EINVAL, "it is read as input")
        if outside is not None and real(outside) in (place, *place.parents):
            raise OSError(errno.EINVAL, f"it lies in {outside}, which is written as a whole")
        try_out(place)


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
        place = real(path)
        make_parents(place, [])
        with draft_beside(place, make_file) as draft:
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


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}; choose another place") from error


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
