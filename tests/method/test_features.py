import pytest
import torch

from nfcgcn import GCN, NFCGCN
from nfcgcn.method.features import scale_features

FORMS = {"dense": lambda x: x, "CSR": lambda x: x.to_sparse_csr()}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@forms
@pytest.mark.parametrize(
    ("scale", "x", "expected"),
    [
        (
            "row-sum",
            [[1.0, 0, 3], [0, 0, 0], [0, 5, 0], [2, -2, 0]],
            [[0.25, 0, 0.75], [0, 0, 0], [0, 1, 0], [2, -2, 0]],
        ),
        ("row-norm", [[3.0, 0, 4], [0, 0, 0], [0, -5, 0]], [[0.6, 0, 0.8], [0, 0, 0], [0, -1, 0]]),
    ],
    ids=["row-sum", "row-norm"],
)
def test_rows_are_divided(form, scale, x, expected):
    given = form(torch.tensor(x))
    scaled = scale_features(given, scale)
    assert scaled.layout == given.layout
    if given.layout == torch.sparse_csr:
        assert torch.equal(scaled.col_indices(), given.col_indices())
    torch.testing.assert_close(scaled.to_dense(), torch.tensor(expected))


@forms
@pytest.mark.parametrize("scale", ["row-sum", "row-norm"])
@pytest.mark.parametrize("power", [-145, -125, -75, -41, -40, 0, 50, 51, 63, 70, 100, 126])
def test_rows_of_any_magnitude_are_divided_alike(form, scale, power):
    """Squares of 1e20 are infinite in float32 and those of 1e-23 are 0: rows became zeros, or stayed as they were."""
    x = torch.tensor([[3.0, 0, 1, 0.25], [1.0, 1, 1, 1], [0, 0, 0, 0]])
    exact = torch.ldexp(x.double(), torch.tensor(power)).float().double()  # the smallest numbers have few bits
    sizes = exact.sum(1) if scale == "row-sum" else exact.square().sum(1).sqrt()
    expected = exact / torch.where(sizes == 0, 1, sizes)[:, None]
    scaled = scale_features(form(exact.float()), scale).to_dense()
    torch.testing.assert_close(scaled.double(), expected, rtol=1e-6, atol=0)


@forms
def test_ordinary_rows_are_divided_by_their_plain_norm_to_the_bit(form):
    x = torch.randn(200, 33, generator=torch.Generator().manual_seed(0)) * torch.logspace(-11, 14, 200)[:, None]
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.5] = 0
    given = form(x)
    if given.layout == torch.sparse_csr:
        sums = torch.segment_reduce(given.values().square(), "sum", offsets=given.crow_indices(), initial=0.0)
        sizes = sums.sqrt()
    else:
        sizes = torch.linalg.vector_norm(x, dim=1)
    assert torch.equal(scale_features(given, "row-norm").to_dense(), x / sizes[:, None])


def test_as_given_means_the_tensor_itself(sparse_graph):
    assert scale_features(sparse_graph.x, "given") is sparse_graph.x


@forms
def test_features_are_scaled_once(form):
    x = form(torch.rand(4, 3))
    scaled = scale_features(x, "row-sum")
    assert scale_features(x, "row-sum") is scaled
    assert scale_features(x, "row-norm") is not scaled


def test_features_that_are_written_to_are_scaled_anew():
    x = torch.ones(2, 2)
    scale_features(x, "row-sum")
    x[0, 0] = 3
    assert scale_features(x, "row-sum").tolist() == [[0.75, 0.25], [0.5, 0.5]]


MAKERS = {
    "nfc-gcn": lambda **o: NFCGCN(40, 8, 2, 3, bandwidth=3, filters=4, kernel_size=8, stride=4, **o),
    "gcn": lambda **o: GCN(40, 8, 2, 3, **o),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
def test_features_that_need_a_gradient_are_scaled_anew_in_every_pass(make, dense_graph):
    net = make(feature_scale="row-norm").eval()
    x = dense_graph.x.clone().requires_grad_()
    gradients = []
    for _ in range(2):
        x.grad = None
        net(x, dense_graph.edge_index).square().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)
    # A row's scores do not change as it grows along itself.
    torch.testing.assert_close((x.grad * x).sum(1).detach(), torch.zeros(300), atol=1e-3, rtol=0)
