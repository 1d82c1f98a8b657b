"""Where to search: a range for each setting of a model, around its present value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from nfcgcn.config.registry import MODELS, Config
from nfcgcn.graph import Graph
from nfcgcn.settings import settings_of
from nfcgcn.training import TrainingConfig

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

NOT_SEARCHED = ("backend", "representation_dropout", "classifier")
"""The choice of kernels, and variants of the method that cost more and do worse than the default."""


def search_ranges(config: Config, graph: Graph, *, held: Collection[str] = ()) -> dict[str, BaseDistribution]:
    """Return the range of each setting of the model, and of the learning rate and the weight decay.

    A count is searched from a quarter to four times its value in `config`, a step size from a tenth to ten times its
    value, a choice among all its options.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    training = settings_of(TrainingConfig)
    known = settings_of(type(config.model)) | {name: training[name] for name in ("learning_rate", "weight_decay")}
    ranges: dict[str, BaseDistribution] = {}
    for name, s in known.items():
        now = config.values[name]
        if name in held or name in MODELS[config.name].fixed or name in NOT_SEARCHED:
            continue
        if get_origin(s.type) is Literal:
            ranges[name] = CategoricalDistribution(get_args(s.type))
        elif s.type is float:
            if name.endswith("dropout"):
                ranges[name] = FloatDistribution(0.0, max(0.9, now))
            else:
                ranges[name] = FloatDistribution(now / 10, now * 10, log=True) if now else FloatDistribution(0.0, 1e-3)
        elif name == "num_layers":
            ranges[name] = IntDistribution(min(1, now), max(3, now + 1))
        elif name != "kernel_width" or config.values["conv"] == "2d":
            low, high = now // 4, now * 4
            if name == "stride":
                low = max(low, graph.num_features // 256)  # with a smaller stride the map would have too many places
            if name in ("kernel_size", "stride"):
                high = min(high, graph.num_features)
            ranges[name] = IntDistribution(max(1, min(low, now)), max(high, now), log=True)
    return ranges


def with_params(config: Config, params: Mapping[str, Any]) -> Config:
    """Return `config` with the settings of a trial, rounded to three digits and adjusted to fit each other."""
    now = config.values
    values = {k: float(f"{v:.3g}") if isinstance(v, float) and v != now[k] else v for k, v in params.items()}
    everything = {**now, **values}
    if everything != now and "stride" in values:  # with larger strides the filters would skip features
        values["stride"] = min(values["stride"], everything["kernel_size"])
    if now.get("conv") == "2d" and "kernel_width" in values:
        values["kernel_width"] = min(values["kernel_width"], everything["bandwidth"])
    elif now.get("conv") == "2d" and "bandwidth" in values:
        values["bandwidth"] = max(values["bandwidth"], now["kernel_width"])

    def changed(part: Any) -> Any:
        return replace(part, **{f.name: values[f.name] for f in fields(part) if f.name in values})

    return replace(config, model=changed(config.model), training=changed(config.training))
