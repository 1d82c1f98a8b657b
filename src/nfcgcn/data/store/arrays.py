"""The `.npy` files of a store: written from the front to the end, read as memory maps."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.data.store.layout import StoredFile, damaged
from nfcgcn.files import open_regular, parsing, reading

Array = npt.NDArray[Any]
HEADER = 128
"""Bytes before the numbers: room for the shape of any array, which is known only when all of it is written."""
BLOCK = 2**22
"""Numbers that are looked at together."""


class ArrayWriter:
    """Appends rows to an `.npy` file. Nothing is mapped: on a full disk, a write to a map would end the process."""

    def __init__(self, path: Path, dtype: str, *, columns: int | None = None) -> None:
        self.path, self.dtype, self.columns, self.rows = path, np.dtype(dtype), columns, 0
        self._file = path.open("wb")
        self._file.write(bytes(HEADER))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is written so far."""
        return (self.rows,) if self.columns is None else (self.rows, self.columns)

    def add(self, rows: Array) -> None:
        """Append some rows."""
        self._file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.rows += len(rows)

    def close(self) -> None:
        """Write the header, and end the file."""
        described = f"{{'descr': '{self.dtype.str}', 'fortran_order': False, 'shape': {self.shape}, }}"
        self._file.seek(0)
        self._file.write(b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little"))
        self._file.write(described.ljust(HEADER - 11).encode("ascii") + b"\n")
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is, after an error."""
        self._file.close()

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


def map_array(path: Path, wanted: StoredFile) -> Array:
    """Return the array of a file as a memory map that cannot be written to, if it is what `wanted` says."""
    shape, dtype = wanted.shape or (), np.dtype(wanted.dtype)
    check_bytes(path, wanted)
    with reading(path), parsing(path, ".npy"), open_regular(path, wanted.bytes) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise damaged(path, "it is not an .npy file of version 1.0")
        stored_shape, fortran, stored_dtype = np.lib.format.read_array_header_1_0(file)
        if (stored_shape, stored_dtype) != (shape, dtype) or fortran:
            stored = f"{stored_dtype} of shape {list(stored_shape)}"
            raise damaged(path, f"it holds {stored}, not {dtype} of shape {list(shape)}")
        start = file.tell()
        if start + math.prod(shape) * dtype.itemsize != wanted.bytes:
            raise damaged(path, f"it must have {wanted.bytes - start:,} bytes of numbers")
        if not math.prod(shape):
            return np.zeros(shape, dtype)
        return np.memmap(file, dtype, "r", offset=start, shape=shape)


def check_bytes(path: Path, wanted: StoredFile) -> None:
    """Refuse a file that is missing, is no regular file, or has another size."""
    with reading(path):
        size = os.stat(path).st_size  # noqa: PTH116
        open_regular(path, max(size, wanted.bytes)).close()
    if size != wanted.bytes:
        raise damaged(path, f"it has {size:,} bytes instead of {wanted.bytes:,}")


def row_blocks(starts: Array, most: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Yield pieces ``(first row, row after the last)`` of a CSR matrix, each with about `most` entries at most.

    `starts` is its ``indptr``. A row that alone has more is a piece of its own; so is each run of `most` short rows.
    """
    row, count = 0, len(starts) - 1
    while row < count:
        room = int(np.searchsorted(starts[row : row + most + 1], starts[row] + most, side="right")) - 1
        stop = min(count, row + max(1, min(room, most)))
        yield row, stop
        row = stop
