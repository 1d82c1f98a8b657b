"""The kernels leave the number of threads to the user."""

from __future__ import annotations

import subprocess
import sys

import pytest

MASK = """
from nfcgcn.kernels.cpu import masks as cpu
cpu.mask(3, 4, dropout=0.5, seed=0, dtype=torch.float32)
"""
DRAW = """
from nfcgcn.kernels.cpu import neighbour_draw as cpu
cpu.draw_rows(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), size=1, seed=0)
"""


@pytest.mark.parametrize("kernel", [MASK, DRAW], ids=["mask", "draw"])
def test_the_first_kernel_of_a_process_keeps_torch_at_its_number_of_threads(kernel):
    code = f"import torch\ntorch.set_num_threads(1)\n{kernel}\nprint(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]
