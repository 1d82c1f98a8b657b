"""Choosing settings on validation nodes."""
