"""`nfcgcn reproduce`: the paper's tables and figures, run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from nfcgcn.cli.console import INTERRUPTED, app, choose_device, err, make_table, out
from nfcgcn.cli.report import FOLDER, print_tables, write_page
from nfcgcn.reproduction import runner as reproduction
from nfcgcn.reproduction import schedule
from nfcgcn.reproduction.experiment import EXPERIMENTS, load_experiment
from nfcgcn.reproduction.ledger import Record, read
from nfcgcn.reproduction.measurement import where


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME ...|all]", help="Experiments, or all of them.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs a figure, each with its own seed.")] = 10,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; by default as many as suit the machine.")] = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder of the results.")] = FOLDER,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the Planetoid files.")] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the experiments and run nothing.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run, and how long, and run nothing.")
    ] = False,
) -> None:
    """Run the paper's experiments and write a page that sets the results beside the paper's.

    Runs that the folder has already are not run again, and each is kept as soon as it ends: after an interruption the
    same command goes on.
    """
    chosen = choose_device(device)
    jobs = jobs or reproduction.processes(chosen)
    if only_list or not names:
        _list(seeds, chosen)
        if not only_list:
            out.print("choose some of them, or all: nfcgcn reproduce all", highlight=False)
        return
    asked = dict.fromkeys(name for given in names for name in (EXPERIMENTS if given == "all" else (given,)))
    wanted = [load_experiment(name) for name in asked]
    tasks = schedule.plan(wanted, seeds, chosen)
    if dry_run:
        _show_plan(schedule.missing(tasks, read(folder), where(chosen)), chosen, jobs)
        return
    try:
        with _Shown() as progress:
            outcome = reproduction.run(tasks, folder, device=chosen, jobs=jobs, data_dir=data_dir, progress=progress)
    except KeyboardInterrupt:
        kept = f"interrupted; the runs that had ended are in {folder}, and the same command goes on from there"
        err.print(kept, highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    for line in outcome.failed:
        err.print(f"failed: {line}", highlight=False, markup=False, soft_wrap=True)
    if read(folder):
        print_tables(folder, wanted, device=chosen.type)
        write_page(folder, device=chosen.type)
    if outcome.failed:
        raise typer.Exit(1)


def _list(seeds: int, device: torch.device) -> None:
    table = make_table("name", ">runs", "source", "what it shows")
    for name in EXPERIMENTS:
        experiment = load_experiment(name)
        runs = sum(len(task.seeds) for task in schedule.plan([experiment], seeds, device))
        table.add_row(name, str(runs), experiment.source, experiment.title)
    out.print(table)


def _show_plan(tasks: list[schedule.Task], device: torch.device, jobs: int) -> None:
    table = make_table("runs", "model", "dataset", ">minutes of a process")
    counts: Counter[tuple[str, str]] = Counter()
    seconds: Counter[tuple[str, str]] = Counter()
    for task in tasks:
        name = (task.setup.model or "-", task.setup.dataset)
        counts[name] += len(task.seeds)
        seconds[name] += schedule.estimate(task, device)  # type: ignore[assignment]
    for (model, dataset), count in counts.items():
        table.add_row(str(count), model, dataset, f"{seconds[model, dataset] / 60:.1f}")
    out.print(table)
    alone = sum(schedule.estimate(task, device) for task in tasks if task.alone)
    minutes = ((sum(seconds.values()) - alone) / jobs + alone) / 60
    out.print(
        f"{sum(counts.values()):,} runs, roughly {minutes:.0f} minutes on {device.type} in {jobs} processes",
        highlight=False,
    )


class _Shown(reproduction.Progress):
    """A bar on stderr with the time that remains, where stderr is a terminal."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=err, transient=True, disable=not err.is_terminal)
        self._task = self._bar.add_task("starting", total=None)
        self._done = self._runs = 0

    def __enter__(self) -> _Shown:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, seconds: float, runs: int) -> None:
        self._runs = runs
        self._bar.update(self._task, total=seconds)

    def finished(self, record: Record, seconds: float) -> None:
        self._done += 1
        score = f": {record['test_accuracy']:.1%}" if "test_accuracy" in record else ""
        text = (
            f"{self._done} of {self._runs} runs; {record['model']} on {record['dataset']}, seed {record['seed']}{score}"
        )
        self._bar.update(self._task, advance=seconds, description=text)
