"""Timings of training steps, compared with plain PyTorch and PyTorch Geometric."""
