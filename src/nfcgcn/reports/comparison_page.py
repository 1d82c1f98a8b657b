"""The page of a comparison of models: one table and one picture per graph, and how settings were chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nfcgcn.reports.drawing import INK, MUTED, PALE, canvas, colour_of, short, svg
from nfcgcn.reports.html import fill, image


def render(values: Mapping[str, Any]) -> str:
    """Return the page of a comparison, as :func:`nfcgcn.compare` describes it, as HTML."""
    graphs = []
    for name in values["graphs"]:
        rows = [row for row in values["results"] if row["graph"] == name]
        if rows:
            tried = {row["model"]: candidates(row["selections"]) for row in rows}
            about = {"picture": image(scores(rows)), "text": _describe(rows), "tried": tried}
            graphs.append({"name": name, "rows": rows, **about})
    return fill("comparison.html", values=values, graphs=graphs, num_seeds=len(values["seeds"]))


def candidates(selections: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what was tried in several choices of settings, each candidate once: its figures, and who chose it."""
    tried: dict[str, dict[str, Any]] = {}
    for seed, selection in selections.items():
        for candidate in selection["candidates"]:
            empty = {
                "changes": candidate["changes"],
                "chosen": [],
                "accuracies": [],
                "draws": 0,
                "epochs": 0,
                "notes": [],
            }
            entry = tried.setdefault(repr(candidate["changes"]), empty)
            entry["draws"] += candidate["draws"]
            entry["epochs"] += candidate["epochs"]
            entry["chosen"] += [seed] if candidate["outcome"] == "chosen" else []
            entry["accuracies"] += [] if candidate["val_accuracy"] is None else [candidate["val_accuracy"]]
            entry["notes"] += [candidate["note"]] if candidate["note"] else []
    return list(tried.values())


def scores(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw the test accuracy of every seed, one line of points per model, with the mean and its 95 % interval."""
    with canvas() as figure:
        from matplotlib.ticker import MaxNLocator, PercentFormatter

        figure.set_size_inches(8.0, 0.55 + 0.42 * len(rows))
        axes = figure.add_axes(
            (0.16, 0.3 / (0.55 + 0.42 * len(rows)), 0.82, 0.42 * len(rows) / (0.55 + 0.42 * len(rows)))
        )
        for place, row in enumerate(rows):
            shade, score = colour_of(place + 2 * (place >= 6)), row["test_accuracy"]
            axes.plot(score["runs"], [place + 0.14] * len(score["runs"]), "o", color=shade, markersize=4, alpha=0.55)
            if score["ci95"] is not None:
                axes.plot(score["ci95"], [place - 0.14] * 2, color=shade, linewidth=2.5, solid_capstyle="butt")
            axes.plot([score["mean"]], [place - 0.14], "|", color=INK, markersize=9, markeredgewidth=1.6)
        axes.set_yticks(range(len(rows)), [short(row["model"], 16) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="x", color=PALE, linewidth=0.6, alpha=0.7)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        figure.text(0.16, 0.0, "points: seeds; bar: 95 % interval of the mean", color=MUTED, fontsize=8, va="top")
        return svg(figure)


def _describe(rows: Sequence[Mapping[str, Any]]) -> str:
    parts = (f"{row['model']} {100 * row['test_accuracy']['mean']:.1f} %" for row in rows)
    return f"Mean test accuracy over seeds: {', '.join(parts)}."
