"""DuckDB, which joins and sorts tables that do not fit into memory, and the tables that it reads."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nfcgcn.data.formats.delimited import DELIMITERS, DelimitedTable
from nfcgcn.data.formats.parquet import PARQUET
from nfcgcn.data.formats.table import MISSING, check_columns
from nfcgcn.data.formats.tables import SUFFIXES, stem
from nfcgcn.errors import ConfigError, DatasetError, GraphError, WriteError, option
from nfcgcn.files import parsing, reading
from nfcgcn.settings import one_line

ROWS = 2**15
"""Rows that Python looks at together."""
SHARE = 0.6
"""The part of the memory that DuckDB may use; Python's own part, and what DuckDB does not count, take the rest."""
LEAST = 256 * 10**6
WHITE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""All that Python takes for white space."""
MISSING_IDS = ", ".join(f"'{text}'" for text in sorted(MISSING))


class Engine:
    """One database in a folder of its own, which is removed with it; `store` is what is being written, for messages."""

    def __init__(self, folder: Path, memory: int, *, store: Path) -> None:
        self.folder, self.store, self.table = folder, store, "a table"
        try:
            import duckdb
        except ImportError as error:
            raise DatasetError("`nfcgcn pack` needs DuckDB: `pip install nfcgcn[large]`") from error
        if memory < LEAST:
            raise ConfigError(f"--memory must be at least {LEAST // 10**6} MB, got {memory / 10**6:.0f} MB")
        folder.mkdir()
        self._error: type[Exception] = duckdb.Error
        with self.explaining():
            self._db = duckdb.connect(
                str(folder / "tables.duckdb"),
                config={
                    "memory_limit": f"{int(SHARE * memory / 2**20)}MiB",
                    "threads": os.environ.get("OMP_NUM_THREADS") or len(_cores()),
                    "temp_directory": str(folder / "spilled"),
                    "autoinstall_known_extensions": False,
                    "autoload_known_extensions": False,
                },
            )

    def run(self, query: str, **tables: Any) -> None:
        """Run a statement; Arrow tables can be used by their names."""
        with self.explaining():
            for name, table in tables.items():
                self._db.register(name, table)
            self._db.execute(query)
            for name in tables:
                self._db.unregister(name)

    def row(self, query: str) -> tuple[Any, ...]:
        """Return the first row of an answer."""
        with self.explaining():
            first = self._db.execute(query).fetchone()
        assert first is not None  # noqa: S101
        return tuple(first)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return all rows of a short answer."""
        with self.explaining():
            return list(self._db.execute(query).fetchall())

    def stream(self, query: str, *, rows: int = ROWS) -> Iterator[Any]:
        """Yield an answer as Arrow record batches; only some of it is in memory at any time."""
        with self.explaining():
            # On a cursor of its own, so that other statements can run meanwhile.
            yield from self._db.cursor().sql(query).to_arrow_reader(rows)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Turn errors of DuckDB into one line of ours."""
        try:
            yield
        except (self._error, RuntimeError, OSError) as error:
            reason = one_line(error)
            if "nterrupt" in reason:  # by Ctrl-C, which DuckDB hears of while it works
                raise KeyboardInterrupt from error
            if "maximum total string size" in reason:  # an OSError, as Arrow hands it on
                what = f"{ROWS:,} rows of a column hold more than 2 GiB of text"
                raise DatasetError(
                    f"{self.table} cannot be read: {what}; shorten it, or leave the column out with {option('ignore')}"
                ) from error
            if not isinstance(error, self._error):
                raise
            if re.search(r"No space left|File too large|Could not write|failed to offload", reason):
                why = reason.rpartition(": ")[2][:200]
                raise WriteError(f"cannot write {self.store}: {why}; choose another place") from error
            if type(error).__name__ == "OutOfMemoryException":
                raise DatasetError(f"the tables need more memory than --memory allows: {reason[:200]}") from error
            raise DatasetError(f"{self.table} cannot be read: {_explain(reason)}") from error

    def close(self) -> None:
        """Remove the database."""
        self._db.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _cores() -> Sequence[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


class LargeTable:
    """One or several files of the same columns, as one table that DuckDB reads. It is a ``Table`` as others are."""

    def __init__(self, engine: Engine, pattern: str) -> None:
        self.engine, self.paths = engine, find_files(pattern)
        self.name = self.paths[0].name if len(self.paths) == 1 else pattern.rpartition("/")[2]
        self.title = stem(self.paths[0]) if len(self.paths) == 1 else ""
        headers = [_columns_of(path) for path in self.paths]
        for path, header in zip(self.paths, headers, strict=True):
            if header != headers[0]:
                raise GraphError(f"{path} does not have the columns of {self.paths[0]}; give files of the same columns")
        self.columns: tuple[str, ...] = tuple(headers[0])
        check_columns(self.name, self.columns)
        self.is_text = not self.paths[0].name.lower().endswith(PARQUET)
        self.types = dict(zip(self.columns, headers[0].values(), strict=True))

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(path.stat().st_size for path in self.paths)

    @property
    def sql(self) -> str:
        """What stands for the table in a query."""
        files = "[" + ", ".join(quoted(glob.escape(str(path))) for path in self.paths) + "]"
        if not self.is_text:
            return f"read_parquet({files})"
        name = self.paths[0].name.lower()
        delimiter = next(mark for suffix, mark in DELIMITERS.items() if name.endswith(suffix))
        columns = ", ".join(f"{quoted(column)}: 'VARCHAR'" for column in self.columns)
        return (
            f"read_csv({files}, auto_detect=false, header=true, delim={quoted(delimiter)}, quote='\"', escape='\"', "
            f"columns={{{columns}}}, max_line_size=16777216)"
        )

    def count(self) -> int:
        """Return the number of rows; this is the first time that all of them are looked at."""
        self.engine.table = self.name
        return int(self.engine.row(f"SELECT count(*) FROM {self.sql}")[0])

    def batches(self, wanted: Sequence[str]) -> Iterator[Any]:
        """Yield some columns in the order of the rows, as Arrow record batches."""
        for column in wanted:
            assert column in self.columns  # noqa: S101
        self.engine.table = self.name
        # Spaces before a cell are no part of it, as for `nfcgcn train`.
        of = (lambda c: f"ltrim({named(c)}) AS {named(c)}") if self.is_text else named
        yield from self.engine.stream(f"SELECT {', '.join(map(of, wanted))} FROM {self.sql}")

    def chunks(self, wanted: Sequence[str], *, texts: Any) -> Iterator[Any]:
        """Be a table; pack reads batches instead."""
        raise NotImplementedError

    def id_text(self, column: str) -> str:
        """Return the expression for an id as text, without white space around it; "7.0" is "7", nothing is NULL."""
        cell = f"{named(column)}::VARCHAR"
        text = f"trim({cell}, {quoted(WHITE)})"
        plain = f"CASE WHEN suffix({text}, '.0') THEN regexp_replace({text}, '^(-?[0-9]+)\\.0$', '\\1') ELSE {text} END"
        careful = f"CASE WHEN {text} IN ({MISSING_IDS}) THEN NULL ELSE {plain} END"
        # Nearly all ids begin and end with a visible ASCII character and need no care, which would take long.
        usual = " AND ".join(f"{end} BETWEEN '!' AND '~'" for end in (f"left({cell}, 1)", f"right({cell}, 1)"))
        usual += f" AND NOT suffix({cell}, '.0') AND {cell} NOT IN ({MISSING_IDS})"
        return f"CASE WHEN {usual} THEN {cell} ELSE {careful} END"

    def is_whole(self, column: str) -> bool:
        """Return whether a column holds integers that fit into 64 bits."""
        return self.types[column] in {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}


def _explain(reason: str) -> str:
    """Return what is wrong with a table, from DuckDB's long message."""
    line = re.search(r"CSV Error on Line: (\d+)", reason)
    if line is None:
        return reason[:300]
    cells = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", reason)
    if cells is not None:
        wrong = f"has {cells[2]} cells instead of {cells[1]}; correct it, or quote cells that hold a delimiter"
    elif "unterminated quote" in reason:
        wrong = "opens a quote that is never closed"
    else:
        wrong = f"is not a line of a table: {reason.partition('Possible fixes')[0][:200]}"
    return f"line {line[1]} {wrong}"


