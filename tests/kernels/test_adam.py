"""Adam on the CPU is torch's."""

from __future__ import annotations

import pytest
import torch

from nfcgcn.kernels.cpu.adam import adam
from nfcgcn.kernels.reference.adam import adam as formula
from nfcgcn.kernels.reference.adam import corrections


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(1,), (7, 5), (3, 40, 50)])
def test_adam_is_torch_s(shape, decay, dtype):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(shape, generator=generator, dtype=dtype)
    expected = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Adam([expected], lr=0.02, weight_decay=decay)
    ours, plain = start.clone(), start.clone()
    moments, plain_moments = torch.zeros(2, *shape, dtype=dtype), torch.zeros(2, *shape, dtype=dtype)
    for step in range(20):
        grad = torch.randn(shape, generator=generator, dtype=dtype) * 10.0 ** (step % 5 - 2)
        expected.grad = grad.clone()
        optimizer.step()
        correction = [float(c) for c in corrections(step + 1)[step].double()]
        adam(ours, grad, moments, correction, rate=0.02, decay=decay)
        formula(plain, grad, plain_moments, correction, rate=0.02, decay=decay)
        torch.testing.assert_close(ours, expected.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(moments, plain_moments, rtol=1e-5, atol=1e-6)


def test_a_gradient_of_another_layout():
    start = torch.arange(12.0).view(3, 4)
    a, b = start.clone(), start.clone()
    grad = torch.arange(12.0).view(4, 3).mT - 5
    adam(a, grad, torch.zeros(2, 3, 4), (0.1, 0.03), rate=0.1, decay=0.1)
    formula(b, grad, torch.zeros(2, 3, 4), (0.1, 0.03), rate=0.1, decay=0.1)
    torch.testing.assert_close(a, b)
