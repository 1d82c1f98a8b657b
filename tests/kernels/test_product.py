import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nfcgcn.kernels.products
from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.cpu.product import row_product, transposed_product
from nfcgcn.kernels.products import Dropped, product, sparse_product
from nfcgcn.kernels.sparse import Sparse
from nfcgcn.method.operations import dropout as drop
from nfcgcn.method.operations import multiply

SHAPES = [
    (0, 3, 2),
    (1, 1, 1),
    (5, 0, 3),
    (15, 7, 4),
    (16, 7, 4),
    (17, 40, 3),
    (33, 5, 1),
    (1000, 30, 7),
    (2708, 90, 16),
]


def rand(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def random_sparse(rows, columns, *, density=0.2, seed=0, dtype=torch.float64):
    dense = rand(rows, columns, seed=seed, dtype=dtype)
    keep = rand(rows, columns, seed=seed + 1).abs() > torch.distributions.Normal(0, 1).icdf(
        torch.tensor(1 - density / 2)
    )
    return (dense * keep).to_sparse_csr()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_are_those_of_matmul(shape):
    m, f, h = shape
    a, b, c = rand(m, f), rand(f, h, seed=1), rand(m, h, seed=2)
    torch.testing.assert_close(product(a, b), a @ b)
    torch.testing.assert_close(row_product(a, b), a @ b)
    torch.testing.assert_close(transposed_product(a, c), a.mT @ c)


@pytest.mark.parametrize("shape", [(3, 4, 2), (16, 5, 3), (37, 18, 2)], ids=str)
def test_gradients_of_the_dense_product(shape):
    m, f, h = shape
    assert torch.autograd.gradcheck(product, (rand(m, f).requires_grad_(), rand(f, h, seed=1).requires_grad_()))


@pytest.mark.parametrize("which", [0, 1], ids=["left", "right"])
def test_only_the_gradient_asked_for_is_computed(which):
    inputs = [rand(20, 4), rand(4, 3, seed=1)]
    inputs[which].requires_grad_()
    product(*inputs).sum().backward()
    assert inputs[which].grad is not None
    assert inputs[1 - which].grad is None


@pytest.mark.parametrize("transposed", ["a", "b", "both"])
def test_strided_inputs(transposed):
    a = rand(40, 50).mT if transposed in ("a", "both") else rand(50, 40)
    b = rand(6, 40, seed=1).mT if transposed in ("b", "both") else rand(40, 6, seed=1)
    a, b = a.requires_grad_(), b.requires_grad_()
    torch.testing.assert_close(product(a, b), a @ b)
    weights = rand(6, 50, seed=2).mT
    grads = torch.autograd.grad((product(a, b) * weights).sum(), (a, b))
    expected = torch.autograd.grad(((a @ b) * weights).sum(), (a, b))
    torch.testing.assert_close(grads, expected)


def same(results):
    return all(torch.equal(one, other) for result in results[1:] for one, other in zip(results[0], result, strict=True))


def bits(m, f, h, seed):
    a, b = rand(m, f, seed=seed, dtype=torch.float32), rand(f, h, seed=seed + 1, dtype=torch.float32)
    a, b = a.requires_grad_(), b.requires_grad_()
    out = product(a, b)
    out.backward(rand(m, h, seed=seed + 2, dtype=torch.float32))
    return out.detach(), a.grad, b.grad


def test_dense_bits_do_not_depend_on_threads(threads):
    rng = torch.Generator().manual_seed(0)
    shapes = [(20_000, 90, 16), (2708, 1433, 16), (3327, 64, 3), (31, 3000, 200), (16, 40, 2000), (10_000, 1, 1)]
    shapes += [tuple(int(torch.randint(1, top, (), generator=rng)) for top in (4000, 300, 100)) for _ in range(15)]
    for seed, shape in enumerate(shapes):
        results = []
        for count in (1, 2, 3, 4):
            threads(count)
            results.append(bits(*shape, seed))
        assert same(results), shape


def test_sparse_bits_do_not_depend_on_threads(threads):
    for seed, (m, f, h) in enumerate([(3000, 1400, 16), (500, 5000, 7), (40, 30, 3)]):
        a = Sparse.from_csr(random_sparse(m, f, density=0.02, seed=seed, dtype=torch.float32))
        results = []
        for count in (1, 2, 3, 4):
            threads(count)
            b = rand(f, h, seed=seed, dtype=torch.float32).requires_grad_()
            out = sparse_product(a, b)
            out.backward(rand(m, h, seed=seed + 5, dtype=torch.float32))
            results.append((out.detach(), b.grad))
        assert same(results), (m, f, h)


@pytest.mark.parametrize("shape", [(7, 5, 3), (1, 9, 2), (40, 1, 1)], ids=str)
def test_sparse_product_and_its_gradient(shape):
    m, f, h = shape
    matrix = random_sparse(m, f)
    a, b = Sparse.from_csr(matrix), rand(f, h, seed=3).requires_grad_()
    torch.testing.assert_close(sparse_product(a, b), matrix.to_dense() @ b)
    assert torch.autograd.gradcheck(lambda dense: sparse_product(a, dense), (b,))


def test_from_csr_pairs_a_matrix_with_its_transpose():
    matrix = random_sparse(30, 11)
    a = Sparse.from_csr(matrix)
    assert a.matrix is matrix
    assert torch.equal(a.transpose.to_dense(), matrix.to_dense().mT)
    assert torch.equal(matrix.values()[a.order], a.transpose.values())


def test_empty_rows_and_columns():
    matrix = csr_tensor(torch.tensor([0, 0, 1, 1]), torch.tensor([2]), torch.tensor([5.0]), (3, 4))
    a = Sparse.from_csr(matrix)
    b = torch.arange(8.0).view(4, 2).requires_grad_()
    out = sparse_product(a, b)
    out.sum().backward()
    assert out.tolist() == [[0, 0], [20, 25], [0, 0]]
    assert b.grad.tolist() == [[0, 0], [0, 0], [5, 5], [0, 0]]


def test_a_matrix_without_entries():
    a = Sparse.from_entries(*torch.zeros(2, 0, dtype=torch.long), torch.zeros(0), size=(3, 4))
    assert sparse_product(a, torch.ones(4, 2)).tolist() == [[0, 0]] * 3


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(-9, 9)), max_size=30))
def test_from_entries_adds_what_falls_together(entries):
    expected = torch.zeros(6, 4)
    for row, column, value in entries:
        expected[row, column] += value
    rows, columns, values = torch.tensor(entries, dtype=torch.long).view(-1, 3).T
    a = Sparse.from_entries(rows, columns, values.float(), size=(6, 4))
    assert torch.equal(a.matrix.to_dense(), expected)
    assert torch.equal(a.transpose.to_dense(), expected.mT)


