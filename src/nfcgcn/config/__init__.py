"""Settings and models by name: what a run is made of, presets, and what suits a graph."""
