"""`nfcgcn tune`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nfcgcn import files
from nfcgcn.cli.console import (
    DEVICES,
    MOST_SEED,
    MOST_SEEDS,
    Lines,
    among,
    app,
    err,
    interruptible,
    make_table,
    out,
    this_command,
    training_bar,
)
from nfcgcn.cli.sources import GraphSource, takes_graph
from nfcgcn.config.registry import MODELS, PRESETS, make_config
from nfcgcn.data.splits import RULES
from nfcgcn.errors import ConfigError, NFCError
from nfcgcn.evaluation import summarise
from nfcgcn.kernels.threads import available
from nfcgcn.reports import (
    SEARCH_TITLE,
    ScoresOnTest,
    SearchedSetting,
    SearchPage,
    ShownTrial,
    points,
    render_search,
)
from nfcgcn.search import tuning
from nfcgcn.search.importance import importances
from nfcgcn.search.preset_file import check_ours, check_preset_path, write_preset
from nfcgcn.search.ranges import with_params
from nfcgcn.search.trials import Trial, best_of
from nfcgcn.search.worth import Worth, score_on_test
from nfcgcn.settings import read_assignments, settings_of
from nfcgcn.training import Epoch, TrainingConfig, choose_device

MINUTES = 10.0
"""How long a search takes if no end is given."""


@app.command()
@takes_graph
def tune(
    source: GraphSource,
    model: Annotated[str, typer.Option(help="A name from `nfcgcn models`.", autocompletion=among(MODELS))] = "nfc-gcn",
    minutes: Annotated[
        float | None,
        typer.Option(
            help="How long to search in all, earlier sessions included; by default 10, or no limit with --trials."
        ),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="The same in seconds.")] = None,
    trials: Annotated[int | None, typer.Option(help="How many settings to try in all, at most.")] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Settings to begin with: {', '.join(PRESETS)}; or a file of `nfcgcn tune`.",
            autocompletion=among(PRESETS),
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="fastgcn, planetoid, per-class, ratio or given.", autocompletion=among(RULES))
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_SEEDS, help="Most runs per trial, each with its own seed; poor trials stop earlier."
        ),
    ] = tuning.SEEDS,
    first_seed: Annotated[
        int, typer.Option("--seed", min=0, max=MOST_SEED, help="The seed of the split and the first run.")
    ] = 0,
    test_seeds: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_SEEDS, help="Runs that are scored on test nodes at the end, for settings found and before."
        ),
    ] = 5,
    with_test: Annotated[
        bool, typer.Option("--test/--no-test", help="Whether to score the test nodes, once, at the end.")
    ] = True,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting to keep fixed, or a dataset option."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", autocompletion=among(DEVICES))] = "auto",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Seeds that train at the same time on the CPU; by default one per core.")
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Preset file to write; by default GRAPH-MODEL.toml.")
    ] = None,
    page_file: Annotated[
        Path | None, typer.Option("--page", help="Page to write; by default beside --out, as .html.")
    ] = None,
    study_file: Annotated[
        Path | None,
        typer.Option(
            "--study", help="File of all trials, to continue or to share; by default beside --out, as .study.jsonl."
        ),
    ] = None,
) -> None:
    """Search for settings that do better on validation nodes, and write them as a preset.

    The search can be stopped at any time; the same command goes on with it. Several at the same time share the search.
    When all have ended, the settings found and those before are scored on the test nodes; a page shows what mattered.
    """
    tuning.check_optuna()
    time_allowed = _seconds(minutes, seconds, trials)
    tuning.check_budget(time_allowed, trials)
    settings = read_assignments(assignments or [])
    options = source.take_options(settings)
    if split:
        settings["split"] = split
    make_config(model, dataset=source.dataset, preset=preset, settings=settings)  # what is wrong is reported at once
    chosen, at_once = choose_device(device), jobs or available()
    preset_file = out_file or Path(f"{source.name}-{model}.toml")
    study = study_file or preset_file.with_suffix(".study.jsonl")
    page = page_file or preset_file.with_suffix(".html")
    check_preset_path(preset_file)
    check_ours(page, f"<title>{SEARCH_TITLE}: ", option="--page")
    for path in (preset_file, study, page):
        files.check_writable(path)
    graph = source.load(options)
    config = make_config(model, graph=graph, dataset=source.dataset, preset=preset, settings=settings)
    err.print(f"{graph}, preset {config.preset}, split {config.split.split}, study {study}")
    with interruptible() as interruption:
        try:
            with _search_bar(time_allowed, trials) as on_epoch:
                tuned = tuning.tune(
                    graph,
                    config,
                    seeds=range(first_seed, first_seed + seeds),
                    seconds=time_allowed,
                    trials=trials,
                    held=settings,
                    study=study,
                    device=chosen,
                    jobs=at_once,
                    on_epoch=on_epoch,
                )
        except KeyboardInterrupt:
            err.print("interrupted before the first trial ended; no preset was written")
            raise typer.Exit(interruption.exit_code) from None
        write_preset(preset_file, tuned, graph=source.name)
        _print_search(tuned)
        tested, interrupted = None, tuned.interrupted
        scores = with_test and not interrupted and len(config.split.make(graph, first_seed).test)
        if scores and tuned.elsewhere:
            err.print(
                f"other processes still have {tuned.elsewhere} of the trials under way; the last of them to end scores "
                "the test nodes, as does the same command later",
                soft_wrap=True,
            )
        elif scores:
            try:
                with training_bar(2 * test_seeds * config.training.epochs) as on_test_epoch:
                    tested = score_on_test(
                        graph, tuned, count=test_seeds, device=chosen, jobs=at_once, on_epoch=on_test_epoch
                    )
            except KeyboardInterrupt:
                interrupted = True
            except NFCError as error:
                err.print(f"the test nodes could not be scored: {error}", soft_wrap=True)
        interruption.hold()
        if tested is not None:
            _print_test(tested)
        shown = _page(tuned, tested, graph=source.name, preset=preset_file, interrupted=interrupted)
        files.write_text(page, render_search(shown))
    out.print(f"preset: {preset_file}\npage: {page}", soft_wrap=True)
    if interrupted:
        err.print("interrupted: the best settings so far were written; the same command goes on")
        raise typer.Exit(interruption.exit_code)


def _seconds(minutes: float | None, seconds: float | None, trials: int | None) -> float | None:
    """Return how long the search may take; None for a search that ends after so many trials."""
    if minutes is not None and seconds is not None:
        raise ConfigError(f"give --minutes or --seconds, not both; got {minutes:g} and {seconds:g}")
    if minutes is not None:
        if not minutes > 0:
            raise ConfigError(f"`minutes` must be above 0, got {minutes:g}")
        return 60 * minutes
    return seconds if seconds is not None or trials is not None else 60 * MINUTES


@contextmanager
def _search_bar(
    seconds: float | None, trials: int | None
) -> Iterator[Callable[[Sequence[Trial], float, Epoch], None] | None]:
    """Show on stderr how far the search is: as a bar in a terminal, as a line now and then elsewhere."""

    def text(done: Sequence[Trial], epoch: Epoch) -> str:
        best = best_of(done)
        so_far = "" if best is None else f", best so far {best.accuracy:.1%}"
        return f"trial {len(done) + 1}, epoch {epoch['epoch']}: validation {epoch['val_accuracy']:.1%}{so_far}"

    if not err.is_terminal:
        lines = Lines()
        yield lambda done, _, epoch: lines.show(lambda: text(done, epoch))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("searching", total=1.0)

        def update(done: Sequence[Trial], spent: float, epoch: Epoch) -> None:
            parts = (spent / seconds if seconds else 0.0, len(done) / trials if trials else 0.0)
            bar.update(task, completed=min(1.0, max(parts)), description=text(done, epoch))

        yield update


def _print_search(tuned: tuning.Tuned) -> None:
    table = make_table("setting", ">before", ">found")
    for name, value in tuned.config.values.items():
        if value != tuned.default.values[name]:
            table.add_row(name, str(tuned.default.values[name]), str(value))
    if table.row_count:
        out.print(table)
    else:
        out.print("no better settings were found")
    before = "no result" if tuned.before is None else f"{100 * tuned.before:.2f} %"
    count = len(tuned.trials)
    out.print(
        f"validation accuracy [bold]{100 * tuned.best.accuracy:.2f} %[/bold], before {before}; "
        f"{count} trial{'s' if count > 1 else ''} ({tuned.count('pruned')} stopped early, "
        f"{tuned.count('failed')} failed) in {tuned.seconds / 60:.1f} minutes",
        markup=True,
        soft_wrap=True,
    )


def _print_test(tested: Worth) -> None:
    count = len(tested.found)
    text = f"test accuracy [bold]{100 * summarise([*tested.found.values()])['mean']:.2f} %[/bold]"
    if tested.before:
        text += f", before {100 * summarise([*tested.before.values()])['mean']:.2f} %"
    if (d := tested.difference) is not None:
        text += f"; difference {points(d.mean)} ({points(d.low)} to {points(d.high)})"
    out.print(f"{text} over {count} further seed{'s' if count > 1 else ''}", markup=True, soft_wrap=True)


def _page(tuned: tuning.Tuned, tested: Worth | None, *, graph: str, preset: Path, interrupted: bool) -> SearchPage:
    """Return what the page of a search shows."""
    shown = [trial for trial in tuned.trials if trial.state != "failed"]
    values = [with_params(tuned.default, trial.params).values for trial in shown]
    known = settings_of(type(tuned.default.model)) | settings_of(TrainingConfig)
    shares = importances(tuned) or {}
    searched = []
    for setting, distribution in tuned.ranges.items():
        choices, low, high = (getattr(distribution, key, None) for key in ("choices", "low", "high"))
        searched.append(
            SearchedSetting(
                setting,
                known[setting].meaning,
                tuned.default.values[setting],
                tuned.config.values[setting],
                ", ".join(choices) if choices else f"{low:g} to {high:g}",
                [value[setting] for value in values],
                choices or (),
                getattr(distribution, "log", False),
                shares.get(setting),
            )
        )
    scores = None
    if tested is not None:
        scores = ScoresOnTest([*tested.found.values()], [*tested.before.values()], tested.difference)
    return SearchPage(
        graph=graph,
        model=tuned.config.name,
        split=tuned.config.split.split,
        num_seeds=len(tuned.seeds),
        num_val=tuned.num_val,
        trials=[ShownTrial(trial.accuracies, trial.state == "complete") for trial in shown],
        num_failed=tuned.count("failed"),
        seconds=tuned.seconds,
        before=tuned.before,
        found=tuned.best.accuracy,
        settings=searched,
        test=scores,
        interrupted=interrupted,
        preset=shlex.quote(str(preset)),
        command=this_command(),
    )
