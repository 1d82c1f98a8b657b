"""The features of a table: a block per column, and all blocks side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.data.formats.columns import (
    Block,
    Category,
    Column,
    HashedText,
    Number,
    Text,
    Words,
    encode_category,
    encode_hashed,
    encode_number,
    encode_text,
)
from nfcgcn.data.formats.encoding import Form
from nfcgcn.data.formats.gathering import Values
from nfcgcn.data.formats.words import WordCounts

DENSE_FROM = 0.1
"""Features are stored dense if at least this share of the values is not zero and no column is text or words."""


def encode_columns(
    learned: Iterable[Column], gathered: dict[str, Values | WordCounts]
) -> tuple[list[Block], dict[str, int]]:
    """Return the features of each column, and how many empty cells of it were filled; the cells are used up."""
    blocks: list[Block] = []
    filled = {}
    for column in learned:
        cells: Any = gathered.pop(column.name)  # so that the cells of a column and its features are never both kept
        if isinstance(column, Number):
            block, filled[column.name] = encode_number(column, cells)
            blocks.append(block)
        elif isinstance(column, Category):
            blocks.append(encode_category(column, cells))
        elif isinstance(column, Text):
            blocks.append(encode_text(column, cells))
        elif isinstance(column, HashedText):
            blocks.append(encode_hashed(column, cells))
        else:
            blocks.append(cells.of(column.vocabulary))
    return blocks, filled


def join(blocks: Sequence[Block], rows: int, form: Form) -> tuple[sp.csr_array | npt.NDArray[np.float32], Form]:
    """Return the features of all columns side by side."""
    if not blocks:
        return np.zeros((rows, 0), np.float32), "dense"
    if form == "sparse":
        return sp.csr_array(sp.hstack([sp.csr_array(block) for block in blocks], format="csr"), dtype=np.float32), form
    return np.hstack([block if isinstance(block, np.ndarray) else block.toarray() for block in blocks]), form


def choose_form(blocks: Sequence[Block], learned: Iterable[Column]) -> Form:
    """Return whether features are better stored sparse or dense."""
    filled = sum(count_filled(block) for block in blocks)
    return form_of(learned, filled, sum(block.shape[0] * block.shape[1] for block in blocks))


def count_filled(block: Block) -> int:
    """Return how many entries of a block would be stored if it were sparse."""
    return int(np.count_nonzero(block)) if isinstance(block, np.ndarray) else int(block.nnz)


def form_of(learned: Iterable[Column], filled: int, size: int) -> Form:
    """Return the form for features of which `filled` of `size` entries are not zero."""
    has_words = any(isinstance(column, Text | Words | HashedText) for column in learned)
    return "sparse" if has_words or filled < DENSE_FROM * size else "dense"
