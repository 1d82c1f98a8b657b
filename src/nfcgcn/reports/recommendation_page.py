"""A recommender as one HTML page: scores, curves, precision over recall, and lists that were right and wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nfcgcn.reports.drawing import MUTED, PALE, PALETTE, canvas, short, svg
from nfcgcn.reports.html import fill, image

MEASURES = {
    "ndcg": ("NDCG", "hits count more near the top of the list; 1 if all possible hits come first"),
    "recall": ("Recall", "share of a user's test items that are in the list"),
    "precision": ("Precision", "share of the list that the user had interactions with"),
    "coverage": ("Coverage", "share of all items that are in at least one list"),
}


def render_recommendation(result: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]) -> str:
    """Return the page as HTML; ``result`` is what the run folder stores."""
    models = {result["model"]: result["test_scores"], **result["baselines"]}
    rows = [
        (
            f"{title}@{result['top']}" if name != "coverage" else title,
            meaning,
            [scores[name] for scores in models.values()],
        )
        for name, (title, meaning) in MEASURES.items()
    ]
    lines = {
        result["model"]: result["curve"],
        **{name: scores["curve"] for name, scores in result["baselines"].items()},
    }
    return fill(
        "recommendation.html",
        result=result,
        models=list(models),
        rows=rows,
        curves=image(training_curves(epochs, result["best_epoch"])),
        curves_text=_describe_epochs(epochs, result["best_epoch"]),
        balance=image(balance(lines, result["top"])),
        balance_text=_describe_balance(lines, result["top"]),
    )


def training_curves(epochs: Sequence[Mapping[str, Any]], best: int) -> str:
    """Draw the training loss and the NDCG of the validation interactions over the epochs."""
    with canvas() as figure:
        from matplotlib.ticker import MaxNLocator

        figure.set_size_inches(8.8, 3.2)
        panels = (("train_loss", "Training loss", PALETTE[5]), ("val_ndcg", "Validation NDCG", PALETTE[0]))
        for column, (key, title, colour) in enumerate(panels):
            axes = figure.add_axes((0.07 + 0.5 * column, 0.19, 0.4, 0.66))
            axes.set_title(title, loc="left")
            axes.set_xlabel("epoch")
            axes.grid(axis="y", color=PALE, linewidth=0.6, alpha=0.7)
            points = [(epoch["epoch"], epoch[key]) for epoch in epochs if key in epoch]
            if points:
                axes.plot(
                    *zip(*points, strict=True), color=colour, linewidth=1.6, marker="o" if len(points) == 1 else ""
                )
            axes.axvline(best, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        return svg(figure)


def balance(lines: Mapping[str, Sequence[Sequence[float]]], top: int) -> str:
    """Draw precision over recall as the list grows, one line per model; a dot marks the length that is scored."""
    with canvas() as figure:
        from matplotlib.ticker import MaxNLocator, PercentFormatter

        figure.set_size_inches(6.4, 4.2)
        axes = figure.add_axes((0.1, 0.12, 0.85, 0.82))
        for place, (name, points) in enumerate(lines.items()):
            recall, precision = [p[2] for p in points], [p[1] for p in points]
            axes.plot(recall, precision, color=PALETTE[place], linewidth=1.6, label=short(name, 24))
            scored = next((p for p in points if p[0] == top), points[-1])
            axes.plot([scored[2]], [scored[1]], "o", color=PALETTE[place], markersize=6, markeredgecolor="white")
        axes.set(xlabel="recall", ylabel="precision")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(color=PALE, linewidth=0.6, alpha=0.7)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
            axis.set_major_formatter(PercentFormatter(1.0))
        axes.legend(frameon=False)
        return svg(figure)


def _describe_epochs(epochs: Sequence[Mapping[str, Any]], best: int) -> str:
    text = f"Training loss and NDCG of the validation interactions over {len(epochs)} epochs; epoch {best} was chosen"
    score = next((epoch["val_ndcg"] for epoch in epochs if epoch["epoch"] == best and "val_ndcg" in epoch), None)
    return text + ("." if score is None else f", with a validation NDCG of {score:.3f}.")


def _describe_balance(lines: Mapping[str, Sequence[Sequence[float]]], top: int) -> str:
    parts = []
    for name, points in lines.items():
        scored = next((p for p in points if p[0] == top), points[-1])
        parts.append(f"{name}: precision {scored[1]:.3f}, recall {scored[2]:.3f}")
    return f"Precision over recall for lists of growing length. With {top} items, {'; '.join(parts)}."
