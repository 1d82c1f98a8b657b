"""The reference for the kernels, in plain PyTorch."""
