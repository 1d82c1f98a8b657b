"""Columns of Python values, from node attributes or data frames, as the cells of a table."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np

from nfcgcn.data.formats.table import Cells
from nfcgcn.errors import GraphError, option


def cells_of(values: Sequence[Any], where: str, *, as_text: bool) -> Cells:
    """Return the values of a column as cells: numbers, or texts and lists of texts; `where` is the column's name."""
    # NumPy's own numbers, texts and arrays become Python's.
    plain = [value.tolist() if isinstance(value, np.ndarray | np.generic) else value for value in values]
    if not as_text and all(value is None or isinstance(value, int | float) for value in plain):
        return np.array([np.nan if value is None else _as_float(value) for value in plain], np.float64)
    cells = np.empty(len(plain), dtype=object)
    for i, value in enumerate(plain):
        if value is None or isinstance(value, str):
            cells[i] = value
        elif isinstance(value, int | float | datetime.date):  # also a date with a time
            cells[i] = str(value)
        elif (
            isinstance(value, list | tuple | set | frozenset) and not as_text and all(isinstance(v, str) for v in value)
        ):
            cells[i] = sorted(value) if isinstance(value, set | frozenset) else list(value)
        else:
            raise GraphError(f"{where} holds {type(value).__name__} values; {_remedy(value, as_text)}")
    return cells


def _remedy(value: Any, as_text: bool) -> str:
    if as_text and isinstance(value, list | tuple | set | frozenset):
        return "give one text per cell, as a node has one id and one class"
    if isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value):
        return f"make one column of each number, or leave it out with {option('ignore')}"
    return f"leave it out with {option('ignore')}"


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number with hundreds of digits
        return float("inf")
