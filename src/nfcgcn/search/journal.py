"""The file of a search: a journal of Optuna's, which several processes can share and a kill can cut short."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nfcgcn.errors import NFCError
from nfcgcn.files import sync
from nfcgcn.settings import one_line

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = "nfcgcn tune"
"""The name of the study in its file."""
MOST_BYTES = 64 * 2**20
"""The largest file that is read: about ten thousand trials."""


class TuningError(NFCError):
    """A search that cannot begin, continue, or reach a result."""


class Presence:
    """A lock on a file that processes share while they search; the system drops it when a process dies.

    Windows and some network file systems do not have these locks. There, every process assumes that it is the only
    one, and the file must not be shared.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise TuningError(f"{path} is not a regular file; choose another file with --study")
        self._file = path.open("ab")
        sync(path.parent)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Yield whether no other process holds the lock; if so, none can take it until the block ends."""
        alone = self._lock(exclusive=True)
        try:
            yield alone
        finally:
            self._lock(exclusive=False)

    def close(self) -> None:
        self._file.close()

    def _lock(self, *, exclusive: bool) -> bool:
        if fcntl is None:
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True


def check_journal(path: Path, *, repair: bool) -> bool:
    """Return whether a file holds a study; raise an error if it is too large or not a journal of ours.

    With `repair`, a last line that a killed process left unfinished is cut off: Optuna would append to that line.
    """
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise TuningError(f"{path} is too large for a study; choose another file with --study")
    *lines, unfinished = content.split(b"\n")
    records = [json.loads(line) for line in lines]
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or type(record.get("op_code")) is not int:
            raise ValueError(f"line {number} is not an Optuna record")
    names = {record["study_name"] for record in records if "study_name" in record}
    if content and names != {NAME}:
        raise ValueError("it holds another study, or none")
    if unfinished and repair:
        os.truncate(path, len(content) - len(unfinished))
    return bool(content)


@contextmanager
def plain_errors(path: Path | None) -> Iterator[None]:
    """Turn any error that Optuna raises because of a file into one of ours."""
    try:
        yield
    except NFCError:
        raise
    except Exception as error:
        if path is None:
            raise
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):  # Optuna may fail again while it clears up
            cause = cause.__context__
        if isinstance(cause, OSError):
            reason = cause.strerror or one_line(cause)
            raise TuningError(f"cannot use {path}: {reason}; choose another file with --study") from error
        reason = one_line(error) or type(error).__name__
        raise TuningError(
            f"{path} is damaged or not a study of `nfcgcn tune`: {reason}; choose another file with --study"
        ) from error
