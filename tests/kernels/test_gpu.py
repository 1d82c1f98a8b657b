"""The GPU's kernels: the whole contract on a device, their logic alone through Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from nfcgcn.graph import csr_tensor
from nfcgcn.kernels import contract
from nfcgcn.kernels.gpu import neighbour_draw
from nfcgcn.kernels.gpu import node_feature_conv as gpu
from nfcgcn.kernels.gpu.adam import adam
from nfcgcn.kernels.gpu.cross_entropy import cross_entropy
from nfcgcn.kernels.gpu.launch import compile_ahead
from nfcgcn.kernels.gpu.masks import relu_dropout
from nfcgcn.kernels.gpu.product import add_up, matmul, product, shifted, sparse_product
from nfcgcn.kernels.gpu.tables import PIECE, Options, Tables
from nfcgcn.kernels.reference import adam as adam_reference
from nfcgcn.kernels.reference import cross_entropy as cross_entropy_reference
from nfcgcn.kernels.reference import masks as masks_reference
from nfcgcn.method.sampling import adjacency_lists, draw_rows, order_by_similarity, rank_by_similarity

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VARIANTS = {"projected": gpu.projected, "node_feature_conv": gpu.node_feature_conv}
SMALL = contract.Case(
    "small", num_nodes=6, num_features=16, bandwidth=3, filters=3, size=6, stride=4, hidden=3, index_dtype=torch.int32
)
LOGIC = [
    SMALL,
    replace(SMALL, name="no dropout", dropout=0.0),
    replace(SMALL, name="2D, size no multiple of stride", width=2, size=5, stride=3, dropout=0.3),
    replace(SMALL, name="columns between windows, none", size=3, stride=5, activation="none"),
    replace(SMALL, name="2D, none", width=2, activation="none", dropout=0.3),
    replace(SMALL, name="no nonzero", density=0.0),
    replace(SMALL, name="dense, relu", sparse=False, activation="relu", dropout=0.3),
    replace(SMALL, name="dense, 2D, none", sparse=False, width=2, activation="none"),
    replace(SMALL, name="no gradient", grad=False, dropout=0.0, activation="none"),
]


PROJECTED_ONLY = (
    "2D, size no multiple of stride", "columns between windows, none", "dense, 2D, none", "no dropout", "2D, none",
)  # fmt: skip
"""What another operation adds nothing to: the two share the convolution, and differ after it."""


@pytest.mark.parametrize(
    ("operation", "case"),
    [
        pytest.param(o, c, marks=[pytest.mark.thorough] if o != "projected" and c.name in PROJECTED_ONLY else [])
        for c in LOGIC
        for o in VARIANTS
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_the_logic_keeps_the_contract(operation, case):
    # A device has no threads of the CPU: one repetition will do, and the interpreter is slow.
    complaint = contract.violation(operation, VARIANTS[operation], case, torch.float32, device=DEVICE, threads=(1,))
    assert complaint is None


@pytest.mark.gpu
@pytest.mark.parametrize("operation", VARIANTS)
def test_the_gpu_kernels_keep_the_contract(operation):
    for case in contract.cases():
        complaint = contract.violation(operation, VARIANTS[operation], case, torch.float32, device="cuda")
        assert complaint is None, case.name


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "slack"), [("tf32", 2.0**13), ("bf16", 2.0**16)])
def test_lower_precisions_stay_within_their_rounding(precision, slack):
    def variant(x, neighbours, weight, matrix, *, seed, **options):
        tables, seeds = Tables(x, neighbours[None]), torch.tensor([seed], device=x.device)
        options = Options(**options, precision=precision)
        return gpu.projected_stack(tables, weight[None], matrix[None], seeds, options)[0]

    for case in contract.cases():
        if case.dropout == 0.5 and case.activation != "relu":  # rounding takes a ReLU's input to its other side
            complaint = contract.violation("projected", variant, case, torch.float32, device="cuda", slack=slack)
            assert complaint is None, case.name


@pytest.mark.gpu
def test_programs_that_are_compiled_ahead_do_not_run():
    parts, sums, stream = torch.ones(5, 40, device="cuda"), [], torch.cuda.Stream()
    with contract._poisoned_memory():
        compile_ahead(lambda: sums.append(add_up(parts)), stream)
        torch.cuda.synchronize()
        assert sums[0].isnan().all()
        assert add_up(parts).tolist() == [5.0] * 40


@pytest.mark.parametrize("activation", [pytest.param("none", marks=pytest.mark.thorough), "tanh"])
def test_a_run_of_a_stack_is_to_the_bit_what_it_is_alone(activation):
    cases = [replace(SMALL, activation=activation, density=d) for d in (0.2, 0.4)]
    inputs = [{name: t.to(DEVICE) for name, t in case.inputs(torch.float32).items()} for case in cases]
    x, seeds = inputs[0]["x"], torch.tensor([5, 6], device=DEVICE)
    parts = [
        torch.stack([i[name] for i in inputs]).requires_grad_(name != "neighbours") for name in list(inputs[0])[1:]
    ]

    def run(which):
        table, weight, matrix = (p.detach()[which].clone().requires_grad_(p.requires_grad) for p in parts)
        out = gpu.projected_stack(Tables(x, table), weight, matrix, seeds[which], Options(4, activation, 0.5))
        return out.detach(), *torch.autograd.grad(out, (weight, matrix), torch.ones_like(out) / 3)

    together = run([0, 1])
    for which in (0, 1):
        for alone, beside in zip(run([which]), together, strict=True):
            assert torch.equal(alone[0], beside[which])


def test_lists_longer_than_a_piece_are_added_up_whole():
    num_nodes = PIECE + 40
    x = torch.ones(num_nodes, 4).to_sparse_csr().to(DEVICE)
    table = torch.arange(num_nodes, device=DEVICE)[:, None]
    weight = torch.ones(1, 1, 4, device=DEVICE, requires_grad=True)
    options = {"stride": 1, "activation": "none", "dropout": 0.0, "seed": 0}
    gpu.projected(x, table, weight, torch.ones(1, 1, device=DEVICE), **options).sum().backward()
    assert weight.grad.flatten().tolist() == [num_nodes] * 4


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.5])
def test_relu_and_dropout(rate):
    torch.manual_seed(0)
    h = torch.randn(2, 13, 5, device=DEVICE, requires_grad=True)
    seeds = torch.tensor([7, 2**62 - 1], device=DEVICE)
    masks = torch.stack(
        [masks_reference.mask(13, 5, dropout=rate, seed=int(s), dtype=torch.float32).to(DEVICE) for s in seeds]
    )
    expected, grad = torch.relu(h) * masks, torch.randn(2, 13, 5, device=DEVICE)
    found = relu_dropout(h, seeds, rate)
    torch.testing.assert_close(found, expected)
    (expected_grad,) = torch.autograd.grad(expected, h, grad)
    torch.testing.assert_close(torch.autograd.grad(found, h, grad)[0], expected_grad)


@pytest.mark.parametrize("sizes", [(5, 7, 3), (70, 600, 20), (1, 1, 1)], ids=str)
def test_products(sizes):
    torch.manual_seed(0)
    rows, terms, columns = sizes
    a = torch.randn(2, rows, terms, device=DEVICE, requires_grad=True)
    b = torch.randn(2, columns, terms, device=DEVICE, requires_grad=True)
    found, expected = product(a, b.mT), a @ b.mT
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    grad = torch.randn_like(expected)
    grads = (torch.autograd.grad(out, (a, b), grad) for out in (found, expected))
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-4)
    assert torch.equal(matmul(a[1:], b[1:].mT)[0], found[1])


def test_a_bias_and_its_gradient():
    h, bias = (torch.randn(shape, device=DEVICE, requires_grad=True) for shape in ((3, 700, 4), (3, 4)))
    found, expected, grad = shifted(h, bias), h + bias[:, None], torch.randn(3, 700, 4, device=DEVICE)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(out, (h, bias), grad) for out in (found, expected)]
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-4)
    (alone,) = torch.autograd.grad(shifted(h[1:2], bias[1:2]), bias, grad[1:2])
    assert torch.equal(alone[1], grads[0][1][1])


def test_bf16_rounds_the_factors():
    torch.manual_seed(0)
    a, b = torch.randn(1, 20, 30, device=DEVICE), torch.randn(1, 30, 10, device=DEVICE)
    expected = a.bfloat16().float() @ b.bfloat16().float()
    torch.testing.assert_close(matmul(a, b, "bf16"), expected, rtol=1e-5, atol=1e-5)


def test_sums_along_a_dimension():
    parts = torch.randn(3, 19, 5, device=DEVICE)
    torch.testing.assert_close(add_up(parts, 1), parts.sum(1))
    torch.testing.assert_close(add_up(parts), parts.sum(0))


def test_sparse_products():
    torch.manual_seed(0)
    dense = torch.randn(6, 40) * (torch.rand(6, 40) < 0.7)
    dense[2] = 0
    both = [m.to_sparse_csr() for m in (dense, dense.mT.contiguous())]
    both = [csr_tensor(m.crow_indices(), m.col_indices(), m.values(), m.shape).to(DEVICE) for m in both]
    h = torch.randn(2, 40, 3, device=DEVICE, requires_grad=True)
    found, expected = sparse_product(*both, h), dense.to(DEVICE) @ h
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    torch.testing.assert_close(*(torch.autograd.grad(out, h, grad)[0] for out in (found, expected)))


def test_cross_entropy():
    torch.manual_seed(0)
    scores = 3 * torch.randn(2, 30, 5)
    scores[0, 4] = 1.0  # a tie: the first class counts
    nodes = torch.stack([torch.randperm(30)[:25] for _ in range(2)])
    nodes[0, 0], nodes[0, nodes[0] == 4] = 4, nodes[0, 0].clone()
    labels = torch.randint(5, (2, 25))
    labels[0, 0] = 0
    expected = cross_entropy_reference.cross_entropy(scores, nodes, labels)
    found = cross_entropy(*(t.to(DEVICE) for t in (scores, nodes, labels)), grad=True)
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f.cpu(), e)
    assert cross_entropy(*(t.to(DEVICE) for t in (scores, nodes, labels)), grad=False)[2] is None


@pytest.mark.parametrize("variant", ["reference", "gpu"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_torch_s(variant, decay):
    torch.manual_seed(0)
    start, num_steps = torch.randn(40, 30), 4
    expected = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([expected], lr=0.02, weight_decay=decay)
    device = DEVICE if variant == "gpu" else "cpu"
    found, moments = start.to(device, copy=True), torch.zeros(2, 40, 30, device=device)
    corrections = adam_reference.corrections(num_steps).to(device)
    for step, grad in enumerate(torch.randn(num_steps, 40, 30)):
        expected.grad = grad.clone()
        optimizer.step()
        if variant == "gpu":
            now = torch.tensor([step], device=device)
            adam(found, grad.to(device), moments, corrections, now, rate=0.02, decay=decay)
        else:
            adam_reference.adam(found, grad, moments, corrections[step], rate=0.02, decay=decay)
    torch.testing.assert_close(found.cpu(), expected.detach())


@pytest.mark.parametrize("bandwidth", [1, 2, 6, 13])
def test_neighbours_are_drawn_as_on_the_cpu(bandwidth):
    rng = np.random.default_rng(0)
    degrees = np.concatenate([[0, 1, 2, 5, 6, 30], rng.integers(0, 12, 40)])
    starts = np.concatenate([[0], degrees.cumsum()])
    neighbours = rng.integers(0, len(degrees), starts[-1])
    lists = tuple(torch.from_numpy(a) for a in (starts, neighbours))
    expected = draw_rows.formula(*lists, size=bandwidth - 1, seed=2**61 + 3)
    found = neighbour_draw.draw_rows(*(t.to(DEVICE) for t in lists), size=bandwidth - 1, seed=2**61 + 3)
    assert found.tolist() == expected.tolist()


def in_any_order(x, rng):
    """Return dense features as CSR, the columns of each row in any order."""
    rows = [rng.permutation(np.flatnonzero(row)) for row in x.numpy()]
    starts = np.cumsum([0, *map(len, rows)])
    columns = np.concatenate(rows)
    values = x.numpy()[np.repeat(np.arange(len(x)), np.diff(starts)), columns]
    return csr_tensor(*(torch.from_numpy(a) for a in (starts, columns, values)), x.shape)


def test_the_maps_and_lists_of_a_stack_hold_each_nonzero_once():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((6, 10)) * (rng.random((6, 10)) < 0.4)).float()
    table = torch.from_numpy(rng.integers(0, 6, (2, 6, 3)))
    tables = Tables(in_any_order(x, rng).to(DEVICE), table.to(DEVICE))
    maps, (begins, ends) = tables.maps, tables.windows(4, 3)
    found = []
    for run in range(2):
        for node in range(6):
            first, last = maps.starts[6 * run + node], maps.starts[6 * run + node + 1]
            cells = maps.cells[first:last].long()
            column = cells & (1 << maps.column_bits) - 1
            slot = cells >> maps.column_bits + maps.place_bits
            assert (10 * column + slot).diff().gt(0).all()
            own = x[table[run, node]]
            assert sorted(torch.stack([slot, column], 1).tolist()) == own.nonzero().tolist()
            found += [(run, int(s), int(c), node, float(own[s, c])) for s, c in zip(slot, column, strict=True)]
            for place in range(3):
                inside = (column >= 3 * place) & (column < 3 * place + 4)
                seen = torch.arange(first, last)[inside.cpu()]
                begin, end = begins[run, node, place], ends[run, node, place]
                assert list(range(begin, end)) == seen.tolist()
    lists, listed = tables.lists, []
    for piece, job in enumerate(tables.pieces(0, 10).jobs.tolist()):
        for slot in range(6):
            number = 6 * piece + slot
            for e in range(int(lists.starts[number]), int(lists.starts[number + 1])):
                listed.append((slot // 3, slot % 3, job[0], int(lists.nodes[e]), float(lists.values[e])))
                source = table[slot // 3, listed[-1][3], slot % 3]
                place = tables.features.starts[source] + lists.places[e]
                assert int(tables.features.columns[place]) == job[0]
    assert sorted(listed) == sorted(found)


@pytest.mark.parametrize("sparse", [True, False])
def test_drawn_neighbours_are_sorted_by_similarity_as_on_the_cpu(make_graph, sparse):
    graph = make_graph(sparse=sparse)
    x, lists = graph.x, adjacency_lists(graph.edge_index, graph.num_nodes)
    # Half of the nodes are equals, so that the order of the draw decides.
    dense = (x.to_dense() if sparse else x).clone()
    dense[::2] = dense[0]
    x = dense.to_sparse_csr() if sparse else dense
    seeds = torch.tensor([3, 2**61 + 4], device=DEVICE)
    expected = [order_by_similarity(x, draw_rows.formula(*lists, size=5, seed=int(seed))) for seed in seeds]
    tables = Tables(x.to(DEVICE), torch.stack(expected).to(DEVICE))
    ranks = rank_by_similarity(x, *lists)
    source = neighbour_draw.Source(tables, *(t.to(DEVICE) for t in (*lists, ranks)))
    assert source.draw(seeds).table.tolist() == torch.stack(expected).tolist()


@pytest.mark.parametrize("size", [0, 2, 9])
def test_no_draw_exceeds_the_room_for_it(size):
    rng = np.random.default_rng(1)
    degrees = rng.integers(0, 5, 8)
    lists = torch.from_numpy(np.cumsum([0, *degrees])), torch.from_numpy(rng.integers(0, 8, degrees.sum()))
    counts = torch.from_numpy(rng.integers(0, 7, 8))
    totals = [int(counts[draw_rows.formula(*lists, size=size, seed=seed)].sum()) for seed in range(400)]
    room = neighbour_draw.most_entries(*(t.to(DEVICE) for t in (*lists, counts)), size=size)
    assert max(totals) <= room
    nodes = [counts[lists[1][a:b]].sort(descending=True).values for a, b in zip(lists[0], lists[0][1:], strict=False)]
    most = sum(int(n[:size].sum()) + (1 + max(0, size - len(n))) * int(c) for n, c in zip(nodes, counts, strict=True))
    assert room == most
