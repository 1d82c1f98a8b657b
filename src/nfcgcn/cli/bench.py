"""`nfcgcn bench`: measure the time of training steps, and of the page of `explore`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.status import Status

from nfcgcn import files
from nfcgcn.cli.bench_tables import print_scale, print_steps
from nfcgcn.cli.console import Application, Lines, app, err, make_table, out
from nfcgcn.cli.sources import GraphSource, read_graph, takes_graph
from nfcgcn.config.registry import MODELS
from nfcgcn.errors import ConfigError
from nfcgcn.settings import read_number
from nfcgcn.training import choose_device

bench = Application(help="Measure the time of the kernels, the models and the page of `explore`.", no_args_is_help=True)
app.add_typer(bench, name="bench")
BENCHED = tuple(
    (d, a, c) for d in ("cora", "citeseer", "pubmed") for a, c in (("none", "1d"), ("tanh", "1d"), ("none", "2d"))
)


@bench.command("step")
def bench_one(
    dataset: Annotated[
        str, typer.Option(help="cora, citeseer, pubmed; or all, for all of them in several variants.")
    ] = "cora",
    activation: Annotated[str, typer.Option(help="none, tanh or relu.")] = "none",
    conv: Annotated[str, typer.Option(help="1d or 2d.")] = "1d",
    threads: Annotated[int, typer.Option(min=1, help="Threads of every implementation, on the CPU.")] = 2,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the Planetoid files.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> None:
    """Compare the time of a training step with plain PyTorch and PyTorch Geometric.

    The kernels are first checked against the plain formulas. On a GPU a step includes Adam, and ours runs as a CUDA
    graph.
    """
    on_gpu = choose_device(device).type == "cuda"

    if json_file:
        files.check_writable(json_file)
    wanted = BENCHED if dataset == "all" else ((dataset, activation, conv),)
    results = []
    with err.status("") as status:
        for d, a, c in wanted:
            label = f"{d}, {a}, {c}"
            say = partial(_show, status, label)
            if on_gpu:
                from nfcgcn.bench.gpu_step import bench_gpu_step

                results.append(bench_gpu_step(d, activation=a, conv=c, data_dir=data_dir, say=say))
            else:
                from nfcgcn.bench.step import bench_step

                results.append(bench_step(d, activation=a, conv=c, threads=threads, data_dir=data_dir, say=say))
    if json_file:
        files.write_text(json_file, files.to_json(results if dataset == "all" else results[0]))
    print_steps(results)


def _show(status: Status, label: str, what: str) -> None:
    status.update(f"{label}: {what}")


@bench.command("models")
def bench_all_models(
    dataset: Annotated[str, typer.Option(help="cora, citeseer or pubmed.")] = "cora",
    threads: Annotated[int, typer.Option(min=1, help="Threads of every implementation.")] = 2,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the Planetoid files.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> None:
    """Compare the time of a training step of every model with PyTorch Geometric's GCN."""
    from nfcgcn.bench.step import bench_models

    if json_file:
        files.check_writable(json_file)
    with err.status("") as status:
        result = bench_models(
            dataset, threads=threads, data_dir=data_dir, say=lambda what: status.update(f"{dataset}: {what}")
        )
    if json_file:
        files.write_text(json_file, files.to_json(result))
    steps = result["step_ms"]
    fastest = min(ms for name, ms in steps.items() if name not in MODELS)
    table = make_table(f"{dataset}, a training step", ">ms", ">of gcn", ">of PyG's GCN")
    for name, ms in steps.items():
        table.add_row(name, f"{ms:.2f}", f"{ms / steps['gcn']:.2f}", f"{ms / fastest:.2f}")
    out.print(table)
    out.print(f"{result['hardware']}, torch {result['versions']['torch']}", highlight=False)


