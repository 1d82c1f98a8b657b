"""The settings of a run, by model, preset and name: everything that defines it."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nfcgcn.baselines import GCN
from nfcgcn.config import suggestions
from nfcgcn.config.models import MODELS as MODELS
from nfcgcn.config.models import ModelEntry
from nfcgcn.config.sizes import check_sizes
from nfcgcn.config.suggestions import Suggestion
from nfcgcn.data import DATASETS
from nfcgcn.data.splits import NUM_VAL, Rule, make_split
from nfcgcn.errors import ConfigError, GraphError, option, unknown
from nfcgcn.graph import Graph, Split
from nfcgcn.memory import available, enough_memory, in_words
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.hops import LayeredClassifier
from nfcgcn.method.model import NFCGCN, NFCGCNConfig
from nfcgcn.randomness import torch_randomness
from nfcgcn.settings import Settings, build_configs, one_line, read_settings, setting
from nfcgcn.training import TrainingConfig
from nfcgcn.training.batch_steps import BATCH_SIZE
from nfcgcn.training.batches import AHEAD
from nfcgcn.training.fan_out import FanOut

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class SplitConfig(Settings):
    """Which nodes train, validate and test."""

    split: Rule = setting("per-class", "splitting rule")
    labels_per_class: int | None = setting(
        None, "fastgcn: training nodes per class, drawn by the seed; none: all", low=1
    )
    train_per_class: int = setting(20, "per-class: training nodes per class", low=1)
    num_val: int = setting(NUM_VAL, "per-class: validation nodes", low=1)
    num_test: int = setting(1000, "per-class: test nodes", low=1)
    train_ratio: float = setting(0.6, "ratio: share of training nodes", above=0, below=1)
    val_ratio: float = setting(0.2, "ratio: share of validation nodes", above=0, below=1)

    def make(self, graph: Graph, seed: int) -> Split:
        """Split `graph`; rules that draw nodes at random use `seed`."""
        return make_split(graph, self.split, seed=seed, **{k: v for k, v in asdict(self).items() if k != "split"})


DEPTHS = ("num_layers", "conv_layers")
"""Settings that count layers."""


@dataclass(frozen=True)
class Config:
    """Everything that defines a run, except the graph and the seed."""

    name: str
    """The model's name."""
    preset: str
    model: Any
    """The settings of the model."""
    training: TrainingConfig
    split: SplitConfig

    @property
    def values(self) -> dict[str, Any]:
        """All settings in one flat mapping."""
        return {f.name: getattr(part, f.name) for part in (self.model, self.training, self.split) for f in fields(part)}

    def build(self, graph: Graph, seed: int) -> NodeClassifier:
        """Make the model for `graph`; `seed` decides its weights and neighbours.

        Settings with which training would need more memory than there is are refused before any of it is taken.
        """
        if not graph.num_features and MODELS[self.name].model.reads_features:
            raise GraphError(f"'{graph.name}' has no features: there is nothing to learn from; add at least one column")
        self.check_memory(graph)
        with enough_memory():
            model = self.build_for(graph.num_features, graph.num_classes, seed=seed)
        model.check_weights(graph)
        return model

    def build_for(self, num_features: int, num_classes: int, *, seed: int) -> NodeClassifier:
        """Make the model for any graph with these numbers of features and classes."""
        make = MODELS[self.name].model
        seeded = {"seed": seed} if "seed" in inspect.signature(make).parameters else {}
        with torch_randomness(seed, "weights"):
            return make(num_features, num_classes, config=self.model, **seeded)

    def check_memory(self, graph: Graph) -> None:
        """Refuse a model that cannot be trained on `graph` with the memory at hand, and name the setting to blame."""
        needed = self.memory(graph)
        if needed <= available() + _gpu_memory(needed):
            return
        sizes = f"{graph.num_nodes:,} nodes, {graph.num_features:,} features and {graph.num_classes:,} classes"
        remedy = "leave out some, or choose another --model"
        if self.is_layered and self.training.fan_out is None:  # memory was taken since `in_batches` was asked
            remedy = f"train in mini-batches with {option('fan_out', str(FAN_OUT))}, {remedy}"
        check_sizes(
            self.model,
            lambda model: replace(self, model=model).memory(graph),
            f"{self.name} on '{graph.name}'",
            also=f" with {sizes}",
            remedy=remedy,
        )

    def memory(self, graph: Graph) -> float:
        """Estimate how many bytes training takes at least: weights with Adam's state, tables and outputs of layers."""
        sizes = {name: value for name, value in self.values.items() if type(value) is int}
        layers = sum(sizes[name] for name in DEPTHS if name in sizes) or 1
        per_node = 8 * sizes.get("bandwidth", 0) + 4 * graph.num_classes
        per_node += 12 * layers * sizes.get("hidden_channels", 0) * sizes.get("heads", 1)
        if "k" in sizes:  # LGCN: values and places of the k largest, of all that its layers before have put out
            per_node += 12 * sizes["k"] * layers * (sizes["hidden_channels"] + sizes["filters"] * (layers - 1) // 2)
        fixed = self._weight_memory(graph) + 8 * sizes.get("samples", 0) + 2**14 * layers
        if self.training.fan_out is not None:
            return fixed + self._composed(graph) + self._batch_memory(graph, per_node)
        return fixed + graph.num_nodes * per_node + self._composed(graph) + _tensors(graph)

    def _batch_memory(self, graph: Graph, per_node: int) -> float:
        """Estimate the bytes of the batches that are there at a time, with the features that they read."""
        assert self.training.fan_out is not None  # noqa: S101
        reached = float(self.training.batch_size or BATCH_SIZE) / (self.training.batch_parts or 1)
        for size in self.training.fan_out.sizes(self.model_hops):
            reached = min(reached * (1 + size), graph.num_nodes)
        rows = min(reached * getattr(self.model, "bandwidth", 1), graph.num_nodes)
        entries = _num_filled(graph) / max(1, graph.num_nodes)
        return (AHEAD + 1) * rows * (8 + 12 * entries) + 4 * reached * per_node

    @property
    def is_layered(self) -> bool:
        """Whether the model can train in mini-batches."""
        return issubclass(MODELS[self.name].model, LayeredClassifier)

    def in_batches(self, graph: Graph, *, processes: int = 1) -> tuple[Config, str | None]:
        """Return the config with mini-batches where a full step would not fit, and a line that says why.

        A graph that is in memory and whose steps fit trains in full steps, unless `fan_out` says otherwise or there are
        several processes, which can share mini-batches only.
        """
        if self.training.fan_out is not None or not (graph.num_features and graph.num_classes):
            return self, None  # training refuses a graph without features or classes, in its own words
        needed = self.memory(graph)
        if processes > 1:
            reason = f"{processes} processes share them"
        elif graph.store is not None and self.training.batch_size is not None:
            reason = "the graph is in a store"
        elif needed > available() + _gpu_memory(needed):
            free = in_words(available())
            reason = f"a full step would need about {in_words(needed)} of memory, but only {free} are free"
        else:
            return self, None
        size = self.training.batch_size or BATCH_SIZE
        changed = replace(self, training=replace(self.training, batch_size=size, fan_out=FanOut(FAN_OUT)))
        if not self.is_layered or changed.memory(graph) > available():
            if processes > 1:
                raise ConfigError(f"several processes can train nfc-gcn, nfc-gcn-2d, gcn and mlp, not {self.name}")
            return self, None
        drawn = f" and draws {FAN_OUT} neighbours per node and graph convolution" if changed.model_hops else ""
        return (
            changed,
            f"trains in mini-batches, as {reason}: a step takes {size:,} nodes{drawn} (--batch-size, --fan-out)",
        )

    @property
    def model_hops(self) -> int:
        """How many graph convolutions a model has that can train in mini-batches."""
        return 0 if self.name == "mlp" else int(getattr(self.model, "num_layers", 0))

    def _composed(self, graph: Graph) -> float:
        """Return the bytes of the node-feature convolution times the next matrix: what runs if it is linear."""
        c = self.model
        if not isinstance(c, NFCGCNConfig) or c.activation != "none" or c.representation_dropout:
            return 0.0
        width = c.bandwidth if c.conv == "1d" else c.kernel_width
        places = (graph.num_features - c.kernel_size) // c.stride + 1
        outputs = c.hidden_channels if c.num_layers > 1 else graph.num_classes
        windows = (c.bandwidth - width + 1) * width * c.kernel_size * places
        # The matrices and their gradient, which is a sum of parts; rows are padded to whole vectors.
        copies = 2 + -(-8 // c.bandwidth)
        return 4.0 * (outputs + -outputs % 4) * (2 * windows + copies * c.bandwidth * graph.num_features)

    def _weight_memory(self, graph: Graph) -> float:
        """Return the bytes of weights, gradients, Adam's two means and the best state, and of the copy in a product."""
        try:
            with torch.device("meta"):
                model = self.build_for(graph.num_features, graph.num_classes, seed=0)
        except (RuntimeError, OverflowError):  # more than torch can count
            return math.inf
        weights = list(model.parameters())
        # A product pads the columns of the matrix to whole vectors.
        copies = (math.prod(w.shape[:-1]) * (w.shape[-1] + -w.shape[-1] % 4) for w in weights if w.ndim > 1)
        return 20.0 * sum(w.numel() for w in weights) + 4.0 * max(copies, default=0)


def _tensors(graph: Graph) -> float:
    """Estimate the bytes of the tensors that a full step makes of a graph in a store: edges, adjacency, features."""
    if graph.store is None:
        return 0.0
    return float(100 * graph.adjacency.nnz + 12 * _num_filled(graph))


def _num_filled(graph: Graph) -> int:
    """Return how many numbers the features hold, zeros of sparse ones left out."""
    return graph.features.size if isinstance(graph.features, np.ndarray) else int(graph.features.nnz)


def _gpu_memory(needed: float) -> float:
    """Return the memory of the graphics card, which may hold what the machine cannot; asked only if it matters."""
    if needed <= available() or not torch.cuda.is_available():
        return 0.0
    return float(torch.cuda.get_device_properties(0).total_memory)


def make_config(
    model: str = "nfc-gcn",
    *,
    dataset: str | None = None,
    preset: str | None = None,
    graph: Graph | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Config:
    """Put a config together: a model's defaults, then a preset for the dataset, then single settings.

    ``preset`` is one of ``PRESETS`` or the path of a TOML file that ``nfcgcn tune`` wrote; a file applies to any
    dataset. Without a ``preset``, the first of ``PRESETS`` that covers the dataset is used; presets made for the split
    that `settings` name go first. If none covers the dataset, the defaults are used. A `graph` that is not a built-in
    dataset gets the settings of :func:`suggest` in place of a preset.

    >>> config = make_config("nfc-gcn", dataset="cora", settings={"epochs": 50})
    >>> config.preset, config.training.epochs
    ('paper', 50)
    """
    chosen = _entry(model)
    settings = settings or {}
    preset = preset or _fitting_preset(model, dataset, settings.get("split"))
    values = preset_values(preset, model, dataset)
    if graph is not None and not values and dataset not in DATASETS:
        preset, values = SUGGESTED, {name: suggestion.value for name, suggestion in suggest(graph, model).items()}
    clash = next((k for k, v in chosen.fixed.items() if settings.get(k, v) != v), None)
    if clash:
        raise ConfigError(f"`{clash}` is {chosen.fixed[clash]} in model '{model}'; choose another --model instead")
    parts = build_configs((chosen.config, TrainingConfig, SplitConfig), {**values, **chosen.fixed, **settings})
    return Config(model, preset, *parts)


def suggest(graph: Graph, model: str = "nfc-gcn") -> dict[str, Suggestion]:
    """Return settings of `model` that suit `graph`, each with its reason; all others stay at their defaults.

    >>> import nfcgcn
    >>> suggestion = suggest(nfcgcn.load("digits"))["bandwidth"]
    >>> suggestion.value
    6
    """
    made = _entry(model).model
    own: dict[str, Suggestion] = {}
    if made is NFCGCN:
        own = suggestions.for_nfc_gcn(graph)
    elif made is GCN:
        own = suggestions.for_gcn()
    elif not made.reads_features:
        own = suggestions.for_vectors()
    suggested = {**suggestions.for_any_model(graph), **own}
    return suggested if made.reads_features else {name: s for name, s in suggested.items() if name != "feature_scale"}


def _entry(name: str) -> ModelEntry:
    if name not in MODELS:
        raise ConfigError(unknown("model", name, MODELS))
    return MODELS[name]


FAN_OUT = 10
"""Neighbours per node and graph convolution where mini-batches are chosen by themselves."""
SUGGESTED = "suggested"
"""The preset's name in a config whose settings :func:`suggest` chose."""
SELECTED = "selected"
"""The preset's name in a config whose settings were chosen on validation nodes; see :mod:`selection`."""
PRESETS = ("default", "nfc-paper", "paper", "tuned")
"""In the order in which they are tried: chosen for this library, from NFC-GCN's paper, from the model's own paper, and
tuned for accuracy, which is never used unless it is named."""


def _fitting_preset(model: str, dataset: str | None, split: str | None) -> str:
    covering = [p for p in PRESETS if dataset in preset_tables(p, model)]
    made_for_split = [p for p in covering if preset_tables(p, model)[dataset or ""].get("split") == split]
    return next(iter(made_for_split or covering), "default")


def preset_values(preset: str, model: str, dataset: str | None) -> dict[str, Any]:
    """Return the settings that a preset, a name or a file, has for a model on a dataset."""
    if preset.endswith(".toml"):
        return _file_values(preset, model)
    tables = preset_tables(preset, model)
    values = tables.get(dataset or "", {})
    if not values and preset != "default":
        known = ", ".join(tables) or "no dataset"
        raise ConfigError(f"preset '{preset}' of model '{model}' has no settings for '{dataset}'; it covers {known}")
    return values


def _file_values(path: str, model: str) -> dict[str, Any]:
    chosen, tables = MODELS[model], read_settings(Path(path))
    if model not in tables:
        known = ", ".join(name for name in tables if name in MODELS) or "no known model"
        raise ConfigError(f"{path} has no settings for model '{model}'; it covers {known}")
    values = tables[model]
    try:
        build_configs((chosen.config, TrainingConfig, SplitConfig), {**values, **chosen.fixed})
    except ConfigError as error:
        raise ConfigError(f"{path}: {one_line(error)}") from error
    return values


def preset_tables(name: str, model: str) -> dict[str, dict[str, Any]]:
    """Return the settings that a preset has for a model, one table per dataset."""
    if name not in PRESETS:
        raise ConfigError(unknown("preset", name, PRESETS))
    return deepcopy(_preset(name).get(MODELS[model].presets_of or model, {}))


@cache
def _preset(name: str) -> dict[str, Any]:
    return dict(
        tomllib.loads((resources.files("nfcgcn.config") / "presets" / f"{name}.toml").read_text(encoding="utf-8"))
    )
