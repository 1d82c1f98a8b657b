"""The words of columns that do not fit into memory: a vocabulary from one pass, counts by it in another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from nfcgcn.data.formats.columns import LEAST_ROWS, HashedText, Text, Words, rarity
from nfcgcn.data.formats.words import MOST_WORDS, hash_words
from nfcgcn.data.packing.engine import Engine
from nfcgcn.data.packing.tokens import count_words


class Vocabulary:
    """How often each word of a column occurs, kept in the database."""

    def __init__(self, engine: Engine, number: int, separator: str | None) -> None:
        self.engine, self.separator, self.rows, self.table = engine, separator, 0, f"words_{number}"
        engine.run(f"CREATE TABLE {self.table} (word VARCHAR, rows BIGINT, total BIGINT)")

    def add(self, texts: Any) -> None:
        """Add some rows."""
        import pyarrow as pa

        self.rows += len(texts)
        counts = count_words(texts, self.separator)
        rows = np.bincount(counts.places, minlength=len(counts.words))
        total = np.bincount(counts.places, weights=counts.counts, minlength=len(counts.words)).astype(np.int64)
        if len(counts.words):
            table = pa.table({"word": counts.words, "rows": rows, "total": total})
            self.engine.run(f"INSERT INTO {self.table} SELECT * FROM added", added=table)

    def learn(self, name: str) -> Text | Words | None:
        """Return the column with its most frequent words, chosen as :mod:`nfcgcn.data.formats.words` does."""
        summed = f"SELECT word, sum(rows) AS rows, sum(total) AS total FROM {self.table} GROUP BY word"
        least = 1 if self.separator is not None else LEAST_ROWS
        order = f"ORDER BY total DESC, word LIMIT {MOST_WORDS}"
        chosen = self.engine.rows(f"SELECT word, rows FROM ({summed}) WHERE rows >= {least} {order}")
        chosen = chosen or self.engine.rows(f"SELECT word, rows FROM ({summed}) {order}")
        self.engine.run(f"DROP TABLE {self.table}")
        if not chosen:
            return None
        chosen.sort()
        words = tuple(word for word, _ in chosen)
        if self.separator is not None:
            return Words(name, words, self.separator)
        return Text(name, words, rarity(np.array([int(rows) for _, rows in chosen]), self.rows))


class PackedCounts:
    """The counts of a few rows; offers what :class:`nfcgcn.data.formats.words.WordCounts` does to encode them."""

    unseen = 0

    def __init__(self, texts: Any, separator: str | None) -> None:
        self.rows, self._counts = len(texts), count_words(texts, separator)

    def of(self, vocabulary: Sequence[str]) -> sp.csr_array:
        """Return the counts of these words, ``[N, words]``."""
        import pyarrow as pa
        from pyarrow import compute

        known = pa.array(vocabulary, pa.large_string())
        places = compute.fill_null(compute.index_in(self._counts.words, known), -1).to_numpy().astype(np.int64)
        return self._matrix(places[self._counts.places], len(vocabulary))

    def hashed(self, buckets: int) -> sp.csr_array:
        """Return the counts of all words, ``[N, buckets]``, each in the column that its hash says."""
        places = hash_words(self._counts.words.to_pylist(), buckets)
        matrix = self._matrix(places[self._counts.places], buckets)
        matrix.sum_duplicates()
        return matrix

    def _matrix(self, columns: Any, width: int) -> sp.csr_array:
        known = columns >= 0
        per_row = np.bincount(self._counts.rows[known], minlength=self.rows)
        starts = np.concatenate([[0], np.cumsum(per_row)])
        matrix = sp.csr_array(
            (self._counts.counts[known].astype(np.float32), columns[known], starts), shape=(self.rows, width)
        )
        matrix.sort_indices()
        return matrix


def separator_of(column: Text | Words | HashedText) -> str | None:
    """Return what separates the words of a column; None for prose."""
    return column.separator if isinstance(column, Words) else None