def test_with_values_changes_both_sides():
    a = Sparse.from_csr(random_sparse(12, 9))
    values = torch.arange(1.0, a.matrix.values().numel() + 1, dtype=torch.float64)
    b = a.with_values(values)
    assert torch.equal(b.matrix.values(), values)
    assert torch.equal(b.transpose.to_dense(), b.matrix.to_dense().mT)
    assert torch.equal(b.matrix.to_dense() != 0, a.matrix.to_dense() != 0)
    assert not torch.equal(a.matrix.values(), values)


@pytest.fixture
def kernel(request, monkeypatch):
    """Whether entries are dropped by the kernel or, as where Numba is missing, beforehand."""
    if not request.param:
        monkeypatch.setattr(nfcgcn.kernels.products, "numba_refusal", lambda: "there is none")
    return request.param


@pytest.mark.parametrize("dropout", [0.25, 0.5, 0.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 9, 3), (40, 300, 16), (33, 70, 7), (1000, 30, 130)], ids=str)
def test_a_product_that_drops_entries_is_that_of_the_matrix_without_them(shape, dtype, dropout):
    m, f, h = shape
    dropped = drop(random_sparse(m, f, density=0.5, dtype=dtype), dropout, True)
    assert isinstance(dropped, Dropped)
    results = []
    for x in (dropped, Sparse.from_csr(dropped.matrix)):
        matrix = rand(f, h, seed=3, dtype=dtype).requires_grad_()
        out = multiply(x, matrix)
        out.backward(rand(m, h, seed=4, dtype=dtype))
        results.append((out.detach(), matrix.grad))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-4 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("kernel", [True, False], indirect=True, ids=["kernel", "transpose"])
def test_a_csr_tensor_is_multiplied_once(kernel):
    x, matrix, weights = random_sparse(37, 50), rand(50, 5, seed=1).requires_grad_(), rand(37, 5, seed=2)
    out = multiply(x, matrix)
    (grad,) = torch.autograd.grad(out, matrix, weights)
    torch.testing.assert_close(out, x.to_dense() @ matrix)
    torch.testing.assert_close(grad, x.to_dense().mT @ weights)


@pytest.mark.parametrize("kernel", [True, False], indirect=True, ids=["kernel", "beforehand"])
def test_entries_are_dropped_at_the_rate_and_anew_each_time(kernel):
    torch.manual_seed(0)
    sparse = random_sparse(400, 60, density=0.5)
    dropped = drop(sparse, 0.3, True)
    assert isinstance(dropped, Dropped) == kernel
    ratio = dropped.matrix.values() / sparse.values()
    torch.testing.assert_close(ratio[ratio != 0], torch.full_like(ratio[ratio != 0], 1 / 0.7))
    assert (ratio == 0).double().mean().item() == pytest.approx(0.3, abs=0.02)
    assert not torch.equal(drop(sparse, 0.3, True).matrix.values(), dropped.matrix.values())
    if not kernel:
        torch.testing.assert_close(dropped.transpose.to_dense(), dropped.matrix.to_dense().mT, rtol=0, atol=0)


def test_bits_of_a_product_that_drops_entries_do_not_depend_on_threads(threads):
    def bits():
        torch.manual_seed(0)
        matrix = rand(50, 7, dtype=torch.float32).requires_grad_()
        x = drop(random_sparse(3000, 50, dtype=torch.float32), 0.5, True)
        out = multiply(x, matrix)
        out.backward(rand(3000, 7, seed=1, dtype=torch.float32))
        return out.detach(), matrix.grad

    results = []
    for count in (1, 2, 3, 4):
        threads(count)
        results.append(bits())
    assert same(results)
