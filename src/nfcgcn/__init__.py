"""Graph node-feature convolution (NFC-GCN)."""

__version__ = "0.1.0"
