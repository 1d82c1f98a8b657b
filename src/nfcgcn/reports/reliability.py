"""The reliability picture: how often predictions of a given confidence are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.reports.drawing import MUTED, PALE, PALETTE, canvas, svg

Array = npt.NDArray[Any]


def reliability(counts: Array, right: Array, sure: Array) -> str:
    """Draw accuracy over confidence, one bar per range of confidence, and below it how many nodes each range holds.

    The arguments are those of :func:`nfcgcn.training.scores.reliability`. A bar below the diagonal means predictions
    that are surer than they are right.
    """
    lefts = np.arange(len(counts)) / len(counts)
    used = np.asarray(counts) > 0
    width = 1 / len(counts)
    with canvas() as figure:
        from matplotlib.ticker import MaxNLocator, PercentFormatter

        figure.set_size_inches(4.4, 5.0)
        above, below = figure.add_axes((0, 0.3, 1, 0.7)), figure.add_axes((0, 0, 1, 0.2))
        above.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)))
        above.bar(lefts[used], right[used], width, align="edge", color=PALETTE[0], edgecolor="white", linewidth=0.8)
        above.scatter(sure[used], right[used], s=22, color=PALETTE[5], edgecolors="white", zorder=5, clip_on=False)
        above.set(xlim=(0, 1), ylim=(0, 1), ylabel="share of right predictions")
        above.text(0.03, 0.95, "dot: mean confidence of the bar", color=MUTED, fontsize=8)
        below.bar(lefts, counts, width, align="edge", color=PALE, edgecolor="white", linewidth=0.8)
        below.set(xlim=(0, 1), xlabel="confidence: probability of the predicted class", ylabel="nodes")
        for axes in (above, below):
            axes.xaxis.set_major_formatter(PercentFormatter(1.0))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=5 if axes is above else 2, integer=axes is below))
        above.yaxis.set_major_formatter(PercentFormatter(1.0))
        return svg(figure)
