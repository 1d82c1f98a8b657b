"""The command line: parse, call, print."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from nfcgcn import __version__, checkpoint, datasets
from nfcgcn.errors import ConfigError, NFCError, NFCWarning, unknown
from nfcgcn.evaluation import Repeat, class_scores, confusion, repeat
from nfcgcn.graph import Graph
from nfcgcn.randomness import generator
from nfcgcn.report import Page, render
from nfcgcn.results import describe
from nfcgcn.settings import read_assignments, read_number, settings_of
from nfcgcn.systems import PRESETS, SYSTEMS, SplitConfig, make_config, preset_tables
from nfcgcn.training import Epoch, TrainingConfig

MOST_PICTURED = 1500
"""Test nodes in the picture of the learned representation, at most."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

app = typer.Typer(
    help="Learning on graphs whose nodes carry features, with NFC-GCN.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)


def main() -> None:
    """Run the command line; an error of ours is one line and exit code 2."""
    debug = "--debug" in sys.argv
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        app([a for a in sys.argv[1:] if a != "--debug"], prog_name="nfcgcn")
    except NFCError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback(epilog="Add --debug to any command to see the full traceback of an error.")
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command()
def train(
    dataset: Annotated[str, typer.Argument(help="A name from `nfcgcn datasets`.")] = "digits",
    model: Annotated[str, typer.Option(help="A name from `nfcgcn models`.")] = "nfc-gcn",
    preset: Annotated[str | None, typer.Option(help=f"Settings by name: {', '.join(PRESETS)}.")] = None,
    split: Annotated[str | None, typer.Option(help="fastgcn, planetoid, per-class or ratio.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs, each with its own seed.")] = 1,
    first_seed: Annotated[int, typer.Option("--seed", min=0, help="The first run's seed.")] = 0,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting or dataset option; see `nfcgcn settings`."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the Planetoid files.")] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder to write; by default a new one in runs/.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in the --out folder.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")] = None,
) -> None:
    """Train a model, score it on the test nodes, and write a folder with weights, metrics and a report."""
    if dataset not in datasets.DATASETS:
        raise ConfigError(unknown("dataset", dataset, datasets.DATASETS))
    settings = read_assignments(assignments or [])
    options = {
        key: read_number(key, settings.pop(key)) for key in datasets.DATASETS[dataset].options if key in settings
    }
    if split:
        settings["split"] = split
    config = make_config(model, dataset=dataset, preset=preset, settings=settings)
    chosen = _device(device)
    folder = out_dir or Path("runs") / f"{dataset}-{model}-{datetime.now():%Y%m%d-%H%M%S}"
    checkpoint.check_free(folder, force=force)
    if json_file:
        checkpoint.check_writable(json_file)
    graph = datasets.load(dataset, data_dir=data_dir, **options)
    err.print(
        f"{graph}, {SYSTEMS[model].summary}, preset {config.preset}, split {config.split.split}",
        highlight=False,
        markup=False,
    )
    try:
        with _progress(seeds * config.training.epochs, config.training.epochs, first_seed) as on_epoch:
            repeats = repeat(graph, config, range(first_seed, first_seed + seeds), device=chosen, on_epoch=on_epoch)
    except KeyboardInterrupt:
        err.print("interrupted before the first epoch ended; nothing was written")
        raise typer.Exit(INTERRUPTED) from None
    result = describe(graph, config, repeats, device=chosen, command=f"nfcgcn {shlex.join(sys.argv[1:])}")
    interrupted = result["interrupted"] or len(repeats) < seeds
    result |= {"interrupted": interrupted, "dataset_options": options}
    shown = max(repeats, key=lambda r: config.training.stopping.merit(r.run.best))
    with checkpoint.new_folder(folder, force=force) as draft:
        checkpoint.save_run(draft, graph, result, repeats, shown)
        checkpoint.write_text(draft / "report.html", render(_page(graph, result, repeats, shown, chosen)))
    if json_file:
        checkpoint.write_text(json_file, checkpoint.to_json(result))
    if interrupted:
        err.print("interrupted: the best state so far was kept and scored")
    _print_result(result, folder)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


