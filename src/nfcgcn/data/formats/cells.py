"""What stands in a user's table behind a feature of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nfcgcn.data.formats.columns import Category, Number, Words
from nfcgcn.data.formats.encoding import Encoding


class TableCells:
    """Turns features back into cells, by the ``encoding`` of a graph that was read from tables.

    >>> column = {"kind": "number", "name": "year", "fill": 2000.0, "shift": 2000.0, "scale": 10.0}
    >>> others = {"form": "dense", "id": "id", "label": None, "classes": None, "split": "split"}
    >>> encoding = {"format": 1, "columns": [column], "source": "source", "target": "target", **others}
    >>> TableCells(encoding).cell(0, -1.5)
    '1985'
    """

    def __init__(self, encoding: Mapping[str, Any]) -> None:
        columns = Encoding.from_json(encoding).columns
        self._places = [(column, place) for column in columns for place, _ in enumerate(column.feature_names)]

    def cell(self, feature: int, value: float) -> str:
        """Return the text that `value` of a feature stands for; "" for a feature without a cell of its own.

        A word of a text has none, nor has what was made from the edges. Numbers have seven digits, as many as a float32
        keeps.
        """
        if feature >= len(self._places):
            return ""
        column, place = self._places[feature]
        if isinstance(column, Number):
            number = column.shift + column.scale * value
            return str(np.datetime64(round(number), "D")) if column.dates else f"{number:.7g}"
        if isinstance(column, Category):
            return column.values[place]
        return f"{value:.7g}" if isinstance(column, Words) else ""
