"""The page of a run, which `nfcgcn train` and `nfcgcn report` write."""

from __future__ import annotations

from pathlib import Path

from nfcgcn import files
from nfcgcn.cli.console import out
from nfcgcn.evaluation import class_scores, confusion
from nfcgcn.inference import checkpoint
from nfcgcn.reports import EXPLORED, Page, render
from nfcgcn.training.scores import reliability

MOST_CLASSES = 1000
"""Above this many classes there is no confusion matrix: it grows with their square, and nobody could read it."""


def write_run_page(folder: Path) -> None:
    """Write the page of a run and print where it is."""
    path = files.in_folder(folder, "report.html")
    files.check_writable(path)
    outcome = checkpoint.load_outcome(folder)
    scored, names = outcome.scored, outcome.class_names
    with files.parsing(folder / checkpoint.RESULT, "result"):
        page = Page(
            summary=outcome.result,
            histories=outcome.histories,  # type: ignore[arg-type]
            confusion=confusion(scored.labels, scored.predictions, len(names)) if len(names) <= MOST_CLASSES else None,
            class_names=names,
            per_class=class_scores(scored.labels, scored.predictions, names),
            shown_seed=outcome.seed,
            embedding=scored.embedding,
            labels=scored.labels[scored.pictured],
            predictions=scored.predictions[scored.pictured],
            reliability=None
            if scored.confidences is None
            else reliability(scored.labels == scored.predictions, scored.confidences),
            explore=EXPLORED if (folder / EXPLORED).exists() else None,
        )
        html = render(page)
    files.write_text(path, html)
    out.print(f"report: {path}", highlight=False, markup=False, soft_wrap=True)
