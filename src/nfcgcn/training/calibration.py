"""Temperature scaling: one number, fitted on validation nodes, that makes probabilities as sure as they are right."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp

from nfcgcn.graph import Graph, Ints
from nfcgcn.kernels.threads import one_pool
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.training.scores import Doubles
from nfcgcn.training.values import Run, TrainingConfig

MOST = 100.0
"""The temperature stays between 1 / MOST and MOST."""


def is_temperature(value: Any) -> bool:
    """Return whether a value from a file is a number that :func:`fit_temperature` can return."""
    return type(value) in (int, float) and 0.99 / MOST <= value <= 1.01 * MOST


@one_pool()
@torch.no_grad()
def calibrated(
    run: Run, model: NodeClassifier, graph: Graph, nodes: Ints, config: TrainingConfig, device: torch.device
) -> Run:
    """Set the temperature of a trained model, fitted on `nodes` if the config says so, and return the run with it."""
    model.temperature = 1.0
    if config.calibrate == "temperature":
        where = torch.from_numpy(nodes).to(device)
        scores = model.eval().score_nodes(graph.x.to(device), model.edges_of(graph).to(device), where)
        model.temperature = fit_temperature(scores.double().cpu().numpy(), graph.labels[nodes])
    return replace(run, temperature=model.temperature)


def fit_temperature(scores: Doubles, labels: Ints) -> float:
    r"""Return the temperature T for which softmax(scores / T) has the lowest log loss on these nodes.

    1 if that is no better (Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", 2017). As in
    Platt's scaling, a share of 1 / (M + 2) of the M nodes counts as of any class: nodes that are all recognised would
    otherwise ask for probabilities of 0 and 1, which they are too few to promise.
    """
    from scipy.optimize import minimize_scalar

    doubt = 1 / (len(labels) + 2)

    def losses(log_temperature: float) -> tuple[float, float]:
        z = scores * math.exp(-log_temperature)
        costs = logsumexp(z, axis=1, keepdims=True) - z
        return float(np.mean(costs[np.arange(len(z)), labels])), float(np.mean(costs))

    def smoothed(log_temperature: float) -> float:
        own, any_class = losses(log_temperature)
        return (1 - doubt) * own + doubt * any_class

    limit = math.log(MOST)
    minimum = minimize_scalar(smoothed, bounds=(-limit, limit), method="bounded", options={"xatol": 1e-6})
    return math.exp(float(minimum.x)) if losses(minimum.x)[0] < losses(0.0)[0] else 1.0
