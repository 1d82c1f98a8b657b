"""`nfcgcn train`."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import torch
import typer

from nfcgcn import files
from nfcgcn.cli.console import (
    DEVICES,
    MOST_SEED,
    MOST_SEEDS,
    Interruption,
    among,
    app,
    err,
    interruptible,
    out,
    this_command,
    training_bar,
)
from nfcgcn.cli.resumption import chosen_before, open_series, remember_choice, say_what_is_left
from nfcgcn.cli.run_page import write_run_page
from nfcgcn.cli.selection import choose_settings
from nfcgcn.cli.sources import GraphSource, takes_graph
from nfcgcn.config.registry import MODELS, PRESETS, SUGGESTED, Config, make_config, suggest
from nfcgcn.data.splits import RULES
from nfcgcn.errors import ConfigError, NFCError, counted
from nfcgcn.evaluation import Repeat, TestScores, UnfinishedError, describe, majority_class, perceptron, repeat
from nfcgcn.graph import Graph
from nfcgcn.inference import checkpoint
from nfcgcn.inference.checkpoint import Scored
from nfcgcn.inference.pieces import compute, in_pieces
from nfcgcn.inference.transfer import settings_of_run, starting_weights
from nfcgcn.kernels.threads import available
from nfcgcn.randomness import generator
from nfcgcn.reports import write_score
from nfcgcn.settings import one_line, read_assignments
from nfcgcn.training import DivergedError, Monitor, choose_device
from nfcgcn.training.ranks import device_of_rank, is_first, joined, processes, wanted
from nfcgcn.training.scores import SCORES
from nfcgcn.training.tracking import TensorBoardTracker, check_tensorboard

MOST_PICTURED = 600
"""The picture of the learned representation shows at most this many test nodes."""


@app.command()
@takes_graph
def train(
    source: GraphSource,
    model: Annotated[str, typer.Option(help="A name from `nfcgcn models`.", autocompletion=among(MODELS))] = "nfc-gcn",
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Settings by name: {', '.join(PRESETS)}; or a file from `nfcgcn tune`.", autocompletion=among(PRESETS)
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="fastgcn, planetoid, per-class, ratio or given.", autocompletion=among(RULES))
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Number of runs, each with its own seed.")] = 1,
    first_seed: Annotated[int, typer.Option("--seed", min=0, max=MOST_SEED, help="Seed of the first run.")] = 0,
    choose: Annotated[
        bool | None,
        typer.Option(
            "--select/--no-select",
            help="Choose settings on validation nodes first; by default for a graph without a preset.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting or dataset option; see `nfcgcn settings`."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", autocompletion=among(DEVICES))] = "auto",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Seeds that train at the same time on the CPU; by default one per core.")
    ] = None,
    monitor: Annotated[
        str | None,
        typer.Option(
            help=f"Validation figure that chooses the best epoch: {', '.join(get_args(Monitor))}.",
            autocompletion=among(get_args(Monitor)),
        ),
    ] = None,
    baselines: Annotated[
        bool | None,
        typer.Option(
            "--baselines/--no-baselines",
            help="Also train a perceptron, which does not see the edges; by default for a graph of your own.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Training nodes per step; by default all, or 1024 in mini-batches.")
    ] = None,
    fan_out: Annotated[
        str | None,
        typer.Option(
            help="Train in mini-batches: neighbours drawn per node and graph convolution, as in 10 or 15,10. "
            "By default only where a full step does not fit into memory."
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precision of products on a GPU: float32, tf32 or bf16; sums are float32.",
            autocompletion=among(("float32", "tf32", "bf16")),
        ),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; by default a new one in runs/.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in the --out folder.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the unfinished run in the --out folder, to the same result.")
    ] = False,
    init: Annotated[
        Path | None,
        typer.Option(
            "--init", metavar="RUN", help="Start with the weights, and settings of the model, of this run folder."
        ),
    ] = None,
    track_dir: Annotated[
        Path | None, typer.Option("--track", help="Also write every epoch for TensorBoard, in this folder.")
    ] = None,
) -> None:
    """Train a model, score it on the test nodes, and write a folder with weights, metrics and a report."""
    if resume and out_dir is None:
        raise ConfigError("--resume needs --out, the folder of the unfinished run")
    if track_dir is not None:
        check_tensorboard()
    settings = read_assignments(assignments or [])
    options = source.take_options(settings)
    flags = {"split": split, "precision": precision, "monitor": monitor, "fan_out": fan_out}
    flags["batch_size"] = None if batch_size is None else str(batch_size)
    settings |= {key: value for key, value in flags.items() if value is not None}
    saved = None if init is None else checkpoint.load_run(init)
    if saved is not None:
        if choose:
            raise ConfigError(
                "--init keeps the settings of its run, so that --select has nothing to choose; leave it out"
            )
        choose = False
        settings = {**settings_of_run(saved), **settings} if model == saved.model_name else settings  # type: ignore[dict-item]
    config = make_config(model, dataset=source.dataset, preset=preset, settings=settings)
    chosen = device_of_rank(choose_device(device))
    folder = out_dir or Path("runs") / f"{source.name}-{model}-{datetime.now():%Y%m%d-%H%M%S}"
    if is_first():
        files.check_free(folder, force=force, resume=resume)
        for path in (json_file, track_dir and track_dir / f"seed-{first_seed}" / "events"):
            if path:
                files.check_writable(path, source.inputs(), outside=folder)
    else:
        err.quiet = out.quiet = True
    # Features are made as for the run to start from; the classes may be others.
    encoding = None if saved is None or saved.encoding is None else {**saved.encoding, "classes": None}
    graph, tables = source.load(options, encoding=encoding), source.remember()
    if graph.given is not None:
        settings.setdefault("split", "given")
    config = make_config(model, dataset=source.dataset, preset=preset, graph=graph, settings=settings)
    start = {} if saved is None else starting_weights(saved, graph, config)
    err.print(
        f"{graph}, {MODELS[model].summary}, preset {config.preset}, split {config.split.split}",
        highlight=False,
        markup=False,
    )
    if config.preset == SUGGESTED:
        used = ", ".join(f"{name} {s.value}" for name, s in suggest(graph, model).items() if name not in settings)
        if used:
            err.print(f"settings for this graph: {used}; `nfcgcn inspect` says why", highlight=False, markup=False)
    config, why = config.in_batches(graph, processes=processes())
    if why:
        err.print(why, highlight=False, markup=False, soft_wrap=True)
    choosing = choose or (choose is None and config.preset == SUGGESTED and config.training.fan_out is None)
    if choosing and wanted():
        raise ConfigError("--select is for one process; choose settings with it first, then train with several")
    with interruptible() as interruption, joined(chosen) as ranks:
        series = open_series(
            folder,
            graph,
            config,
            first_seed=first_seed,
            choosing=choosing,
            device=chosen,
            resume=resume,
            start=start,
        )
        failure: UnfinishedError | None = None
        try:
            if choosing and (chosen_settings := chosen_before(series, config)) is not None:
                config = chosen_settings
            elif choosing:
                selection = choose_settings(graph, config, seed=first_seed, held=settings, device=chosen)
                remember_choice(series, selection)
                config = selection.config
            all_seeds, at_once = range(first_seed, first_seed + seeds), jobs or available()
            left = say_what_is_left(series, all_seeds)
            tracks = track_dir is not None and ranks.is_first
            track = TensorBoardTracker(track_dir, settings=config.values) if tracks and track_dir else None
            with training_bar(left * config.training.epochs) as on_epoch:
                repeats: Sequence[Repeat] = repeat(
                    graph,
                    config,
                    all_seeds,
                    device=chosen,
                    jobs=at_once,
                    on_epoch=on_epoch,
                    track=track,
                    keep=series,
                    start=start,
                )
        except KeyboardInterrupt:
            kept = "nothing was written"
            if series.folder.exists():
                kept = f"{folder} keeps what was done, and --resume goes on with it"
            err.print(f"interrupted before the first run was scored; {kept}", soft_wrap=True)
            raise typer.Exit(interruption.exit_code) from None
        except DivergedError:  # it would again
            series.clear()
            raise
        except UnfinishedError as error:
            repeats, failure = error.repeats, error
        whole = failure is None and len(repeats) == seeds and not repeats[-1].run.interrupted
        simple: dict[str, TestScores] = {}
        if (source.dataset is None if baselines is None else baselines) and whole and model != "mlp":
            simple = _perceptron(graph, config, repeats, source.dataset, chosen, at_once)
        interruption.hold()
        shown = max(repeats, key=lambda r: config.training.stopping.merit(r.run.best))
        scored = _scored(graph, shown, chosen)
        if not ranks.is_first:
            return
        result = describe(
            graph,
            config,
            repeats,
            device=chosen,
            command=this_command(),
            dataset_options=options if source.dataset else None,
            baselines={"majority class": majority_class(graph, repeats), **simple},
        )
        result["selection"] = series.notes.get("selection")
        result["interrupted"] = result["interrupted"] or len(repeats) < seeds
        with files.new_folder(folder, force=force, resume=True) as draft:
            runs = {r.seed: r.run for r in repeats}
            checkpoint.save_run(draft, graph, result, runs, shown.seed, scored, shown.split, tables)
            resumable = result["interrupted"] and series.copy_to(draft / files.UNFINISHED)
        if json_file:
            files.write_text(json_file, files.to_json(result))
        if result["interrupted"] and failure is None:
            more = "; --resume goes on with it" if resumable else ""
            err.print(f"interrupted: the best state so far was kept and scored{more}")
        _print_result(result, best_is=config.training.stopping.best_is)
        _draw(folder, interruption)
    if failure is not None:
        kept = counted(len(repeats), "seed")
        raise NFCError(f"{failure}; {folder} has the {kept} before it") from failure
    if result["interrupted"]:
        raise typer.Exit(interruption.exit_code)


def _perceptron(
    graph: Graph,
    config: Config,
    repeats: Sequence[Repeat],
    dataset: str | None,
    device: torch.device,
    jobs: int,
) -> dict[str, TestScores]:
    """Return the scores of a perceptron by its name; nothing if it fails or is interrupted, which costs no result."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the model's own training has warned already
            return {"mlp": perceptron(graph, config, repeats, dataset=dataset, device=device, jobs=jobs)}
    except (KeyboardInterrupt, NFCError) as error:
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else one_line(error)
        err.print(f"without the perceptron, for comparison: {reason}", highlight=False, markup=False, soft_wrap=True)
        return {}


