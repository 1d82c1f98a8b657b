"""Graph node-feature convolution (NFC-GCN): learning on graphs whose nodes carry features.

In reading order: get a graph, split it, build a model, train it, judge it, ask why, ship it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nfcgcn.baselines import GCN as GCN
    from nfcgcn.config.inspection import inspect as inspect
    from nfcgcn.config.registry import make_config as make_config
    from nfcgcn.config.registry import suggest as suggest
    from nfcgcn.config.selection import select as select
    from nfcgcn.data import load as load
    from nfcgcn.data.formats import from_frames as from_frames
    from nfcgcn.data.formats import from_igraph as from_igraph
    from nfcgcn.data.formats import from_networkx as from_networkx
    from nfcgcn.data.formats import write_npz as write_npz
    from nfcgcn.data.splits import make_split as make_split
    from nfcgcn.data.store import open_store as open_store
    from nfcgcn.data.store import pyg_stores as pyg_stores
    from nfcgcn.data.store import write_store as write_store
    from nfcgcn.data.structure import structural_features as structural_features
    from nfcgcn.errors import NFCError as NFCError
    from nfcgcn.estimator import NFCClassifier as NFCClassifier
    from nfcgcn.estimator import NFCEmbedder as NFCEmbedder
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
    from nfcgcn.links.estimator import LinkPredictor as LinkPredictor
    from nfcgcn.links.training import fit_links as fit_links
    from nfcgcn.method.graph_conv import GraphConv as GraphConv
    from nfcgcn.method.model import NFCGCN as NFCGCN
    from nfcgcn.method.node_feature_conv import NodeFeatureConv as NodeFeatureConv
    from nfcgcn.method.sampling import sample_neighbours as sample_neighbours
    from nfcgcn.recommendation.evaluation import evaluate_recommenders as evaluate_recommenders
    from nfcgcn.recommendation.interactions import Interactions as Interactions
    from nfcgcn.recommendation.interactions import read_interactions as read_interactions
    from nfcgcn.recommendation.recommender import Recommender as Recommender
    from nfcgcn.recommendation.recommender import fit_recommender as fit_recommender
    from nfcgcn.recommendation.run_folder import load_recommender as load_recommender
    from nfcgcn.search.comparison import compare as compare
    from nfcgcn.training import TrainingConfig as TrainingConfig
    from nfcgcn.training import fit as fit
    from nfcgcn.training.tracking import TensorBoardTracker as TensorBoardTracker
    from nfcgcn.training.tracking import Tracker as Tracker

__version__ = "0.2.0"

_HOMES = {
    "load": "nfcgcn.data",
    "from_frames": "nfcgcn.data.formats",
    "from_networkx": "nfcgcn.data.formats",
    "from_igraph": "nfcgcn.data.formats",
    "structural_features": "nfcgcn.data.structure",
    "write_npz": "nfcgcn.data.formats",
    "open_store": "nfcgcn.data.store",
    "write_store": "nfcgcn.data.store",
    "pyg_stores": "nfcgcn.data.store",
    "Graph": "nfcgcn.graph",
    "Split": "nfcgcn.graph",
    "inspect": "nfcgcn.config.inspection",
    "make_split": "nfcgcn.data.splits",
    "sample_neighbours": "nfcgcn.method.sampling",
    "NodeFeatureConv": "nfcgcn.method.node_feature_conv",
    "GraphConv": "nfcgcn.method.graph_conv",
    "NFCGCN": "nfcgcn.method.model",
    "GCN": "nfcgcn.baselines",
    "suggest": "nfcgcn.config.registry",
    "make_config": "nfcgcn.config.registry",
    "select": "nfcgcn.config.selection",
    "TrainingConfig": "nfcgcn.training",
    "fit": "nfcgcn.training",
    "Tracker": "nfcgcn.training.tracking",
    "TensorBoardTracker": "nfcgcn.training.tracking",
    "predict": "nfcgcn.inference.prediction",
    "predict_proba": "nfcgcn.inference.prediction",
    "embed": "nfcgcn.inference.prediction",
    "accuracy": "nfcgcn.evaluation",
    "repeat": "nfcgcn.evaluation",
    "summarise": "nfcgcn.evaluation",
    "compare": "nfcgcn.search.comparison",
    "explain": "nfcgcn.inference.explanation",
    "explain_classes": "nfcgcn.inference.explanation",
    "load_model": "nfcgcn.inference.checkpoint",
    "export": "nfcgcn.inference.export",
    "fit_links": "nfcgcn.links.training",
    "LinkPredictor": "nfcgcn.links.estimator",
    "read_interactions": "nfcgcn.recommendation.interactions",
    "Interactions": "nfcgcn.recommendation.interactions",
    "fit_recommender": "nfcgcn.recommendation.recommender",
    "Recommender": "nfcgcn.recommendation.recommender",
    "evaluate_recommenders": "nfcgcn.recommendation.evaluation",
    "load_recommender": "nfcgcn.recommendation.run_folder",
    "NFCClassifier": "nfcgcn.estimator",
    "NFCEmbedder": "nfcgcn.estimator",
    "NFCError": "nfcgcn.errors",
}
"""Where each public name is defined, in reading order."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Load a public name, and what it needs, when it is asked for: torch alone takes more than a second."""
    if name not in _HOMES:
        raise AttributeError(f"module 'nfcgcn' has no attribute '{name}'")
    thing = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return thing


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
