"""The CPU's kernels, in Numba."""
