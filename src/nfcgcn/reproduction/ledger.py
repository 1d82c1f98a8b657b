"""The file of finished runs: one line of JSON per run. Lines are only added, by any number of processes at once.

A line is written under a lock and flushed to disk at once. If a process is killed, only its unfinished runs are lost: a
line that was cut short counts as not written, and is removed before the next line is added.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from nfcgcn.errors import DatasetError, NFCError
from nfcgcn.files import in_folder, read_regular, sync
from nfcgcn.settings import one_line

FILE = "cells.jsonl"
LOCK = ".lock"
MOST_BYTES = 512 * 2**20
"""A larger file is not read."""
Record = dict[str, Any]
Key = tuple[str, int, str]


class LedgerError(NFCError):
    """A folder of results cannot be read or written."""


def key_of(setup: str, seed: int, where: Mapping[str, str]) -> Key:
    """Return what identifies a run: the id of its setup, its seed, and the machine with its versions."""
    return setup, seed, json.dumps(where, sort_keys=True)


def read(folder: Path) -> list[Record]:
    """Return all finished runs of a folder; an empty list if it has no ledger."""
    path = folder / FILE
    try:
        content = read_regular(path, MOST_BYTES)
    except FileNotFoundError:
        return []
    except DatasetError as error:
        raise LedgerError(str(error)) from error
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror or error}") from error
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
                f"{path}, line {number}, is not a finished run: {one_line(reason)}; remove the line to run it again"
            ) from error
        records.append(record)
    return records


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a finite number")


SHARES = ("test_accuracy", "val_accuracy")
AMOUNTS = {
    "train": ("best_epoch", "epochs_run", "reach99", "seconds", "parameters", "test_nodes"),
    "cost": ("seconds_per_epoch", "peak_mib", "parameters"),
    "degrees": (),
    "selection": (),
}
"""The numbers that a run of each kind must have, all of them at least 0."""
CURVES = ("train_loss", "train_accuracy", "val_loss", "val_accuracy")
DEGREES = ("highest", "lowest", "mean", "median")


def _check(record: Record) -> None:
    for name in ("setup", "kind", "dataset", "model", "hardware"):
        if not isinstance(record[name], str):
            raise ValueError(f"`{name}` must be text, got {record[name]!r}")
    where = record["where"]
    for name, table in (("where", where), ("versions", record.get("versions", {}))):
        if not isinstance(table, dict) or not all(isinstance(text, str) for text in table.values()):
            raise ValueError(f"`{name}` must map names to text")
    if "device" not in where:
        raise ValueError("`where` must name a device")
    if type(record["seed"]) is not int:
        raise ValueError(f"`seed` must be a whole number, got {record['seed']!r}")
    if record["kind"] not in AMOUNTS:
        raise ValueError(f"`kind` must be one of {', '.join(AMOUNTS)}, got '{record['kind']}'")
    for name in AMOUNTS[record["kind"]]:
        if not _is_number(record[name]) or record[name] < 0:
            raise ValueError(f"`{name}` must be a number of at least 0, got {record[name]!r}")
    if record["kind"] == "train":
        _check_training(record)
    if record["kind"] == "selection" and not all(isinstance(record[name], dict) for name in ("chosen", "selection")):
        raise ValueError("`chosen` and `selection` must be objects")
    if record["kind"] == "degrees":
        degrees = record["degrees"]
        numbers = [degrees[way][what] for way in ("without_self", "with_self") for what in DEGREES]
        if not all(map(_is_number, [*numbers, degrees["isolated"]])):
            raise ValueError("`degrees` must hold finite numbers only")


def _check_training(record: Record) -> None:
    for name in SHARES:
        if not _is_number(record[name]) or not 0 <= record[name] <= 1:
            raise ValueError(f"`{name}` must be a number from 0 to 1, got {record[name]!r}")
    if "history" not in record:
        return
    history = record["history"]
    num_epochs = len(history[CURVES[0]])
    for name in CURVES:
        values = history[name]
        if not all(map(_is_number, values)):
            raise ValueError(f"`{name}` must hold finite numbers only")
        if not values or len(values) != num_epochs:
            raise ValueError(
                f"`{name}` has {len(values)} epochs and `{CURVES[0]}` {num_epochs}; "
                "all curves must have the same number, at least 1"
            )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


class Ledger:
    """A folder's ledger, open for adding runs.

    Open only one per process: closing it releases all claims of the process.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lines, locks = in_folder(folder, FILE), in_folder(folder, LOCK)
            self._file: BinaryIO = lines.open("a+b", buffering=0)
            self._locks: BinaryIO = locks.open("a+b", buffering=0)
            sync(folder)
        except OSError as error:
            raise LedgerError(f"cannot write to {folder}: {error.strerror or error}") from error
        for file in (self._file, self._locks):
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                self.close()
                raise LedgerError(f"{file.name} is not a regular file")
        self._offset = self._lines = 0
        self._done: set[Key] = set()
        try:
            with self._alone():
                self._catch_up()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release all claims and close the files."""
        self._file.close()
        self._locks.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, key: Key) -> bool:
        """Return whether the run is finished, by this process or another."""
        with self._alone():
            self._catch_up()
        return key in self._done

    def add(self, record: Record) -> bool:
        """Write a finished run, unless the ledger has it already; return whether it was written."""
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
        """Reserve a run for this process; return False if another process has it.

        The system releases the claims of a process that dies.
        """
        try:
            _lock(self._locks, _lock_byte(key), wait=False)
        except BlockingIOError:
            return False
        return True

    def release(self, key: Key) -> None:
        """Release a claim."""
        _unlock(self._locks, _lock_byte(key))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        _lock(self._locks, 0)
        try:
            yield
        finally:
            _unlock(self._locks, 0)

    def _catch_up(self) -> None:
        """Read the complete lines added since the last time."""
        self._file.seek(self._offset)
        content = self._file.read()
        if not content:
            return
        for record in _parse(self.path, content, self._lines + 1):
            self._done.add(key_of(record["setup"], record["seed"], record["where"]))
            self._lines += 1
        self._offset += content.rfind(b"\n") + 1


def _lock(file: BinaryIO, byte: int, *, wait: bool = True) -> None:
    import fcntl  # not on Windows, where ledgers can be read but not written

    try:
        fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
    except PermissionError as error:  # some systems raise this instead of BlockingIOError
        raise BlockingIOError from error


def _unlock(file: BinaryIO, byte: int) -> None:
    import fcntl

    fcntl.lockf(file, fcntl.LOCK_UN, 1, byte)


def _lock_byte(key: Key) -> int:
    """Return the byte of the lock file that stands for a run; byte 0 guards the ledger itself."""
    return 1 + int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7], "big")
