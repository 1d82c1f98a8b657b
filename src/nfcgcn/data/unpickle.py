"""Read the pickles of Planetoid without trusting them: nothing that a file names is ever imported or called.

A pickle is a program. First every instruction is looked at, none executed, and any that these files do not need is
refused. Then it runs with stand-ins in the place of NumPy's and SciPy's classes, which only keep what they are given;
arrays are built from that here, with checks.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from itertools import chain
from typing import Any, NoReturn, TypeGuard

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.errors import DatasetError

MAX_BYTES = 2**25
"""More than four times the largest file of Planetoid."""


class _Kept:
    """Keep the arguments and the state that a pickle gives, and do nothing with them.

    A pickle that sets the state of a class rather than of an instance finds `__setstate__` unbound, and fails.
    """

    args: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_Kept):
    pass


class _Dtype(_Kept):
    pass


class _Matrix(_Kept):
    pass


class _List(_Kept):
    pass


class _Lists(dict[Any, Any]):
    def __init__(self, *_: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        raise TypeError("lists of neighbours have no state")


_ADMITTED: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    ("collections", "defaultdict"): _Lists,
    ("__builtin__", "list"): _List,
}
_TUPLES = frozenset({"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"})
_PUTS = frozenset({"BINPUT", "LONG_BINPUT"})
# fmt: off
_INSTRUCTIONS = _TUPLES | _PUTS | {
    "APPEND", "APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "BINSTRING", "BUILD", "EMPTY_DICT", "EMPTY_LIST",
    "EMPTY_TUPLE", "GLOBAL", "MARK", "NEWFALSE", "NEWOBJ", "NEWTRUE", "NONE", "PROTO", "REDUCE", "SETITEMS",
    "SHORT_BINSTRING", "STOP",
}
# fmt: on
_MAX_TUPLES = 64


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, file: str) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self.file = file

    def find_class(self, module: str, name: str, /) -> Any:
        return _admitted(module, name, self.file)


def _admitted(module: str, name: str, file: str) -> type:
    stand_in = _ADMITTED.get((module, name))
    if stand_in is None:
        raise DatasetError(f"{file} names '{module}.{name}', which no Planetoid file needs; refused")
    return stand_in


def _refuse_instruction(name: str, file: str) -> NoReturn:
    raise DatasetError(f"{file} uses the pickle instruction {name}, which no Planetoid file needs; refused")


def _broken(file: str, fact: str) -> DatasetError:
    return DatasetError(f"{file} is broken: {fact}")


def scan(data: bytes, file: str) -> None:
    """Refuse a pickle that holds an instruction or a name which no Planetoid file needs; execute nothing."""
    if len(data) > MAX_BYTES:
        raise _broken(file, f"{len(data)} bytes, where at most {MAX_BYTES} are read")
    num_tuples, previous, end = 0, "", 0
    try:
        for instruction, argument, position in pickletools.genops(data):
            name = instruction.name
            if name in ("GLOBAL", "INST"):
                module, _, attribute = str(argument).partition(" ")
                _admitted(module, attribute, file)
            if name not in _INSTRUCTIONS:
                _refuse_instruction(name, file)
            # Tuples kept for use again and again can be nested into one whose hash takes for ever, and tuples nested
            # deep into one whose hash overflows the stack; a memo index is the size of an array that gets allocated.
            num_tuples += name in _TUPLES
            if num_tuples > _MAX_TUPLES or (name in _PUTS and (previous in _TUPLES or int(str(argument)) > len(data))):
                _refuse_instruction(f"{name} at byte {position}", file)
            previous, end = name, (position or 0) + 1
    except DatasetError:
        raise
    except Exception as error:
        raise _broken(file, "its pickle cannot be read to the end") from error
    if end != len(data):
        raise _broken(file, f"{len(data) - end} bytes follow its pickle")


def _read(data: bytes, file: str) -> Any:
    scan(data, file)
    try:
        return _Unpickler(data, file).load()
    except DatasetError:
        raise
    except Exception as error:
        raise _broken(file, "its pickle cannot be executed") from error


def read_lists(data: bytes, file: str) -> dict[int, list[int]]:
    """Read a ``defaultdict(list)`` of whole numbers: the neighbours of each node."""
    lists = _read(data, file)
    if type(lists) is not _Lists or any(type(value) is not list for value in lists.values()):
        raise _broken(file, "no lists of neighbours")
    if not set(map(type, chain(lists, *lists.values()))) <= {int}:
        raise _broken(file, "nodes that are not whole numbers")
    return dict(lists)


def read_array(data: bytes, file: str) -> npt.NDArray[Any]:
    """Read an array of int32 or float32."""
    return _array(_read(data, file), file)


def read_matrix(data: bytes, file: str) -> sp.csr_array:
    """Read a sparse matrix of float32, as CSR with checked indices and finite values."""
    matrix = _read(data, file)
    if type(matrix) is not _Matrix or type(matrix.state) is not dict:
        raise _broken(file, "no sparse matrix")
    shape = matrix.state.get("_shape")
    if not _is_shape(shape) or len(shape) != 2:
        raise _broken(file, "a sparse matrix without a shape")
    values, columns, starts = (_array(matrix.state.get(key), file) for key in ("data", "indices", "indptr"))
    if values.dtype != np.float32 or columns.dtype != np.int32 or starts.dtype != np.int32:
        raise _broken(file, "a sparse matrix of other types than float32 and int32")
    if not np.isfinite(values).all():
        raise _broken(file, "features that are not finite")
    num_rows, num_columns = shape
    if (
        any(part.ndim != 1 for part in (values, columns, starts))
        or len(values) != len(columns)
        or len(starts) != num_rows + 1
        or starts[0] != 0
        or starts[-1] != len(columns)
        or (starts[1:] < starts[:-1]).any()
        or (columns < 0).any()
        or (columns >= num_columns).any()
    ):
        raise _broken(file, f"the indices of a sparse matrix do not fit its {num_rows} x {num_columns}")
    return sp.csr_array((values, columns, starts), shape=shape)


def _is_shape(shape: Any) -> TypeGuard[tuple[int, ...]]:
    return type(shape) is tuple and len(shape) <= 2 and all(type(size) is int and size >= 0 for size in shape)


def _array(array: Any, file: str) -> npt.NDArray[Any]:
    """Build the array that a stand-in describes by (version, shape, dtype, column-major, bytes)."""
    state = array.state if type(array) is _Array else None
    if type(state) is not tuple or len(state) != 5:
        raise _broken(file, "no array where one belongs")
    _, shape, dtype, column_major, content = state
    if not _is_shape(shape) or type(content) is not str or column_major is not False:
        raise _broken(file, "an array without a shape, in columns or without content")
    kind = dtype.args[0] if type(dtype) is _Dtype and dtype.args else None
    order = dtype.state[1] if type(dtype) is _Dtype and type(dtype.state) is tuple and len(dtype.state) == 8 else None
    if type(kind) is not str or kind not in ("i4", "f4") or order != "<":
        raise _broken(file, "an array of another type than int32 or float32")
    if 4 * math.prod(shape) != len(content):
        raise _broken(file, f"an array of {len(content)} bytes, where its shape needs {4 * math.prod(shape)}")
    values: npt.NDArray[Any] = np.ndarray(shape, dtype=f"<{kind}", buffer=bytearray(content, "latin1"))
    return values
