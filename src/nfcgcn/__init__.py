"""Graph node-feature convolution (NFC-GCN): learning on graphs whose nodes carry features.

In reading order: get a graph, split it, build a model, train it, judge it, ask why, ship it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nfcgcn.kernels  # noqa: F401  (which register themselves behind the method's formulas)
from nfcgcn.baselines import GCN as GCN
from nfcgcn.config.inspection import inspect as inspect
from nfcgcn.config.registry import make_config as make_config
from nfcgcn.config.registry import suggest as suggest
from nfcgcn.data import load as load
from nfcgcn.data.formats import from_networkx as from_networkx
from nfcgcn.data.formats import write_npz as write_npz
from nfcgcn.data.splits import make_split as make_split
from nfcgcn.errors import NFCError as NFCError
from nfcgcn.evaluation import accuracy as accuracy
from nfcgcn.evaluation import repeat as repeat
from nfcgcn.evaluation import summarise as summarise
from nfcgcn.graph import Graph as Graph
from nfcgcn.graph import Split as Split
from nfcgcn.inference.checkpoint import load_model as load_model
from nfcgcn.inference.explanation import explain as explain
from nfcgcn.inference.explanation import explain_classes as explain_classes
from nfcgcn.inference.export import export as export
from nfcgcn.inference.prediction import embed as embed
from nfcgcn.inference.prediction import predict as predict
from nfcgcn.inference.prediction import predict_proba as predict_proba
from nfcgcn.method.graph_conv import GraphConv as GraphConv
from nfcgcn.method.model import NFCGCN as NFCGCN
from nfcgcn.method.node_feature_conv import NodeFeatureConv as NodeFeatureConv
from nfcgcn.method.sampling import sample_neighbours as sample_neighbours
from nfcgcn.training import TrainingConfig as TrainingConfig
from nfcgcn.training import fit as fit

if TYPE_CHECKING:
    from nfcgcn.estimator import NFCClassifier as NFCClassifier
    from nfcgcn.estimator import NFCEmbedder as NFCEmbedder

__version__ = "0.2.0"

__all__ = [  # noqa: RUF022  (reading order)
    "load",
    "from_networkx",
    "write_npz",
    "Graph",
    "Split",
    "inspect",
    "make_split",
    "sample_neighbours",
    "NodeFeatureConv",
    "GraphConv",
    "NFCGCN",
    "GCN",
    "suggest",
    "make_config",
    "TrainingConfig",
    "fit",
    "predict",
    "predict_proba",
    "embed",
    "accuracy",
    "repeat",
    "summarise",
    "explain",
    "explain_classes",
    "load_model",
    "export",
    "NFCClassifier",
    "NFCEmbedder",
    "NFCError",
]


def __getattr__(name: str) -> Any:
    """Load the estimators, and scikit-learn with them, when they are asked for."""
    if name in ("NFCClassifier", "NFCEmbedder"):
        from nfcgcn import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'nfcgcn' has no attribute '{name}'")
