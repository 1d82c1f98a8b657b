"""Which features of which neighbour decided: contributions that add up to the change in a class's score."""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from nfcgcn.errors import ConfigError, GraphError, NFCWarning
from nfcgcn.graph import Graph, Ints
from nfcgcn.rays import Doubles, MapRay, Point, Ray, make_ray

Method = Literal["exact", "integrated gradients"]

TOLERANCE = 1e-3
"""Part of the change in the score that the contributions may miss."""
PIECEWISE = 10 * TOLERANCE
"""The same for what parts of the way miss, added up without sign, so that errors cannot hide behind each other."""
ROUNDING = 1e-9
MOST_POINTS = 1000
"""Points of the way at which a gradient is taken, at most."""

# Gauss and Legendre's five points on [0, 1].
_ROOTS, _WEIGHTS = np.polynomial.legendre.leggauss(5)
_ROOTS, _WEIGHTS = (_ROOTS + 1) / 2, _WEIGHTS / 2


class Contribution(NamedTuple):
    """What one feature of one node added to a score."""

    node: int
    feature: int
    value: float
    """Of the feature, in the graph."""
    contribution: float


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""What each feature of each node added to the score of one class at one node.

    .. math:: z(X) - z(0) = \sum_{j, d} \phi_{jd}, \qquad
        \phi_{jd} = x_{jd} \int_0^1 \frac{\partial z}{\partial x_{jd}}(\alpha X) \, d\alpha

    where :math:`z` is the score before the softmax and :math:`X = 0` a graph without a feature (integrated gradients:
    Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", 2017). A feature that is 0 adds nothing.
    """

    node: int
    target: int
    """The class."""
    predicted: int
    """The class with the highest score."""
    score: float
    """Of the class `target`, before the softmax."""
    baseline: float
    """The score were all features 0: the bias of the last layer, or 0 where there is none."""
    contributions: sp.csr_array
    """``[N, D]``: all places where a node's features enter, added up."""
    slots: Ints | None
    """``[n]``: who stands in the node's own map; None where the model has no maps."""
    own_map: sp.csr_array | None
    """``[n, D]``: the part that goes through the node's own map; the rest comes through the maps of other nodes."""
    hops: Ints
    """``[N]``: edges between each node and the one explained, or -1 where its features do not count."""
    method: Method
    """"exact" where the gradient is the same all along the way from 0 to X, so that its product with X is the
    integral; true without an activation, and with ReLU as long as only the last layer has a bias."""
    error: float
    """What the contributions miss of ``score - baseline``."""
    features: sp.csr_array
    """``[N, D]``: the values of the features."""

    def top(self, count: int | None = None) -> list[Contribution]:
        """List the largest contributions of either sign, largest first; all that are not 0 without a `count`."""
        cells = self.contributions.tocoo()
        order = np.lexsort((cells.col, cells.row, -np.abs(cells.data)))
        order = order[cells.data[order] != 0][:count]
        return [
            Contribution(int(j), int(d), float(self.features[j, d]), float(c))
            for j, d, c in zip(cells.row[order], cells.col[order], cells.data[order], strict=True)
        ]


@dataclass(frozen=True, eq=False)
class ClassExplanation:
    """What each feature, on whichever node, added to the score of a class: the mean over the nodes it was given to."""

    target: int
    num_nodes: int
    """Nodes predicted as this class; without one, nothing else here means anything."""
    score: float
    baseline: float
    contributions: Doubles
    """``[D]``"""
    method: Method
    error: float

    def top(self, count: int) -> list[tuple[int, float]]:
        """List the features that added or took most, with what they added, largest first."""
        order = np.argsort(-np.abs(self.contributions), kind="stable")[:count]
        return [(int(d), float(self.contributions[d])) for d in order if self.contributions[d]]


def explain(model: nn.Module, graph: Graph, node: int, *, target: int | None = None) -> Explanation:
    """Say which features of which neighbour decided the score of class `target`, by default the predicted one.

    The neighbours are those that prediction draws. Cost: the node's surroundings, not the graph.
    """
    if not 0 <= node < graph.num_nodes:
        raise GraphError(f"`node` must be between 0 and {graph.num_nodes - 1}, got {node}")
    ray = make_ray(model, graph, np.array([node]))
    scores = ray.scores(ray.at(1.0)[0]).detach()[0]
    predicted = int(scores.argmax())
    target = predicted if target is None else target
    if not 0 <= target < len(scores):
        raise ConfigError(f"`target` must be a class from 0 to {len(scores) - 1}, got {target}")
    integral = _integrate(ray, lambda scores: scores[0, target])
    slots, own_map = ray.own_map(node, integral.points) if isinstance(ray, MapRay) else (None, None)
    contributions = ray.contributions(integral.points)
    change = integral.score - integral.baseline
    return Explanation(
        node=node,
        target=target,
        predicted=predicted,
        score=integral.score,
        baseline=integral.baseline,
        contributions=contributions,
        slots=slots,
        own_map=own_map,
        hops=ray.hops,
        method=integral.method,
        error=change - float(contributions.sum()),
        features=sp.csr_array(graph.features),
    )


def explain_classes(model: nn.Module, graph: Graph, *, nodes: Ints | None = None) -> list[ClassExplanation]:
    """Say which features matter for each class: their mean contribution over those of `nodes` predicted as the class.

    Without `nodes` all are looked at.
    """
    nodes = np.arange(graph.num_nodes) if nodes is None else np.unique(nodes)
    ray = make_ray(model, graph, nodes)
    predictions = ray.scores(ray.at(1.0)[0]).detach()
    classes = []
    for target in range(predictions.shape[1]):
        chosen = (predictions.argmax(1) == target).nonzero().squeeze(1)
        if not len(chosen):
            classes.append(ClassExplanation(target, 0, 0.0, 0.0, np.zeros(graph.num_features), "exact", 0.0))
            continue
        integral = _integrate(ray, lambda scores, c=chosen, t=target: scores[c, t].mean())  # type: ignore[misc]
        contributions = np.asarray(ray.contributions(integral.points).sum(axis=0)).ravel()
        change = integral.score - integral.baseline
        classes.append(
            ClassExplanation(
                target,
                len(chosen),
                integral.score,
                integral.baseline,
                contributions,
                integral.method,
                change - float(contributions.sum()),
            )
        )
    return classes


class _Integral(NamedTuple):
    points: list[Point]
    score: float
    baseline: float
    method: Method


class _Piece(NamedTuple):
    """A part of the ray; the one that misses most comes first in a heap."""

    rank: float
    start: float
    end: float
    missed: float
    """Of the change in the score."""
    score_at_start: float
    score_at_end: float
    points: list[Point]


def _integrate(ray: Ray, choose: Callable[[Tensor], Tensor]) -> _Integral:
    """Find points and weights such that the gradients there add up to the change in the score.

    The true change is known over any part of the ray, and so is what the points of a part miss of it: the worst part is
    halved until all parts together miss little.
    """
    look = _observer(ray, choose)
    baseline, score = look(0.0)[0], look(1.0)[0]
    change = score - baseline
    for alpha in (0.5, 1.0):
        _, slope, spread, gradient = look(alpha)
        if abs(slope - change) > ROUNDING * (abs(change) + spread):
            break
    else:
        return _Integral([Point(1.0, 1.0, gradient)], score, baseline, "exact")
    pieces = [_measure(look, 0.0, 1.0, baseline, score)]
    few = ROUNDING * spread
    while (
        abs(sum(piece.missed for piece in pieces)) > TOLERANCE * abs(change) + few
        or sum(abs(piece.missed) for piece in pieces) > PIECEWISE * abs(change) + few
    ) and len(pieces) * len(_ROOTS) < MOST_POINTS:
        worst = heapq.heappop(pieces)
        middle = (worst.start + worst.end) / 2
        score_there = look(middle)[0]
        heapq.heappush(pieces, _measure(look, worst.start, middle, worst.score_at_start, score_there))
        heapq.heappush(pieces, _measure(look, middle, worst.end, score_there, worst.score_at_end))
    missed = abs(sum(piece.missed for piece in pieces))
    if missed > TOLERANCE * abs(change) + few:
        warnings.warn(
            f"the contributions miss {missed:.2g} of a change of {change:.2g} in the score, after {MOST_POINTS} points "
            "on the way",
            NFCWarning,
            stacklevel=3,
        )
    points = [point for piece in sorted(pieces, key=lambda p: p.start) for point in piece.points]
    return _Integral(points, score, baseline, "integrated gradients")


_Look = Callable[[float], tuple[float, float, float, Tensor]]


def _observer(ray: Ray, choose: Callable[[Tensor], Tensor]) -> _Look:
    def look(alpha: float) -> tuple[float, float, float, Tensor]:
        """Return the score, its slope along the ray, the sum of the slope's parts without sign, and the gradient."""
        p, direction = ray.at(alpha)
        p = p.detach().requires_grad_()
        score = choose(ray.scores(p))
        (gradient,) = torch.autograd.grad(score, p)
        parts = gradient * direction
        return score.item(), parts.sum().item(), parts.abs().sum().item(), gradient

    return look


def _measure(look: _Look, start: float, end: float, score_at_start: float, score_at_end: float) -> _Piece:
    points, total = [], 0.0
    for root, weight in zip(_ROOTS, _WEIGHTS, strict=True):
        alpha, share = start + (end - start) * float(root), (end - start) * float(weight)
        _, slope, _, gradient = look(alpha)
        points.append(Point(alpha, share, gradient))
        total += share * slope
    missed = score_at_end - score_at_start - total
    return _Piece(-abs(missed), start, end, missed, score_at_start, score_at_end, points)
