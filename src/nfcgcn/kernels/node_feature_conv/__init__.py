"""Gather neighbours into feature maps and convolve them."""
