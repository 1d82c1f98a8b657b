"""The same seed gives the same bits, whatever the number of threads: drawn at random, for every model and product."""

from __future__ import annotations

import copy
from typing import Literal, get_args, get_origin

import pytest
import torch
import torch.nn.functional as F
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nfcgcn import fit
from nfcgcn.baselines.gat import elu
from nfcgcn.config.registry import MODELS, make_config
from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.contract import THREADS
from nfcgcn.kernels.products import aggregate, product, sparse_product
from nfcgcn.kernels.rows import add_slots, column_sums, gathered, scaled, shifted
from nfcgcn.kernels.sparse import Sparse
from nfcgcn.method.operations import multiply
from nfcgcn.settings import settings_of
from random_graphs import random_graph

EXCEPTIONS = {"mode": ["concat", "max"], "backend": ["auto", "cpu"]}
"""Choices under the promise, where not all are: not torch's LSTM, and not the reference."""
COUNTS = {
    "hidden_channels": st.sampled_from([5, 7, 16, 20, 24, 33, 40]),
    "num_layers": st.integers(1, 3),
    "bandwidth": st.integers(3, 7),
    "filters": st.sampled_from([3, 4, 8, 20]),
    "kernel_size": st.integers(1, 21),
    "stride": st.integers(3, 9),
    "kernel_width": st.integers(1, 3),
    "samples": st.sampled_from([20, 400]),
    "conv_layers": st.integers(1, 3),
}


def choices(setting):
    if get_origin(setting.type) is Literal:
        return st.sampled_from(EXCEPTIONS.get(setting.name, get_args(setting.type)))
    if setting.type is float:
        above, below = setting.bounds["above"], setting.bounds["below"]
        values = [value for value in (0.0, 0.1, 0.3, 0.5) if above is None or value > above]
        return st.sampled_from([value for value in values if below is None or value < below])
    assert setting.type is int, f"no values for `{setting.name}`"
    return COUNTS.get(setting.name, st.integers(1, 8))


@st.composite
def configs(draw, model):
    declared = settings_of(MODELS[model].config)
    free = {name: setting for name, setting in declared.items() if name not in MODELS[model].fixed}
    values = {name: draw(choices(setting), label=name) for name, setting in free.items()}
    if "classifier" in values and draw(st.booleans(), label="no graph convolution"):
        values |= {"num_layers": 0, "classifier": "none"}
    batch_size = draw(st.sampled_from([None, None, 500]), label="batch_size")
    return make_config(model, settings=values | {"epochs": 2, "batch_size": batch_size, "split": "ratio"})


def graphs(model):
    # From some 33,000 numbers on torch shares an operation out; the larger models reach that with fewer nodes.
    small = model in ("nfc-gcn", "nfc-gcn-2d", "lgcn", "gnn", "gated-gnn") or not MODELS[model].model.reads_features
    large = 1500 if small else 7000
    return st.builds(
        random_graph,
        st.sampled_from([60, 700, large]),
        st.sampled_from([21, 40, 97]),
        num_classes=st.sampled_from([2, 3, 7]),
        sparse=st.booleans(),
        seed=st.integers(0, 99),
    )


def of_each(threads, compute, counts=THREADS):
    """What one computation gives for each number of threads."""
    results = []
    for count in counts:
        threads(count)
        results.append(compute())
    return results


def check_same(results, counts=THREADS):
    for count, result in zip(counts[1:], results[1:], strict=True):
        for name, found in result.items():
            assert torch.equal(found, results[0][name]), f"{name} has other bits with {count} threads"


@pytest.mark.parametrize("model", MODELS)
def test_trainings(model, threads, everything):
    @settings(max_examples=48 if everything else 5, phases=[Phase.generate])  # to shrink a training takes minutes
    @given(configs(model), graphs(model), st.sampled_from(THREADS[1:]))
    def check(config, graph, several):
        def train():
            fresh = copy.copy(graph)  # with none of what was made, and cached, with another number of threads
            run = fit(config.build(fresh, 0), fresh, config.split.make(fresh, 0), config.training)
            losses = [[epoch["train_loss"], epoch["val_loss"]] for epoch in run.history]
            return {"loss": torch.tensor(losses, dtype=torch.float64), **run.state}

        check_same(of_each(threads, train, (1, several)), (1, several))

    check()


