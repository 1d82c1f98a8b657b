"""The names of nodes in an Arrow file that is memory-mapped: read only where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from nfcgcn.errors import DatasetError
from nfcgcn.files import parsing, reading
from nfcgcn.graph import Ints

BATCH = 2**16
"""Names per record batch of the file."""


class NodeNames(Sequence[str]):
    """The names of the nodes of a store, in order. Iterating reads a part at a time.

    Cost: a name by its number is found at once; :meth:`index` and ``in`` read the file from its beginning.
    """

    def __init__(self, path: Path, count: int) -> None:
        pa = need_arrow(str(path))
        self.path, self._count = path, count
        with reading(path), parsing(path, "Arrow"):
            self._file = pa.ipc.open_file(pa.memory_map(str(path)))
            kind = self._file.schema.types
            if self._file.schema.names != ["name"] or kind[0] not in (pa.string(), pa.large_string(), pa.int64()):
                raise DatasetError(
                    f"{path} must hold one column `name` of texts or whole numbers; pack the store again"
                )
        self._batches: dict[int, Any] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(self._count)))
        place = int(place)
        if not -self._count <= place < self._count:
            raise IndexError(f"there are {self._count} nodes, got {place}")
        number, within = divmod(place % self._count, BATCH)
        return str(self._batch(number)[within].as_py())

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._texts(number) for number in range(-(-self._count // BATCH)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(list(self), dtype=object if dtype is None else dtype)

    def take(self, nodes: Ints) -> list[str]:
        """Return the names of some nodes."""
        if len(nodes) and not (nodes.min() >= 0 and nodes.max() < self._count):
            raise IndexError(f"there are {self._count} nodes, got {nodes.min()} to {nodes.max()}")
        numbers, within = np.divmod(nodes, BATCH)
        names = np.empty(len(nodes), object)
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            names[places] = [str(name) for name in self._batch(number).take(within[places]).to_pylist()]
        taken: list[str] = names.tolist()
        return taken

    def _texts(self, number: int) -> list[str]:
        values = self._batch(number)
        self._batches.clear()  # a walk over all names keeps none of them
        return [str(value) for value in values.to_pylist()]

    def _batch(self, number: int) -> Any:
        """Return a batch; its offsets are checked before a name is read, as they might point anywhere."""
        if number not in self._batches:
            with reading(self.path), parsing(self.path, "Arrow"):
                batch = self._file.get_batch(number)
                batch.validate(full=True)
                rows = min(BATCH, self._count - number * BATCH)
                if batch.num_rows != rows or batch.column(0).null_count:
                    raise DatasetError(f"{self.path} is damaged: batch {number} must hold {rows} names; pack again")
            self._batches[number] = batch.column(0)
        return self._batches[number]

    def __reduce__(self) -> Any:
        return NodeNames, (self.path, self._count)


def take_names(names: Sequence[str], nodes: Ints) -> list[str]:
    """Return the names of some nodes, in a store or not."""
    return names.take(nodes) if isinstance(names, NodeNames) else [names[node] for node in nodes.tolist()]


class NameWriter:
    """Writes names to an Arrow file in batches of the same size, however many come at a time."""

    def __init__(self, path: Path, *, integers: bool) -> None:
        pa = need_arrow("writing the names of nodes")
        self._pa = pa
        # An offset of 32 bits reaches 2 GiB of text per batch: 32 KiB per name.
        self._type = pa.int64() if integers else pa.large_string()
        self._schema = pa.schema([("name", self._type)])
        self._file = path.open("wb")
        self._writer = pa.ipc.new_file(self._file, self._schema)
        self._waiting: list[Any] = []
        self._rows = 0

    def add(self, names: Any) -> None:
        """Add some names: an Arrow array, or a list of texts or numbers."""
        pa = self._pa
        array = names if isinstance(names, pa.Array) else pa.array(names, self._type)
        self._waiting.append(array if array.type == self._type else array.cast(self._type))
        self._rows += len(array)
        while self._rows >= BATCH:
            self._flush(BATCH)

    def _flush(self, rows: int) -> None:
        pa = self._pa
        all_names = pa.concat_arrays(self._waiting)
        # A slice keeps the whole array, so that a batch would be written with all of it: a copy has its own names.
        batch = pa.concat_arrays([all_names.slice(0, rows)])
        self._writer.write_batch(pa.record_batch([batch], schema=self._schema))
        self._waiting = [all_names.slice(rows)]
        self._rows -= rows

    def close(self) -> None:
        """Write what is left, and end the file."""
        if self._rows:
            self._flush(self._rows)
        self._writer.close()
        self._file.close()


def need_arrow(what: str) -> Any:
    """Return pyarrow, or say that it is needed."""
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError as error:
        raise DatasetError(f"{what} needs pyarrow: `pip install nfcgcn[large]`") from error
    return pa
