"""The settings of link prediction, each declared once, and what stands behind the name of a model."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import resources
from typing import Any, Literal

from nfcgcn.config.registry import MODELS, Config, SplitConfig, suggest
from nfcgcn.config.sizes import check_sizes, with_outputs
from nfcgcn.errors import ConfigError, GraphError, unknown
from nfcgcn.graph import Graph
from nfcgcn.links.decoders import DecoderName, make_decoder
from nfcgcn.links.model import LinkModel
from nfcgcn.links.negatives import Negatives
from nfcgcn.links.splits import TEST_RATIO, VAL_RATIO
from nfcgcn.randomness import torch_randomness
from nfcgcn.settings import MOST_CHANNELS, MOST_EPOCHS, Settings, build_configs, rate, setting, settings_of
from nfcgcn.training import TrainingConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Monitor = Literal["auc", "ap", "loss"]
Sampling = Literal["none", "normal"]


@dataclass(frozen=True)
class LinkConfig(Settings):
    """How nodes' vectors become scores of pairs, and how they are trained."""

    decoder: DecoderName = setting("cosine", "how the vectors of two nodes become a score")
    channels: int = setting(64, "numbers of each node's vector: the encoder's outputs", low=1, high=MOST_CHANNELS)
    decoder_channels: int = setting(64, "decoder mlp: outputs of its hidden layer", low=1, high=MOST_CHANNELS)
    decoder_dropout: float = rate(0.0, "decoder mlp: dropout on its inputs")
    hide: float = setting(
        0.5,
        "share of the training edges that a step hides from the encoder and scores; 0: it reads and scores them all",
        low=0,
        below=1,
    )
    batch_size: int | None = setting(None, "most edges that a step hides and scores; none: no limit", low=1)
    negatives: Negatives = setting("uniform", "pairs without an edge in training")
    num_negatives: int = setting(1, "pairs without an edge per edge in training", low=1)
    test_negatives: Negatives = setting("uniform", "pairs without an edge in validation and testing, one per edge")
    variational: Sampling = setting("none", "normal: sample vectors in training, as a variational auto-encoder does")
    epochs: int = setting(300, "steps at most", low=1, high=MOST_EPOCHS)
    learning_rate: float = setting(0.01, "Adam's step size", above=0)
    weight_decay: float = setting(0.0, "L2 penalty on the weights that encoder and decoder choose for it", low=0)
    monitor: Monitor = setting("auc", "validation figure by which the best epoch is chosen")
    patience: int | None = setting(100, "stop after this many epochs without a better one; none: never", low=1)
    val_ratio: float = setting(VAL_RATIO, "share of the edges held out for validation", above=0, below=1)
    test_ratio: float = setting(TEST_RATIO, "share of the edges held out for testing", above=0, below=1)


