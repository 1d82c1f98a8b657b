"""One node in the steps of the paper's pipeline: columns, neighbours, feature map, windows, classes and reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from nfcgcn.explore.subject import PARTS, Subject
from nfcgcn.graph import Ints
from nfcgcn.method.features import scale_features
from nfcgcn.method.model import NFCGCN
from nfcgcn.method.node_feature_conv import ACTIVATIONS, convolve
from nfcgcn.reports import node_reasons

MOST_COLUMNS = 200
"""Features of a node in its list."""
MOST_CELLS = 100
"""Columns of a feature map in the picture: those with the largest values."""
MOST_NEIGHBOURS = 200
MOST_WINDOWS = 12
MOST_REASONS = 40


def describe_node(subject: Subject, node: int) -> dict[str, Any]:
    """Return all that is known about a node, without reasons."""
    row = subject.row(node)
    present = np.flatnonzero(row)
    largest = present[np.argsort(-np.abs(row[present]), kind="stable")]
    neighbours = subject.graph.adjacency.indices[slice(*subject.graph.adjacency.indptr[node : node + 2])]
    answer = {
        **subject.brief(node),
        "part": PARTS[subject.parts[node]],
        "degree": int(subject.degrees[node]),
        "num_columns": len(present),
        "columns": [
            {"feature": int(d), "name": subject.feature(int(d)), **subject.value(int(d), float(row[d]))}
            for d in largest[:MOST_COLUMNS]
        ],
        "neighbours": [subject.brief(int(j)) for j in neighbours[:MOST_NEIGHBOURS]],
    }
    if subject.probabilities is None or subject.over_draws is None:
        return answer
    over = subject.over_draws
    answer["probabilities"] = subject.probabilities[node].tolist()
    answer["mean"], answer["spread"] = over.probabilities[node].tolist(), over.spread[node].tolist()
    answer["draws"] = over.draws
    if subject.convolved is not None:
        slots = subject.own_table[node]
        answer["map"] = _describe_map(subject, subject.convolved, slots)
        answer["depth"] = len(subject.convolved.layers)
    return answer


def map_of(subject: Subject, slots: Ints) -> Any:
    """Return the feature map of a node, ``[n, D]``: the features of its slots as the model reads them."""
    assert subject.run is not None  # noqa: S101
    rows = torch.from_numpy(np.stack([subject.row(int(j)) for j in slots]))
    return scale_features(rows, subject.run.model.config.feature_scale).numpy()


def answers_of(model: NFCGCN, cells: Any) -> Any:
    """Return what each filter answers at each place of a map, before the activation, ``[n - w + 1, c, D']``."""
    with torch.no_grad():
        return convolve(torch.from_numpy(cells)[None], model.nfc.weight, stride=model.config.stride)[0].numpy()


def _describe_map(subject: Subject, model: NFCGCN, slots: Ints) -> dict[str, Any]:
    cells, config = map_of(subject, slots), model.config
    present = np.flatnonzero(cells.any(axis=0))
    shown = np.sort(present[np.argsort(-np.abs(cells[:, present]).max(axis=0, initial=0), kind="stable")[:MOST_CELLS]])
    answers = answers_of(model, cells)
    strongest = np.argsort(-np.abs(answers).ravel(), kind="stable")[:MOST_WINDOWS]
    width = model.nfc.weight.shape[1]
    windows = []
    for slot, number, place in zip(*np.unravel_index(strongest, answers.shape), strict=True):
        answer = answers[slot, number, place]
        first = int(place) * config.stride
        last = first + config.kernel_size
        parts = cells[slot : slot + width, first:last] * model.nfc.weight.detach().numpy()[number]
        windows.append(
            {
                "filter": int(number),
                "slots": [int(slot), int(slot) + width - 1],
                "first": first,
                "last": last - 1,
                "answer": float(answer),
                "after": float(ACTIVATIONS[config.activation](torch.tensor(answer))),
                "mostly": _name_largest(subject, slots, parts, int(slot), first),
            }
        )
    return {
        "slots": [{"node": int(j), "name": subject.name(int(j)), "own": int(j) == int(slots[0])} for j in slots],
        "features": [{"feature": int(d), "name": subject.feature(int(d))} for d in shown],
        "num_features": len(present),
        "cells": cells[:, shown].tolist(),
        "windows": windows,
        "activation": config.activation,
        "shape": list(answers.shape),
        "kernel_size": config.kernel_size,
        "stride": config.stride,
    }


def _name_largest(subject: Subject, slots: Ints, parts: Any, slot: int, first: int) -> str:
    """Name the cells that make up most of a window's answer."""
    order = np.argsort(-np.abs(parts).ravel(), kind="stable")[:3]
    places = [np.unravel_index(i, parts.shape) for i in order if parts.ravel()[i]]
    names = [f"{subject.feature(first + int(d))} of {subject.name(int(slots[slot + int(j)]))}" for j, d in places]
    return "; ".join(dict.fromkeys(names))  # a node may be in several slots


def describe_reasons(subject: Subject, node: int, target: int) -> dict[str, Any]:
    """Return what each feature of each node added to the score of a class: the numbers of `explain`."""
    assert subject.run is not None  # noqa: S101
    e = subject.explainer.explain(node, target=target)
    name = subject.run.class_name
    reasons = node_reasons(e, subject.graph, model=subject.run.model_name, class_name=name, top=1)
    answer: dict[str, Any] = {
        "node": node,
        "target": e.target,
        "title": reasons.title,
        "score": e.score,
        "baseline": e.baseline,
        "cards": [list(card) for card in reasons.cards],
        "how": list(reasons.how),
        "count": int(e.contributions.count_nonzero()),
        "reasons": [
            {
                "node": j,
                "name": subject.name(j),
                "hops": int(e.hops[j]),
                "feature": d,
                "feature_name": subject.feature(d),
                **subject.value(d, value),
                "contribution": added,
            }
            for j, d, value, added in e.top(MOST_REASONS)
        ],
    }
    if e.own_map is not None and subject.convolved is not None:
        own = e.own_map.toarray()
        answer["slots"] = own.sum(axis=1).tolist()
        cells = e.own_map.tocoo()
        answer["cells"] = [[int(j), int(d), float(c)] for j, d, c in zip(*cells.coords, cells.data, strict=True) if c]
    return answer
