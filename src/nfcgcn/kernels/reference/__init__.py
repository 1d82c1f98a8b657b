"""What the kernels are held to, in plain PyTorch."""
