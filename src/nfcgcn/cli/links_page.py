"""The page of a run of link prediction, from what its folder stores."""

from __future__ import annotations

from pathlib import Path

from nfcgcn import files
from nfcgcn.cli.console import out
from nfcgcn.inference.run_folder import RESULT
from nfcgcn.links.prediction import probabilities
from nfcgcn.links.run_folder import load_link_outcome
from nfcgcn.links.scores import SCORES
from nfcgcn.reports import LinksPage, render_links


def write_links_page(folder: Path) -> None:
    """Write the page of a run and print where it is."""
    path = files.in_folder(folder, "report.html")
    files.check_writable(path)
    outcome = load_link_outcome(folder)
    with files.parsing(folder / RESULT, "result"):
        html = render_links(
            LinksPage(
                summary=outcome.result,
                histories=outcome.histories,  # type: ignore[arg-type]
                shown_seed=outcome.seed,
                edges=outcome.edges,
                others=outcome.others,
                edge_probabilities=probabilities(outcome.edge_scores),
                other_probabilities=probabilities(outcome.other_scores),
                meanings=SCORES,
                node_names=outcome.node_names,
            )
        )
    files.write_text(path, html)
    out.print(f"report: {path}", soft_wrap=True)
