"""The page of a recommender, from what its folder stores."""

from __future__ import annotations

from pathlib import Path

from nfcgcn import files
from nfcgcn.cli.console import out
from nfcgcn.inference.run_folder import RESULT
from nfcgcn.recommendation.run_folder import load_result
from nfcgcn.reports import render_recommendation


def write_recommendation_page(folder: Path) -> None:
    """Write the page of a recommender and print where it is."""
    path = files.in_folder(folder, "report.html")
    files.check_writable(path)
    result, epochs = load_result(folder)
    with files.parsing(folder / RESULT, "result"):
        html = render_recommendation(result, epochs)
    files.write_text(path, html)
    out.print(f"report: {path}", soft_wrap=True)
