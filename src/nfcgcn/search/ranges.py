"""Where to search: a range for each setting of a model, around its present value."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from nfcgcn.config.registry import MODELS, Config
from nfcgcn.graph import Graph
from nfcgcn.settings import Setting, settings_of
from nfcgcn.training import TrainingConfig

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

NOT_SEARCHED = ("backend", "representation_dropout", "classifier")
"""The choice of kernels, and variants of the method that cost more and do worse than the default."""


def search_ranges(config: Config, graph: Graph, *, held: Collection[str] = ()) -> dict[str, BaseDistribution]:
    """Return the range of each setting of the model, and of the learning rate and the weight decay.

    A range follows from the declaration of the setting: a choice is searched among all its options, a rate from 0 to
    0.9, a count from a quarter to four times its value in `config` (at least up to 8), any other number from a tenth to
    ten times its value; all within the declared bounds. The figure by which the best epoch is chosen is not searched:
    by validation accuracy, the highest of many epochs would always win.
    """
    training = settings_of(TrainingConfig)
    known = settings_of(type(config.model)) | {name: training[name] for name in ("learning_rate", "weight_decay")}
    left_out = {*held, *MODELS[config.name].fixed, *NOT_SEARCHED}
    if config.values.get("conv") != "2d":
        left_out.add("kernel_width")
    ranges = {name: _range(s, config.values[name], graph) for name, s in known.items() if name not in left_out}
    return {name: distribution for name, distribution in ranges.items() if distribution is not None}


def _range(s: Setting, now: Any, graph: Graph) -> BaseDistribution | None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if s.choices:
        return CategoricalDistribution(s.choices)
    if s.type is float and s.bounds["below"] == 1:
        return FloatDistribution(0.0 if s.bounds["above"] is None else now / 10, max(0.9, now))
    most = math.inf if s.bounds["at most"] is None else s.bounds["at most"]
    if s.type is float and now:
        return FloatDistribution(now / 10, min(10 * now, most), log=True)
    if s.type is float:
        return FloatDistribution(0.0, min(10 * s.default or 1.0, most))
    return _range_of_counts(s, now, graph, most) if s.type is int else None


def _range_of_counts(s: Setting, now: int, graph: Graph, most: float) -> BaseDistribution:
    from optuna.distributions import IntDistribution

    if s.name in ("num_layers", "conv_layers") or not now:
        return IntDistribution(min(1, now), int(min(max(3, now + 1), most)))
    low, high = now // 4, int(min(max(8, 4 * now), most))
    if s.name == "stride":
        low = max(low, graph.num_features // 256)  # with a smaller stride the map would have too many places
    if s.name in ("kernel_size", "stride"):
        high = min(high, graph.num_features)
    return IntDistribution(max(1, min(low, now)), max(high, now), log=True)


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
