"""Dropout masks."""
