"""The integral of a score's gradient along the path from no features to all of them."""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nfcgcn.errors import NFCWarning
from nfcgcn.inference.feature_path import FeaturePath, Point

Method = Literal["exact", "integrated gradients"]

TOLERANCE = 1e-3
"""Share of the change in the score that the contributions together may leave unexplained."""
SPREAD = 1e-2
"""Estimated errors of the single contributions, added up, as a share of the contributions added up without sign."""
ROUNDING = 1e-9
MOST_POINTS = 300
"""Largest number of points on the path at which a gradient is taken."""

# The five-point Gauss-Legendre rule on [0, 1], and a coarser rule that uses every other one of its points.
_ROOTS, _WEIGHTS = np.polynomial.legendre.leggauss(5)
_ROOTS, _WEIGHTS = (_ROOTS + 1) / 2, _WEIGHTS / 2
_OUTER = 1 / (24 * (_ROOTS[4] - 0.5) ** 2)
_COARSE = (_OUTER, 0, 1 - 2 * _OUTER, 0, _OUTER)


class Integral(NamedTuple):
    """Points whose weighted gradients add up to the change in a score."""

    points: list[Point]
    baseline: float
    method: Method


class _Piece(NamedTuple):
    """A part of the path; the worst one comes first in a heap."""

    rank: float
    start: float
    end: float
    missed: float
    """Of the change in the score."""
    unsure: float
    """By how much the single contributions may be off, added up without sign."""
    score_at_start: float
    score_at_end: float
    points: list[Point]


class _Slope(NamedTuple):
    """The score and its derivatives at one point of the path."""

    score: float
    parts: Tensor
    """Of the score's slope along the path."""
    gradient: Tensor


def integrate(path: FeaturePath, choose: Callable[[Tensor], Tensor]) -> Integral:
    """Find points and weights for which the weighted gradients add up to the change in the score.

    Over any part of the path the true change is known, and so is the error of the points in that part. The error of
    the single contributions is estimated by comparison with a coarser rule. The worst part is halved until both errors
    are small.
    """

    def evaluate(alpha: float) -> _Slope:
        p, direction = path.at(alpha)
        p = p.detach().requires_grad_()
        score = choose(path.scores(p))
        (gradient,) = torch.autograd.grad(score, p)
        return _Slope(score.item(), gradient * direction, gradient)

    start, middle, end = evaluate(0.0), evaluate(0.5), evaluate(1.0)
    change, size = end.score - start.score, end.parts.abs().sum().item()
    rounding = ROUNDING * (abs(change) + size)
    if all(abs(slope.parts.sum().item() - change) <= rounding for slope in (middle, end)):
        return Integral([Point(1.0, 1.0, end.gradient)], start.score, "exact")
    limits = TOLERANCE * abs(change) + rounding, SPREAD * size + rounding
    pieces = [_measure(evaluate, (0.0, 1.0), (start.score, end.score), limits)]
    while (
        abs(sum(piece.missed for piece in pieces)) > limits[0] or sum(piece.unsure for piece in pieces) > limits[1]
    ) and len(pieces) * len(_ROOTS) < MOST_POINTS:
        worst = heapq.heappop(pieces)
        half = (worst.start + worst.end) / 2
        score = evaluate(half).score
        heapq.heappush(pieces, _measure(evaluate, (worst.start, half), (worst.score_at_start, score), limits))
        heapq.heappush(pieces, _measure(evaluate, (half, worst.end), (score, worst.score_at_end), limits))
    missed = abs(sum(piece.missed for piece in pieces))
    if missed > limits[0]:
        warnings.warn(
            f"the contributions leave {missed:.2g} of the score's change of {change:.2g} unexplained, even with "
            f"{MOST_POINTS} integration points",
            NFCWarning,
            stacklevel=3,
        )
    points = [point for piece in sorted(pieces, key=lambda p: p.start) for point in piece.points]
    return Integral(points, start.score, "integrated gradients")


def _measure(
    evaluate: Callable[[float], _Slope],
    ends: tuple[float, float],
    scores: tuple[float, float],
    limits: tuple[float, float],
) -> _Piece:
    start, width = ends[0], ends[1] - ends[0]
    points: list[Point] = []
    total, doubt = 0.0, torch.zeros(())
    for root, weight, coarse in zip(_ROOTS, _WEIGHTS, _COARSE, strict=True):
        slope = evaluate(start + width * float(root))
        points.append(Point(start + width * float(root), width * float(weight), slope.gradient))
        total += width * float(weight) * slope.parts.sum().item()
        doubt = doubt + width * float(weight - coarse) * slope.parts
    missed, unsure = scores[1] - scores[0] - total, doubt.abs().sum().item()
    rank = -max(abs(missed) / limits[0], unsure / limits[1])
    return _Piece(rank, *ends, missed, unsure, *scores, points)
