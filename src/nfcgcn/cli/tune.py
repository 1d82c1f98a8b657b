"""`nfcgcn tune`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nfcgcn import files
from nfcgcn.cli.console import app, err, interruptible, make_table, out
from nfcgcn.cli.sources import GraphSource, takes_graph
from nfcgcn.config.registry import PRESETS, make_config
from nfcgcn.kernels.threads import available
from nfcgcn.search import tuning
from nfcgcn.search.trials import Trial
from nfcgcn.settings import read_assignments
from nfcgcn.training import Epoch, choose_device


@app.command()
@takes_graph
def tune(
    source: GraphSource,
    model: Annotated[str, typer.Option(help="A name from `nfcgcn models`.")] = "nfc-gcn",
    minutes: Annotated[float, typer.Option(help="How long to search in all, earlier sessions included.")] = 10.0,
    trials: Annotated[int | None, typer.Option(min=1, help="How many settings to try in all, at most.")] = None,
    preset: Annotated[
        str | None, typer.Option(help=f"Settings to begin with: {', '.join(PRESETS)}; or a file of `nfcgcn tune`.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="fastgcn, planetoid, per-class, ratio or given.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs per trial, each with its own seed.")] = 2,
    first_seed: Annotated[int, typer.Option("--seed", min=0, help="The seed of the split and the first run.")] = 0,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting to hold, or a dataset option."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Seeds that train at the same time on the CPU; by default one per core.")
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Preset file to write; by default GRAPH-MODEL.toml.")
    ] = None,
    study_file: Annotated[
        Path | None,
        typer.Option(
            "--study", help="File of all trials, to go on from or to share; by default beside --out, as .study.jsonl."
        ),
    ] = None,
) -> None:
    """Search for settings that do better on validation nodes, and write them as a preset.

    The search can be stopped at any time; the same command goes on with it. Several at the same time share the search.
    """
    tuning.check_optuna()
    settings = read_assignments(assignments or [])
    options = source.take_options(settings)
    if split:
        settings["split"] = split
    make_config(model, dataset=source.dataset, preset=preset, settings=settings)  # what is wrong is reported at once
    chosen = choose_device(device)
    preset_file = out_file or Path(f"{source.name}-{model}.toml")
    study = study_file or preset_file.with_suffix(".study.jsonl")
    tuning.check_preset_path(preset_file)
    for path in (preset_file, study):
        files.check_writable(path)
    graph = source.load(options)
    config = make_config(model, graph=graph, dataset=source.dataset, preset=preset, settings=settings)
    err.print(
        f"{graph}, preset {config.preset}, split {config.split.split}, study {study}", highlight=False, markup=False
    )
    with interruptible() as interruption:
        try:
            with _search_bar(60 * minutes) as on_epoch:
                tuned = tuning.tune(
                    graph,
                    config,
                    seeds=range(first_seed, first_seed + seeds),
                    minutes=minutes,
                    trials=trials,
                    held=settings,
                    study=study,
                    device=chosen,
                    jobs=jobs or available(),
                    on_epoch=on_epoch,
                )
        except KeyboardInterrupt:
            err.print("interrupted before the first trial ended; no preset was written")
            raise typer.Exit(interruption.exit_code) from None
        tuning.write_preset(preset_file, tuned, graph=source.name)
    _print_result(tuned, preset_file)
    if tuned.interrupted:
        err.print("interrupted: the best settings so far were written; the same command goes on")
        raise typer.Exit(interruption.exit_code)


@contextmanager
def _search_bar(seconds: float) -> Iterator[Callable[[Sequence[Trial], float, Epoch], None] | None]:
    """Show the time spent on stderr, where that is a terminal."""
    if not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("searching", total=seconds)

        def on_epoch(done: Sequence[Trial], spent: float, epoch: Epoch) -> None:
            text = f"trial {len(done) + 1}, epoch {epoch['epoch']}: validation {epoch['val_accuracy']:.1%}"
            if any(t.state == "complete" for t in done):
                text += f", best so far {tuning.best_of(done).accuracy:.1%}"
            bar.update(task, completed=spent, description=text)

        yield on_epoch


def _print_result(tuned: tuning.Tuned, path: Path) -> None:
    start, best = tuned.start, tuned.best
    table = make_table("setting", ">before", ">found")
    for name, value in tuned.config.values.items():
        if value != tuned.default.values[name]:
            table.add_row(name, str(tuned.default.values[name]), str(value))
    if table.row_count:
        out.print(table)
    before = f"{100 * start.accuracy:.2f} %" if start and start.state == "complete" else "no result"
    count = len(tuned.trials)
    out.print(
        f"validation accuracy [bold]{100 * best.accuracy:.2f} %[/bold], before {before}; "
        f"{count} trial{'s' if count > 1 else ''} in {tuned.seconds / 60:.1f} minutes",
        markup=True,
        soft_wrap=True,
    )
    out.print(f"preset: {path}", highlight=False, markup=False, soft_wrap=True)
