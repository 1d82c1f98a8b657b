"""Tables as Parquet files, read in batches of rows; this needs pyarrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn.data.formats.table import Cells, Chunk, check_columns, chunk_rows
from nfcgcn.errors import DatasetError, GraphError, option
from nfcgcn.files import FREE_BYTES, check_size, parsing, reading

PARQUET = (".parquet", ".pq")


class ParquetTable:
    """A table whose columns have types: numbers, booleans, text or lists of text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        with reading(path), parsing(path, "Parquet"), self._open() as file:
            self.columns = tuple(file.schema_arrow.names)
            meta = file.metadata
            groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
            unpacked = sum(group.total_byte_size for group in groups)
            # Repeated values take no room in the file, but each takes some when read; a row may hold a list of them.
            values = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
            check_size(path, max(unpacked, 8 * values, 8 * meta.num_rows * len(self.columns)))
        check_columns(self.name, self.columns)

    def chunks(self, wanted: Sequence[str], *, texts: Collection[str]) -> Iterator[Chunk]:
        """Yield the wanted columns, some rows at a time; those in `texts` as exact text."""
        # A dot in a name would select a part of a nested column instead.
        select = None if any("." in name for name in wanted) else list(wanted)
        with reading(self.path), parsing(self.path, "Parquet"), self._open() as file:
            # Only of text is the size known before it is read: a value of another type may stand there a million times.
            for name in wanted:
                _check_type(file.schema_arrow.field(name).type, name, self.name, as_text=name in texts)
            done = 0
            for batch in file.iter_batches(batch_size=chunk_rows(len(self.columns)), columns=select):
                for piece in _pieces(batch.select(list(wanted))):
                    done += _text_size(piece)
                    check_size(self.path, done)
                    yield {name: self._cells(name, piece.column(name), as_text=name in texts) for name in wanted}

    def _open(self) -> Any:
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise DatasetError(
                f"reading {self.path} needs pyarrow: `pip install nfcgcn[parquet]`, or save the table as .csv"
            ) from error
        # Text is read as numbers that point into a dictionary until its size is known.
        with parquet.ParquetFile(self.path) as file:
            leaves = [file.schema.column(i) for i in range(len(file.schema.names))]
        texts = [leaf.path for leaf in leaves if leaf.logical_type.type == "STRING"]
        return parquet.ParquetFile(self.path, read_dictionary=texts)

    def _cells(self, name: str, array: Any, *, as_text: bool) -> Cells:
        return cells_of_arrow(_unfolded(array), name, self.name, as_text=as_text)


def cells_of_arrow(array: Any, name: str, table: str, *, as_text: bool) -> Cells:
    """Return the cells of a column as an Arrow array has them."""
    import pyarrow as pa

    kind = array.type
    _check_type(kind, name, table, as_text=as_text)
    if as_text or _is_date(kind):
        return np.asarray(array.cast(pa.string()).to_numpy(zero_copy_only=False), dtype=object)
    if pa.types.is_boolean(kind) or _is_number(kind):
        return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if _is_text(kind):
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype=object)
    if pa.types.is_null(kind):
        return np.full(len(array), None, dtype=object)
    cells = np.empty(len(array), dtype=object)
    cells[:] = array.to_pylist()
    return cells


def _check_type(kind: Any, name: str, table: str, *, as_text: bool) -> None:
    """Refuse a column of a type that is not read; text may be numbers that point into a dictionary."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _is_date(kind) or (as_text and (_is_plain(kind) or pa.types.is_temporal(kind))):
        return
    if as_text:
        raise GraphError(f"column '{name}' of {table} holds {kind}, not text or numbers; choose another")
    if not (_is_plain(kind) or (_is_list(kind) and (_is_text(kind.value_type) or _is_dictionary(kind.value_type)))):
        raise GraphError(
            f"column '{name}' of {table} holds {kind}, not numbers or text; leave it out with {option('ignore')}"
        )


def _pieces(batch: Any) -> Iterator[Any]:
    """Cut a batch into pieces of rows, each with a moderate amount of text."""
    if batch.num_rows < 2 or _text_size(batch) <= FREE_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _text_size(batch: Any) -> int:
    """Return the length of all text in a batch, whose texts are still numbers that point into a dictionary."""
    from pyarrow import compute

    size = 0
    for array in batch.columns:
        texts = array.flatten() if _is_list(array.type) else array
        if _is_dictionary(texts.type):
            lengths = compute.binary_length(texts.dictionary).take(texts.indices)
            size += compute.sum(lengths).as_py() or 0
    return size


def _unfolded(array: Any) -> Any:
    """Return text instead of numbers that point into a dictionary, also inside lists."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_dictionary(kind):
        return array.dictionary_decode()
    if _is_list(kind) and _is_dictionary(kind.value_type):
        array = array.take(np.arange(len(array)))  # else `cast` unfolds the whole batch that this is a piece of
        return array.cast(pa.list_(pa.field("element", kind.value_type.value_type)))
    return array


def _is_dictionary(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_dictionary(kind)) and _is_text(kind.value_type)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_plain(kind: Any) -> bool:
    from pyarrow import types

    return bool(_is_text(kind) or _is_number(kind) or types.is_boolean(kind) or types.is_null(kind))


def _is_date(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_date(kind) or types.is_timestamp(kind))


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
