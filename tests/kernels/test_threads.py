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
import numpy as np
from nfcgcn.kernels.cpu import neighbour_draw as cpu
cpu.draw(np.array([0, 1, 2]), np.array([1, 0]), np.zeros((1, 2)))
"""


@pytest.mark.parametrize("kernel", [MASK, DRAW], ids=["mask", "draw"])
def test_the_first_kernel_of_a_process_keeps_torch_at_its_number_of_threads(kernel):
    code = f"import torch\ntorch.set_num_threads(1)\n{kernel}\nprint(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]
