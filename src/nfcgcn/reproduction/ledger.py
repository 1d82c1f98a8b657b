"""The file of finished runs: a line of JSON each, only ever added to, shared by any number of processes.

A line is written under a lock and pushed to the disk, so that a kill at any moment costs no more than the runs under
way: a line it cuts short counts as unwritten, and is removed before the next is added.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from nfcgcn.errors import NFCError
from nfcgcn.settings import one_line

FILE = "cells.jsonl"
LOCK = ".lock"
MOST_BYTES = 512 * 2**20
"""What a ledger holds at most."""
Record = dict[str, Any]
Key = tuple[str, int, str]


class LedgerError(NFCError):
    """A folder of results that cannot be read or written."""


def key_of(setup: str, seed: int, where: Mapping[str, str]) -> Key:
    """Return what no two lines share: the setup's id, the seed, and the device and versions."""
    return setup, seed, json.dumps(where, sort_keys=True)


def read(folder: Path) -> list[Record]:
    """Return all finished runs of a folder, none where it has no ledger."""
    path = folder / FILE
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > MOST_BYTES:
        raise LedgerError(f"{path} is too large for a ledger, which has at most {MOST_BYTES // 2**20} MiB")
    return _parse(path, content)


def _parse(path: Path, content: bytes, first: int = 1) -> list[Record]:
    whole = content[: content.rfind(b"\n") + 1]
    records = []
    for number, line in enumerate(whole.splitlines(), start=first):
        try:
            record = json.loads(line, parse_constant=_refuse)
            _check(record)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise LedgerError(
                f"{path}, line {number}, is no finished run: {one_line(reason)}; remove the line to run it again"
            ) from error
        records.append(record)
    return records


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no figure")


SHARES = ("test_accuracy", "val_accuracy")
AMOUNTS = {
    "train": ("best_epoch", "epochs_run", "reach99", "seconds", "parameters", "test_nodes"),
    "cost": ("seconds_per_epoch", "peak_mib", "parameters"),
    "degrees": (),
}
"""The figures of a run of each kind."""
CURVES = ("train_loss", "train_accuracy", "val_loss", "val_accuracy")
DEGREES = ("highest", "lowest", "mean", "median")


def _check(record: Record) -> None:
    for name in ("setup", "kind", "dataset", "model", "hardware"):
        if not isinstance(record[name], str):
            raise ValueError(f"`{name}` is no text")
    where = record["where"]
    for name, told in (("where", where), ("versions", record.get("versions", {}))):
        if not isinstance(told, dict) or not all(isinstance(text, str) for text in told.values()):
            raise ValueError(f"`{name}` is no table of texts")
    if "device" not in where:
        raise ValueError("`where` names no device")
    if type(record["seed"]) is not int or record["kind"] not in AMOUNTS:
        raise ValueError("`seed` or `kind` is none")
    for name in AMOUNTS[record["kind"]]:
        if not _is_number(record[name]) or record[name] < 0:
            raise ValueError(f"`{name}` is no amount")
    if record["kind"] == "train":
        for name in SHARES:
            if not _is_number(record[name]) or not 0 <= record[name] <= 1:
                raise ValueError(f"`{name}` is no share")
        for name in CURVES if "history" in record else ():
            values = record["history"][name]
            if not all(map(_is_number, values)):
                raise ValueError(f"`{name}` has a figure that is none")
            if not values or len(values) != len(record["history"][CURVES[0]]):
                raise ValueError(f"`{name}` has as many epochs as no run")
    if record["kind"] == "degrees":
        degrees = record["degrees"]
        figures = [degrees[way][what] for way in ("without_self", "with_self") for what in DEGREES]
        if not all(map(_is_number, [*figures, degrees["isolated"]])):
            raise ValueError("`degrees` has a figure that is none")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


class Ledger:
    """A folder's ledger, open for adding. Keep one a process: closing it gives all of the process's claims back."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self.path.open("a+b", buffering=0)
            self._locks: BinaryIO = (folder / LOCK).open("a+b", buffering=0)
        except OSError as error:
            raise LedgerError(f"cannot write to {folder}: {error.strerror or error}") from error
        self._offset = self._lines = 0
        self._done: set[Key] = set()
        try:
            with self._alone():
                self._catch_up()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give back the claims and close the files."""
        self._file.close()
        self._locks.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, key: Key) -> bool:
        """Say whether the run is finished, by this process or another."""
        with self._alone():
            self._catch_up()
        return key in self._done

    def add(self, record: Record) -> bool:
        """Write a finished run, unless it stands there already; say whether it was written."""
        _check(record)
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        key = key_of(record["setup"], record["seed"], record["where"])
        try:
            with self._alone():
                self._catch_up()
                if key in self._done:
                    return False
                if self._file.seek(0, os.SEEK_END) > self._offset:
                    self._file.truncate(self._offset)  # a line that a killed process cut short
                view = memoryview(line)
                while view:
                    view = view[self._file.write(view) :]
                os.fsync(self._file.fileno())
                self._catch_up()
        except OSError as error:
            raise LedgerError(f"cannot write {self.path}: {error.strerror or error}") from error
        return True

    def claim(self, key: Key) -> bool:
        """Take a run on oneself; False where another process has it. The system gives it back when a process dies."""
        try:
            _lock(self._locks, _place(key), wait=False)
        except BlockingIOError:
            return False
        return True

    def release(self, key: Key) -> None:
        """Give a claim back."""
        _unlock(self._locks, _place(key))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        _lock(self._locks, 0)
        try:
            yield
        finally:
            _unlock(self._locks, 0)

    def _catch_up(self) -> None:
        """Read the whole lines added since the last time."""
        self._file.seek(self._offset)
        content = self._file.read()
        if not content:
            return
        for record in _parse(self.path, content, self._lines + 1):
            self._done.add(key_of(record["setup"], record["seed"], record["where"]))
            self._lines += 1
        self._offset += content.rfind(b"\n") + 1


def _lock(file: BinaryIO, byte: int, *, wait: bool = True) -> None:
    import fcntl  # not on Windows, where ledgers can be read only

    try:
        fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
    except PermissionError as error:  # what some systems say for BlockingIOError
        raise BlockingIOError from error


def _unlock(file: BinaryIO, byte: int) -> None:
    import fcntl

    fcntl.lockf(file, fcntl.LOCK_UN, 1, byte)


def _place(key: Key) -> int:
    """The byte of the lock file that stands for a run; byte 0 guards the ledger itself."""
    return 1 + int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7], "big")