@torch.no_grad()
def _scored(graph: Graph, shown: Repeat, device: torch.device) -> Scored:
    """Return what the report shows of the test nodes."""
    nodes = shown.split.test
    pictured = np.arange(len(nodes))
    if len(nodes) > MOST_PICTURED:
        pictured = generator(shown.seed, "picture").choice(pictured, MOST_PICTURED, replace=False)
    if in_pieces(shown.model, graph):
        hidden = torch.from_numpy(compute(shown.model, graph, nodes[pictured], layer="last", device=device))
    else:
        hidden = shown.model.embed(graph.x.to(device), shown.model.edges_of(graph).to(device)).cpu()
    if hidden.layout != torch.strided:
        hidden = hidden.to_sparse()
    rows = hidden.index_select(0, torch.from_numpy(nodes[pictured]))
    return Scored(
        labels=graph.labels[nodes],
        predictions=shown.predictions[nodes],
        pictured=pictured,
        embedding=(rows.to_dense() if rows.layout != torch.strided else rows).numpy(),
        confidences=shown.probabilities.max(1),
    )


def _draw(folder: Path, interruption: Interruption) -> None:
    """Draw the page of a run that is already saved, so that nothing that happens meanwhile can take the run away."""
    remedy = f"{folder} has the whole run but no page; `nfcgcn report {shlex.quote(str(folder))}` draws it"
    try:
        interruption.release()
        write_run_page(folder)
    except KeyboardInterrupt:
        err.print(f"interrupted: {remedy}", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(interruption.exit_code) from None
    except Exception as error:
        raise NFCError(f"the page could not be drawn: {one_line(error) or type(error).__name__}; {remedy}") from error


def _print_result(result: dict[str, Any], *, best_is: str) -> None:
    test, val = result["test_accuracy"], result["val_accuracy"]
    spread = "" if test["std"] is None else f" ± {100 * test['std']:.2f}"
    count = len(result["seeds"])
    out.print(
        f"test accuracy [bold]{100 * test['mean']:.2f}{spread} %[/bold] over {count} seed{'s' if count > 1 else ''}, "
        f"at the epoch with the {best_is} (validation accuracy {100 * val['mean']:.2f} %); "
        f"{result['seconds']:.1f} s on {result['device']}",
        markup=True,
        soft_wrap=True,
    )
    for name, scores in {result["model"]: result["test_scores"], **result["baselines"]}.items():
        figures = [f"{SCORES[key].title} {write_score(key, value)}" for key, value in scores.items()]
        out.print(f"{name}: {', '.join(figures)}", highlight=False, markup=False, soft_wrap=True)
