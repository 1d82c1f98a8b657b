"""Count the words in a column of texts or of lists of words, chunk by chunk, with scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.data.formats.table import Cells, as_texts

MOST_WORDS = 5000
"""At most this many words of a column become features: the most frequent ones."""


class WordCounts:
    """How often each word occurs in each row; memory grows with the number of words that do occur.

    Cells are texts or, with a ``separator``, lists of words. With a ``vocabulary``, only its words count.
    """

    def __init__(self, separator: str | None = None, *, vocabulary: Sequence[str] | None = None) -> None:
        self.rows = self.total = self.unseen = 0
        self.separator = separator
        self.places: dict[str, int] = {word: i for i, word in enumerate(vocabulary or ())}
        self._fixed = vocabulary is not None
        self._analyse = analyser(separator)
        self._parts: list[sp.csr_array] = []

    def add(self, cells: Cells) -> None:
        """Add some rows."""
        from sklearn.feature_extraction.text import CountVectorizer

        self.rows += len(cells)
        documents = ["" if cell is None else cell for cell in as_texts(cells)]
        if self._fixed:
            if self.places:
                before = self.total
                counter = CountVectorizer(analyzer=self._count, vocabulary=self.places, dtype=np.float32)
                self._parts.append(sp.csr_array(counter.transform(documents)))
                self.unseen += self.total - before - int(self._parts[-1].sum(dtype=np.float64))
            return
        counter = CountVectorizer(analyzer=self._analyse, dtype=np.float32)
        try:
            part = sp.csr_array(counter.fit_transform(documents))
        except ValueError:  # scikit-learn raises this if there is no word at all
            self._parts.append(sp.csr_array((len(cells), 0), dtype=np.float32))
            return
        places = self.places
        moved = np.array([places.setdefault(word, len(places)) for word in counter.get_feature_names_out().tolist()])
        part.indices = moved[part.indices].astype(np.int32)
        self._parts.append(part)

    def _count(self, document: Any) -> list[str]:
        words = self._analyse(document)
        self.total += len(words)
        return words

    @property
    def unseen_text(self) -> str:
        """How many words are not in the vocabulary."""
        return f"{self.unseen} of {self.total} words"

    def choose(self, *, least: int) -> tuple[str, ...]:
        """Return the most frequent of the words in at least `least` rows; if there are none, of all words."""
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

    def hashed(self, buckets: int) -> sp.csr_array:
        """Return the counts of all words, ``[N, buckets]``, each in the column that its hash says."""
        counts = self._matrix()
        columns = hash_words(list(self.places), buckets)[counts.indices]
        matrix = sp.csr_array((counts.data, columns, counts.indptr), shape=(self.rows, buckets))
        matrix.sum_duplicates()
        return matrix

    def _matrix(self) -> sp.csr_array:
        width = len(self.places)
        if len(self._parts) != 1 or self._parts[0].shape != (self.rows, width):
            parts = [sp.csr_array((p.data, p.indices, p.indptr), shape=(p.shape[0], width)) for p in self._parts]
            self._parts = [sp.csr_array(sp.vstack(parts)) if parts else sp.csr_array((self.rows, width))]
        return self._parts[0]


def hash_words(words: Sequence[str], buckets: int) -> npt.NDArray[np.int64]:
    """Return a number below `buckets` for each word: MurmurHash3, the same everywhere."""
    from sklearn.utils import murmurhash3_32

    hashes = [murmurhash3_32(word.encode("utf-8", "surrogatepass"), positive=True) for word in words]
    return np.array(hashes, np.int64) % buckets


def analyser(separator: str | None) -> Callable[[Any], list[str]]:
    """Return a function that finds the words of a cell: of a text or, with a separator, of a list of words."""
    return _text_words() if separator is None else _splitter(separator)


def _text_words() -> Callable[[str], list[str]]:
    """Return the default of scikit-learn to find words in a text: lower case, two letters or more."""
    from sklearn.feature_extraction.text import CountVectorizer

    analyse: Callable[[str], list[str]] = CountVectorizer().build_analyzer()
    return analyse


def _splitter(separator: str) -> Callable[[Any], list[str]]:
    """Return a function that turns a cell into words; a list already has them."""

    def split(cell: Any) -> list[str]:
        if not isinstance(cell, str):
            return [str(word) for word in cell if word is not None and str(word)]
        parts = cell.split() if separator == " " else (part.strip() for part in cell.split(separator))
        return [part for part in parts if part]

    return split


def find_separator(cells: Cells) -> str:
    """Return what separates words in these cells: a semicolon or a comma if any cell has one, else white space."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    return next((mark for mark in (";", ",") if any(mark in text for text in texts)), " ")
