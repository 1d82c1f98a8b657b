"""Matrix products, dense and sparse."""