@bench.command("busy")
def bench_beside_others(
    dataset: Annotated[str, typer.Option(help="cora, citeseer, pubmed or digits.")] = "cora",
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds to train per measurement.")] = 4.0,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the Planetoid files.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> None:
    """Compare the time of an epoch on a quiet machine, beside busy processes, and on one core.

    "busy" means one other busy process per core, "very busy" two. A fair share is then a half or a third of a core.
    """
    from nfcgcn.bench.busy import SYSTEMS, bench_busy

    if json_file:
        files.check_writable(json_file)
    with err.status("") as status:
        result = bench_busy(dataset, seconds=seconds, data_dir=data_dir, say=status.update)
    if json_file:
        files.write_text(json_file, files.to_json(result))
    table = make_table(f"{dataset}, an epoch", *(f">{name}" for s in SYSTEMS for name in (f"{s} ms", "of quiet")))
    quiet = result["ms_per_epoch"]["quiet"]
    for situation, times in result["ms_per_epoch"].items():
        table.add_row(situation, *(text for s in SYSTEMS for text in (f"{times[s]:.2f}", f"{times[s] / quiet[s]:.2f}")))
    out.print(table)
    out.print(f"{result['hardware']}, {result['cores']} cores, torch {result['versions']['torch']}")


@bench.command("walks")
@takes_graph
def bench_random_walks(
    *,
    source: GraphSource,
    num_walks: Annotated[int, typer.Option(min=1, help="Walks from each node.")] = 80,
    walk_length: Annotated[int, typer.Option(min=2, help="Nodes per walk.")] = 40,
    width: Annotated[int, typer.Option(min=1, help="Numbers per vector.")] = 128,
    window: Annotated[int, typer.Option(min=1, help="How far apart the nodes of a pair may be.")] = 10,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every implementation.")] = 2,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> None:
    """Compare the time of DeepWalk's vectors with gensim's word2vec on the same walks, if gensim is installed."""
    from nfcgcn.bench.walks import GENSIM_MISSING, bench_walks

    if json_file:
        files.check_writable(json_file)
    sizes = {"num_walks": num_walks, "walk_length": walk_length, "width": width, "window": window}
    graph = source.load()
    with err.status("") as status:
        result = bench_walks(graph, **sizes, threads=threads, say=status.update)
    if json_file:
        files.write_text(json_file, files.to_json(result))
    title = f"{graph.name}: {num_walks} walks of {walk_length} nodes, {width} numbers, window {window}"
    table = make_table(title, ">seconds", ">of gensim", ">CPU seconds", ">of gensim")
    theirs = result["gensim_s"]
    rows = {"walks alone": "walks", "walks and skip-gram": "ours", "gensim's word2vec, without walks": "gensim"}
    for name, key in rows.items():
        if result[f"{key}_s"] is not None:
            times = [(result[f"{key}_{unit}"], result[f"gensim_{unit}"]) for unit in ("s", "cpu_s")]
            cells = [(f"{own:.2f}", f"{own / other:.2f}" if other else "") for own, other in times]
            table.add_row(name, *(text for pair in cells for text in pair))
    out.print(table)
    if theirs is None:
        out.print(f"no comparison: {GENSIM_MISSING}", highlight=False, markup=False)
    out.print(f"{result['hardware']}, {threads} threads", highlight=False)


@bench.command("scale")
def bench_mini_batches(
    stores: Annotated[
        list[Path] | None, typer.Argument(metavar="[STORE]...", help="Stores; by default some are generated.")
    ] = None,
    nodes: Annotated[
        str, typer.Option(help="Without STORE: sizes of generated citation graphs, such as 100000,1000000.")
    ] = "100000,1000000",
    batch_size: Annotated[int, typer.Option(min=1, help="Training nodes per step.")] = 1024,
    fan_out: Annotated[str, typer.Option(help="Neighbours per node and graph convolution, as in 10 or 15,10.")] = "10",
    num_batches: Annotated[int, typer.Option("--batches", min=1, help="Steps per measurement.")] = 20,
    num_layers: Annotated[int, typer.Option("--layers", min=0, help="Graph convolutions.")] = 2,
    inference: Annotated[bool, typer.Option("--inference", help="Also compute the scores of all nodes.")] = False,
    pack: Annotated[
        bool, typer.Option("--pack", help="Without STORE: write Parquet tables first, and measure how they are packed.")
    ] = False,
    memory: Annotated[str, typer.Option(help="With --pack: its memory, as for `nfcgcn pack`.")] = "2GB",
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Write generated stores and tables into this folder, and keep them.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> None:
    """Measure mini-batches: from a store and from memory, as the graph grows, and by two processes instead of one.

    Each process has one core; "cold" means that nothing of the store is in the file cache.
    """
    from nfcgcn.bench.scale import PYG_MISSING, bench_scale, pack_written_tables, write_citations
    from nfcgcn.cli.pack import read_size
    from nfcgcn.training import TrainingConfig

    TrainingConfig(fan_out=fan_out)  # type: ignore[arg-type]  # which refuses what is none
    sizes = [read_number("--nodes", text) for text in nodes.split(",")]
    if not all(isinstance(size, int) and size >= 100 for size in sizes):
        raise ConfigError(f"`--nodes` must be whole numbers from 100 up, as in 100000,1000000, got '{nodes}'")
    if stores and (pack or keep):
        raise ConfigError("--pack and --keep are for generated graphs; leave out either STORE or these options")
    bytes_to_pack = read_size(memory)
    for path in (json_file, keep and keep / "tables"):
        if path:
            files.check_writable(path)
    lines = Lines()

    def say(what: str) -> None:
        status.update(what)
        lines.show(what)

    packed: list[dict[str, Any]] = []
    with TemporaryDirectory(prefix="nfcgcn-") as temporary, err.status("") as status:
        folder = keep or Path(temporary)
        if not stores:
            stores = []
            for size in map(int, sizes):
                if pack:
                    store, figures = pack_written_tables(folder, size, memory=bytes_to_pack, say=say)
                    packed.append(figures)
                else:
                    say(f"generating {size:,} nodes")
                    store = write_citations(folder, size)
                stores.append(store)
        result = bench_scale(
            stores,
            batch_size=batch_size,
            fan_out=fan_out,
            num_batches=num_batches,
            num_layers=num_layers,
            inference=inference,
            say=say,
        )
    for figures_of_store, figures in zip(result["stores"], packed, strict=False):
        figures_of_store["pack"] = figures
    if json_file:
        files.write_text(json_file, files.to_json(result))
    print_scale(result)
    if result["stores"][0]["sampling"]["pyg_ms_per_batch"] is None:
        out.print(f"no comparison of drawing: {PYG_MISSING}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"{result['hardware']}, torch {result['versions']['torch']}", highlight=False)


@bench.command("explore")
@takes_graph
def bench_page(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `nfcgcn train` wrote.")],
    *,
    source: GraphSource,
    num_nodes: Annotated[
        int, typer.Option("--sample", min=1, help="Random nodes to ask about, beside the five hubs.")
    ] = 20,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of panning.")] = 3.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> None:
    """Measure the page of `nfcgcn explore` in a headless Chromium: first picture, nodes, changes, panning, memory.

    It needs playwright and Chromium. The probabilities and reasons that the page shows are compared with those of
    `predict` and `explain`, and after 50 random clicks and changes the errors on the console are counted.
    """
    from nfcgcn.bench.explore import bench_explore
    from nfcgcn.inference import checkpoint

    if json_file:
        files.check_writable(json_file)
    saved = checkpoint.load_run(run)
    graph = read_graph(saved, source, [])
    with err.status("") as status:
        result = bench_explore(saved, graph, num_nodes=num_nodes, seconds=seconds, say=status.update)
    if json_file:
        files.write_text(json_file, files.to_json(result))
    table = make_table(f"the page of {result['model']} on {result['graph']}", ">median", ">worst")
    times = {
        "first picture, ms": result["first_picture_ms"],
        "a node, ms": result["node_ms"]["nodes"],
        "a hub, ms": result["node_ms"]["hubs"],
        **{f"{change}, ms": ms for change, ms in result["what_if_ms"].items()},
    }
    for name, ms in times.items():
        table.add_row(name, f"{median(ms):.0f}", f"{max(ms):.0f}")
    pan = result["pan"]
    table.add_row("a frame while panning, ms", f"{pan['median_ms']:.0f}", f"{pan['slowest_ms']:.0f}")
    out.print(table)
    lines = (
        f"panning: {pan['frames_per_s']:.0f} frames per second",
        f"memory: {result['page_mib']:.0f} MiB of the page's process, {result['heap_mib']:.0f} of its scripts, "
        f"{result['browser_mib']:.0f} of the whole browser",
        f"errors on the console: {len(result['console_errors'])}; "
        f"nodes unlike predict or explain: {len(result['nodes_unlike_predict_or_explain'])}",
        f"{result['browser']}, {result['renderer']}, {result['hardware']}",
    )
    for line in lines:
        out.print(line, highlight=False, markup=False, soft_wrap=True)
