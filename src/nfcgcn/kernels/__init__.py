"""The operations of the method, fast: on the CPU in Numba, on a GPU in Triton; see README.md in this folder."""

from nfcgcn.kernels import dispatch as dispatch
from nfcgcn.kernels.dispatch import why as why
