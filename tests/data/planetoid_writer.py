"""Write what Planetoid's authors wrote with Python 2, out of today's objects."""

import io
import pickle
import struct
from collections import defaultdict
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

MODULES = {
    "numpy._core.multiarray": "numpy.core.multiarray",
    "scipy.sparse._csr": "scipy.sparse.csr",
    "builtins": "__builtin__",
}


class _Pickler(pickle._Pickler):
    """Protocol 2 with Python 2's strings, module names and unremembered tuples."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        data = value if isinstance(value, bytes) else value.encode("latin1")
        self.write(pickle.BINSTRING + struct.pack("<i", len(data)) + data)

    dispatch[bytes] = dispatch[str] = save_string

    def memoize(self, value):
        if not isinstance(value, tuple):
            super().memoize(value)

    def save_global(self, value, name=None):
        module = value.__module__
        self.write(f"c{MODULES.get(module, module)}\n{value.__name__}\n".encode())
        self.memoize(value)

    dispatch[type] = save_global
    dispatch[type(save_global)] = save_global


def dumps(value) -> bytes:
    stream = io.BytesIO()
    _Pickler(stream, protocol=2).dump(value)
    return stream.getvalue()


def matrix(rows) -> sp.csr_matrix:
    return sp.csr_matrix(np.array(rows, dtype=np.float32))


def parts(**changes) -> dict[str, bytes]:
    """Seven nodes: 0 to 2 in allx; 5, 3, 6 in tx, in this order; 4 in neither. Edges 0-1, 1-5, 3-6, and a loop at 2."""
    values = {
        "allx": matrix([[1, 0, 0], [0, 2, 0], [0, 0, 3]]),
        "ally": np.array([[1, 0], [0, 1], [0, 0]], np.int32),
        "tx": matrix([[5, 0, 5], [0, 4, 0], [6, 6, 6]]),
        "ty": np.array([[0, 1], [1, 0], [0, 1]], np.int32),
        "graph": defaultdict(list, {0: [1, 1], 1: [0, 5], 2: [2], 3: [6], 4: [], 5: [1], 6: [3]}),
    }
    data = {part: dumps(value) for part, value in (values | changes).items() if part != "index"}
    return data | {"test.index": changes.get("index", b"5\n3\n6\n")}
