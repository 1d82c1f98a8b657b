"""Draw distinct neighbours of every node."""