@app.command("datasets")
def list_datasets(
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the Planetoid files.")] = None,
) -> None:
    """List the datasets: sizes, sources, and whether they are at hand."""
    table = _table("dataset", ">nodes", ">edges", ">features", ">classes", "at hand")
    for d in datasets.DATASETS.values():
        counts = (f"{c:,}" if isinstance(c, int) else c for c in (d.nodes, d.edges, d.features, d.classes))
        table.add_row(d.name, *counts, datasets.at_hand(d.name, data_dir))
    out.print(table)
    for d in datasets.DATASETS.values():
        options = f"; options {', '.join(d.options)}" if d.options else ""
        out.print(f"{d.name}: {d.summary} ({d.source}{options})", highlight=False)


@app.command("models")
def list_models() -> None:
    """List the models: what each is, where it was published, its parameters with defaults, and its presets."""
    for name, system in SYSTEMS.items():
        parameters = {key: s.default for key, s in settings_of(system.config).items()} | dict(system.fixed)
        presets = [f"{p} ({', '.join(known)})" for p in PRESETS if (known := preset_tables(p, name))]
        out.print(f"[bold]{name}[/bold]  {system.summary}", highlight=False, soft_wrap=True)
        for line in (
            system.paper,
            " ".join(f"{key}={value}" for key, value in parameters.items()),
            f"presets {', '.join(presets)}",
        ):
            out.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


@app.command("settings")
def list_settings(
    model: Annotated[str, typer.Option(help="A name from `nfcgcn models`.")] = "nfc-gcn",
) -> None:
    """List what `nfcgcn train --set KEY=VALUE` takes for a model, with defaults."""
    if model not in SYSTEMS:
        raise ConfigError(unknown("model", model, SYSTEMS))
    table = _table("setting", "meaning", "takes", "default")
    for config_class in (SYSTEMS[model].config, TrainingConfig, SplitConfig):
        for s in settings_of(config_class).values():
            default = SYSTEMS[model].fixed.get(s.name, s.default)
            table.add_row(s.name, s.meaning, s.type_name, "none" if default is None else f"{default}")
    out.print(table)


bench = typer.Typer(help="Time the kernels and the models.", no_args_is_help=True)
app.add_typer(bench, name="bench")
BENCHED = tuple(
    (d, a, c) for d in ("cora", "citeseer", "pubmed") for a, c in (("none", "1d"), ("tanh", "1d"), ("none", "2d"))
)


@bench.command("step")
def bench_one(
    dataset: Annotated[str, typer.Option(help="cora, citeseer, pubmed, or all of them in their variants.")] = "cora",
    activation: Annotated[str, typer.Option(help="none, tanh or relu.")] = "none",
    conv: Annotated[str, typer.Option(help="1d or 2d.")] = "1d",
    threads: Annotated[int, typer.Option(min=1, help="Threads of every system.")] = 2,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the Planetoid files.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")] = None,
) -> None:
    """Time a training step beside plain PyTorch and PyTorch Geometric; the kernels' contract is checked first."""
    from nfcgcn.benchmark import bench_step

    if json_file:
        checkpoint.check_writable(json_file)
    wanted = BENCHED if dataset == "all" else ((dataset, activation, conv),)
    results = []
    with err.status("") as status:
        for d, a, c in wanted:
            label = f"{d}, {a}, {c}"
            results.append(
                bench_step(
                    d,
                    activation=a,
                    conv=c,
                    threads=threads,
                    data_dir=data_dir,
                    say=lambda what, label=label: status.update(f"{label}: {what}"),  # type: ignore[misc]
                )
            )
    if json_file:
        checkpoint.write_text(json_file, checkpoint.to_json(results if dataset == "all" else results[0]))
    _print_bench(results)


