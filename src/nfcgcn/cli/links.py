"""`nfcgcn links`: predict which nodes should be linked."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from nfcgcn import files
from nfcgcn.cli.console import (
    DEVICES,
    MOST_SEED,
    MOST_SEEDS,
    Application,
    among,
    app,
    err,
    interruptible,
    make_table,
    out,
    this_command,
    warn_of_formulas,
)
from nfcgcn.cli.link_suggestions import namer, with_progress, write_suggestions
from nfcgcn.cli.link_training import BASELINES, print_result, show_progress, time_split, train_baselines
from nfcgcn.cli.links_page import write_links_page
from nfcgcn.cli.sources import GraphSource, read_graph, takes_graph
from nfcgcn.config.registry import MODELS
from nfcgcn.errors import ConfigError, NFCError, counted, unknown
from nfcgcn.graph import Graph, Ints
from nfcgcn.links.config import LINK_MODELS, LinkConfig, make_link_setup
from nfcgcn.links.evaluation import (
    UnfinishedLinksError,
    describe,
    judge_heuristics,
    repeat,
)
from nfcgcn.links.prediction import encode, predict_pairs, suggest_links
from nfcgcn.links.run_folder import SavedLinkRun, load_link_run, save_link_run
from nfcgcn.links.splits import pair_keys, pairs_of
from nfcgcn.links.tables import read_pairs
from nfcgcn.settings import read_assignments, settings_of
from nfcgcn.training import choose_device

links = Application(
    help="Predict which nodes should be linked: train, predict pairs, suggest missing links.", no_args_is_help=True
)
app.add_typer(links, name="links")

READ = ("all", "train")
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `nfcgcn links train` wrote.")]
ReadOption = Annotated[
    str,
    typer.Option(
        help="Edges that the model reads: all of the graph, or train: those that it read when the run was scored."
    ),
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the dataset; by default as in the run."),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.", autocompletion=among(DEVICES))]


@links.command()
@takes_graph
def train(
    source: GraphSource,
    model: Annotated[
        str,
        typer.Option(
            help="A name from `nfcgcn models`, or gae or vgae.", autocompletion=among((*MODELS, "gae", "vgae"))
        ),
    ] = "nfc-gcn",
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Number of runs, each with its own seed.")] = 1,
    first_seed: Annotated[int, typer.Option("--seed", min=0, max=MOST_SEED, help="Seed of the first run.")] = 0,
    time: Annotated[
        str | None, typer.Option(help="Column of edges with their time: train on the oldest, test on the newest.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting or dataset option; see `nfcgcn links settings`."),
    ] = None,
    device: DeviceOption = "auto",
    baselines: Annotated[
        bool, typer.Option("--baselines", help=f"Also train {', '.join(BASELINES)}, on the same splits.")
    ] = False,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; by default a new one in runs/.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in the --out folder.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")] = None,
) -> None:
    """Hold edges out, train a model to find them, and write a folder with weights, scores and a page."""
    settings = read_assignments(assignments or [])
    options = source.take_options(settings)
    make_link_setup(model, dataset=source.dataset, settings=settings)
    chosen = choose_device(device)
    folder = out_dir or Path("runs") / f"{source.name}-links-{model}-{datetime.now():%Y%m%d-%H%M%S}"
    files.check_free(folder, force=force)
    if json_file:
        files.check_writable(json_file, source.inputs(), outside=folder)
    graph, tables = source.load(options), source.remember()
    setup = make_link_setup(model, dataset=source.dataset, graph=graph, settings=settings)
    splits = None if time is None else [time_split(source, graph, time, setup)] * seeds
    err.print(f"{graph}, {LINK_MODELS[model].summary}, preset {setup.preset}", soft_wrap=True)
    wanted = range(first_seed, first_seed + seeds)
    failure: UnfinishedLinksError | None = None
    with interruptible() as interruption:
        try:
            with show_progress(seeds * setup.links.epochs) as on_epoch:
                judged = repeat(graph, setup, wanted, splits=splits, device=chosen, on_epoch=on_epoch)
        except KeyboardInterrupt:
            err.print("interrupted before the first epoch had ended; nothing was written")
            raise typer.Exit(interruption.exit_code) from None
        except UnfinishedLinksError as error:
            judged, failure = error.judged, error
        whole = failure is None and len(judged) == seeds and not judged[-1].run.interrupted
        simple = judge_heuristics(graph, judged)
        if baselines and whole:
            shared = {name: value for name, value in settings.items() if name in ("epochs", "test_negatives")}
            simple |= train_baselines(graph, source.dataset, shared, setup.name, judged, chosen)
        interruption.hold()
        result = describe(
            graph,
            setup,
            judged,
            device=chosen,
            command=this_command(),
            dataset_options=options if source.dataset else None,
            baselines=simple,
        )
        result["interrupted"] = not whole
        shown = max(judged, key=lambda j: j.run.best["val_auc"])
        with files.new_folder(folder, force=force) as draft:
            save_link_run(draft, graph, result, judged, shown, tables)
        if json_file:
            files.write_text(json_file, files.to_json(result))
        print_result(result)
        write_links_page(folder)
    if failure is not None:
        raise NFCError(f"{failure}; {folder} has the {counted(len(judged), 'seed')} before it") from failure
    if not whole:
        err.print("interrupted: the best state so far was kept and scored")
        raise typer.Exit(interruption.exit_code)


@links.command()
@takes_graph
def predict(
    run: RunArgument,
    source: GraphSource,
    pairs_file: Annotated[
        Path, typer.Option("--pairs", help="Table with one pair of nodes per row, in columns source and target.")
    ],
    out_file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The CSV file to write.")] = None,
    read: ReadOption = "all",
    assignments: OptionsOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Write the probability of an edge for each pair of nodes in a table, to a CSV file or to the screen.

    Columns: `source`, `target`, `probability`, and `known`, yes where the graph has the edge. As in training,
    the model reads all edges except those whose probability is asked for. Probabilities assume that half of the pairs
    are edges.
    """
    saved, graph, chosen = _open(run, source, assignments, read, device)
    if out_file:
        files.check_writable(out_file, [*source.inputs(saved), pairs_file])
    pairs = read_pairs(pairs_file, graph)
    known = np.isin(pair_keys(pairs, graph.num_nodes), pair_keys(pairs_of(graph), graph.num_nodes))
    probabilities = predict_pairs(saved.model, graph, pairs, read=_edges_read(saved, read), device=chosen)
    names = namer(graph)
    rows = [
        (names(u), names(v), f"{p:.6g}", "yes" if k else "no")
        for u, v, p, k in zip(*pairs.tolist(), probabilities.tolist(), known.tolist(), strict=True)
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("source", "target", "probability", "known"), *rows])
    if out_file is None:
        out.print(text.getvalue().rstrip("\n"), soft_wrap=True)
        return
    files.write_text(out_file, text.getvalue())
    warn_of_formulas(cell for row in rows for cell in row[:2])
    out.print(f"{len(rows)} pairs, {int(known.sum())} of them known edges: {out_file}", soft_wrap=True)


