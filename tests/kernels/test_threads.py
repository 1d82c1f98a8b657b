"""The kernels leave the number of threads to the user."""

from __future__ import annotations

import subprocess
import sys


def test_the_first_kernel_of_a_process_keeps_torch_at_its_number_of_threads():
    code = """
import torch
torch.set_num_threads(1)
from nfcgcn.kernels.masks import cpu
cpu.mask(3, 4, dropout=0.5, seed=0, dtype=torch.float32)
print(torch.get_num_threads())
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]
