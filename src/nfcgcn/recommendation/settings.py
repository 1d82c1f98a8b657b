"""The settings of a recommender, each declared once, and those that suit each encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Literal

from nfcgcn.config.registry import MODELS
from nfcgcn.errors import ConfigError, unknown
from nfcgcn.recommendation.vectors import MF, LightGCN
from nfcgcn.settings import MOST_CHANNELS, MOST_EPOCHS, Settings, build_configs, rate, setting

Loss = Literal["softmax", "bpr"]
Negatives = Literal["all", "uniform", "popularity"]
Identity = Literal["yes", "no"]
Refit = Literal["yes", "no"]


@dataclass(frozen=True)
class RecommendConfig(Settings):
    """How a recommender is trained; the settings of its encoder stand beside these."""

    channels: int = setting(64, "length of the vector of a user or an item", low=1, high=MOST_CHANNELS)
    identity: Identity = setting("yes", "learn a column for each user and item, besides the features")
    loss: Loss = setting("softmax", "each liked item against all others at once, or against one (BPR)")
    negatives: Negatives = setting("all", "items to compare with: all, or drawn uniformly or by popularity")
    num_negatives: int = setting(1, "drawn negatives per interaction", low=1)
    hidden_share: float = rate(0.0, "interactions that a step hides from the graph, and learns from; 0: learn from all")
    cold_share: float = rate(0.0, "users and items that a step treats as new: without interactions and identity")
    epochs: int = setting(300, "epochs at most", low=1, high=MOST_EPOCHS)
    learning_rate: float = setting(0.05, "Adam's step size", above=0)
    weight_decay: float = setting(0.0, "L2 penalty on the weights that the encoder chooses for it", low=0)
    batch_size: int | None = setting(None, "interactions per step; none: all at once", low=1)
    validation: float = setting(
        0.1, "share of each user's training interactions that chooses the epoch", above=0, below=1
    )
    check_every: int = setting(10, "epochs between two validations", low=1)
    patience: int = setting(40, "stop after so many epochs without a better validation", low=1)
    top: int = setting(10, "length of the list that validation scores (NDCG)", low=1, high=1000)
    refit: Refit = setting("yes", "train again on all training interactions, for the chosen number of epochs")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss == "bpr" and self.negatives == "all":
            raise ConfigError("`negatives` must be uniform or popularity with `loss` bpr, got all")


ENCODERS = MappingProxyType(
    {
        **{name: entry.model for name, entry in MODELS.items() if entry.model.reads_features},
        "lightgcn": LightGCN,
        "mf": MF,
    }
)
"""What makes vectors of users and items, by name: the models of ``nfcgcn models`` that read features, and two more."""

NFC = {
    "num_layers": 1,
    "filters": 2,
    "kernel_size": 1,
    "stride": 1,
    "self_weight": 3.0,
    "map_dropout": 0.2,
    "hidden_share": 0.2,
}
"""With windows of one column, each of the two filters learns one vector per identity and feature, and mixes slots."""
PAIRS = {"loss": "bpr", "negatives": "uniform"}
TUNED: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Chosen on validation interactions of MovieLens-100K, of the training part of seed 0.
        "nfc-gcn": NFC,
        "nfc-gcn-2d": NFC,
        "gcn": {"num_layers": 1, "self_weight": 3.0, "hidden_share": 0.2},
        "lightgcn": PAIRS,
        "mf": {**PAIRS, "weight_decay": 4e-5},
    }
)
"""Settings that differ from the defaults, by encoder."""


@dataclass(frozen=True)
class RecommenderSettings:
    """Everything that defines a recommender, except the interactions and the seed."""

    name: str
    """Of the encoder."""
    encoder: Any
    training: RecommendConfig

    @property
    def values(self) -> dict[str, Any]:
        """All settings in one flat mapping."""
        return {f.name: getattr(part, f.name) for part in (self.encoder, self.training) for f in fields(part)}


def make_settings(model: str = "nfc-gcn", settings: Mapping[str, Any] | None = None) -> RecommenderSettings:
    """Put the settings of a recommender together: defaults, those that suit the encoder, then single ones."""
    if model not in ENCODERS:
        raise ConfigError(unknown("encoder", model, ENCODERS))
    fixed = MODELS[model].fixed if model in MODELS else {}
    clash = next((key for key, value in fixed.items() if (settings or {}).get(key, value) != value), None)
    if clash:
        raise ConfigError(f"`{clash}` is {fixed[clash]} in encoder '{model}'; choose another --model instead")
    values = {**TUNED.get(model, {}), **fixed, **(settings or {})}
    if values.get("loss") == "bpr" and "negatives" not in (settings or {}):
        values.setdefault("negatives", "uniform")
    config: type[Settings] = vars(ENCODERS[model].__init__)["config_class"]
    encoder, training = build_configs((config, RecommendConfig), values)
    return RecommenderSettings(model, encoder, training)
