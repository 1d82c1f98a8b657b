"""Products of a block of eight vectors with rows, against NumPy: lengths, both types, and nothing written elsewhere."""

import numpy as np
import pytest
from numba import njit

from nfcgcn.kernels.cpu import row_blocks

LENGTHS = [1, 4, 7, 8, 16, 21, 64, 130]
COUNTS = [0, 1, 8, 15]


@njit
def transpose(out, block, scale, length):
    row_blocks.transpose(out, block, scale, length)


@njit
def score(out, rows, places, count, turned, length):
    row_blocks.score_rows(out, rows, rows.shape[1], places, count, turned, length)


@njit
def combine(out, rows, places, values, count, length):
    row_blocks.combine_rows(out, rows, rows.shape[1], places, values, count, length)


@njit
def add(rows, places, values, count, block, length):
    row_blocks.add_to_rows(rows, rows.shape[1], places, values, count, block, length)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_block_is_transposed(dtype, length):
    block = np.random.default_rng(0).normal(size=(8, length)).astype(dtype)
    out = np.full((length + 1, 8), np.nan, dtype)
    transpose(out, block, 0.5, length)
    np.testing.assert_array_equal(out[:length], block.T / 2)
    assert np.isnan(out[length]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("length", LENGTHS)
def test_products_with_rows_are_those_of_numpy(dtype, count, length):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, length + 3)).astype(dtype)
    block, values = rng.normal(size=(8, length)).astype(dtype), rng.normal(size=(count, 8)).astype(dtype)
    places = rng.permutation(20)[: count + 1]
    kept, chosen = rows.copy(), rows[places[:count], :length].astype(float)
    close = {"rtol": 0, "atol": 1e-4 if dtype == np.float32 else 1e-12}

    scores = np.full((count + 1, 8), np.nan, dtype)
    score(scores, rows, places, count, np.ascontiguousarray(block.T), length)
    np.testing.assert_allclose(scores[:count], chosen @ block.T.astype(float), **close)
    assert np.isnan(scores[count]).all()

    sums = np.full((9, length), np.nan, dtype)
    combine(sums, rows, places, values, count, length)
    np.testing.assert_allclose(sums[:8], values.T.astype(float) @ chosen, **close)
    assert np.isnan(sums[8]).all()

    add(rows, places, values, count, block, length)
    expected = kept.astype(float)
    expected[places[:count], :length] += values.astype(float) @ block
    np.testing.assert_allclose(rows, expected, **close)
    others = np.setdiff1d(np.arange(20), places[:count])
    np.testing.assert_array_equal(rows[others], kept[others])
    np.testing.assert_array_equal(rows[:, length:], kept[:, length:])
