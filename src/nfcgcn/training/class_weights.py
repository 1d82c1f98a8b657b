"""Weights of the classes in the loss, so that rare classes are not drowned by frequent ones."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from nfcgcn.errors import ConfigError, unknown
from nfcgcn.graph import Graph, Ints


class ClassWeights(str):
    """One weight per class name, as the text of a JSON object with sorted names.

    Made from a mapping, from JSON, or from ``name=weight, name=weight``.

    >>> ClassWeights("spam=5, ham=1").table
    {'ham': 1.0, 'spam': 5.0}
    """

    meaning = "a weight above 0 per class, as in spam=5,ham=1"

    def __new__(cls, given: str | Mapping[Any, float]) -> ClassWeights:
        table = {str(name): _weight(weight) for name, weight in _pairs(given)}
        if not table:
            raise ValueError("there is no weight")
        return super().__new__(cls, json.dumps(table, sort_keys=True, ensure_ascii=False))

    @property
    def table(self) -> dict[str, float]:
        """The weights by the name of the class."""
        weights: dict[str, float] = json.loads(self)
        return weights


ClassWeight = Literal["balanced"] | None | ClassWeights


def class_weights(chosen: ClassWeight, graph: Graph, train: Ints) -> Tensor | None:
    """Return the weight of each class, ``[C]``; None if all count the same.

    "balanced" weights a class by the number of training nodes per class on average, divided by its own number. A class
    that a table does not name, or that no training node has, gets weight 1.
    """
    if chosen is None:
        return None
    weights = np.ones(graph.num_classes)
    if isinstance(chosen, ClassWeights):
        names = [graph.class_name(c) for c in range(graph.num_classes)]
        for name, weight in chosen.table.items():
            if name not in names:
                raise ConfigError(f"`class_weight`: {unknown('class', name, names)}")
            weights[names.index(name)] = weight
    else:
        counts = np.bincount(graph.labels[train], minlength=graph.num_classes)
        present = counts > 0
        weights[present] = len(train) / (present.sum() * counts[present])
    return torch.from_numpy(weights.astype(np.float32))


def _pairs(given: Any) -> Any:
    """Return names and weights; anything but a mapping or a text is refused."""
    if isinstance(given, Mapping):
        return given.items()
    if not isinstance(given, str):
        raise ValueError(f"a {type(given).__name__} holds no weights")
    if not given.lstrip().startswith("{"):
        parts = (part.rpartition("=") for part in given.split(","))
        return [(name.strip(), weight) for name, _, weight in parts]
    try:
        read = json.loads(given)
    except RecursionError as error:
        raise ValueError("too deeply nested") from error
    return _pairs(read if isinstance(read, Mapping) else None)


def _weight(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float | np.number):
        raise ValueError("a weight is a number")
    try:
        weight = float(value)
    except OverflowError as error:
        raise ValueError("a weight is finite") from error
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError("a weight is above 0")
    return weight
