"""Every fast variant against its reference: see `nfcgcn.kernels.contract` for what is demanded."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from nfcgcn.errors import ConfigError, NFCWarning
from nfcgcn.kernels import contract
from nfcgcn.kernels.cpu import masks as masks_cpu
from nfcgcn.kernels.cpu import neighbour_draw as draw_cpu
from nfcgcn.kernels.cpu import node_feature_conv as cpu
from nfcgcn.kernels.reference import masks as masks_reference
from nfcgcn.kernels.reference import node_feature_conv as reference
from nfcgcn.method.node_feature_conv import node_feature_conv
from nfcgcn.method.operations import dropout
from nfcgcn.method.sampling import draw_rows

VARIANTS = {"projected": cpu.projected, "node_feature_conv": cpu.node_feature_conv}
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@pytest.mark.parametrize("operation", VARIANTS)
@pytest.mark.parametrize("case", contract.cases(), ids=lambda case: case.name)
def test_the_cpu_kernels_keep_the_contract(operation, case):
    assert contract.violation(operation, VARIANTS[operation], case, torch.float32) is None


@pytest.mark.parametrize("operation", VARIANTS)
@pytest.mark.parametrize("case", [c for c in contract.cases() if "wide" in c.name], ids=lambda case: case.name)
def test_the_cpu_kernels_keep_the_contract_in_float64(operation, case, everything):
    if (case.activation == "tanh" or (not case.sparse and operation != "projected")) and not everything:
        # To compile their loops takes long, and nearly all that they call is compiled in float64 by the other cases.
        pytest.skip("only with NFCGCN_TESTS=all")
    assert contract.violation(operation, VARIANTS[operation], case, torch.float64) is None


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("activation", ["none", "tanh", "relu"])
@pytest.mark.parametrize(
    "case",
    [
        contract.Case("half", hidden_dropout=0.5, dropout=0.0),
        contract.Case("beside dropout on the map", hidden_dropout=0.3, dropout=0.3),
        contract.Case("2D", hidden_dropout=0.5, width=3, filters=7),
        contract.Case("several tiles", hidden_dropout=0.5, num_nodes=300, num_features=400, size=40, filters=16),
    ],
    ids=lambda case: case.name,
)
def test_dropout_between_convolution_and_matrix(case, activation, sparse, dtype):
    case = dataclasses.replace(case, activation=activation, sparse=sparse)
    assert contract.violation("projected", cpu.projected, case, DTYPES[dtype]) is None


@pytest.mark.parametrize("width", [None, 3])
def test_the_mask_of_the_convolutions_output_drops_at_the_rate(width):
    case = contract.Case("", num_nodes=400, width=width)
    inputs = case.inputs(torch.float64)
    size = len(inputs["matrix"])
    nodes = torch.arange(400)
    masks = [
        reference.hidden_mask(nodes, inputs["neighbours"], inputs["weight"], size, dropout=0.3, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert (masks[0] == 0).double().mean().item() == pytest.approx(0.3, abs=0.01)
    torch.testing.assert_close(masks[0].max().item(), 1 / 0.7)
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize(
    "case",
    [
        contract.Case("no activation", num_nodes=90, activation="none"),
        contract.Case("tanh", num_nodes=90),
        contract.Case("relu, 2D", num_nodes=90, activation="relu", width=3),
        contract.Case("copies share a pass", num_nodes=90, activation="none", dropout=0.0, grad=False),
        contract.Case("copies share a pass, tanh", num_nodes=90, dropout=0.0, grad=False),
        contract.Case("dense", num_nodes=90, sparse=False),
    ],
    ids=lambda case: case.name,
)
def test_rows_that_are_not_needed_change_no_bit_of_the_others(case):
    inputs, needed = case.inputs(torch.float32), torch.tensor([0, 7, 8, 41, 89])
    parameters = [inputs[name].requires_grad_(case.grad) for name in ("weight", "matrix")]
    some = cpu.projected(*inputs.values(), **case.options, needed=needed)
    everything = cpu.projected(*inputs.values(), **case.options)
    assert torch.equal(some[needed], everything[needed])
    if case.sparse:
        assert some.any(1).nonzero().squeeze(1).tolist() == [i for i in needed.tolist() if everything[i].any()]
    if case.grad:
        grads = [torch.autograd.grad(out[needed].square().sum(), parameters) for out in (some, everything)]
        assert all(torch.equal(*pair) for pair in zip(*grads, strict=True))
        assert all(grad.any() for grad in grads[0])


def wrong_value(*inputs, **options):
    return cpu.projected(*inputs, **options) * (1 + 1e-5)


def wrong_gradient(x, neighbours, weight, matrix, **options):
    return cpu.projected(x, neighbours, weight, matrix * 1.0, **options) + 1e-4 * (weight - weight.detach()).sum()


def unwritten_memory(x, neighbours, weight, matrix, **options):
    out = cpu.projected(x, neighbours, weight, matrix, **options)
    return torch.where(torch.arange(len(out))[:, None] == 3, torch.empty_like(out), out)


def another_mask(*inputs, **options):
    return cpu.projected(*inputs, **{**options, "seed": options["seed"] + 1})


def writes_to_its_input(x, neighbours, weight, matrix, **options):
    neighbours[0, 1] = 0
    neighbours[0, 1] += 1
    return cpu.projected(x, neighbours, weight, matrix, **options)


def bits_by_threads(*inputs, **options):
    out = cpu.projected(*inputs, **options)
    return out + torch.finfo(out.dtype).eps * out.abs().max() * (torch.get_num_threads() == 1)


@pytest.mark.parametrize(
    ("canary", "complaint"),
    [
        (wrong_value, "value is off by"),
        (wrong_gradient, "gradient of weight is off by"),
        (unwritten_memory, "value is off by nan"),
        (another_mask, "value is off by"),
        (writes_to_its_input, "changes its input neighbours"),
        (bits_by_threads, "other bits in a second call with"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_contract_rejects_a_wrong_variant(canary, complaint):
    case = contract.Case("canary")
    if canary is writes_to_its_input:
        assert case.inputs(torch.float32)["neighbours"][0, 1] != 1
    assert (contract.violation("projected", canary, case, torch.float32) or "").startswith(complaint)


@pytest.mark.parametrize("variant", [reference, cpu], ids=["reference", "cpu"])
def test_a_case_computed_by_hand(variant):
    # Two nodes, two slots, three features; one filter of size 2, stride 1: two places.
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]).to_sparse_csr()
    table = torch.tensor([[0, 1], [1, 1]])
    weight = torch.tensor([[[1.0, 10.0], [100.0, 1000.0]]])
    matrix = torch.tensor([[1.0], [2.0]])
    options = {"stride": 1, "activation": "none", "dropout": 0.0, "seed": 0}
    # Node 0: places 1*1 + 3*1000 = 3001 and 2*10 + 3*100 = 320. Node 1: 3*10 + 3*1000 = 3030 and 3*1 + 3*100 = 303.
    h = variant.node_feature_conv(x, table, weight, **options)
    assert h.tolist() == [[3001.0, 320.0], [3030.0, 303.0]]
    assert variant.projected(x, table, weight, matrix, **options).tolist() == [[3641.0], [3636.0]]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_masks_keep_the_right_share_and_slots_are_independent(rate, sparse):
    num_nodes, bandwidth, num_features = 200, 4, 100
    x = torch.ones(num_nodes, num_features)
    table = torch.arange(num_nodes)[:, None].expand(-1, bandwidth).contiguous()
    kept = reference.feature_map(x.to_sparse_csr() if sparse else x, table, dropout=rate, seed=3) > 0
    cells = kept.numel()
    assert abs(kept.double().mean().item() - (1 - rate)) < 5 * (rate * (1 - rate) / cells) ** 0.5
    # Slots of one node, neighbouring columns, neighbouring nodes and another seed: no correlation beyond chance.
    other = reference.feature_map(x, table, dropout=rate, seed=4) > 0
    for a, b in (
        (kept[:, 0], kept[:, 1]),
        (kept[:, :, :-1], kept[:, :, 1:]),
        (kept[:-1], kept[1:]),
        (kept, other),
    ):
        pair = np.corrcoef(a.flatten().double(), b.flatten().double())[0, 1]
        assert abs(pair) < 5 / a.numel() ** 0.5
    # The same share in every column, slot and node: no stripe.
    for axes in ((0, 1), (0, 2), (1, 2)):
        share = kept.double().mean(axes)
        assert (share - (1 - rate)).abs().max() < 5.5 * (rate * (1 - rate) * share.numel() / cells) ** 0.5


def test_drawn_tables_are_the_formula_s_to_the_bit():
    rng = np.random.default_rng(0)
    degrees = np.concatenate([[0, 1, 2, 100], rng.integers(0, 12, 500)])
    starts = np.concatenate([[0], np.cumsum(degrees)])
    lists = (torch.from_numpy(starts), torch.from_numpy(rng.integers(0, len(degrees), starts[-1])))
    for size in (0, 1, 5, 20):
        expected = draw_rows.formula(*lists, size=size, seed=2**62 - 5)
        assert torch.equal(draw_cpu.draw_rows(*lists, size=size, seed=2**62 - 5), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_masks_are_the_reference_s_to_the_bit(rate, dtype):
    options = {"dropout": rate, "seed": 2**62 - 1, "dtype": DTYPES[dtype]}
    expected = masks_reference.mask(50, 70, **options)
    assert torch.equal(masks_cpu.mask(50, 70, **options), expected)
    assert set(expected.unique().tolist()) == {0.0, torch.tensor(1 / (1 - rate), dtype=DTYPES[dtype]).item()}


def test_hidden_dropout_follows_torch_s_generator_and_leaves_evaluation_alone():
    h = torch.ones(300, 20)
    torch.manual_seed(1)
    first, second = dropout(h, 0.5, True), dropout(h, 0.5, True)
    torch.manual_seed(1)
    assert torch.equal(dropout(h, 0.5, True), first)
    assert not torch.equal(first, second)
    assert dropout(h, 0.5, False) is h


def test_a_forced_kernel_that_cannot_run_is_an_error_and_a_free_choice_says_so_once():
    x, table = torch.ones(3, 8, dtype=torch.bfloat16), torch.tensor([[0], [1], [2]])
    weight = torch.ones(2, 1, 4, dtype=torch.bfloat16)
    options = {"stride": 2, "activation": "none", "dropout": 0.0}
    reason = "features are torch.bfloat16 and filters torch.bfloat16, not both float32 or both float64"
    with pytest.raises(ConfigError, match=f"^backend 'cpu' cannot run: {reason}; use 'auto' or 'reference'$"):
        node_feature_conv(x, table, weight, backend="cpu", **options)
    with pytest.warns(NFCWarning, match=f"^the slow formula runs in place of the CPU kernel: {reason}$"):
        node_feature_conv(x, table, weight, backend="auto", **options)
    node_feature_conv(x, table, weight, backend="auto", **options)  # a second warning would be an error
