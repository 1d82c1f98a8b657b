"""The models by name, their settings and presets: everything that decides what a run is."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from nfcgcn.baselines import GAT, GAT5, GCN, GCN5, LGCN, MLP, SAGE, FastGCN, JKNet
from nfcgcn.baselines.jknet import Mode
from nfcgcn.config import suggestions as defaults
from nfcgcn.config.suggestions import Suggestion
from nfcgcn.data import DATASETS
from nfcgcn.data.splits import NUM_VAL, Rule, make_split
from nfcgcn.errors import ConfigError, unknown
from nfcgcn.graph import Graph, Split
from nfcgcn.kernels import Backend
from nfcgcn.method.layers import Activation, Classifier, Conv, Resample
from nfcgcn.method.model import NFCGCN, FeatureScale, NodeClassifier
from nfcgcn.method.sampling import SlotOrder
from nfcgcn.randomness import torch_randomness
from nfcgcn.settings import build_configs, one_line, read_settings, setting
from nfcgcn.training import TrainingConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


SCALE_MEANING = "features as they are, or those of a node divided by their sum or their Euclidean norm"


@dataclass(frozen=True)
class NFCGCNConfig:
    """The settings of NFC-GCN, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of each graph convolution but the last")
    num_layers: int = setting(2, "graph convolutions (K), from 0 up")
    bandwidth: int = setting(6, "slots of a node's feature map (n), the node itself included")
    filters: int = setting(64, "filters of the node-feature convolution (c)")
    kernel_size: int = setting(32, "features a filter sees at a time (k)")
    stride: int = setting(16, "features between two places of a filter (s)")
    conv: Conv = setting("1d", "slots as channels, or slid over as well")
    kernel_width: int = setting(3, "slots a 2D filter sees at a time")
    activation: Activation = setting("none", "after the node-feature convolution")
    map_dropout: float = setting(0.5, "dropout on the feature maps")
    representation_dropout: float = setting(0.0, "dropout on the node-feature convolution's output")
    dropout: float = setting(0.5, "dropout on the inputs of graph convolutions 2 to K")
    classifier: Classifier = setting("none", "a further layer from classes to classes")
    slot_order: SlotOrder = setting("random", "order of the drawn neighbours in the map")
    resample: Resample = setting("once", "draw neighbours once a run, or anew every training epoch")
    backend: Backend = setting("auto", "kernels: the fast ones where they can run, or forced")
    feature_scale: FeatureScale = setting("given", SCALE_MEANING)


@dataclass(frozen=True)
class BaselineConfig:
    """What all baselines can be told."""

    feature_scale: FeatureScale = setting("given", SCALE_MEANING)


@dataclass(frozen=True)
class MLPConfig(BaselineConfig):
    """The settings of the perceptron, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of each layer but the last")
    num_layers: int = setting(2, "linear layers")
    dropout: float = setting(0.5, "dropout on every layer's input")


@dataclass(frozen=True)
class GCNConfig(BaselineConfig):
    """The settings of GCN, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of each graph convolution but the last")
    num_layers: int = setting(2, "graph convolutions")
    dropout: float = setting(0.5, "dropout on every layer's input")


@dataclass(frozen=True)
class GATConfig(BaselineConfig):
    """The settings of GAT, named as its arguments."""

    hidden_channels: int = setting(8, "outputs of each head of each layer but the last")
    num_layers: int = setting(2, "layers of attention")
    heads: int = setting(8, "heads of each layer but the last, side by side")
    output_heads: int = setting(1, "heads of the last layer, averaged")
    dropout: float = setting(0.6, "dropout on every layer's input")
    attention_dropout: float = setting(0.6, "dropout on the weights of the neighbours")


@dataclass(frozen=True)
class SAGEConfig(BaselineConfig):
    """The settings of GraphSAGE, named as its arguments."""

    hidden_channels: int = setting(128, "outputs of each layer but the last")
    num_layers: int = setting(2, "layers")
    num_neighbours: int = setting(25, "neighbours drawn of a node that is scored, at most")
    num_further: int = setting(10, "neighbours drawn of a node that was itself drawn, at most")
    dropout: float = setting(0.5, "dropout on every layer's input")


