"""Timings of training steps beside plain PyTorch and PyTorch Geometric."""
