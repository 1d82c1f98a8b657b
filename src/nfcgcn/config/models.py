"""The models by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nfcgcn import baselines
from nfcgcn.baselines import GAT, GAT5, GCN, GCN5, LGCN, LINE, MLP, SAGE, DeepWalk, FastGCN, JKNet, Node2Vec
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.model import NFCGCN
from nfcgcn.settings import Settings


@dataclass(frozen=True)
class ModelEntry:
    """A model that can be chosen by name."""

    model: type[NodeClassifier]
    summary: str
    paper: str
    """Where it was published: authors, title, place and year."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that define this model and cannot be changed."""
    presets_of: str | None = None
    """The model whose presets it uses, if not its own."""

    @property
    def config(self) -> type[Settings]:
        """The settings that its constructor declares."""
        declared: type[Settings] = vars(self.model.__init__)["config_class"]
        return declared


NFC_PAPER = 'Zhang, Song, Aletras and Lu, "Graph Node-Feature Convolution for Representation Learning", 2018'
GCN_PAPER = 'Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017'
PLANETOID_PAPER = (
    'Yang, Cohen and Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016'
)
MODELS = {
    "nfc-gcn": ModelEntry(NFCGCN, "NFC-GCN with 1D convolution", NFC_PAPER, {"conv": "1d"}),
    "nfc-gcn-2d": ModelEntry(NFCGCN, "NFC-GCN with 2D convolution", NFC_PAPER, {"conv": "2d"}, "nfc-gcn"),
    "mlp": ModelEntry(MLP, "Perceptron on each node's own features", GCN_PAPER),
    "gcn": ModelEntry(GCN, "GCN: graph convolutions with degree weights", GCN_PAPER),
    "gat": ModelEntry(
        GAT,
        "GAT: learned attention over the neighbours",
        'Velickovic, Cucurull, Casanova, Romero, Lio and Bengio, "Graph Attention Networks", ICLR 2018',
    ),
    "sage-mean": ModelEntry(
        SAGE,
        "GraphSAGE: the node plus the mean of sampled neighbours",
        'Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017',
    ),
    "fastgcn": ModelEntry(
        FastGCN,
        "FastGCN: GCN trained on nodes sampled by importance",
        'Chen, Ma and Xiao, "FastGCN: Fast Learning with Graph Convolutional Networks via Importance Sampling", '
        "ICLR 2018",
    ),
    "jknet": ModelEntry(
        JKNet,
        "JK-Net: graph convolutions, all of their outputs joined",
        'Xu, Li, Tian, Sonobe, Kawarabayashi and Jegelka, "Representation Learning on Graphs with Jumping Knowledge '
        'Networks", ICML 2018',
    ),
    "lgcn": ModelEntry(
        LGCN,
        "LGCN: convolutions over the neighbours' largest values",
        'Gao, Wang and Ji, "Large-Scale Learnable Graph Convolutional Networks", KDD 2018',
    ),
    "gcn-5": ModelEntry(GCN5, "One layer on degree-weighted sums of five neighbours", NFC_PAPER),
    "gat-5": ModelEntry(GAT5, "One layer on attention-weighted sums of five neighbours", NFC_PAPER),
    "deepwalk": ModelEntry(
        DeepWalk,
        "DeepWalk: vectors from random walks; reads no features",
        'Perozzi, Al-Rfou and Skiena, "DeepWalk: Online Learning of Social Representations", KDD 2014',
    ),
    "node2vec": ModelEntry(
        Node2Vec,
        "node2vec: vectors from walks that remember a step; reads no features",
        'Grover and Leskovec, "node2vec: Scalable Feature Learning for Networks", KDD 2016',
    ),
    "line": ModelEntry(
        LINE,
        "LINE: vectors from edges and from shared neighbours; reads no features",
        'Tang, Qu, Wang, Zhang, Yan and Mei, "LINE: Large-scale Information Network Embedding", WWW 2015',
    ),
    "planetoid-t": ModelEntry(
        baselines.PlanetoidT,
        "Planetoid-T: features, and a vector per node from walks and labels",
        PLANETOID_PAPER,
    ),
    "planetoid-i": ModelEntry(
        baselines.PlanetoidI,
        "Planetoid-I: features, and what they say of the neighbours and labels",
        PLANETOID_PAPER,
    ),
    "eigenmaps": ModelEntry(
        baselines.LaplacianEigenmaps,
        "Laplacian eigenmaps: vectors from eigenvectors; reads no features",
        'Belkin and Niyogi, "Laplacian Eigenmaps for Dimensionality Reduction and Data Representation", '
        "Neural Computation 2003",
    ),
    "graph-factorisation": ModelEntry(
        baselines.GraphFactorisation,
        "Graph factorisation: vectors whose products are the edges; reads no features",
        'Ahmed, Shervashidze, Narayanamurthy, Josifovski and Smola, "Distributed Large-scale Natural Graph '
        'Factorization", WWW 2013',
    ),
    "netmf": ModelEntry(
        baselines.NetMF,
        "NetMF: vectors from DeepWalk's matrix, factorised; reads no features",
        'Qiu, Dong, Ma, Li, Wang and Tang, "Network Embedding as Matrix Factorization: Unifying DeepWalk, LINE, PTE, '
        'and node2vec", WSDM 2018',
    ),
    "chebnet": ModelEntry(
        baselines.ChebNet,
        "ChebNet: polynomials of the Laplacian",
        'Defferrard, Bresson and Vandergheynst, "Convolutional Neural Networks on Graphs with Fast Localized Spectral '
        'Filtering", NeurIPS 2016',
    ),
    "fingerprint": ModelEntry(
        baselines.Fingerprint,
        "Neural fingerprints: sums over neighbours, weights by degree",
        'Duvenaud et al., "Convolutional Networks on Graphs for Learning Molecular Fingerprints", NeurIPS 2015',
    ),
    "gated-gnn": ModelEntry(
        baselines.GatedGNN,
        "Gated GNN: a recurrent unit per node hears its neighbours",
        'Li, Tarlow, Brockschmidt and Zemel, "Gated Graph Sequence Neural Networks", ICLR 2016',
    ),
    "gnn": ModelEntry(
        baselines.GNN,
        "GNN: states iterated to a fixed point",
        'Scarselli, Gori, Tsoi, Hagenbuchner and Monfardini, "The Graph Neural Network Model", '
        "IEEE Trans. Neural Networks 2009",
    ),
}