@dataclass(frozen=True)
class FastGCNConfig(BaselineConfig):
    """The settings of FastGCN, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of the first graph convolution")
    samples: int = setting(400, "nodes drawn a step")


@dataclass(frozen=True)
class JKNetConfig(BaselineConfig):
    """The settings of JK-Net, named as its arguments."""

    hidden_channels: int = setting(32, "outputs of each graph convolution")
    num_layers: int = setting(4, "graph convolutions")
    mode: Mode = setting("concat", "how the layers' outputs are joined")
    dropout: float = setting(0.5, "dropout on every graph convolution's input")


@dataclass(frozen=True)
class LGCNConfig(BaselineConfig):
    """The settings of LGCN, named as its arguments."""

    hidden_channels: int = setting(32, "outputs of the first graph convolution")
    num_layers: int = setting(1, "learnable graph convolutions")
    filters: int = setting(8, "outputs of each learnable graph convolution")
    k: int = setting(8, "values a feature that it takes from the neighbours")
    dropout: float = setting(0.84, "dropout on every layer's input")


@dataclass(frozen=True)
class SampledConfig(BaselineConfig):
    """The settings of GCN-5 and GAT-5, named as their arguments."""

    bandwidth: int = setting(6, "slots of a node, the node itself included")
    dropout: float = setting(0.5, "dropout on the features")


@dataclass(frozen=True)
class SplitConfig:
    """Which nodes train, validate and test."""

    split: Rule = setting("per-class", "splitting rule")
    labels_per_class: int | None = setting(None, "fastgcn: training nodes a class, drawn by the seed; none: all")
    train_per_class: int = setting(20, "per-class: training nodes a class")
    num_val: int = setting(NUM_VAL, "per-class: validation nodes")
    num_test: int = setting(1000, "per-class: test nodes")
    train_ratio: float = setting(0.6, "ratio: share of training nodes")
    val_ratio: float = setting(0.2, "ratio: share of validation nodes")

    def __post_init__(self) -> None:
        for name in ("labels_per_class", "train_per_class", "num_val", "num_test"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"`{name}` must be at least 1, got {getattr(self, name)}")
        for name in ("train_ratio", "val_ratio"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"`{name}` must be between 0 and 1, got {getattr(self, name)}")

    def make(self, graph: Graph, seed: int) -> Split:
        """Split `graph`; the rules that draw do so by `seed`."""
        return make_split(graph, self.split, seed=seed, **{k: v for k, v in asdict(self).items() if k != "split"})


@dataclass(frozen=True)
class System:
    """A model that can be chosen by name."""

    model: Callable[..., NodeClassifier]
    config: type
    summary: str
    paper: str
    """Where it was published: authors, title, place and year."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that make it this system and no other."""
    presets_of: str | None = None
    """Whose presets it uses, where not its own."""


NFC_PAPER = 'Zhang, Song, Aletras and Lu, "Graph Node-Feature Convolution for Representation Learning", 2018'
GCN_PAPER = 'Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017'
SYSTEMS = {
    "nfc-gcn": System(NFCGCN, NFCGCNConfig, "NFC-GCN with 1D convolution", NFC_PAPER, {"conv": "1d"}),
    "nfc-gcn-2d": System(NFCGCN, NFCGCNConfig, "NFC-GCN with 2D convolution", NFC_PAPER, {"conv": "2d"}, "nfc-gcn"),
    "mlp": System(MLP, MLPConfig, "Perceptron on each node's own features", GCN_PAPER),
    "gcn": System(GCN, GCNConfig, "GCN: graph convolutions with degree weights", GCN_PAPER),
    "gat": System(
        GAT,
        GATConfig,
        "GAT: learned attention over the neighbours",
        'Velickovic, Cucurull, Casanova, Romero, Lio and Bengio, "Graph Attention Networks", ICLR 2018',
    ),
    "sage-mean": System(
        SAGE,
        SAGEConfig,
        "GraphSAGE: the node beside the mean of sampled neighbours",
        'Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017',
    ),
    "fastgcn": System(
        FastGCN,
        FastGCNConfig,
        "FastGCN: GCN trained on nodes sampled by importance",
        'Chen, Ma and Xiao, "FastGCN: Fast Learning with Graph Convolutional Networks via Importance Sampling", '
        "ICLR 2018",
    ),
    "jknet": System(
        JKNet,
        JKNetConfig,
        "JK-Net: graph convolutions, all of their outputs joined",
        'Xu, Li, Tian, Sonobe, Kawarabayashi and Jegelka, "Representation Learning on Graphs with Jumping Knowledge '
        'Networks", ICML 2018',
    ),
    "lgcn": System(
        LGCN,
        LGCNConfig,
        "LGCN: convolutions over the neighbours' largest values",
        'Gao, Wang and Ji, "Large-Scale Learnable Graph Convolutional Networks", KDD 2018',
    ),
    "gcn-5": System(GCN5, SampledConfig, "One layer on degree-weighted sums of five neighbours", NFC_PAPER),
    "gat-5": System(GAT5, SampledConfig, "One layer on attention-weighted sums of five neighbours", NFC_PAPER),
}


