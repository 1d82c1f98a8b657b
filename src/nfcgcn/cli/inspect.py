"""`nfcgcn inspect`: what a graph is like, and which settings suit it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from nfcgcn import files
from nfcgcn.cli.console import among, app, out
from nfcgcn.cli.sources import GraphSource, takes_graph
from nfcgcn.config import inspection
from nfcgcn.config.registry import MODELS, PRESETS, make_config
from nfcgcn.data.formats.tables import open_table
from nfcgcn.data.splits import RULES
from nfcgcn.errors import ConfigError, NFCError, visible
from nfcgcn.graph import Graph
from nfcgcn.settings import read_assignments

MOST_CLASSES = 20
"""Label counts are printed for at most this many classes; the JSON has all."""


@app.command()
@takes_graph
def inspect(
    source: GraphSource,
    model: Annotated[
        str,
        typer.Option(help="Model to suggest settings for: a name from `nfcgcn models`.", autocompletion=among(MODELS)),
    ] = "nfc-gcn",
    preset: Annotated[
        str | None, typer.Option(help="Settings to try, as for `nfcgcn train`.", autocompletion=among(PRESETS))
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split to try, as for `nfcgcn train`.", autocompletion=among(RULES))
    ] = None,
    monitor: Annotated[str | None, typer.Option(help="Validation figure to try, as for `nfcgcn train`.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting to try, or dataset option.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")] = None,
) -> None:
    """Describe a graph, say what would go wrong in training, and suggest settings; nothing is trained.

    It checks the settings that you give, as for `nfcgcn train`, or else the suggested ones.

    Exit code 0: `nfcgcn train` would start. Exit code 2: it would not; all that stops it is listed.
    """
    settings = read_assignments(assignments or [])
    options = source.take_options(settings)
    if json_file:
        files.check_writable(json_file, source.inputs())
    settings |= {key: value for key, value in (("split", split), ("monitor", monitor)) if value is not None}
    wrong: list[str] = []
    graph: Graph | None = None
    try:
        make_config(model, dataset=source.dataset, preset=preset, settings=settings)
    except NFCError as error:
        wrong += error.args
    try:
        graph = source.load(options)
    except NFCError as error:
        wrong += error.args
        wrong += _no_label(source)
    if graph is None or wrong:
        raise ConfigError(*wrong)
    if graph.given is not None:
        settings.setdefault("split", "given")
    config = make_config(model, dataset=source.dataset, preset=preset, graph=graph, settings=settings)
    description = inspection.inspect(graph, model=model)
    problems, cautions = inspection.foresee(graph, config)
    description |= {"problems": problems, "cautions": cautions}
    if json_file:
        files.write_text(json_file, files.to_json(description))
    for name, value in _lines(description):
        out.print(f"{name:<18}{value}", highlight=False, markup=False, soft_wrap=True)
    if description["suggestions"]:
        out.print(f"\nsettings of {model} that suit this graph:", highlight=False, markup=False)
        for name, suggestion in description["suggestions"].items():
            line = f"{name:<18}{suggestion['value']!s:<10}{suggestion['reason']}"
            out.print(line, highlight=False, markup=False, soft_wrap=True)
    out.print()
    for caution in cautions:
        out.print(f"caution: {visible(caution)}", highlight=False, markup=False, soft_wrap=True)
    for problem in problems:
        out.print(f"problem: {visible(problem)}", highlight=False, markup=False, soft_wrap=True)
    verdict = f"`nfcgcn train --model {model}` would not start" if problems else "training would start"
    out.print(verdict, highlight=False, markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(2)


def _no_label(source: GraphSource) -> Iterator[str]:
    """Say that a table of nodes that could not be read has no column of labels either, as training needs one."""
    with suppress(NFCError):
        if source.nodes is not None and not source.label:
            table = open_table(source.nodes)
            if "label" not in table.columns:
                yield f"{table.name} has no column 'label'; name the column with the classes with --label"


def _lines(description: dict[str, Any]) -> Iterator[tuple[str, str]]:
    degrees, parts, labels, features = (description[key] for key in ("degrees", "components", "labels", "features"))
    yield "graph", description["name"]
    yield "nodes", f"{description['nodes']:,}, {description['isolated_nodes']:,} of them isolated"
    yield "edges", f"{description['edges']:,}, without loops and duplicates, each counted once"
    low, median, mean, high = (degrees[key] for key in ("min", "median", "mean", "max"))
    yield "degrees", f"{low} at least, {median:g} median, {mean:.2f} mean, {high} at most"
    if degrees["unfilled"] is not None:
        yield "", f"{degrees['unfilled']:.1%} of the nodes have fewer neighbours than the suggested map has room for"
    yield "components", f"{parts['count']:,}, the largest of {parts['largest']:,} nodes"
    if (weights := description["weights"]) is not None:
        yield "weights", f"{weights['min']:g} at least, {weights['median']:g} median, {weights['max']:g} at most"
    same = description["homophily"]
    yield "homophily", "unknown: no edge joins two labelled nodes" if same is None else f"{same:.1%} of labelled edges"
    counts = list(labels["counts"].items())
    listed = ", ".join(f"{name!r} {count:,}" for name, count in counts[:MOST_CLASSES])
    more = f" and {len(counts) - MOST_CLASSES} more" if len(counts) > MOST_CLASSES else ""
    yield "labels", f"{labels['classes']} classes: {listed}{more}" if counts else "none"
    yield "", f"{labels['unlabelled']:,} nodes without a label"
    yield "features", f"{features['count']:,}, {features['form']}, {features['density']:.2%} of the values not 0"
    if features["min"] is not None:
        yield "", f"values from {features['min']:g} to {features['max']:g}"
    yield "", f"nodes with zeros only: {features['zero_rows']:,}; constant columns: {features['constant_columns']:,}"
    split = description["given_split"]
    sizes = split and ", ".join(f"{size:,} {part}" for part, size in split.items())
    yield "given split", sizes or "none"
