"""The systems that NFC-GCN is measured against, one file each, all called as ``model(x, edge_index)``."""

from nfcgcn.baselines.gcn import GCN as GCN
