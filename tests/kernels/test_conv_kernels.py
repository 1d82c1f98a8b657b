import dataclasses

import pytest
import torch
import torch.nn.functional as F

from nfcgcn.kernels import contract
from nfcgcn.kernels.cpu import node_feature_conv as cpu
from nfcgcn.kernels.reference import node_feature_conv as reference
from nfcgcn.kernels.reference.node_feature_conv import convolve, feature_map


def rand(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# nodes, slots, features, filters, kernel, stride
SHAPES = {
    "whole": (5, 3, 8, 4, 8, 1),
    "steps fit": (7, 2, 12, 3, 4, 4),
    "k no multiple of s": (6, 3, 17, 2, 5, 3),
    "trailing columns": (4, 2, 11, 2, 4, 4),
    "stride above kernel": (4, 3, 20, 2, 3, 7),
    "stride one": (3, 2, 9, 2, 3, 1),
    "one of each": (1, 1, 1, 1, 1, 1),
    "overlapping": (40, 6, 64, 8, 16, 8),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


@pytest.mark.parametrize("width", [1, 2, 3])
@shapes
def test_2d_is_conv2d_over_slots_and_features(shape, width):
    nodes, slots, features, filters, k, s = shape
    width = min(width, slots)
    maps, weight = rand(nodes, slots, features).requires_grad_(), rand(filters, width, k, seed=1).requires_grad_()
    found = convolve(maps, weight, stride=s)
    expected = F.conv2d(maps.unsqueeze(1), weight.unsqueeze(1), stride=(1, s)).transpose(1, 2)
    assert found.shape == (nodes, slots - width + 1, filters, (features - k) // s + 1)
    torch.testing.assert_close(found, expected)
    pull = rand(*expected.shape, seed=2)
    torch.testing.assert_close(
        torch.autograd.grad((found * pull).sum(), (maps, weight)),
        torch.autograd.grad((expected * pull).sum(), (maps, weight)),
    )


@pytest.mark.parametrize("width", [3, 2], ids=["1d", "2d"])
def test_gradcheck(width):
    maps, weight = rand(3, 3, 11).requires_grad_(), rand(2, width, 4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, w: convolve(m, w, stride=3), (maps, weight))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_windows_of_one_column(activation):
    """Their filters need no other order than they have, so that arranging them may copy nothing."""
    x, table = (rand(9, 5, dtype=torch.float32) > 0.5).float().to_sparse_csr(), torch.randint(9, (9, 3))
    weight, matrix = rand(4, 3, 1, dtype=torch.float32), rand(20, 2, seed=1, dtype=torch.float32)
    results = []
    for kernels in (cpu, reference):
        w, m = weight.clone().requires_grad_(), matrix.clone().requires_grad_()
        out = kernels.projected(x, table, w, m, stride=1, activation=activation, dropout=0.0, seed=0)
        results.append((out.detach(), *torch.autograd.grad(out.square().sum(), (w, m))))
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_gradcheck_through_the_map():
    table = torch.tensor([[0, 1, 0], [1, 1, 2], [2, 0, 1]])
    x, weight = rand(3, 7).requires_grad_(), rand(2, 3, 4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, w: convolve(feature_map(a, table), w, stride=2), (x, weight))


def test_columns_that_no_window_reaches_do_not_count():
    maps = rand(4, 2, 11).requires_grad_()
    convolve(maps, rand(2, 2, 4, seed=1), stride=4).sum().backward()
    assert maps.grad[:, :, 8:].eq(0).all()
    assert maps.grad[:, :, :8].ne(0).all()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_bits_do_not_depend_on_threads(sparse, threads):
    rng = torch.Generator().manual_seed(0)

    def upto(top, low=1):
        return int(torch.randint(low, top + 1, (), generator=rng))

    cases = [contract.Case("1D", 2708, 143, 6, None, 16, 32, 16), contract.Case("2D", 1500, 64, 6, 3, 8, 16, 8)]
    for _ in range(12):
        nodes, slots, features = upto(2000), upto(6), upto(80)
        sizes = nodes, features, slots, upto(slots), upto(20), upto(features), upto(20), upto(40)
        cases.append(contract.Case("random", *sizes, activation=["none", "tanh", "relu"][upto(3) - 1]))
    for case in cases:
        inputs = dataclasses.replace(case, sparse=sparse).inputs(torch.float32)
        parameters = [inputs[name].requires_grad_() for name in ("weight", "matrix")]
        results = []
        for count in contract.THREADS:
            threads(count)
            out = cpu.projected(*inputs.values(), **case.options)
            results.append((out.detach(), *torch.autograd.grad(out.square().sum(), parameters)))
        for result in results[1:]:
            assert all(torch.equal(*pair) for pair in zip(results[0], result, strict=True)), case


TABLE = torch.tensor([[0, 2, 0], [1, 3, 2], [2, 2, 2], [3, 1, 0]])
FEATURES = torch.tensor([[1.0, 0, 2, 0], [0, 0, 0, 0], [3, 4, 5, 6], [0, 7, 0, 0]])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_map_holds_the_rows_that_its_table_names(sparse):
    x = FEATURES.to_sparse_csr() if sparse else FEATURES
    maps = feature_map(x, TABLE)
    assert maps.layout == torch.strided
    expected = torch.stack([torch.stack([FEATURES[j] for j in row]) for row in TABLE.tolist()])
    assert torch.equal(maps, expected)


def test_a_sparse_map_is_the_dense_map():
    x = rand(200, 30) * (rand(200, 30, seed=1) > 2)
    assert (x == 0).all(1).any()  # empty rows
    table = torch.randint(200, (200, 5), generator=torch.Generator().manual_seed(2))
    assert torch.equal(feature_map(x.to_sparse_csr(), table), feature_map(x, table))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_map_without_any_feature(dtype):
    x = torch.zeros(3, 4, dtype=dtype).to_sparse_csr()
    maps = feature_map(x, torch.tensor([[0, 1], [1, 2], [2, 0]]), dropout=0.5)
    assert torch.equal(maps, torch.zeros(3, 2, 4, dtype=dtype))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("rate", [0.2, 0.5, 0.9])
def test_dropout_keeps_its_share_and_scales_the_rest(rate, sparse):
    x = torch.ones(300, 50)
    table = torch.arange(300)[:, None].expand(-1, 4)  # four copies of each node
    torch.manual_seed(0)
    maps = feature_map(x.to_sparse_csr() if sparse else x, table, dropout=rate)
    kept = maps != 0
    torch.testing.assert_close(maps[kept], torch.full_like(maps[kept], 1 / (1 - rate)))
    spread = (rate * (1 - rate) / maps.numel()) ** 0.5
    assert abs(kept.double().mean().item() - (1 - rate)) < 4 * spread
    # Copies of a node lose different cells: two masks are both on as often as independent ones are.
    both = (kept[:, 0] & kept[:, 1]).double().mean().item()
    chance = (1 - rate) ** 2
    assert abs(both - chance) < 4 * (chance * (1 - chance) / kept[:, 0].numel()) ** 0.5


def test_sparse_dropout_leaves_zeros_zero():
    torch.manual_seed(0)
    maps = feature_map(FEATURES.to_sparse_csr(), TABLE, dropout=0.5)
    full = feature_map(FEATURES, TABLE)
    assert ((maps == 0) | torch.isclose(maps, 2 * full)).all()
    assert (maps == 0).sum() > (full == 0).sum()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_without_dropout_no_random_number_is_drawn(sparse):
    before = torch.get_rng_state()
    feature_map(FEATURES.to_sparse_csr() if sparse else FEATURES, TABLE)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("activation", ["none", "tanh", "relu"])
def test_a_gradient_that_is_nowhere_positive_is_seen(activation):
    draw = torch.Generator().manual_seed(0)
    x = (torch.rand(9, 12, generator=draw, dtype=torch.float64) > 0.5).double().to_sparse_csr()
    table = torch.randint(9, (9, 3), generator=draw)
    options = {"stride": 2, "activation": activation, "dropout": 0.5, "seed": 3}
    gradients = []
    for variant in (reference, cpu):
        torch.manual_seed(0)
        weight = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
        matrix = torch.randn(16, 3, dtype=torch.float64, requires_grad=True)
        variant.projected(x, table, weight, matrix, **options).neg().sum().backward()
        gradients.append((weight.grad, matrix.grad))
    assert all(g.abs().max() > 0 for g in gradients[0])
    torch.testing.assert_close(gradients[1], gradients[0])