@dataclass(frozen=True)
class Config:
    """All that decides a run but the graph and the seed."""

    system: str
    preset: str
    model: Any
    training: TrainingConfig
    split: SplitConfig

    @property
    def values(self) -> dict[str, Any]:
        """All settings in one flat mapping."""
        return {f.name: getattr(part, f.name) for part in (self.model, self.training, self.split) for f in fields(part)}

    def build(self, graph: Graph, seed: int) -> NodeClassifier:
        """Make the model for `graph`, its weights and neighbours drawn by `seed`."""
        return self.build_for(graph.num_features, graph.num_classes, seed=seed)

    def build_for(self, num_features: int, num_classes: int, *, seed: int) -> NodeClassifier:
        """Make the model for any graph with these numbers of features and classes."""
        make = SYSTEMS[self.system].model
        options = asdict(self.model)
        feature_scale = options.pop("feature_scale", NodeClassifier.feature_scale)
        if "seed" in inspect.signature(make).parameters:
            options["seed"] = seed
        with torch_randomness(seed, "weights"):
            model = make(num_features, out_channels=num_classes, **options)
        model.feature_scale = feature_scale
        return model


def make_config(
    system: str = "nfc-gcn",
    *,
    dataset: str | None = None,
    preset: str | None = None,
    graph: Graph | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Config:
    """Put a config together: a system's defaults, then a preset for the dataset, then single settings.

    ``preset`` is one of ``PRESETS`` or the path of a TOML file, as ``nfcgcn tune`` writes it, which is for any dataset.
    Without a ``preset``, the first of ``PRESETS`` that knows the dataset is used, of those made for the split that
    `settings` name if there are any; where none knows it, bare defaults. A `graph` that is no built-in dataset gets
    what :func:`suggest` says in place of a preset.
    """
    chosen = _system(system)
    settings = settings or {}
    preset = preset or _fitting_preset(system, dataset, settings.get("split"))
    values = preset_values(preset, system, dataset)
    if graph is not None and not values and dataset not in DATASETS:
        preset, values = SUGGESTED, {name: suggestion.value for name, suggestion in suggest(graph, system).items()}
    clash = next((k for k, v in chosen.fixed.items() if settings.get(k, v) != v), None)
    if clash:
        raise ConfigError(f"`{clash}` is {chosen.fixed[clash]} in model '{system}'; choose another --model instead")
    model, training, split = build_configs(
        (chosen.config, TrainingConfig, SplitConfig), {**values, **chosen.fixed, **settings}
    )
    return Config(system, preset, model, training, split)


def suggest(graph: Graph, system: str = "nfc-gcn") -> dict[str, Suggestion]:
    """Return settings of `system` that suit `graph`, each with its reason; all others stay at their defaults."""
    model = _system(system).model
    own = defaults.for_nfc_gcn(graph) if model is NFCGCN else defaults.for_gcn() if model is GCN else {}
    return {**defaults.for_any_model(graph), **own}


def _system(name: str) -> System:
    if name not in SYSTEMS:
        raise ConfigError(unknown("model", name, SYSTEMS))
    return SYSTEMS[name]


SUGGESTED = "suggested"
"""What a config has in place of a preset where :func:`suggest` chose its settings."""
PRESETS = ("default", "nfc-paper", "paper")
"""In the order in which they are tried: what was chosen here, what NFC-GCN's paper says, what the model's own says."""


def _fitting_preset(system: str, dataset: str | None, split: str | None) -> str:
    knowing = [p for p in PRESETS if dataset in preset_tables(p, system)]
    made_for_it = [p for p in knowing if preset_tables(p, system)[dataset or ""].get("split") == split]
    return next(iter(made_for_it or knowing), "default")


def preset_values(preset: str, system: str, dataset: str | None) -> dict[str, Any]:
    """Return what a preset, by name or by file, sets for a system on a dataset."""
    if preset.endswith(".toml"):
        return _file_values(preset, system)
    tables = preset_tables(preset, system)
    values = tables.get(dataset or "", {})
    if not values and preset != "default":
        known = ", ".join(tables) or "no dataset"
        raise ConfigError(f"preset '{preset}' of model '{system}' has no settings for '{dataset}'; it covers {known}")
    return values


def _file_values(path: str, system: str) -> dict[str, Any]:
    chosen, tables = SYSTEMS[system], read_settings(Path(path))
    if system not in tables:
        known = ", ".join(name for name in tables if name in SYSTEMS) or "no known model"
        raise ConfigError(f"{path} has no settings for model '{system}'; it covers {known}")
    values = tables[system]
    try:
        build_configs((chosen.config, TrainingConfig, SplitConfig), {**values, **chosen.fixed})
    except ConfigError as error:
        raise ConfigError(f"{path}: {one_line(error)}") from error
    return values


def preset_tables(name: str, system: str) -> dict[str, dict[str, Any]]:
    """Return what a preset sets for a system, a table a dataset."""
    if name not in PRESETS:
        raise ConfigError(unknown("preset", name, PRESETS))
    text = (resources.files("nfcgcn.config") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    return dict(tomllib.loads(text).get(SYSTEMS[system].presets_of or system, {}))
