"""A step of Adam."""
