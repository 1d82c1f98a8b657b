"""The GPU's kernels, in Triton."""
