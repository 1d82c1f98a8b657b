"""The systems that NFC-GCN is measured against, one file per system, all called as ``model(x, edge_index)``."""

from nfcgcn.baselines.chebnet import ChebNet as ChebNet
from nfcgcn.baselines.deepwalk import DeepWalk as DeepWalk
from nfcgcn.baselines.eigenmaps import LaplacianEigenmaps as LaplacianEigenmaps
from nfcgcn.baselines.fastgcn import FastGCN as FastGCN
from nfcgcn.baselines.fingerprint import Fingerprint as Fingerprint
from nfcgcn.baselines.gat import GAT as GAT
from nfcgcn.baselines.gated import GatedGNN as GatedGNN
from nfcgcn.baselines.gcn import GCN as GCN
from nfcgcn.baselines.gnn import GNN as GNN
from nfcgcn.baselines.graph_factorisation import GraphFactorisation as GraphFactorisation
from nfcgcn.baselines.jknet import JKNet as JKNet
from nfcgcn.baselines.lgcn import LGCN as LGCN
from nfcgcn.baselines.line import LINE as LINE
from nfcgcn.baselines.mlp import MLP as MLP
from nfcgcn.baselines.netmf import NetMF as NetMF
from nfcgcn.baselines.node2vec import Node2Vec as Node2Vec
from nfcgcn.baselines.planetoid import PlanetoidI as PlanetoidI
from nfcgcn.baselines.planetoid import PlanetoidT as PlanetoidT
from nfcgcn.baselines.sage import SAGE as SAGE
from nfcgcn.baselines.sampled import GAT5 as GAT5
from nfcgcn.baselines.sampled import GCN5 as GCN5
from nfcgcn.baselines.vectors import VectorClassifier as VectorClassifier
