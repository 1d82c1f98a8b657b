"""`nfcgcn explain`."""

from __future__ import annotations

import os
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text

from nfcgcn import files
from nfcgcn.cli.console import app, err, make_table, out, warn_of_formulas
from nfcgcn.cli.sources import GraphSource, read_graph, takes_graph
from nfcgcn.errors import ConfigError, unknown
from nfcgcn.inference import checkpoint

SUFFIXES = (".html", ".svg", ".csv")


@app.command("explain")
@takes_graph
def explain_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `nfcgcn train` wrote.")],
    source: GraphSource,
    node: Annotated[
        str | None, typer.Option(metavar="ID", help="The node, by its name or, without names, its number.")
    ] = None,
    class_name: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="Class to explain; by default the predicted one.")
    ] = None,
    every_class: Annotated[
        bool, typer.Option("--global", help="Instead of a node, explain which features matter for each class.")
    ] = False,
    out_file: Annotated[Path | None, typer.Option("--out", help="Also write this .html, .svg or .csv file.")] = None,
    top: Annotated[int, typer.Option(min=1, max=60, help="How many contributions to show.")] = 20,
) -> None:
    """Show which features of which nodes decided the class of a node.

    The contributions add up to the difference between the score and the score without features.
    """
    from nfcgcn.inference.explanation import explain, explain_classes
    from nfcgcn.reports import EXPLORED, class_reasons, node_reasons, write_cell

    if every_class == (node is not None):
        raise ConfigError("name a node with --node ID, or explain every class with --global")
    if every_class and class_name is not None:
        raise ConfigError("--class goes with --node; --global explains every class")
    if out_file is not None and out_file.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, got '{out_file.name}'")
    saved = checkpoint.load_run(run)
    if out_file is not None:
        files.check_writable(out_file, source.inputs(saved))
    graph = read_graph(saved, source, [])
    if node is None:
        with err.status("explaining every class"):
            classes = explain_classes(saved.model, graph)
        reasons = class_reasons(classes, graph, model=saved.model_name, class_name=saved.class_name, top=top)
    else:
        target = None if class_name is None else _class_number(saved, class_name)
        explanation = explain(saved.model, graph, node, target=target)
        reasons = node_reasons(explanation, graph, model=saved.model_name, class_name=saved.class_name, top=top)
        if out_file is not None and (run / EXPLORED).exists():
            place = os.path.relpath(run / EXPLORED, out_file.resolve().parent)
            reasons = replace(reasons, explore=f"{quote(place)}#node={quote(node, safe='')}")
    if saved.model.temperature != 1:
        scaling = f"Scores are shown before temperature scaling, which divides them by {saved.model.temperature:.3g}"
        more = f"{scaling}; probabilities are shown after it. It changes no class and no order of contributions."
        reasons = replace(reasons, how=(*reasons.how, more))
    if out_file is not None:
        files.write_text(out_file, str(getattr(reasons, out_file.suffix.lower()[1:])))
        if out_file.suffix.lower() == ".csv":
            warn_of_formulas(str(cell) for row in reasons.rows for cell in row)
    out.print(Text(write_cell(reasons.title), style="bold"), soft_wrap=True)
    for name, value, more in reasons.cards:
        out.print(Text(write_cell(f"{name}: {value} ({more})")), soft_wrap=True)
    # Short lines in the headings, so that the table fits a terminal of 80 columns and no heading is cut.
    table = make_table(*(textwrap.fill(column, 10, break_long_words=False) for column in reasons.columns))
    for row in reasons.top:
        table.add_row(*(Text(write_cell(cell)) for cell in row))
    out.print(table)
    for line in reasons.how:
        out.print(Text(line), soft_wrap=True)
    if out_file is not None:
        out.print(Text(f"written: {out_file}"), soft_wrap=True)


def _class_number(run: checkpoint.SavedRun, name: str) -> int:
    if run.class_names is None:
        if name.isascii() and name.isdecimal():
            return int(name)
        raise ConfigError(f"unknown class '{name}'; the classes of {run.folder} are numbered from 0")
    if name not in run.class_names:
        raise ConfigError(unknown("class", name, run.class_names))
    return run.class_names.index(name)
