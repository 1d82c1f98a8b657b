from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from nfcgcn.config.registry import MODELS, make_config
from nfcgcn.graph import Graph
from nfcgcn.search.ranges import _range, search_ranges, with_params
from nfcgcn.settings import Settings, rate, setting, settings_of


def graph_of(num_features):
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 30, (2, 60))
    return Graph.from_edges(edges, rng.random((30, num_features)), labels=np.arange(30) % 3)


def test_the_ranges_of_nfc_gcn():
    config = make_config(settings={"kernel_size": 32, "stride": 16})
    space = search_ranges(config, graph_of(100))
    assert space == {
        "hidden_channels": IntDistribution(4, 64, log=True),
        "num_layers": IntDistribution(1, 3),
        "bandwidth": IntDistribution(1, 24, log=True),
        "filters": IntDistribution(16, 256, log=True),
        "kernel_size": IntDistribution(8, 100, log=True),
        "stride": IntDistribution(4, 64, log=True),
        "activation": CategoricalDistribution(("none", "tanh", "relu")),
        "map_dropout": FloatDistribution(0, 0.9),
        "dropout": FloatDistribution(0, 0.9),
        "slot_order": CategoricalDistribution(("random", "similarity", "degree", "pagerank")),
        "resample": CategoricalDistribution(("once", "epoch")),
        "edge_dropout": FloatDistribution(0, 0.9),
        "own_features": CategoricalDistribution(("none", "mlp")),
        "self_weight": FloatDistribution(0.1, 10, log=True),
        "neighbour_draw": CategoricalDistribution(("uniform", "degree", "similarity", "importance")),
        "conv_layers": IntDistribution(1, 3),
        "learning_rate": FloatDistribution(0.001, 0.1, log=True),
        "weight_decay": FloatDistribution(1e-5, 1e-3, log=True),
    } | {name: space[name] for name in space.keys() & {"feature_scale"}}
    assert search_ranges(config, graph_of(100), held=["stride", "dropout"]).keys() == space.keys() - {
        "stride",
        "dropout",
    }


def test_a_wide_graph_is_not_given_a_small_stride():
    assert search_ranges(make_config(), graph_of(3000))["stride"] == IntDistribution(11, 64, log=True)
    # But the value it has now can always be tried.
    now = make_config(settings={"stride": 2})
    assert search_ranges(now, graph_of(3000))["stride"] == IntDistribution(2, 8, log=True)


def test_no_decay_at_all_can_be_tried_first():
    config = make_config("gcn", settings={"weight_decay": 0})
    assert search_ranges(config, graph_of(9))["weight_decay"] == FloatDistribution(0, 1e-3)


@dataclass(frozen=True)
class LaterConfig(Settings):
    """Settings that a model might get one day."""

    edge_dropout: float = rate(0.0, "a rate")
    share: float = setting(0.3, "a share", above=0, below=1)
    self_weight: float = setting(0.0, "a weight", low=0, high=4)
    scale: float = setting(2.0, "a scale", above=0, high=5)
    loops: float = setting(0.0, "a number", low=0)
    depths: int = setting(0, "a count that may be 0", low=0)
    heads: int = setting(1, "a count", low=1, high=6)
    norm: Literal["none", "layer"] = setting("none", "a choice")
    limit: int | None = setting(None, "a count or none", low=1)


def test_ranges_follow_from_declarations():
    ranges = {name: _range(s, s.default, graph_of(9)) for name, s in settings_of(LaterConfig).items()}
    assert ranges == {
        "edge_dropout": FloatDistribution(0, 0.9),
        "share": FloatDistribution(0.03, 0.9),
        "self_weight": FloatDistribution(0, 1),
        "scale": FloatDistribution(0.2, 5, log=True),
        "loops": FloatDistribution(0, 1),
        "depths": IntDistribution(0, 3),
        "heads": IntDistribution(1, 6, log=True),
        "norm": CategoricalDistribution(("none", "layer")),
        "limit": None,
    }
    small = settings_of(LaterConfig)["self_weight"]
    assert _range(replace(small, bounds={**small.bounds, "at most": 0.5}), 0.0, graph_of(9)) == FloatDistribution(
        0, 0.5
    )


@pytest.mark.parametrize("num_features", [1, 5, 60])
@pytest.mark.parametrize("system", MODELS)
def test_whatever_is_suggested_can_be_built(system, num_features):
    graph = graph_of(num_features)
    config = make_config(system, graph=graph)
    space = search_ranges(config, graph)
    assert {"learning_rate", "weight_decay"} < space.keys()
    assert not space.keys() & {"conv", "backend", "epochs", "split"}
    assert ("kernel_width" in space) == (system == "nfc-gcn-2d")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.enqueue_trial({name: config.values[name] for name in space})
    first = study.ask(space).params
    assert first == {name: config.values[name] for name in space}  # inside every range
    assert with_params(config, first) == config
    for _ in range(10):
        changed = with_params(config, study.ask(space).params)
        changed.build(graph, 0)
        assert changed.split == config.split
        if "stride" in space:
            assert changed.values["stride"] <= changed.values["kernel_size"]


def test_numbers_are_rounded_to_be_read():
    config = make_config(settings={"learning_rate": 0.0123456, "stride": 50})
    found = with_params(
        config, {"learning_rate": 0.0234567, "dropout": 0.31415, "filters": 77, "kernel_size": 20}
    ).values
    assert (found["learning_rate"], found["dropout"], found["filters"]) == (0.0235, 0.314, 77)
    # What was so before stays so.
    assert found["stride"] == 50
    assert with_params(config, {"learning_rate": 0.0123456}).values["learning_rate"] == 0.0123456
    assert with_params(config, {"stride": 30, "kernel_size": 20}).values["stride"] == 20


def test_a_width_that_is_held_keeps_the_bandwidth_up():
    config = make_config("nfc-gcn-2d")
    assert with_params(config, {"bandwidth": 2}).values["bandwidth"] == 3
    both = with_params(config, {"bandwidth": 2, "kernel_width": 5}).values
    assert (both["bandwidth"], both["kernel_width"]) == (2, 2)
