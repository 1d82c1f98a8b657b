"""Read the pickles of Planetoid, whose sha256 :mod:`nfcgcn.data.planetoid_files` has checked.

A pickle is a program: bytes whose sha256 is not the published one must never reach this module. As a second defence, a
pickle can name only the classes and functions that these files need.
"""

from __future__ import annotations

import io
import pickle
from collections import defaultdict
from typing import Any

import numpy as np
import scipy.sparse as sp

from nfcgcn.errors import DatasetError

_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("scipy.sparse.csr", "csr_matrix"): sp.csr_matrix,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}
"""The keys are the names from Python 2 and its libraries."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, file: str) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self.file = file

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _ALLOWED:
            raise DatasetError(
                f"{self.file} names '{module}.{name}', which no Planetoid file needs, and was not loaded; "
                "get the published file"
            )
        return _ALLOWED[module, name]


def read_pickle(data: bytes, file: str) -> Any:
    """Return the object that the checked bytes of `file` hold."""
    return _Unpickler(data, file).load()