def rand(*shape, seed, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check_against_float64(compute, inputs, dtype, threads, terms=1):
    """Values and gradients of ``compute(*inputs)``: near those of float64, and the same bits for all threads.

    A sum has as many terms as an input is long, or `terms`.
    """

    def values_and_gradients(dtype):
        leaves = [t.to(dtype).requires_grad_() for t in inputs]
        out = compute(*leaves)
        pull = rand(*out.shape, seed=9, dtype=dtype)
        return dict(enumerate([out.detach(), *torch.autograd.grad(out, leaves, pull)]))

    results = of_each(threads, lambda: values_and_gradients(dtype))
    check_same(results)
    terms = max([terms, *(size for t in inputs for size in t.shape)])
    for found, exact in zip(results[0].values(), values_and_gradients(torch.float64).values(), strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=8 * terms * torch.finfo(dtype).eps)


dtypes = st.sampled_from([torch.float32, torch.float64])
seeds = st.integers(0, 99)
lengths = st.one_of(st.integers(0, 40), st.sampled_from([255, 256, 257, 513, 2708, 5000]))
widths = st.one_of(st.integers(0, 24), st.sampled_from([31, 32, 33, 40, 64, 130]))
layouts = st.sampled_from(["rows", "columns", "every second"])


def laid_out(t, layout):
    """The same numbers in another order in memory."""
    if layout == "columns":
        return t.mT.contiguous().mT
    return torch.stack([t, t], dim=2).flatten(1)[:, ::2] if layout == "every second" else t


@given(lengths, widths, widths, layouts, layouts, dtypes, seeds)
def test_dense_products(threads_of_the_test, m, f, h, left, right, dtype, seed):
    inputs = rand(m, f, seed=seed), rand(f, h, seed=seed + 1)
    check_against_float64(
        lambda a, b: product(laid_out(a, left), laid_out(b, right)), inputs, dtype, threads_of_the_test
    )


@given(lengths, widths, widths, dtypes, seeds, st.booleans())
def test_sparse_products(threads_of_the_test, m, f, h, dtype, seed, once):
    keep = rand(m, f, seed=seed) > 1
    matrix = (rand(m, f, seed=seed + 1) * keep).to_sparse_csr()

    def compute(dense):
        a = csr_tensor(matrix.crow_indices(), matrix.col_indices(), matrix.values().to(dense.dtype), matrix.shape)
        return multiply(a, dense) if once else sparse_product(Sparse.from_csr(a), dense)

    check_against_float64(compute, [rand(f, h, seed=seed + 2)], dtype, threads_of_the_test)


@given(st.one_of(st.tuples(lengths, widths), st.just((70_001, 1))), dtypes, seeds)
def test_rows_shifted_scaled_and_added_up(threads_of_the_test, shape, dtype, seed):
    n, width = shape
    inputs = rand(n, width, seed=seed), rand(width, seed=seed + 1)
    for compute in (shifted, scaled, lambda h, row: column_sums(h) * row):
        check_against_float64(compute, inputs, dtype, threads_of_the_test)


@given(st.integers(1, 3000), st.integers(1, 9), st.integers(1, 9), dtypes, seeds)
def test_slots_are_added_one_after_the_other(threads_of_the_test, n, slots, width, dtype, seed):
    check_against_float64(add_slots, [rand(n, slots, width, seed=seed)], dtype, threads_of_the_test)


@given(st.integers(1, 500), st.integers(0, 5000), st.integers(0, 9), st.integers(1, 9), dtypes, seeds)
def test_rows_read_by_a_table(threads_of_the_test, m, n, slots, width, dtype, seed):
    table = torch.randint(m, (n, slots), generator=torch.Generator().manual_seed(seed))
    h = rand(m, width, seed=seed)
    check_against_float64(lambda h: gathered(h, table), [h], dtype, threads_of_the_test, terms=table.numel())


@given(st.integers(1, 100_000), dtypes, seeds)
@settings(max_examples=20)
def test_elu(threads_of_the_test, n, dtype, seed):
    h = rand(n, 1, seed=seed)
    check_against_float64(elu, [h], dtype, threads_of_the_test)
    torch.testing.assert_close(elu(h), F.elu(h))


def test_a_sparse_matrix_times_a_sparse_one():
    a = rand(40, 30, seed=0) * (rand(40, 30, seed=1) > 1)
    x = rand(30, 20, seed=2) * (rand(30, 20, seed=3) > 1)
    left = Sparse.from_csr(a.to_sparse_csr())
    found = aggregate(left, x.to_sparse_csr())
    assert found.layout == torch.sparse_csr
    torch.testing.assert_close(found.to_dense(), a @ x)
    torch.testing.assert_close(aggregate(left, x), a @ x)


@pytest.fixture(scope="module")
def threads_of_the_test():
    """As `threads`, but for tests that Hypothesis calls many times."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
