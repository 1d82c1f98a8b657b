"""`nfcgcn compare`: which model for a graph, and is the difference real?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from nfcgcn import files
from nfcgcn.cli.console import DEVICES, MOST_SEED, MOST_SEEDS, Lines, among, app, err, interruptible, make_table, out
from nfcgcn.cli.report import COMPARISON, write_comparison_page
from nfcgcn.cli.sources import GraphSource, takes_graph
from nfcgcn.config.registry import MODELS, PRESETS
from nfcgcn.data import DATASETS
from nfcgcn.data.splits import RULES
from nfcgcn.errors import ConfigError, NFCError, unknown
from nfcgcn.search.comparison import DEFAULT_MODELS, Comparison
from nfcgcn.search.comparison import compare as run
from nfcgcn.settings import read_assignments
from nfcgcn.training import choose_device


@app.command()
@takes_graph
def compare(
    source: GraphSource,
    models: Annotated[
        str,
        typer.Option(
            help="Names from `nfcgcn models`, with commas; the others are compared with the first.",
            autocompletion=among(MODELS, several=True),
        ),
    ] = ",".join(DEFAULT_MODELS),
    also: Annotated[
        list[str] | None, typer.Option(help="Another GRAPH; may be repeated.", autocompletion=among(DATASETS))
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=MOST_SEEDS, help="Number of runs per model, each with its own seed.")
    ] = 10,
    first_seed: Annotated[
        int, typer.Option("--seed", min=0, max=MOST_SEED, help="Seed of the first run, and of the choice.")
    ] = 0,
    split: Annotated[
        str | None, typer.Option(help="fastgcn, planetoid, per-class, ratio or given.", autocompletion=among(RULES))
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Use this preset ({', '.join(PRESETS)}) instead of choosing settings.", autocompletion=among(PRESETS)
        ),
    ] = None,
    choose: Annotated[
        bool, typer.Option("--select/--no-select", help="Choose settings on validation nodes first, for each model.")
    ] = True,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting for all models that have it, or a dataset option."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", autocompletion=among(DEVICES))] = "auto",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at the same time on the CPU; by default one per core.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the results; by default runs/compare-GRAPH.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")] = None,
) -> None:
    """Compare models on a graph: the same splits, settings chosen in the same way, paired differences.

    Every run is stored as soon as it ends; after an interruption the same command goes on.
    """
    names = [name.strip() for name in models.split(",") if name.strip()]
    for name in names:
        if name not in MODELS:
            raise ConfigError(unknown("model", name, MODELS))
    settings = read_assignments(assignments or [])
    sources = [source, *(replace(source, graph=name, nodes=None, edges=None) for name in also or [])]
    options = [each.take_options(dict(settings)) for each in sources]
    settings = {name: value for name, value in settings.items() if not any(name in taken for taken in options)}
    if split:
        settings["split"] = split
    chosen = choose_device(device)
    folder = folder or Path("runs") / f"compare-{source.name}"
    for path in (files.in_folder(folder, COMPARISON), *([json_file] if json_file else [])):
        files.check_writable(path, [file for each in sources for file in each.inputs()])
    graphs = [each.load(taken) for each, taken in zip(sources, options, strict=True)]
    for graph in graphs:
        err.print(str(graph), highlight=False, markup=False)
    with interruptible() as interruption:
        try:
            with _bar() as (on_record, on_wait):
                result = run(
                    graphs,
                    names,
                    seeds=range(first_seed, first_seed + seeds),
                    preset=preset,
                    settings=settings,
                    select=choose,
                    folder=folder,
                    device=chosen,
                    jobs=jobs,
                    on_record=on_record,
                    on_wait=on_wait,
                )
        except KeyboardInterrupt:
            message = f"interrupted; finished runs are stored in {folder}, and the same command continues from there"
            err.print(message, highlight=False, markup=False, soft_wrap=True)
            raise typer.Exit(interruption.exit_code) from None
    _finish(result, folder, json_file)


def _finish(result: Comparison, folder: Path, json_file: Path | None) -> None:
    for line in result.failed:
        err.print(f"failed: {line}", highlight=False, markup=False, soft_wrap=True)
    if not result.rows:
        raise NFCError("no model could be trained; see the lines above")
    text = files.to_json(result.values)
    for path in (files.in_folder(folder, COMPARISON), *([json_file] if json_file else [])):
        files.write_text(path, text)
    _print(result)
    write_comparison_page(folder)
    if result.failed:
        raise typer.Exit(1)


def _print(result: Comparison) -> None:
    for graph in result.values["graphs"]:
        rows = [row for row in result.rows if row["graph"] == graph]
        if not rows:
            continue
        table = make_table(
            "model", ">test accuracy, %", ">validation", ">ms per epoch", ">MiB", f"against {rows[0]['model']}"
        )
        table.title, table.title_justify = graph, "left"
        for row in rows:
            score = row["test_accuracy"]
            spread = "" if score["std"] is None else f" ± {100 * score['std']:.2f}"
            cost = (f"{row[name]:.1f}" if row[name] else "" for name in ("ms_per_epoch", "peak_mib"))
            table.add_row(
                row["model"],
                f"{100 * score['mean']:.2f}{spread}",
                f"{100 * row['val_accuracy']['mean']:.2f}",
                *cost,
                "" if row is rows[0] else row["verdict"],
            )
        out.print(table)


@contextmanager
def _bar() -> Iterator[tuple[Callable[[dict[str, Any], int, int], None], Callable[[list[str], int, int], None]]]:
    """Show each finished part: as a bar in a terminal, elsewhere as a line, and one now and then while parts last."""
    lines = Lines()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def on_record(record: dict[str, Any], done: int, total: int) -> None:
            what = {"selection": "settings chosen", "cost": "cost measured"}.get(record["kind"])
            text = (
                f"{record['model']} on {record['dataset'].rpartition(' ')[0]}: {what or 'seed ' + str(record['seed'])}"
            )
            bar.update(task, completed=done, total=total, description=text)
            if bar.disable:
                err.print(f"{done} of {total}: {text}", highlight=False, markup=False, soft_wrap=True)

        def on_wait(names: list[str], done: int, total: int) -> None:
            lines.show(lambda: f"{done} of {total} done; under way: {', '.join(names)}")

        yield on_record, on_wait
