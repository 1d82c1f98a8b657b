"""Cross-entropy and accuracy of some nodes of each of a stack of runs."""
