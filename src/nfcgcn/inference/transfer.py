"""Transfer: the weights of a run as the start of training on another graph with the same features."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from nfcgcn.config.registry import MODELS, Config, make_config
from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph
from nfcgcn.inference.checkpoint import SavedRun


def starting_weights(saved: SavedRun, graph: Graph, config: Config) -> dict[str, Tensor]:
    """Return the weights of a run with which a model of `config` can start on `graph`, by name.

    These are all of them if the classes are the same. Otherwise those whose shape depends on the number of classes are
    left out, and start as in any other run. Model, settings of the model, and features must be those of the run.
    """
    if config.name != saved.model_name:
        raise ConfigError(
            f"--init names a run of {saved.model_name}, but --model is {config.name}; they must be the same"
        )
    model = MODELS[config.name].model
    if not model.reads_features or model.grows:
        raise ConfigError(
            f"{config.name} learns one vector per node of its graph, which cannot be a start on another graph"
        )
    saved.check_features(graph)
    own = _shapes(config, graph.num_features, graph.num_classes)
    more = _shapes(config, graph.num_features, graph.num_classes + 1)
    same = saved.num_classes == graph.num_classes and saved.class_names == graph.class_names
    state = {
        name: tensor for name, tensor in saved.model.state_dict().items() if same or own.get(name) == more.get(name)
    }
    wrong = next((name for name, tensor in state.items() if own.get(name) != tensor.shape), None)
    if wrong is not None or not own.keys() >= state.keys():
        changed = [
            f"`{f.name}` {getattr(config.model, f.name)}, there {getattr(saved.model.config, f.name)}"
            for f in fields(saved.model.config)
            if getattr(config.model, f.name, None) != getattr(saved.model.config, f.name)
        ]
        raise ConfigError(f"the weights of {saved.folder} do not fit: here is {', '.join(changed)}; give both the same")
    return state


def settings_of_run(saved: SavedRun) -> dict[str, object]:
    """Return the settings of a run's model, without those of its training and its split."""
    model = make_config(saved.model_name, settings=saved.settings).model
    fixed = MODELS[saved.model_name].fixed
    return {f.name: getattr(model, f.name) for f in fields(model) if f.name not in fixed}


def _shapes(config: Config, num_features: int, num_classes: int) -> dict[str, torch.Size]:
    with torch.device("meta"):
        model = config.build_for(num_features, num_classes, seed=0)
    return {name: tensor.shape for name, tensor in model.state_dict().items()}
