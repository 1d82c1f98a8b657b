"""Words of a column, of its texts or of its lists, counted chunk by chunk with scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from nfcgcn.data.formats.table import Cells, as_texts

MOST_WORDS = 5000
"""Words that become features of a column, at most: the most frequent."""


class WordCounts:
    """How often each word occurs in each row; grows with the words there are, not with the words there could be.

    Cells are texts or, where a ``separator`` is given, lists of words. With a ``vocabulary`` only its words count.
    """

    def __init__(self, separator: str | None = None, *, vocabulary: Sequence[str] | None = None) -> None:
        self.rows = 0
        self.separator = separator
        self.places: dict[str, int] = {word: i for i, word in enumerate(vocabulary or ())}
        self._fixed = vocabulary is not None
        self._analyse = _text_words() if separator is None else _splitter(separator)
        self._parts: list[sp.csr_array] = []

    def add(self, cells: Cells) -> None:
        """Take in some rows."""
        from sklearn.feature_extraction.text import CountVectorizer

        self.rows += len(cells)
        documents = ["" if cell is None else cell for cell in as_texts(cells)]
        if self._fixed:
            if self.places:
                counter = CountVectorizer(analyzer=self._analyse, vocabulary=self.places, dtype=np.float32)
                self._parts.append(sp.csr_array(counter.transform(documents)))
            return
        counter = CountVectorizer(analyzer=self._analyse, dtype=np.float32)
        try:
            part = sp.csr_array(counter.fit_transform(documents))
        except ValueError:  # scikit-learn's way to say that there is no word in any of them
            self._parts.append(sp.csr_array((len(cells), 0), dtype=np.float32))
            return
        places = self.places
        moved = np.array([places.setdefault(word, len(places)) for word in counter.get_feature_names_out().tolist()])
        part.indices = moved[part.indices].astype(np.int32)
        self._parts.append(part)

    def choose(self, *, least: int) -> tuple[str, ...]:
        """Return the most frequent words that at least so many rows hold, or any row where no word has so many."""
        counts = self._matrix()
        rows = np.bincount(counts.indices, minlength=len(self.places))
        total = np.bincount(counts.indices, weights=counts.data, minlength=len(self.places))
        words = np.array(list(self.places), dtype=object)
        enough = rows >= least
        if not enough.any():
            enough[:] = True
        order = sorted(np.flatnonzero(enough).tolist(), key=lambda i: (-total[i], words[i]))
        return tuple(sorted(words[i] for i in order[:MOST_WORDS]))

    def of(self, vocabulary: Sequence[str]) -> sp.csr_array:
        """Return the counts of these words, ``[N, words]``."""
        counts = self._matrix()
        place = np.full(len(self.places) + 1, -1)
        for i, word in enumerate(vocabulary):
            place[self.places[word]] = i
        columns = place[counts.indices]
        known = columns >= 0
        starts = np.concatenate([[0], np.cumsum(known)])[counts.indptr]
        chosen = sp.csr_array((counts.data[known], columns[known], starts), shape=(self.rows, len(vocabulary)))
        chosen.sort_indices()
        return chosen

    def _matrix(self) -> sp.csr_array:
        width = len(self.places)
        if len(self._parts) != 1 or self._parts[0].shape != (self.rows, width):
            parts = [sp.csr_array((p.data, p.indices, p.indptr), shape=(p.shape[0], width)) for p in self._parts]
            self._parts = [sp.csr_array(sp.vstack(parts)) if parts else sp.csr_array((self.rows, width))]
        return self._parts[0]


def _text_words() -> Callable[[str], list[str]]:
    """Return scikit-learn's usual way to find words in a text: lower case, two letters or more."""
    from sklearn.feature_extraction.text import CountVectorizer

    analyse: Callable[[str], list[str]] = CountVectorizer().build_analyzer()
    return analyse


def _splitter(separator: str) -> Callable[[Any], list[str]]:
    """Return what turns a cell into words; a list is taken as it is."""

    def split(cell: Any) -> list[str]:
        if not isinstance(cell, str):
            return [str(word) for word in cell if word is not None and str(word)]
        parts = cell.split() if separator == " " else (part.strip() for part in cell.split(separator))
        return [part for part in parts if part]

    return split


def find_separator(cells: Cells) -> str:
    """Return what separates words in these cells: a semicolon or a comma where any holds one, else white space."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    return next((mark for mark in (";", ",") if any(mark in text for text in texts)), " ")
