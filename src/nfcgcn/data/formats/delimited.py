"""Tables as delimited text: .csv and .tsv in UTF-8, also compressed by gzip, read in chunks of rows."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from nfcgcn.data.formats.table import Chunk, check_columns, chunk_rows
from nfcgcn.errors import DatasetError, GraphError, counted
from nfcgcn.files import check_size, parsing, reading

DELIMITERS = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
"""By the suffix of the file."""
_IN_WORDS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
_BLOCK = 2**20


class DelimitedTable:
    """A table whose first line names its columns; every other line has one cell per column."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self.path = path
        self.name = path.name
        self.delimiter = delimiter
        with reading(path), parsing(path, "text table"), self._rows() as rows:
            self.columns = tuple(cell.strip() for cell in next(rows, ()))
        if len(self.columns) == 1:
            self._check_delimiter(self.columns[0])
        check_columns(self.name, self.columns)

    def chunks(self, wanted: Sequence[str], *, texts: Collection[str]) -> Iterator[Chunk]:  # noqa: ARG002
        """Yield the wanted columns, some rows at a time; all cells are text, whatever `texts` says."""
        places = [(name, self.columns.index(name)) for name in wanted]
        with reading(self.path), parsing(self.path, "text table"), self._rows() as rows:
            next(rows)
            done = 0
            while some := list(islice(rows, chunk_rows(len(self.columns)))):
                lengths = np.fromiter(map(len, some), np.int64, len(some))
                wrong = np.flatnonzero(lengths != len(self.columns))
                if len(wrong):
                    first = f"row {done + wrong[0] + 1} of {self.name} has {counted(int(lengths[wrong[0]]), 'cell')}"
                    later = len(wrong) - 1 + sum(len(row) != len(self.columns) for row in rows)
                    more = f", and {counted(later, 'later row')} of another length" if later else ""
                    raise GraphError(
                        f"{first}, but the first line names {counted(len(self.columns), 'column')}{more}; correct "
                        f"{'them' if later else 'the row'}, or quote cells that hold a delimiter"
                    )
                done += len(some)
                cells = list(zip(*some, strict=True))
                chunk = {name: np.array(cells[place], dtype=object) for name, place in places}
                del some, cells  # before the next rows are read, beside which they would need as much again
                yield chunk
                del chunk

    @contextmanager
    def _rows(self) -> Iterator[Iterator[list[str]]]:
        """Open the file and yield an iterator over the lines that are not blank, each as a list of cells."""
        with self.path.open("rb") as file:
            packed = self.path.suffix.lower() == ".gz"
            stream: IO[bytes] = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]
            text = io.TextIOWrapper(io.BufferedReader(_Checked(self.path, stream), _BLOCK), "utf-8-sig", newline="")
            try:
                yield filter(None, csv.reader(text, delimiter=self.delimiter, skipinitialspace=True, strict=True))
            except UnicodeDecodeError as error:
                raise DatasetError(
                    f"{self.path} is not UTF-8 (byte 0x{error.object[error.start]:02x}); save it as UTF-8"
                ) from error
            except csv.Error as error:
                raise DatasetError(f"{self.path} cannot be read as a table: {_explain(error)}") from error

    def _check_delimiter(self, line: str) -> None:
        used = max(_IN_WORDS, key=line.count)
        if used in line:
            write = "rename it to .tsv" if used == "\t" else f"write it with {_IN_WORDS[self.delimiter]}"
            raise GraphError(
                f"{self.name} has one column only, '{line[:80]}'; it looks delimited by {_IN_WORDS[used]} instead "
                f"of {_IN_WORDS[self.delimiter]}: {write}"
            )


def _explain(error: csv.Error) -> str:
    reason = str(error)
    if "field limit" in reason:
        return f"a cell is longer than {csv.field_size_limit():,} characters, or a quote is never closed"
    if "unexpected end of data" in reason:
        return "a quote is never closed"
    return reason


class _Checked(io.RawIOBase):
    """Passes bytes on, limits how much a compressed file unpacks to, and refuses bytes that no UTF-8 text has."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.path = path
        self.stream = stream
        self.packed = isinstance(stream, gzip.GzipFile)
        self.done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self.stream.read(len(buffer))
        if not self.done and block[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise DatasetError(f"{self.path} is UTF-16; save it as UTF-8")
        if b"\0" in block:
            raise DatasetError(f"{self.path} holds zero bytes: it is not a text table in UTF-8")
        self.done += len(block)
        if self.packed:
            check_size(self.path, self.done)
        buffer[: len(block)] = block
        return len(block)
