"""The cells of a column, collected block by block: as numbers, days and categories."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.data.formats.table import MISSING, Cells, plain_number
from nfcgcn.errors import GraphError, option

MOST_CATEGORIES = 256
"""A column of categories has at most this many different texts and, beyond 10, at most half as many as rows."""
NOT_A_NUMBER = MISSING | {
    "NA", "N/A", "n/a", "#N/A", "#NA", "NULL", "null", "None", "none", "-nan", "-NaN", "?", "-",
}  # fmt: skip
"""Texts that mean an empty cell in a column of numbers."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")


class Pieces:
    """An array that grows: parts of it, held in memory until the whole is asked for."""

    def __init__(self, _: str = "") -> None:
        self.rows = 0
        self._parts: list[npt.NDArray[Any]] = []

    def append(self, part: npt.NDArray[Any]) -> None:
        """Add a part at the end."""
        self.rows += len(part)
        self._parts.append(part)

    def clear(self) -> None:
        """Forget all parts."""
        self.rows = 0
        self._parts.clear()

    def whole(self) -> npt.NDArray[Any]:
        """Return the array."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0)


class Values:
    """Collects the cells of a column, as numbers and, as long as there are few, as categories.

    With ``known`` categories, all other texts count as empty cells. ``pieces`` makes a place for an array, by its type.
    """

    def __init__(
        self, name: str, table: str, *, known: Sequence[str] | None = None, pieces: Callable[[str], Pieces] = Pieces
    ) -> None:
        self.name = name
        self.table = table
        self.rows = 0
        self.filled = 0
        self.categories: dict[str, int] = {text: i for i, text in enumerate(known or ())}
        self.few = True
        self._fixed = known is not None
        self.not_a_number: tuple[str, int] | None = None
        self.num_texts = 0
        self.num_dates = 0
        self._days = pieces("<f8")
        self.not_a_date: tuple[str, int] | None = None
        self.unseen = 0
        self._codes, self._numbers = pieces("<i4"), pieces("<f8")

    def add(self, cells: Cells) -> None:
        """Add some rows."""
        import pandas as pd

        if cells.dtype == object and list in set(map(type, cells.tolist())):
            options = f"{option('words')} or {option('ignore')}"
            raise GraphError(f"column '{self.name}' of {self.table} holds lists; name it with {options}")
        if not self.few and self._add_numbers(cells):
            return
        codes, distinct = pd.factorize(cells)
        texts = distinct.tolist() if cells.dtype == object else [plain_number(value) for value in distinct.tolist()]
        counts = np.bincount(codes[codes >= 0], minlength=len(texts))
        parsed = np.append(to_numbers(texts), np.nan) if cells.dtype == object else np.append(distinct, np.nan)
        empty = np.array([text in MISSING for text in texts], bool)
        unread = np.array([text not in NOT_A_NUMBER for text in texts], bool) & np.isnan(parsed[:-1])
        if unread.any() and self.not_a_number is None:
            first = int(np.flatnonzero(np.append(unread, False)[codes])[0])
            self.not_a_number = (texts[codes[first]], self.rows + first + 1)
        self.num_texts += int(counts[unread].sum())
        self._gather_days(codes, texts, counts, unread)
        self.filled += int(counts[~empty].sum())
        self.rows += len(cells)
        self._numbers.append(parsed[codes])
        self._gather_categories(codes, texts, empty)

    def _add_numbers(self, cells: Cells) -> bool:
        """Add rows that are all numbers, the usual case of a long column; return whether they are."""
        numbers = to_numbers(cells) if cells.dtype == object else cells
        empty = np.isnan(numbers)
        if cells.dtype == object and empty.any():
            return False
        self.filled += len(cells) - int(empty.sum())
        self.rows += len(cells)
        self._numbers.append(numbers)
        return True

    def _gather_days(
        self, codes: Cells, texts: list[str], counts: npt.NDArray[np.integer[Any]], unread: npt.NDArray[np.bool_]
    ) -> None:
        are_dates = np.array([_DATE.fullmatch(text) is not None for text in texts], bool)
        if not self.num_dates and not are_dates.any():
            return
        if before := self.rows - self._days.rows:
            self._days.append(np.full(before, np.nan))
        days = np.full(len(texts) + 1, np.nan)
        days[:-1][are_dates] = to_days([text for text, is_date in zip(texts, are_dates, strict=True) if is_date])
        self._days.append(days[codes])
        bad = np.append(unread & np.isnan(days[:-1]), False)[codes]
        if bad.any() and self.not_a_date is None:
            self.not_a_date = (texts[codes[int(bad.argmax())]], self.rows + int(bad.argmax()) + 1)
        self.num_dates += int(counts[are_dates].sum())

    def _gather_categories(self, codes: Cells, texts: list[str], empty: npt.NDArray[np.bool_]) -> None:
        if not self.few:
            return
        if not self._fixed:
            for text in compress(texts, ~empty):
                self.categories.setdefault(text, len(self.categories))
            if len(self.categories) > MOST_CATEGORIES:
                self.few = False
                self._codes.clear()
                self.categories.clear()
                return
        numbers = [self.categories.get(text, -1) for text in texts]
        strange = (np.array([*numbers, 0]) < 0) & ~np.append(empty, True)
        self.unseen += int(strange[codes].sum())
        self._codes.append(np.array([*numbers, -1], np.int32)[codes])

    @property
    def unseen_text(self) -> str:
        """How many cells hold a text that is no known category."""
        return f"{self.unseen} of {self.rows} cells"

    @property
    def numbers(self) -> npt.NDArray[np.float64]:
        """``[N]``, NaN for a cell that is empty or not a number."""
        return self._numbers.whole()

    @property
    def days(self) -> npt.NDArray[np.float64]:
        """``[N]``, days since 1970 of a cell that is a date; NaN for any other."""
        if rest := self.rows - self._days.rows:
            self._days.append(np.full(rest, np.nan))
        return self._days.whole()

    @property
    def codes(self) -> npt.NDArray[np.int32]:
        """``[N]``, the position of each cell's text in ``categories``; -1 for an empty cell."""
        return self._codes.whole()


def to_numbers(texts: list[str] | Cells) -> npt.NDArray[np.float64]:
    """Read texts as numbers; NaN for other texts."""
    import pandas as pd

    if not len(texts):
        return np.zeros(0)
    return np.asarray(pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce"), dtype=np.float64)


def to_days(texts: list[str]) -> npt.NDArray[np.float64]:
    """Read dates, with or without a time, as days since 1970; NaN for a date that does not exist."""
    import pandas as pd

    times = pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601", utc=True, errors="coerce")
    since = times - pd.Timestamp("1970-01-01", tz="UTC")
    return np.asarray(since / pd.Timedelta(days=1), dtype=np.float64)