@links.command()
@takes_graph
def suggest(
    run: RunArgument,
    source: GraphSource,
    node: Annotated[str | None, typer.Option(help="The node to link; by default all nodes, with --out.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Suggestions per node.")] = 10,
    out_file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The .parquet or .csv file to write.")
    ] = None,
    read: ReadOption = "all",
    assignments: OptionsOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Name the most probable missing links of a node, or of all nodes; known links are left out.

    Columns of the file: `node`, `rank` (1 is the most probable), `suggestion` and `probability`. Scores are
    computed and written for some nodes at a time: memory does not grow with the square of the number of nodes.
    """
    if node is None and out_file is None:
        raise ConfigError("name a node with --node, or a file for the suggestions of all nodes with --out")
    if out_file is not None:
        if out_file.suffix not in (".parquet", ".csv"):
            raise ConfigError(f"`--out` must end in .parquet or .csv, got '{out_file.name}'")
        if out_file.suffix == ".parquet" and find_spec("pyarrow") is None:
            raise ConfigError("Parquet files need pyarrow: pip install 'nfcgcn[parquet]', or write a .csv file")
    saved, graph, chosen = _open(run, source, assignments, read, device)
    if out_file is not None:
        files.check_writable(out_file, source.inputs(saved))
    nodes = np.arange(graph.num_nodes) if node is None else np.array([graph.find_node(node)])
    vectors = encode(saved.model, graph, _edges_read(saved, read), device=chosen)
    blocks = suggest_links(saved.model, vectors, graph, nodes, top=top)
    if out_file is not None:
        count = write_suggestions(out_file, graph, with_progress(blocks, len(nodes)))
        out.print(f"{count:,} suggestions for {len(nodes):,} nodes: {out_file}", soft_wrap=True)
        return
    table, names = make_table(">rank", "suggestion", ">probability"), namer(graph)
    for block in blocks:
        for rank, other, probability in zip(block.ranks, block.others, block.probabilities, strict=True):
            table.add_row(str(rank), names(int(other)), f"{probability:.3f}")
    out.print(table)


@links.command("settings")
def list_settings(
    model: Annotated[
        str,
        typer.Option(
            help="A name from `nfcgcn models`, or gae or vgae.", autocompletion=among((*MODELS, "gae", "vgae"))
        ),
    ] = "nfc-gcn",
) -> None:
    """List the settings that `nfcgcn links train --set KEY=VALUE` accepts for a model, with defaults."""
    setup = make_link_setup(model)
    table = make_table("setting", ">default", "values", "meaning")
    for config in (LinkConfig, type(setup.model)):
        for name, s in settings_of(config).items():
            table.add_row(name, "none" if s.default is None else str(s.default), s.type_name, s.meaning)
    out.print(table)


def _open(
    run: Path, source: GraphSource, assignments: list[str] | None, read: str, device: str
) -> tuple[SavedLinkRun, Graph, torch.device]:
    """Return the run, the graph to use it on and the device."""
    if read not in READ:
        raise ConfigError(unknown("choice of edges to read", read, READ))
    chosen, saved = choose_device(device), load_link_run(run)
    graph = read_graph(saved, source, assignments or [])
    if _edges_read(saved, read) is not None:
        saved.check_edges(graph)
    return saved, graph, chosen


def _edges_read(saved: SavedLinkRun, read: str) -> Ints | None:
    """Return the edges that the model reads; None for all edges of the graph.

    A model that learned vectors from its edges alone knows no others.
    """
    return None if read == "all" and saved.setup.reads_features else saved.read
