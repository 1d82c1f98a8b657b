"""`nfcgcn train`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, get_args

import typer

from nfcgcn import files
from nfcgcn.cli.console import DEVICES, MOST_SEED, MOST_SEEDS, among, app, err, out
from nfcgcn.cli.sources import GraphSource, takes_graph
from nfcgcn.cli.training_task import Task, run_task
from nfcgcn.config.registry import MODELS, PRESETS, SUGGESTED, make_config, suggest
from nfcgcn.data.splits import RULES
from nfcgcn.errors import ConfigError
from nfcgcn.inference import checkpoint
from nfcgcn.inference.transfer import settings_of_run, starting_weights
from nfcgcn.kernels.threads import available
from nfcgcn.settings import read_assignments
from nfcgcn.training import Monitor, choose_device
from nfcgcn.training.ranks import device_of_rank, is_first, processes, wanted
from nfcgcn.training.tracking import check_tensorboard


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
            help="Choose settings on validation nodes first; by default for a graph that is not built in.",
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
        typer.Option("--init", metavar="RUN", help="Start with the weights and the model settings of this run folder."),
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
            raise ConfigError("--init keeps the settings of its run, so --select has nothing to choose; leave it out")
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
        soft_wrap=True,
    )
    if config.preset == SUGGESTED:
        used = ", ".join(f"{name} {s.value}" for name, s in suggest(graph, model).items() if name not in settings)
        if used:
            line = f"settings for this graph: {used}; `nfcgcn inspect` says why"
            err.print(line, highlight=False, markup=False, soft_wrap=True)
    config, why = config.in_batches(graph, processes=processes())
    if why:
        err.print(why, highlight=False, markup=False, soft_wrap=True)
    choosing = choose or (choose is None and config.preset == SUGGESTED and config.training.fan_out is None)
    if choosing and wanted():
        raise ConfigError("--select is for one process; choose settings with it first, then train with several")
    task = Task(
        graph=graph,
        config=config,
        dataset=source.dataset,
        options=options,
        tables=tables,
        seeds=range(first_seed, first_seed + seeds),
        held=settings if choosing else None,
        start=start,
        device=chosen,
        jobs=jobs or available(),
        baselines=model != "mlp" and (source.dataset is None if baselines is None else baselines),
        track=track_dir,
    )
    run_task(task, folder, json_file=json_file, force=force, resume=resume)
