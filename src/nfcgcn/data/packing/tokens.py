"""Words of texts, many rows at a time: NumPy and Arrow work on the bytes, and no row becomes a Python object.

The words are those that :mod:`nfcgcn.data.formats.words` finds. It also reads the rows that are not ASCII.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nfcgcn.data.formats.table import MISSING
from nfcgcn.data.formats.words import analyser

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_BYTES = np.arange(256, dtype=np.uint8)
_ASCII = [chr(code) for code in range(128)] + [""] * 128
_SPACE = np.array([c.isspace() for c in _ASCII])
_WORD = np.array([c.isalnum() or c == "_" for c in _ASCII])
_LOWER = np.where((ord("A") <= _BYTES) & (ord("Z") >= _BYTES), _BYTES + 32, _BYTES).astype(np.uint8)


class Counts(NamedTuple):
    """How often words occur in rows: each pair of a row and a word once, sorted."""

    rows: Ints
    places: Ints
    """Of the words, in `words`."""
    counts: Ints
    words: Any
    """An Arrow array of different words."""


def count_words(texts: Any, separator: str | None) -> Counts:
    """Count the words of an Arrow array of texts or of lists of texts.

    Without a ``separator`` texts are read as prose: lower case, words of two letters or more.
    """
    import pyarrow as pa

    kind = texts.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        rows, tokens = _of_lists(texts)
    else:
        rows, tokens = _of_texts(texts, separator)
    coded = tokens.dictionary_encode()
    width = max(1, len(coded.dictionary))
    keys = np.sort(rows * width + coded.indices.to_numpy())
    first = np.flatnonzero(np.concatenate([np.ones(min(1, len(keys)), bool), keys[1:] != keys[:-1]]))
    counts = np.diff(np.append(first, len(keys)))
    return Counts(keys[first] // width, keys[first] % width, counts, coded.dictionary)


def _of_lists(lists: Any) -> tuple[Ints, Any]:
    """Return the words of lists, each with its row; empty ones are none."""
    import pyarrow as pa
    from pyarrow import compute

    lengths = compute.fill_null(compute.list_value_length(lists), 0).to_numpy().astype(np.int64)
    rows, tokens = np.repeat(np.arange(len(lists)), lengths), lists.flatten().cast(pa.large_string())
    present = compute.fill_null(compute.not_equal(tokens, ""), False)
    return rows[present.to_numpy(zero_copy_only=False)], tokens.filter(present)


def _of_texts(texts: Any, separator: str | None) -> tuple[Ints, Any]:
    """Return the words of texts, each with its row."""
    import pyarrow as pa
    from pyarrow import compute

    empty = compute.is_in(texts, pa.array(sorted(MISSING), texts.type))
    texts = compute.fill_null(compute.if_else(empty, pa.scalar("", texts.type), texts), "").cast(pa.large_string())
    data, offsets = _bytes_of(texts)
    lengths = np.diff(offsets)
    strange = np.zeros(len(texts), bool)
    if len(data) and data.max() > 127:
        strange = np.diff(np.concatenate([[0], np.cumsum(data > 127)])[offsets]) > 0
    rows, tokens = _ascii_words(data, offsets, np.repeat(strange, lengths) if strange.any() else None, separator)
    if strange.any():
        analyse = analyser(separator)
        others = [analyse(text) for text in texts.filter(pa.array(strange)).to_pylist()]
        more = np.repeat(np.flatnonzero(strange), [len(words) for words in others])
        rows = np.concatenate([rows, more])
        tokens = pa.concat_arrays([tokens, pa.array([word for words in others for word in words], pa.large_string())])
    return rows, tokens


def _bytes_of(texts: Any) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Return the bytes of all texts, one after the other, and where each begins."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    starts = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8)[starts[0] : starts[-1]], starts - starts[0]


def _ascii_words(
    data: npt.NDArray[np.uint8], offsets: Ints, left_out: Bools | None, separator: str | None
) -> tuple[Ints, Any]:
    """Return the words of texts, each with its row; bytes that are `left_out` belong to none.

    A word reaches from the first to the last byte of content between two breaks.
    """
    import pyarrow as pa

    if separator is None:
        content, least = _WORD[data], 2
        breaks = ~content
    else:
        breaks = _SPACE[data] if separator == " " else data == ord(separator)
        content, least = ~breaks & ~_SPACE[data], 1
    if left_out is not None:
        content &= ~left_out
    if len(data):
        breaks[offsets[:-1][offsets[:-1] < len(data)]] = True  # a word ends with its row
    places = np.flatnonzero(content)
    # A break that is content itself is the first byte of a row: it begins a segment, as any break does.
    segment = np.cumsum(breaks)[places]
    new = np.ones(len(places) + 1, bool)
    new[1:-1] = segment[1:] != segment[:-1]
    firsts, lasts = places[new[:-1]], places[new[1:]]
    lengths = lasts - firsts + 1
    keep = lengths >= least
    firsts, lengths = firsts[keep], lengths[keep]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    taken = np.repeat(firsts - starts[:-1], lengths) + np.arange(starts[-1])
    letters = data[taken] if separator is not None else _LOWER[data[taken]]
    tokens = pa.LargeStringArray.from_buffers(len(firsts), pa.py_buffer(starts), pa.py_buffer(letters))
    return np.repeat(np.arange(len(offsets) - 1), np.diff(np.searchsorted(firsts, offsets))), tokens
