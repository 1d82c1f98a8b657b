"""`nfcgcn predict` and `embed`: use a trained model on any graph with the same features."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from nfcgcn import files
from nfcgcn.cli.console import DEVICES, MOST_DRAWS, MOST_SEED, Lines, among, app, err, out, warn_of_formulas
from nfcgcn.cli.prediction_files import BLOCK, Block, check_kind, ids_of, write_predictions
from nfcgcn.cli.sources import GraphSource, extend_graph, read_graph, takes_graph
from nfcgcn.config.registry import MODELS, make_config
from nfcgcn.errors import ConfigError, unknown
from nfcgcn.graph import Floats, Graph, Ints, check_finite
from nfcgcn.inference import checkpoint
from nfcgcn.inference import prediction as inference
from nfcgcn.inference.checkpoint import SavedRun
from nfcgcn.inference.pieces import compute, in_pieces
from nfcgcn.inference.prediction import LAYERS
from nfcgcn.kernels.threads import one_pool
from nfcgcn.settings import read_assignments
from nfcgcn.training import choose_device
from nfcgcn.training.ranks import device_of_rank, is_first, joined

LONGEST_ID = 1000
"""Most characters of an id in an .npz file, in which every text takes as much room as the longest."""

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `nfcgcn train` wrote.")]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the dataset; by default as in the run."),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.", autocompletion=among(DEVICES))]


@app.command()
@takes_graph
def predict(
    run: RunArgument,
    source: GraphSource,
    out_file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The .csv or .parquet file to write.")],
    draws: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_DRAWS, help="Average over this many draws of neighbours and add a column `uncertainty`."
        ),
    ] = 1,
    add_nodes: Annotated[
        Path | None, typer.Option("--add-nodes", help="Table of new nodes, with the columns of the run's own table.")
    ] = None,
    add_edges: Annotated[
        Path | None, typer.Option("--add-edges", help="Table of new edges, between any nodes, old or new.")
    ] = None,
    only_missing: Annotated[bool, typer.Option("--only-missing", help="Leave out nodes that have a label.")] = False,
    assignments: OptionsOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Write the class of each node, and the probability of every class, to a CSV or Parquet file.

    Further columns: the probability of the class (`confidence`), how far it is ahead of the second (`margin`), the
    label that the graph has (`true_label`), and whether the run used the node to train, val or test (`split`).

    Without GRAPH, the run's own graph is read again, from the same files; changed files are refused. Another graph
    must have the same features. With --draws the column `uncertainty` holds the standard deviation, over the draws, of
    the probability of the node's class.
    """
    chosen = device_of_rank(choose_device(device))
    check_kind(out_file)
    saved = checkpoint.load_run(run)
    if is_first():
        files.check_writable(out_file, [*source.inputs(saved), *filter(None, (add_nodes, add_edges))])
    else:
        err.quiet = out.quiet = True
    graph = extend_graph(saved, read_graph(saved, source, assignments or []), add_nodes, add_edges)
    shown = np.flatnonzero(graph.labels < 0) if only_missing else np.arange(graph.num_nodes)
    with joined(chosen) as ranks:
        block = _blocks(saved, graph, draws, chosen, out_file)
        if not ranks.is_first:
            return
        classes = write_predictions(out_file, saved, graph, shown, block)
        for line in _summary(saved, graph, classes, shown):
            out.print(line, highlight=False, markup=False, soft_wrap=True)
        out.print(f"predictions: {out_file}", highlight=False, markup=False, soft_wrap=True)


def _blocks(run: SavedRun, graph: Graph, draws: int, device: torch.device, out_file: Path) -> Callable[[Ints], Block]:
    """Return what gives the probabilities of some nodes; of a graph in a store they are never all in memory."""
    if draws == 1 and in_pieces(run.model, graph):
        with one_pool():
            folder = out_file.resolve().parent if is_first() else None
            scores = compute(run.model, graph, device=device, folder=folder, say=_say())
            check_finite(torch.from_numpy(scores), f"the class scores of some nodes of '{graph.name}'")
        return lambda nodes: (inference.softmax(run.model, torch.from_numpy(scores[nodes])), None)
    prediction = inference.predict_proba(run.model, graph, draws=draws, device=device)
    if prediction.draws < draws:
        err.print(f"{run.model_name} reads all neighbours: there is nothing to draw, and the uncertainty is 0")
    uncertainty = prediction.uncertainty if draws > 1 else None
    return lambda nodes: (prediction.probabilities[nodes], None if uncertainty is None else uncertainty[nodes])


def _say() -> Callable[[int, int], None]:
    """Return what hears of progress: a line now and then, also in a terminal."""
    lines = Lines()
    return lambda done, total: lines.show(f"{done:,} of {total:,} rows of all layers")