@bench.command("models")
def bench_all_models(
    dataset: Annotated[str, typer.Option(help="cora, citeseer or pubmed.")] = "cora",
    threads: Annotated[int, typer.Option(min=1, help="Threads of every system.")] = 2,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the Planetoid files.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")] = None,
) -> None:
    """Time a training step of every model beside PyTorch Geometric's GCN."""
    from nfcgcn.benchmark import bench_models

    if json_file:
        checkpoint.check_writable(json_file)
    with err.status("") as status:
        result = bench_models(
            dataset, threads=threads, data_dir=data_dir, say=lambda what: status.update(f"{dataset}: {what}")
        )
    if json_file:
        checkpoint.write_text(json_file, checkpoint.to_json(result))
    steps = result["step_ms"]
    fastest = min(ms for name, ms in steps.items() if name not in SYSTEMS)
    table = _table(f"{dataset}, a training step", ">ms", ">of gcn", ">of PyG's GCN")
    for name, ms in steps.items():
        table.add_row(name, f"{ms:.2f}", f"{ms / steps['gcn']:.2f}", f"{ms / fastest:.2f}")
    out.print(table)
    out.print(f"{result['hardware']}, torch {result['versions']['torch']}", highlight=False)


def _print_bench(results: Sequence[dict[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("ms", no_wrap=True)
    for column in (
        "plain",
        "ours",
        "eval",
        "GCN",
        "GAT",
        "plain\n/ours",
        "ours\n/GCN",
        "ours\n/GAT",
        "plain\nMiB",
        "ours\nMiB",
    ):
        table.add_column(column, justify="right")

    def short(value: float) -> str:
        return f"{value:.0f}" if value >= 100 else f"{value:.1f}"

    for r in results:
        ours = r["ours_ms"]
        table.add_row(
            f"{r['dataset']} {r['activation']} {r['conv']}",
            *(short(r[key]) for key in ("plain_ms", "ours_ms", "ours_eval_ms", "pyg_gcn_ms", "pyg_gat_ms")),
            short(r["plain_ms"] / ours),
            f"{ours / r['pyg_gcn_ms']:.2f}",
            f"{ours / r['pyg_gat_ms']:.2f}",
            short(r["plain_mib"]),
            short(r["ours_mib"]),
        )
    out.print(table)
    out.print(f"{results[0]['hardware']}, torch {results[0]['versions']['torch']}", highlight=False)


def _device(name: str) -> torch.device:
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(unknown("device", name, ("auto", "cpu", "cuda")))
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device 'cuda' is not available to this PyTorch; use --device cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


@contextmanager
def _progress(total: int, epochs: int, first_seed: int) -> Iterator[Callable[[int, Epoch], None] | None]:
    """Show a bar on stderr, where that is a terminal."""
    if not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("training", total=total)

        def on_epoch(seed: int, epoch: Epoch) -> None:
            text = f"seed {seed}: loss {epoch['train_loss']:.3f}, validation {epoch['val_accuracy']:.1%}"
            bar.update(task, completed=(seed - first_seed) * epochs + epoch["epoch"], description=text)

        yield on_epoch


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
        per_class=class_scores(matrix, graph),
        shown_seed=shown.seed,
        embedding=(hidden.cpu().to_dense() if hidden.layout != torch.strided else hidden.cpu())[rows].numpy(),
        labels=graph.labels[nodes],
        predictions=shown.predictions[nodes],
    )


def _print_result(result: dict[str, Any], folder: Path) -> None:
    test, val = result["test_accuracy"], result["val_accuracy"]
    spread = "" if test["std"] is None else f" ± {100 * test['std']:.2f}"
    count = len(result["seeds"])
    out.print(
        f"test accuracy [bold]{100 * test['mean']:.2f}{spread} %[/bold] over {count} seed{'s' if count > 1 else ''} "
        f"(validation {100 * val['mean']:.2f} %), {result['seconds']:.1f} s on {result['device']}",
        highlight=False,
        soft_wrap=True,
    )
    out.print(f"report: {folder / 'report.html'}", highlight=False, soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return table


def _show_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    if issubclass(category, NFCWarning):
        print(f"warning: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, *where[:2]), end="", file=sys.stderr)
