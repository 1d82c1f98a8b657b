"""Attention in Numba against the reference: values, every gradient, masks, and bits that know nothing of threads."""

from __future__ import annotations

import pytest
import torch

from nfcgcn.baselines import GAT
from nfcgcn.kernels import attention as attention_module
from nfcgcn.kernels.attention import attention
from nfcgcn.kernels.cpu import attention as cpu
from nfcgcn.kernels.reference import attention as reference
from nfcgcn.kernels.reference import masks
from nfcgcn.kernels.reference.attention import Edges
from nfcgcn.kernels.sparse import normalised_adjacency

SIZES = [(1, 1), (1, 3), (8, 8), (8, 3), (3, 5), (5, 1), (35, 2)]
NUM_NODES = 150
SEED = 5


def edges_of(dtype):
    """Arrows drawn at random, not both ways; the last 20 nodes have only their loop."""
    arrows = torch.randint(NUM_NODES - 20, (2, 600), generator=torch.Generator().manual_seed(1))
    return Edges.of(normalised_adjacency(arrows, NUM_NODES, dtype))


def inputs(heads, channels, dtype):
    random = torch.Generator().manual_seed(2)

    def normal(*shape):
        # Drawn in float32, so that both types start from the same numbers.
        return torch.randn(shape, generator=random).to(dtype)

    parameters = [normal(NUM_NODES, heads * channels), normal(heads, channels), normal(heads, channels)]
    return [p.requires_grad_() for p in parameters], normal(NUM_NODES, heads * channels)


def by_reference(*tensors, edges, dropout):
    def drop(weights):
        if not dropout:
            return weights
        return weights * masks.mask(*weights.shape, dropout=dropout, seed=SEED, dtype=weights.dtype)

    return reference.attention(*tensors, edges, drop)


def by_kernel(*tensors, edges, dropout):
    return cpu.attention(*tensors, edges, dropout=dropout, seed=SEED)


def run(function, size, dropout, dtype):
    """Value and gradients, in float64."""
    tensors, pull = inputs(*size, dtype)
    out = function(*tensors, edges=edges_of(dtype), dropout=dropout)
    return [t.detach().double() for t in (out, *torch.autograd.grad(out, tensors, pull))]


@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.6])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_and_gradients_are_the_reference_s(size, dropout):
    exact = run(by_reference, size, dropout, torch.float64)
    for found, expected in zip(run(by_kernel, size, dropout, torch.float64), exact, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12 * expected.abs().max().item())
    own, fast = (run(function, size, dropout, torch.float32) for function in (by_reference, by_kernel))
    for found, plain, expected in zip(fast, own, exact, strict=True):
        floor = 16 * torch.finfo(torch.float32).eps * expected.abs().max()
        assert (found - expected).abs().max() <= 2 * (plain - expected).abs().max() + floor


@pytest.mark.parametrize("dropout", [0.0, 0.6])
@pytest.mark.parametrize("size", [(8, 8), (1, 3)], ids=str)
def test_bits_do_not_depend_on_threads(size, dropout, threads):
    results = []
    for count in (1, 2):
        threads(count)
        results.append(run(by_kernel, size, dropout, torch.float32))
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


def test_a_node_with_a_loop_alone_keeps_its_row():
    (h, source, target), _ = inputs(8, 8, torch.float32)
    out = cpu.attention(h, source, target, edges_of(torch.float32))
    assert torch.equal(out[-20:], h[-20:])
    dropped = by_kernel(h, source, target, edges=edges_of(torch.float32), dropout=0.5)[-20:].view(20, 8, 8)
    kept = dropped.any(2)
    assert kept.any()
    assert not kept.all()
    torch.testing.assert_close(dropped, 2 * h[-20:].view(20, 8, 8) * kept[:, :, None])


def test_no_memory_is_read_before_it_is_written_and_no_input_changed():
    tensors, pull = inputs(3, 5, torch.float32)
    before = [t.clone() for t in (*tensors, pull)]
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    try:
        out = by_kernel(*tensors, edges=edges_of(torch.float32), dropout=0.6)
        grads = torch.autograd.grad(out, tensors, pull)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(t.isfinite().all() for t in (out, *grads))
    assert all(torch.equal(t, old) for t, old in zip((*tensors, pull), before, strict=True))


def test_gradients_that_are_not_contiguous():
    tensors, pull = inputs(3, 5, torch.float64)
    for given in (pull.mT.contiguous().mT, pull[:, :1].expand_as(pull)):
        grads = [
            torch.autograd.grad(function(*tensors, edges=edges_of(torch.float64), dropout=0.6), tensors, given)
            for function in (by_reference, by_kernel)
        ]
        torch.testing.assert_close(*grads)


def test_dropout_follows_torch_s_generator_and_leaves_evaluation_alone():
    tensors, _ = inputs(8, 8, torch.float32)
    edges = edges_of(torch.float32)

    def call(training):
        return attention(*tensors, edges, dropout=0.6, training=training)

    torch.manual_seed(1)
    first, second = call(True), call(True)
    torch.manual_seed(1)
    assert torch.equal(call(True), first)
    assert not torch.equal(first, second)
    state = torch.get_rng_state()
    assert torch.equal(call(False), cpu.attention(*tensors, edges))
    assert torch.equal(torch.get_rng_state(), state)


def test_without_numba_the_reference_runs(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError

    monkeypatch.setattr(cpu, "attention", refuse)
    tensors, _ = inputs(2, 3, torch.float32)
    edges = edges_of(torch.float32)
    with pytest.raises(AssertionError):
        attention(*tensors, edges, dropout=0.0, training=True)
    monkeypatch.setattr(attention_module, "numba_refusal", lambda: "it is not there")
    found = attention(*tensors, edges, dropout=0.0, training=True)
    assert torch.equal(found, by_reference(*tensors, edges=edges, dropout=0.0))


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_a_gat_trains_on_the_same_numbers_as_with_the_reference(sparse, make_graph, monkeypatch):
    graph = make_graph(sparse=sparse)
    torch.manual_seed(0)
    model = GAT(40, 4, 3, 3, heads=3, output_heads=2).double()
    x = graph.x.double()
    found = []
    for refusal in (None, "the reference is to run"):
        monkeypatch.setattr(attention_module, "numba_refusal", lambda refusal=refusal: refusal)
        torch.manual_seed(3)  # one number a mask, whichever runs
        model.zero_grad()
        out = model(x, graph.edge_index)
        out.square().sum().backward()
        found.append([out.detach(), *(p.grad.clone() for p in model.parameters())])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)
    assert all(t.any() for t in found[0])