@app.command()
@takes_graph
def embed(
    *,
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="A folder that `nfcgcn train` wrote; left out with --model.")
    ] = None,
    source: GraphSource,
    out_file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The .npz, .parquet or .csv file to write.")],
    layer: Annotated[
        str,
        typer.Option(
            help="last: the input of the last layer, h(K-1); first: the node-feature convolution's output, h(0); "
            "scores: class scores before the softmax, h(K)."
        ),
    ] = "last",
    model: Annotated[
        str | None,
        typer.Option(help="Without a RUN: learn vectors from the edges of GRAPH alone, by deepwalk, node2vec, ..."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=MOST_SEED, help="With --model: the seed (default 0).")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of the dataset; with --model also a setting."),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Write a representation of each node: .npz (`ids`, `embedding`), .parquet or .csv (columns `id`, `h0`, ...).

    The representation is that of a trained RUN or, with --model, learned from the edges of GRAPH alone.
    """
    writers = {".npz": _write_npz, ".parquet": _write_parquet, ".csv": _write_csv}
    check_kind(out_file, tuple(writers))
    if layer not in LAYERS:
        raise ConfigError(unknown("layer", layer, LAYERS))
    chosen = choose_device(device)
    if model is not None:
        if layer != "last":
            raise ConfigError(f"--layer {layer} needs a RUN; a --model has one vector per node")
        graph, embedding = _learn(model, run, source, seed or 0, read_assignments(assignments or []), out_file)
    elif run is None:
        raise ConfigError("name the RUN whose representation to write, or a --model that learns one from edges alone")
    elif seed is not None:
        raise ConfigError("--seed needs --model; a RUN has its own seed")
    else:
        saved = checkpoint.load_run(run)
        files.check_writable(out_file, source.inputs(saved))
        graph = read_graph(saved, source, assignments or [])
        embedding = inference.embed(saved.model, graph, layer, device=chosen)  # type: ignore[arg-type]
    writers[out_file.suffix](out_file, graph, embedding)
    shape = f"{embedding.shape[0]} nodes x {embedding.shape[1]} numbers"
    out.print(f"embedding: {out_file}, {shape}", highlight=False, markup=False, soft_wrap=True)


def _learn(
    model: str, first: Path | None, source: GraphSource, seed: int, settings: dict[str, str], out_file: Path
) -> tuple[Graph, Floats]:
    """Return the graph, which is then the first argument, and the vectors that a model without features learns."""
    if first is not None and source.graph is not None:
        raise ConfigError(f"with --model there is no RUN; got '{first}' beside the GRAPH '{source.graph}'")
    source = source if first is None else replace(source, graph=str(first))
    options = source.take_options(settings)
    make_config(model, dataset=source.dataset, settings=settings)
    if MODELS[model].model.reads_features:
        ways = ", ".join(name for name, entry in MODELS.items() if not entry.model.reads_features)
        raise ConfigError(
            f"{model} must be trained first (`nfcgcn train --model {model}`); edges alone suffice for {ways}"
        )
    files.check_writable(out_file, source.inputs())
    graph = source.load(options)
    config = make_config(model, dataset=source.dataset, graph=graph, settings=settings)
    config.check_memory(graph)
    with err.status(f"learning the vectors of {graph.num_nodes} nodes"):
        net = config.build_for(graph.num_features, max(1, graph.num_classes), seed=seed)
        return graph, inference.embed(net, graph)


def _summary(run: SavedRun, graph: Graph, classes: Ints, shown: Ints) -> Iterator[str]:
    counts = np.bincount(classes, minlength=run.num_classes)
    shares = ", ".join(f"{run.class_name(c)}: {count}" for c, count in enumerate(counts.tolist()))
    if len(shown) < graph.num_nodes:
        yield f"{len(shown)} of {graph.num_nodes} nodes have no label; {shares}"
        return
    yield f"{graph.num_nodes} nodes; {shares}"
    labels = run.read_labels(graph)
    labelled = int((graph.labels >= 0).sum())
    if labelled:
        met = int(((labels == classes) & (labels >= 0)).sum())
        yield (
            f"{met} of the {labelled} labelled nodes get their own label, {100 * met / labelled:.2f} %; "
            "this is no test accuracy if the run was trained on some of them"
        )
    if foreign := labelled - int((labels >= 0).sum()):
        yield f"{foreign} of the labels are classes that the run does not know, and count as wrong"


def _ids(graph: Graph) -> Sequence[str] | Sequence[int]:
    return range(graph.num_nodes) if graph.node_names is None else graph.node_names


def _write_npz(path: Path, graph: Graph, embedding: Floats) -> None:
    ids: Any = np.arange(graph.num_nodes) if graph.node_names is None else graph.node_names
    longest = max(map(len, graph.node_names or ("",)), default=0)
    if longest > LONGEST_ID:
        raise ConfigError(f"an id of {longest} characters is too long for .npz, {LONGEST_ID} are allowed; use .parquet")
    with files.new_file(path) as file:
        np.savez(file, ids=np.asarray(ids), embedding=embedding)


def _write_parquet(path: Path, graph: Graph, embedding: Floats) -> None:
    import pyarrow
    import pyarrow.parquet

    with files.new_file(path) as file:
        writer: Any = None
        try:
            for at in range(0, max(1, graph.num_nodes), BLOCK):
                nodes = np.arange(at, min(at + BLOCK, graph.num_nodes))
                numbers = {f"h{i}": column for i, column in enumerate(embedding[nodes].T)}
                table = pyarrow.table({"id": ids_of(graph, nodes), **numbers})
                writer = writer or pyarrow.parquet.ParquetWriter(file, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()


def _write_csv(path: Path, graph: Graph, embedding: Floats) -> None:
    """Write every number with the digits that bring its bits back."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["id", *(f"h{i}" for i in range(embedding.shape[1]))])
    for name, row in zip(_ids(graph), embedding, strict=True):
        rows.writerow([name, *(str(number) for number in row)])
    files.write_text(path, text.getvalue())
    warn_of_formulas(map(str, _ids(graph)))
