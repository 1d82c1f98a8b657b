"""The systems that NFC-GCN is measured against, one file per system, all called as ``model(x, edge_index)``."""

from nfcgcn.baselines.fastgcn import FastGCN as FastGCN
from nfcgcn.baselines.gat import GAT as GAT
from nfcgcn.baselines.gcn import GCN as GCN
from nfcgcn.baselines.jknet import JKNet as JKNet
from nfcgcn.baselines.lgcn import LGCN as LGCN
from nfcgcn.baselines.mlp import MLP as MLP
from nfcgcn.baselines.sage import SAGE as SAGE
from nfcgcn.baselines.sampled import GAT5 as GAT5
from nfcgcn.baselines.sampled import GCN5 as GCN5