@dataclass(frozen=True)
class LinkModelEntry:
    """A model that can be chosen by name for link prediction."""

    encoder: str
    """Its name among the models for classification."""
    summary: str
    paper: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that define this model and cannot be changed."""


GAE_PAPER = 'Kipf and Welling, "Variational Graph Auto-Encoders", NeurIPS workshop on Bayesian deep learning 2016'
# Paper: all training edges are read while they are scored, and the loss is over all pairs of nodes; here pairs without
# an edge are drawn anew in every step, one per edge, so that memory grows with the edges and not with N x N.
_AS_PUBLISHED = {"decoder": "dot", "hide": 0.0}
LINK_MODELS = {
    **{name: LinkModelEntry(name, entry.summary, entry.paper) for name, entry in MODELS.items()},
    "gae": LinkModelEntry("gcn", "GAE: graph convolutions and inner products", GAE_PAPER, _AS_PUBLISHED),
    "vgae": LinkModelEntry(
        "gcn", "VGAE: GAE whose vectors are sampled", GAE_PAPER, {**_AS_PUBLISHED, "variational": "normal"}
    ),
}
"""The models of link prediction by name: every model of the registry as an encoder, and two with names of their own."""


@dataclass(frozen=True)
class LinkSetup:
    """Everything that defines a run of link prediction, except the graph, the split and the seed."""

    name: str
    """The model's name."""
    preset: str
    model: Any
    """The settings of the encoder."""
    links: LinkConfig

    @property
    def values(self) -> dict[str, Any]:
        """All settings in one flat mapping."""
        return {f.name: getattr(part, f.name) for part in (self.model, self.links) for f in fields(part)}

    def build(self, graph: Graph, seed: int) -> LinkModel:
        """Make the model for `graph`; a graph without features, or too large for the memory, is refused."""
        if graph.num_nodes < 3 or not graph.num_edges:
            raise GraphError(f"'{graph.name}' has no edges to learn from; link prediction needs some")
        self._encoder.check_memory(with_outputs(graph, 1))
        check_sizes(
            self.links,
            lambda links: replace(self, links=links)._memory(graph),
            f"{self.name} on '{graph.name}'",
            also=f" with {graph.num_nodes:,} nodes, {graph.num_features:,} features and {graph.num_edges:,} edges",
            remedy="choose another --model",
        )
        self._encoder.build(with_outputs(graph, self._outputs), seed)  # which refuses what cannot be trained
        return self.build_for(graph.num_features, seed=seed)

    def _memory(self, graph: Graph) -> float:
        """Estimate how many bytes training takes at least: the encoder, the decoder, and the pairs of a step."""
        c = self.links
        hidden = {"mlp": c.decoder_channels, "bilinear": c.channels}.get(c.decoder, 0)
        scored = graph.num_edges * (1 - c.val_ratio - c.test_ratio) * (c.hide or 1)
        scored = min(scored, c.batch_size or scored) if c.hide else scored
        # Of a pair its two ends, four times, as it is drawn and handed on, and their vectors.
        pairs = (1 + c.num_negatives) * scored * (64 + 4 * (2 * c.channels + hidden))
        return self._encoder.memory(with_outputs(graph, self._outputs)) + 20 * c.channels * hidden + pairs

    def build_for(self, num_features: int, *, seed: int) -> LinkModel:
        """Make the model for any graph with so many features; `seed` decides its weights and neighbours."""
        encoder = self._encoder.build_for(num_features, self._outputs, seed=seed)
        c = self.links
        with torch_randomness(seed, "decoder"):
            decoder = make_decoder(c.decoder, c.channels, hidden_channels=c.decoder_channels, rate=c.decoder_dropout)
        return LinkModel(encoder, decoder, variational=c.variational == "normal")

    @property
    def reads_features(self) -> bool:
        """Whether the nodes' vectors depend on their features, and not on the edges alone."""
        return MODELS[self._encoder.name].model.reads_features

    @property
    def _encoder(self) -> Config:
        return Config(LINK_MODELS[self.name].encoder, self.preset, self.model, TrainingConfig(), SplitConfig())

    @property
    def _outputs(self) -> int:
        return self.links.channels * (2 if self.links.variational == "normal" else 1)


ANY = "any"
"""The preset's table with what suits most graphs."""


def make_link_setup(
    model: str = "nfc-gcn",
    *,
    dataset: str | None = None,
    graph: Graph | None = None,
    settings: Mapping[str, Any] | None = None,
) -> LinkSetup:
    """Put settings together: defaults, then the preset of the model for the dataset, then single settings.

    Without a preset for the `dataset`, the preset for any graph is used, and settings that depend on the features
    (the window of NFC-GCN, the scale) are those that suit the `graph`.

    >>> make_link_setup("gae", settings={"epochs": 50}).links.epochs
    50
    """
    if model not in LINK_MODELS:
        raise ConfigError(unknown("model", model, LINK_MODELS))
    chosen, settings = LINK_MODELS[model], settings or {}
    entry = MODELS[chosen.encoder]
    tables = preset_tables(model)
    preset = dataset if dataset in tables else ANY
    values = dict(tables.get(preset, {}))
    if preset == ANY and graph is not None:
        own = settings_of(entry.config)
        fitting = {name: s.value for name, s in suggest(graph, chosen.encoder).items() if name in own}
        values = {**fitting, **values}
    fixed = {**entry.fixed, **chosen.fixed}
    clash = next((k for k, v in fixed.items() if settings.get(k, v) not in (v, str(v))), None)
    if clash:
        raise ConfigError(f"`{clash}` is {fixed[clash]} in model '{model}'; choose another --model instead")
    parts = build_configs((entry.config, LinkConfig), {**values, **settings, **fixed})
    return LinkSetup(model, preset, *parts)


def preset_tables(model: str) -> dict[str, dict[str, Any]]:
    """Return the settings of a model for link prediction, one table per dataset; `any` is for all others."""
    tables = _presets()
    return deepcopy(tables.get(model) or tables.get(MODELS[LINK_MODELS[model].encoder].presets_of or "", {}))


@cache
def _presets() -> dict[str, Any]:
    return dict(tomllib.loads((resources.files("nfcgcn.links") / "presets.toml").read_text(encoding="utf-8")))
