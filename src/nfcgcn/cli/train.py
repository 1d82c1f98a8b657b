"""`nfcgcn train`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from nfcgcn import files
from nfcgcn.cli.console import INTERRUPTED, app, choose_device, err, out, training_bar
from nfcgcn.cli.sources import GraphSource, takes_graph
from nfcgcn.config.registry import MODELS, PRESETS, SUGGESTED, make_config, suggest
from nfcgcn.evaluation import Repeat, class_scores, confusion, describe, repeat
from nfcgcn.graph import Graph
from nfcgcn.inference import checkpoint
from nfcgcn.randomness import generator
from nfcgcn.reports import Page, render
from nfcgcn.settings import read_assignments

MOST_PICTURED = 1500
"""The picture of the learned representation shows at most this many test nodes."""


@app.command()
@takes_graph
def train(
    source: GraphSource,
    model: Annotated[str, typer.Option(help="A name from `nfcgcn models`.")] = "nfc-gcn",
    preset: Annotated[
        str | None, typer.Option(help=f"Settings by name: {', '.join(PRESETS)}; or a file from `nfcgcn tune`.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="fastgcn, planetoid, per-class, ratio or given.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs, each with its own seed.")] = 1,
    first_seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first run.")] = 0,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting or dataset option; see `nfcgcn settings`."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[
        str | None, typer.Option(help="Precision of products on a GPU: float32, tf32 or bf16; sums are float32.")
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; by default a new one in runs/.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in the --out folder.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")] = None,
) -> None:
    """Train a model, score it on the test nodes, and write a folder with weights, metrics and a report."""
    settings = read_assignments(assignments or [])
    options = source.take_options(settings)
    settings |= {key: value for key, value in (("split", split), ("precision", precision)) if value}
    config = make_config(model, dataset=source.dataset, preset=preset, settings=settings)
    chosen = choose_device(device)
    folder = out_dir or Path("runs") / f"{source.name}-{model}-{datetime.now():%Y%m%d-%H%M%S}"
    files.check_free(folder, force=force)
    if json_file:
        files.check_writable(json_file)
    graph = source.load(options)
    if graph.given is not None:
        settings.setdefault("split", "given")
    config = make_config(model, dataset=source.dataset, preset=preset, graph=graph, settings=settings)
    err.print(
        f"{graph}, {MODELS[model].summary}, preset {config.preset}, split {config.split.split}",
        highlight=False,
        markup=False,
    )
    if config.preset == SUGGESTED:
        used = ", ".join(f"{name} {s.value}" for name, s in suggest(graph, model).items() if name not in settings)
        err.print(f"settings for this graph: {used}; `nfcgcn inspect` says why", highlight=False, markup=False)
    try:
        with training_bar(seeds * config.training.epochs) as on_epoch:
            repeats = repeat(graph, config, range(first_seed, first_seed + seeds), device=chosen, on_epoch=on_epoch)
    except KeyboardInterrupt:
        err.print("interrupted before the first epoch ended; nothing was written")
        raise typer.Exit(INTERRUPTED) from None
    command = f"nfcgcn {shlex.join(sys.argv[1:])}"
    result = describe(
        graph, config, repeats, device=chosen, command=command, dataset_options=options if source.dataset else None
    )
    result["interrupted"] = interrupted = result["interrupted"] or len(repeats) < seeds
    shown = max(repeats, key=lambda r: config.training.stopping.merit(r.run.best))
    with files.new_folder(folder, force=force) as draft:
        checkpoint.save_run(draft, graph, result, {r.seed: r.run for r in repeats}, shown.seed)
        files.write_text(draft / "report.html", render(_page(graph, result, repeats, shown, chosen)))
    if json_file:
        files.write_text(json_file, files.to_json(result))
    if interrupted:
        err.print("interrupted: the best state so far was kept and scored")
    _print_result(result, folder, best_is=config.training.stopping.best_is)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


@torch.no_grad()
def _page(graph: Graph, result: dict[str, Any], repeats: Sequence[Repeat], shown: Repeat, device: torch.device) -> Page:
    matrix = confusion(shown.predictions, graph, shown.split.test)
    nodes = shown.split.test
    if len(nodes) > MOST_PICTURED:
        nodes = generator(shown.seed, "picture").choice(nodes, MOST_PICTURED, replace=False)
    hidden = shown.model.embed(graph.x.to(device), graph.edge_index.to(device))
    rows = torch.from_numpy(nodes)
    return Page(
        summary=result,
        histories=[r.run.history for r in repeats],  # type: ignore[misc]
        confusion=matrix,
        class_names=[graph.class_name(c) for c in range(graph.num_classes)],
        per_class=class_scores(shown.predictions, graph, shown.split.test),
        shown_seed=shown.seed,
        embedding=(hidden.cpu().to_dense() if hidden.layout != torch.strided else hidden.cpu())[rows].numpy(),
        labels=graph.labels[nodes],
        predictions=shown.predictions[nodes],
    )


def _print_result(result: dict[str, Any], folder: Path, *, best_is: str) -> None:
    test, val = result["test_accuracy"], result["val_accuracy"]
    spread = "" if test["std"] is None else f" ± {100 * test['std']:.2f}"
    count = len(result["seeds"])
    out.print(
        f"test accuracy [bold]{100 * test['mean']:.2f}{spread} %[/bold] over {count} seed{'s' if count > 1 else ''}, "
        f"at the epoch with the {best_is} (validation accuracy {100 * val['mean']:.2f} %); "
        f"{result['seconds']:.1f} s on {result['device']}",
        highlight=False,
        soft_wrap=True,
    )
    out.print(f"report: {folder / 'report.html'}", highlight=False, soft_wrap=True)
