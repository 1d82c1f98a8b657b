"""Columns of a table as features: what is learned from the cells, and how cells then become numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.data.formats.gathering import MOST_CATEGORIES, Values
from nfcgcn.data.formats.words import WordCounts
from nfcgcn.errors import GraphError, counted, option

USUAL = (0.01, 10.0)
"""Numbers are used unchanged if the largest magnitude of their column lies in this range, on the scale of the ones and
zeros of other columns. Otherwise they are standardised."""
LARGEST = float(np.finfo(np.float32).max)
_COMMA = re.compile(r"[+-]?\d[\d., ]*,\d+")
_OTHER_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([T ].*)?")

Block = sp.csr_array | npt.NDArray[np.float32]


@dataclass(frozen=True)
class Number:
    """A column of numbers or dates: ``(value - shift) / scale``; an empty cell counts as ``fill``."""

    name: str
    fill: float
    shift: float
    scale: float
    dates: bool = False
    """Whether cells are dates, read as days since 1970."""

    @property
    def feature_names(self) -> list[str]:
        return [self.name]


@dataclass(frozen=True)
class Category:
    """A column with few different texts: one feature per text, which is 1 if the cell has this text."""

    name: str
    values: tuple[str, ...]

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name}={value}" for value in self.values]


@dataclass(frozen=True)
class Text:
    """A column of text as TF-IDF: words are counted and weighted by rarity, and each row is scaled to length one."""

    name: str
    vocabulary: tuple[str, ...]
    idf: tuple[float, ...]

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name}: {word}" for word in self.vocabulary]


@dataclass(frozen=True)
class Words:
    """A column of lists of words, as word counts."""

    name: str
    vocabulary: tuple[str, ...]
    separator: str
    """What separates words in a cell of text; a space means any white space."""

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name}: {word}" for word in self.vocabulary]


@dataclass(frozen=True)
class HashedText:
    """A column of text: each word counts for one of so many features, by its hash; a row is scaled to length one."""

    name: str
    buckets: int

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} #{bucket}" for bucket in range(self.buckets)]


Column = Number | Category | Text | Words | HashedText


def learn(values: Values) -> Number | Category | None:
    """Decide what a column holds: numbers or categories; None if all its cells are empty."""
    where = f"column '{values.name}' of {values.table}"
    if not values.filled:
        return None
    numbers = values.numbers
    num_numbers = int((~np.isnan(numbers)).sum())
    if num_numbers and not values.num_texts:
        return _learn_number(values.name, where, numbers)
    if num_numbers * 2 >= values.filled:
        text, row = values.not_a_number or ("", 0)
        raise GraphError(
            f"{where} mixes numbers and text: {num_numbers} numbers, but row {row} says '{text[:40]}'; "
            f"correct it, leave the column out with {option('ignore')}, or take its cells as words with "
            f"{option('words')}"
        )
    if values.num_dates * 2 >= values.filled:
        return replace(_learn_number(values.name, where, _checked_days(values, where)), dates=True)
    if (truth := _truth(values)) is not None:
        return _learn_number(values.name, where, truth)
    if not values.few or len(values.categories) > max(10, values.rows // 2):
        count = f"{len(values.categories)}" if values.few else f"more than {MOST_CATEGORIES}"
        raise GraphError(
            f"{where} holds {count} different texts in {values.rows} rows, too many to be categories; {_hint(values)}"
            f"read it as text with {option('text', values.name)}, or leave it out with {option('ignore', values.name)}"
        )
    return Category(values.name, tuple(sorted(values.categories)))


def _hint(values: Values) -> str:
    """Say how to write what may be numbers or dates in another form than the one that is read."""
    text, row = values.not_a_number or ("", 0)
    if _COMMA.fullmatch(text.strip()):
        return f"if '{text[:40]}' in row {row} is a number, write it with a point and no other separator; "
    if _OTHER_DATE.fullmatch(text.strip()):
        return f"if '{text[:40]}' in row {row} is a date, write it as 2024-05-31; "
    return ""


def _truth(values: Values) -> npt.NDArray[np.float64] | None:
    """Return a column of true and false as ones and zeros; None for any other column."""
    if not values.few or not {text.lower() for text in values.categories} <= {"true", "false"}:
        return None
    return np.array([*(float(text.lower() == "true") for text in values.categories), np.nan])[values.codes]


def _checked_days(values: Values, where: str) -> npt.NDArray[np.float64]:
    """Return a column of dates as days since 1970; any other text is refused."""
    days = values.days
    count = int((~np.isnan(days)).sum())
    if count < values.num_dates or values.num_texts > values.num_dates:
        text, row = values.not_a_number or ("", 0)
        text, row = (text, row) if not row or np.isnan(days[row - 1]) else values.not_a_date or (text, row)
        bad = counted(values.num_texts - count, "cell")
        raise GraphError(
            f"{where} holds dates, but row {row} says '{text[:40]}': {bad} without a "
            f"date such as 2024-05-31; correct them, or leave the column out with {option('ignore')}"
        )
    return days


def _learn_number(name: str, where: str, numbers: npt.NDArray[np.float64]) -> Number:
    _check_range(where, numbers)
    present = numbers[~np.isnan(numbers)]
    mean, top = float(present.mean()), float(np.abs(present).max())
    if top == 0 or USUAL[0] <= top <= USUAL[1]:
        return Number(name, fill=mean, shift=0.0, scale=1.0)
    nonzero = present[present != 0]
    if 2 * len(nonzero) < len(present):  # mostly zeros: they stay zeros, so that sparse features stay sparse
        return Number(name, fill=mean, shift=0.0, scale=_positive(float(np.sqrt(np.mean(nonzero**2)))))
    return Number(name, fill=mean, shift=mean, scale=_positive(float(present.std())))


def _positive(scale: float) -> float:
    # Below that, a column is constant except for rounding.
    return scale if scale > 1e-30 else 1.0


def _check_range(where: str, numbers: npt.NDArray[np.float64]) -> None:
    bad = np.flatnonzero(np.abs(numbers) > LARGEST)
    if len(bad):
        what = "infinite values" if np.isinf(numbers[bad]).all() else f"values beyond {LARGEST:.0e}"
        raise GraphError(f"{where} holds {what}: {len(bad)}, the first in row {bad[0] + 1}; correct or empty the cells")


def encode_number(column: Number, values: Values) -> tuple[npt.NDArray[np.float32], int]:
    """Return the column as one feature, and how many empty cells were filled."""
    where = f"column '{column.name}' of {values.table}"
    numbers = values.numbers
    if column.dates and values.num_texts:
        numbers = _checked_days(values, where)
    elif values.num_texts:
        truth = _truth(values)
        if truth is None:
            text, row = values.not_a_number or ("", 0)
            raise GraphError(f"{where} must hold numbers, but row {row} says '{text[:40]}'; correct it")
        numbers = truth
    _check_range(where, numbers)
    empty = np.isnan(numbers)
    scaled = (np.where(empty, column.fill, numbers) - column.shift) / column.scale
    _check_range(f"{where}, scaled as in training,", scaled)
    return scaled.astype(np.float32)[:, None], int(empty.sum())


def encode_category(column: Category, values: Values) -> sp.csr_array:
    """Return one feature per category; a cell without a known category gets zeros only."""
    place = {text: i for i, text in enumerate(column.values)}
    codes = np.array([*(place[text] for text in values.categories), -1])[values.codes]
    known = codes >= 0
    starts = np.concatenate([[0], np.cumsum(known)])
    ones = np.ones(int(known.sum()), np.float32)
    return sp.csr_array((ones, codes[known], starts), shape=(len(codes), len(column.values)))


def learn_words(name: str, counts: WordCounts) -> Words:
    """Choose the words of a column of lists of words."""
    return Words(name, counts.choose(least=1), counts.separator or " ")


LEAST_ROWS = 2
"""A word of a text becomes a feature if at least so many rows have it."""


def learn_text(name: str, counts: WordCounts) -> Text:
    """Choose the words of a text column and weight them by rarity, as scikit-learn does."""
    vocabulary = counts.choose(least=LEAST_ROWS)
    documents = np.bincount(counts.of(vocabulary).indices, minlength=len(vocabulary))
    return Text(name, vocabulary, rarity(documents, counts.rows))


def rarity(documents: npt.NDArray[Any], rows: int) -> tuple[float, ...]:
    """Return the weights of words that occur in so many of all `rows`."""
    return tuple((np.log((1 + rows) / (1 + documents)) + 1).tolist())


def encode_text(column: Text, counts: WordCounts) -> sp.csr_array:
    """Return TF-IDF weights; each row has length one or, without a known word, is zero."""
    weighted = counts.of(column.vocabulary).astype(np.float64)
    weighted.data *= np.asarray(column.idf)[weighted.indices]
    return _unit_rows(weighted)


def encode_hashed(column: HashedText, counts: WordCounts) -> sp.csr_array:
    """Return the counts of words by hash; each row has length one or, without a word, is zero."""
    return _unit_rows(counts.hashed(column.buckets).astype(np.float64))


def _unit_rows(matrix: sp.csr_array) -> sp.csr_array:
    from sklearn.preprocessing import normalize

    return sp.csr_array(normalize(matrix, copy=False), dtype=np.float32)
