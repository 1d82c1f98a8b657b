"""The page of a run of link prediction: scores beside baselines, curves, precision and recall, examples of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.errors import counted
from nfcgcn.reports.drawing import MUTED, PALE, PALETTE, canvas, svg
from nfcgcn.reports.html import fill, image, percent

Array = npt.NDArray[Any]
MOST_EXAMPLES = 10
"""Pairs in each table of examples."""
MOST_POINTS = 2000
"""Points of a curve; of more, these are drawn, evenly spread."""


@dataclass(frozen=True, eq=False)
class LinksPage:
    """What a page shows: the result of the run and, for the shown seed, the scores of its test pairs."""

    summary: Mapping[str, Any]
    """The result of the run, as stored in its JSON file."""
    histories: Sequence[Sequence[Mapping[str, float]]]
    """One history per seed, with one record per epoch."""
    shown_seed: int
    edges: Array
    """``[2, T]``: the test edges of the shown seed."""
    others: Array
    """``[2, T]``: as many pairs without an edge."""
    edge_probabilities: Array
    other_probabilities: Array
    meanings: Mapping[str, str]
    """What each figure says, by its name."""
    node_names: Sequence[str] | None = None

    def name(self, node: int) -> str:
        """Name a node as the graph does."""
        return str(node) if self.node_names is None else self.node_names[node]


def render_links(page: LinksPage) -> str:
    """Return the page as HTML."""
    summary = page.summary
    models = {summary["model"]: summary["test_scores"], **summary["baselines"]}
    rows = [
        (name, meaning, [_cell(scores[name]) for scores in models.values()]) for name, meaning in page.meanings.items()
    ]
    tests = summary["test_scores"]
    return fill(
        "links.html",
        page=page,
        summary=summary,
        auc=tests["auc"],
        ap=tests["ap"],
        num_runs=len(summary["seeds"]),
        models=list(models),
        rows=rows,
        runs=list(
            zip(summary["seeds"], tests["auc"]["runs"], tests["ap"]["runs"], summary["val_scores"]["auc"]["runs"],
                summary["epochs"], strict=True)
        ),
        curves=image(_curves(page.histories)),
        curves_text=f"Loss and validation scores of {counted(len(page.histories), 'seed')} over the epochs.",
        precision=image(precision_recall(page.edge_probabilities, page.other_probabilities)),
        precision_text=_describe_precision(page.edge_probabilities, page.other_probabilities),
        examples=_examples(page),
    )  # fmt: skip


def precision_recall(edges: Array, others: Array) -> str:
    """Draw precision over recall, and how the scores of edges and of pairs without one are spread."""
    scores = np.concatenate([edges, others])
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(order < len(edges))
    last = np.flatnonzero(np.diff(scores[order], append=-np.inf))  # of equal scores all or none are suggested
    recall, precision = hits[last] / len(edges), hits[last] / (last + 1)
    if len(last) > MOST_POINTS:
        kept = np.linspace(0, len(last) - 1, MOST_POINTS).astype(np.int64)
        recall, precision = recall[kept], precision[kept]
    with canvas() as figure:
        from matplotlib.ticker import PercentFormatter

        figure.set_size_inches(8.8, 3.6)
        left, right = figure.add_axes((0.07, 0.19, 0.37, 0.7)), figure.add_axes((0.57, 0.19, 0.37, 0.7))
        left.step(recall, precision, where="post", color=PALETTE[0], linewidth=1.6)
        left.axhline(len(edges) / len(scores), color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)))
        left.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="recall", ylabel="precision")
        left.text(0.02, len(edges) / len(scores) - 0.06, "chance", color=MUTED, fontsize=8)
        bins = np.linspace(0, 1, 41).tolist()
        for values, colour, name in ((edges, PALETTE[0], "edges"), (others, PALETTE[1], "pairs without an edge")):
            right.hist(values, bins=bins, color=colour, alpha=0.6, label=name)
        right.set(xlabel="probability", ylabel="pairs", xlim=(0, 1))
        right.legend(frameon=False, fontsize=8)
        for axis in (left.xaxis, left.yaxis, right.xaxis):
            axis.set_major_formatter(PercentFormatter(1.0))
        for axes in (left, right):
            axes.grid(axis="y", color=PALE, linewidth=0.6, alpha=0.7)
        return svg(figure)


def _curves(histories: Sequence[Sequence[Mapping[str, float]]]) -> str:
    """Draw the loss, training and validation, and the validation figures over the epochs, one line per seed."""
    panels = (
        ("Loss", (("train_loss", "training", PALETTE[5]), ("val_loss", "validation", PALETTE[0]))),
        ("Validation edges", (("val_auc", "AUC", PALETTE[0]), ("val_ap", "AP", PALETTE[2]))),
    )
    with canvas() as figure:
        figure.set_size_inches(8.8, 3.4)
        for column, (title, lines) in enumerate(panels):
            axes = figure.add_axes((0.07 + 0.5 * column, 0.17, 0.4, 0.7))
            axes.set_title(title, loc="left")
            axes.set_xlabel("epoch")
            axes.grid(axis="y", color=PALE, linewidth=0.6, alpha=0.7)
            for key, name, colour in lines:
                for number, history in enumerate(histories):
                    every = max(1, len(history) // MOST_POINTS)
                    places = [record["epoch"] for record in history[::every]]
                    values = [record[key] for record in history[::every]]
                    axes.plot(places, values, color=colour, linewidth=1.2, alpha=1.0 if len(histories) == 1 else 0.5,
                              label=None if number else name)  # fmt: skip
            axes.legend(frameon=False, fontsize=8)
        return svg(figure)


def _examples(page: LinksPage) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """Return tables of pairs: what they are, what that means, and two names and a probability per pair."""
    edges, others = page.edge_probabilities, page.other_probabilities
    kinds = (
        ("Right", "Test edges with the highest probability.", page.edges, edges, -edges),
        ("Wrong", "Pairs without an edge with the highest probability: wrong suggestions, or edges that the "
         "graph lacks.", page.others, others, -others),
        ("Missed", "Test edges with the lowest probability.", page.edges, edges, edges),
    )  # fmt: skip
    tables = []
    for title, text, pairs, probabilities, order in kinds:
        chosen = np.argsort(order, kind="stable")[:MOST_EXAMPLES]
        rows = [
            (page.name(int(u)), page.name(int(v)), f"{p:.3f}")
            for (u, v), p in zip(pairs[:, chosen].T, probabilities[chosen], strict=True)
        ]
        tables.append((title, text, rows))
    return tables


def _cell(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return "n/a"
    return percent(score["mean"]) + ("" if score["std"] is None else f" ± {percent(score['std'])}")


def _describe_precision(edges: Array, others: Array) -> str:
    right, wrong = int((edges > 0.5).sum()), int((others > 0.5).sum())
    return (
        f"Precision over recall. {right:,} of {counted(len(edges), 'test edge')} and {wrong:,} of "
        f"{counted(len(others), 'pair')} without an edge have a probability above one half."
    )