def quoted(text: str) -> str:
    """Write a text for SQL."""
    return "'" + text.replace("'", "''") + "'"


def named(column: str) -> str:
    """Write the name of a column for SQL."""
    return '"' + column.replace('"', '""') + '"'


def find_files(pattern: str) -> list[Path]:
    """Return the files that a path or a pattern such as nodes-*.parquet names, in order."""
    path = Path(pattern)
    paths = [path] if path.exists() or not glob.has_magic(pattern) else sorted(map(Path, glob.glob(pattern)))  # noqa: PTH207
    if not paths:
        raise DatasetError(f"no file is called {pattern}")
    for file in paths:
        if not file.name.lower().endswith(SUFFIXES):
            raise DatasetError(f"{file} cannot be read as a table; its name must end in {', '.join(SUFFIXES)}")
        with reading(file):
            file.stat()
    kinds = {next(s for s in sorted(SUFFIXES, key=len) if file.name.lower().endswith(s)) for file in paths}
    if len(kinds) > 1:
        raise DatasetError(
            f"{pattern} names files of several kinds: {', '.join(sorted(kinds))}; give one kind at a time"
        )
    return paths


def _columns_of(path: Path) -> dict[str, str]:
    """Return the columns of a file with their types."""
    if not path.name.lower().endswith(PARQUET):
        delimiter = next(mark for suffix, mark in DELIMITERS.items() if path.name.lower().endswith(suffix))
        return dict.fromkeys(DelimitedTable(path, delimiter).columns, "string")
    from nfcgcn.data.store.names import need_arrow

    need_arrow(f"reading {path}")
    from pyarrow import parquet

    with reading(path), parsing(path, "Parquet"):
        schema = parquet.read_schema(path)
        check_columns(path.name, schema.names)
        return {field.name: str(field.type) for field in schema}
