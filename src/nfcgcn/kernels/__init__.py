"""The arithmetic, on tensors alone: one folder an operation, whose ``reference.py`` is the specification."""
