"""The vector primitives against NumPy: every length, both types, and nothing written beyond the end."""

import numpy as np
import pytest
from numba import njit

from nfcgcn.kernels.cpu import vectors

TYPES = [np.float32, np.float64]
LENGTHS = [0, 1, 3, 4, 7, 8, 16, 17, 31, 32, 48, 63, 64, 100, 129]
PITCH, FIRST = 3, 2
KEPT = [0, 0b1, 0b1011010, 0x80000001, 0xFFFFFFFF]


@njit
def combine(out, source, indices, values, kept, length):
    vectors.combine(out, 3, source, 11, PITCH, indices, values, FIRST, kept, length)


@njit
def scatter(out, indices, values, kept, source, length):
    vectors.scatter(out, 11, PITCH, indices, values, FIRST, kept, source, 2, length)


@njit
def add_runs(out, out_run, source, source_run, spans, indices, values, kept):
    vectors.add_runs(out, 1, out_run, source, 2, source_run, spans, indices, values, 0.5, FIRST, kept)


@njit
def add_weighted(out, weights, source, steps, length):
    vectors.add_weighted(out, 1, weights, 2, source, 3, steps, length)


@njit
def add_inner(out, a, b, steps, length):
    vectors.add_inner(out, 1, a, 2, b, 3, steps, length)


@njit
def multiply(c, a, a_row, a_step, b, rows, steps, length):
    vectors.multiply(c, 1, length, rows, a, 0, a_row, a_step, b, 0, length, steps, length)


@njit
def add_product(c, a, a_row, a_step, b, rows, steps, length):
    vectors.add_product(c, 1, length, rows, a, 0, a_row, a_step, b, 0, length, steps, length)


@njit
def keep(out, scale, kept):
    vectors.keep(out, 5, scale, kept)


@njit
def tanh(x, length):
    vectors.tanh(x, 1, length)


def numbers(*shape, dtype):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def close(dtype):
    return {"rtol": 30 * np.finfo(dtype).eps, "atol": 30 * np.finfo(dtype).eps}


def entries(kept):
    """The entries that bits stand for, from `FIRST` on."""
    return [FIRST + bit for bit in range(32) if kept >> bit & 1]


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", LENGTHS)
def test_combine_adds_the_weighted_sum_and_writes_nothing_else(dtype, length, kept):
    source, values, out = numbers(500, dtype=dtype), numbers(40, dtype=dtype), numbers(length + 5, dtype=dtype)
    indices = np.random.default_rng(1).integers(0, 100, 40)
    expected = out.astype(np.float64)
    for entry in entries(kept):
        place = 11 + PITCH * indices[entry]
        expected[3:-2] += values[entry] * source[place : place + length].astype(np.float64)
    combine(out, source, indices, values, kept, length)
    np.testing.assert_allclose(out, expected, **close(dtype))


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", LENGTHS)
def test_scatter_adds_to_each_place_and_nowhere_else(dtype, length, kept):
    source, values, out = numbers(200, dtype=dtype), numbers(40, dtype=dtype), numbers(900, dtype=dtype)
    indices = np.random.default_rng(1).integers(0, 20, 40) * 12  # some places twice
    expected = out.astype(np.float64)
    for entry in entries(kept):
        place = 11 + PITCH * indices[entry]
        expected[place : place + length] += values[entry] * source[2 : 2 + length].astype(np.float64)
    scatter(out, indices, values, kept, source, length)
    np.testing.assert_allclose(out, expected, **close(dtype))


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("out_run", "source_run"), [(0, 1), (1, 0)])
def test_add_runs_adds_from_run_to_run_and_nowhere_else(dtype, kept, out_run, source_run):
    source, values, out = numbers(900, dtype=dtype), numbers(40, dtype=dtype), numbers(900, dtype=dtype)
    rng = np.random.default_rng(1)
    indices = rng.integers(0, len(LENGTHS), 40)  # some twice
    spans = np.stack([*rng.integers(0, 700, (2, len(LENGTHS))), LENGTHS], 1)
    expected = out.astype(np.float64)
    for entry in entries(kept):
        span = spans[indices[entry]]
        to, at, length = 1 + span[out_run], 2 + span[source_run], span[2]
        expected[to : to + length] += 0.5 * values[entry] * source[at : at + length].astype(np.float64)
    add_runs(out, out_run, source, source_run, spans, indices, values, kept)
    np.testing.assert_allclose(out, expected, **close(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("steps", [0, 1, 3, 8])
@pytest.mark.parametrize("length", [1, 3, 8, 16, 37])
def test_rows_weighted_and_multiplied_column_by_column(dtype, steps, length):
    a, b, out = (numbers(count, dtype=dtype) for count in (400, 401, 402))
    rows, others = (x[at : at + steps * length].reshape(steps, length).astype(np.float64) for x, at in ((a, 2), (b, 3)))
    inner, weighted = out.copy(), out.copy()
    expected = out.astype(np.float64)
    expected[1 : 1 + length] += (rows * others).sum(0)
    add_inner(inner, a, b, steps, length)
    np.testing.assert_allclose(inner, expected, **close(dtype))
    expected = out.astype(np.float64)
    expected[1 : 1 + steps * length] += (a[2 : 2 + length].astype(np.float64) * others).flatten()
    add_weighted(weighted, a, b, steps, length)
    np.testing.assert_allclose(weighted, expected, **close(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", [1, 7, 8, 17])
@pytest.mark.parametrize("steps", [0, 1, 9])
@pytest.mark.parametrize("length", [1, 7, 16, 37])
def test_products_of_matrices_read_either_way(dtype, rows, steps, length):
    a, b = numbers(rows, steps, dtype=dtype), numbers(steps, length, dtype=dtype)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    c = np.full(rows * length + 2, np.nan, dtype)
    multiply(c, a, steps, 1, b, rows, steps, length)
    np.testing.assert_allclose(c[1:-1].reshape(rows, length), expected, **close(dtype))
    add_product(c, np.ascontiguousarray(a.T), 1, rows, b, rows, steps, length)
    np.testing.assert_allclose(c[1:-1].reshape(rows, length), 2 * expected, **close(dtype))
    assert np.isnan(c[[0, -1]]).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_tanh_is_right_to_a_few_units_in_the_last_place(dtype):
    x = np.concatenate([np.linspace(-30, 30, 6001), np.logspace(-30, 0, 601), np.zeros(40)]).astype(dtype)
    out = np.concatenate([[dtype(5)], x, [dtype(5)]])
    tanh(out, len(x))
    expected = np.tanh(x.astype(np.longdouble))
    np.testing.assert_allclose(out[1:-1], expected, rtol=4 * np.finfo(dtype).eps, atol=0)
    assert np.abs(out[1:-1]).max() == 1
    assert out[0] == out[-1] == 5


@pytest.mark.parametrize("dtype", TYPES)
def test_tanh_of_what_is_no_finite_number(dtype):
    out = np.array([2, np.nan, np.inf, -np.inf], dtype)
    tanh(out, 3)  # from the second on
    np.testing.assert_allclose(out, np.array([2, np.nan, 1, -1], dtype), rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", TYPES)
def test_keep_scales_what_has_a_bit_and_clears_the_rest_of_32(dtype, kept):
    out = numbers(50, dtype=dtype)
    expected = out.copy()
    expected[5:37] = [out[5 + bit] * dtype(2.5) if kept >> bit & 1 else 0 for bit in range(32)]
    keep(out, dtype(2.5), kept)
    np.testing.assert_array_equal(out, expected)
