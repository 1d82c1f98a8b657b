"""The argument GRAPH of every command: the name of a dataset, or a graph of the user's own."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from rich.markup import escape

from nfcgcn import data as datasets
from nfcgcn.cli.console import among, err
from nfcgcn.data.formats import add_tables
from nfcgcn.data.formats.edges import UnknownEdges
from nfcgcn.data.formats.tables import stem
from nfcgcn.data.structure import STRUCTURES
from nfcgcn.errors import ConfigError, UnseenWarning, visible
from nfcgcn.graph import Graph
from nfcgcn.inference.checkpoint import SavedGraph
from nfcgcn.inference.run_tables import files_of, remember_tables, remembered_paths
from nfcgcn.settings import read_assignments, read_number

TABLES = "Tables of your own"
"""The heading of the options about tables in the help of a command."""
PLACES = ("graph", "data_dir", "nodes", "edges")
"""The options of `GraphSource` that say where a graph is; the others say how it is read."""


@dataclass(frozen=True)
class GraphSource:
    """The options that choose a graph; each field is an option of every command that takes a graph."""

    graph: Annotated[
        str | None,
        typer.Argument(
            metavar="GRAPH",
            help="A name from `nfcgcn datasets`, an .npz or .pt file, a store, or a folder with tables nodes.csv and "
            "edges.csv.",
            autocompletion=among(datasets.DATASETS),  # where none fits, shells offer files
        ),
    ] = None
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the Planetoid files.")] = None
    nodes: Annotated[Path | None, typer.Option(help="Table of nodes, .csv, .tsv or .parquet, instead of GRAPH.")] = None
    edges: Annotated[Path | None, typer.Option(help="Table of edges, with --nodes.")] = None
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column with the node ids; by default id, or the first.")
    ] = None
    label: Annotated[list[str] | None, typer.Option(help="Column with the classes; by default label.")] = None
    text: Annotated[list[str] | None, typer.Option(help="Column to read as text; may be repeated.")] = None
    words: Annotated[list[str] | None, typer.Option(help="Column to read as lists of words; may be repeated.")] = None
    ignore: Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.")] = None
    source_column: Annotated[
        str | None, typer.Option("--source", help="Column with the first node of an edge; by default source.")
    ] = None
    target_column: Annotated[
        str | None, typer.Option("--target", help="Column with the second node of an edge; by default target.")
    ] = None
    weight: Annotated[str | None, typer.Option(help="Column of edges with their weights, from 0 up.")] = None
    directed: Annotated[
        bool, typer.Option("--directed", help="Edges have directions; models read them both ways, and a line says so.")
    ] = False
    unknown_edges: Annotated[
        str | None,
        typer.Option(
            help="Edges to ids without a node: error (the default), drop, or add the node.",
            autocompletion=among(get_args(UnknownEdges)),
        ),
    ] = None
    structure: Annotated[
        str | None,
        typer.Option(
            "--features",
            help=f"Features to make from the edges: {', '.join(STRUCTURES)}.",
            autocompletion=among(STRUCTURES),
        ),
    ] = None

    @property
    def path(self) -> str | None:
        """The path of the user's own graph; None for a dataset."""
        if self.nodes is not None:
            if self.graph is not None:
                raise ConfigError(f"give GRAPH or --nodes, not both; got '{self.graph}' and --nodes {self.nodes}")
            return str(self.nodes)
        return self.graph if self.graph is not None and datasets.is_own(self.graph) else None

    @property
    def name(self) -> str:
        """The name of the dataset, or of the file, so that it can be part of a folder's name."""
        if self.path is None:
            return self.graph or "digits"
        return re.sub(r"[^\w.-]+", "_", stem(Path(self.path).resolve())).strip("._")[:60] or "graph"

    @property
    def dataset(self) -> str | None:
        """The built-in dataset, whose presets apply; None for a user's own graph."""
        return self.name if self.path is None else None

    def take_options(self, settings: dict[str, str]) -> dict[str, int | float]:
        """Remove the options of the dataset from `settings` and return them as numbers."""
        known = () if self.path is not None else datasets.describe(self.name).options
        return {key: read_number(key, settings.pop(key)) for key in known if key in settings}

    def load(self, options: Mapping[str, Any] | None = None, *, encoding: Mapping[str, Any] | None = None) -> Graph:
        """Read the graph; with the ``encoding`` of a run, read tables as they were read for that run."""
        columns = self.columns()
        if self.path is not None:
            with err.status(f"reading {escape(self.path)}"):
                graph = datasets.load(Path(self.path), **columns, encoding=encoding)
            if graph.reading:
                err.print(visible(graph.reading), highlight=False, markup=False, soft_wrap=True)
            return graph
        if columns:
            option = next(iter(columns)).replace("_", "-")
            remedy = "name them with --nodes, --edges" if self.graph is None else f"'{self.graph}' has none"
            raise ConfigError(f"--{option} is for tables of nodes and edges; {remedy}")
        return datasets.load(self.name, data_dir=self.data_dir, **(options or {}))

    def remember(self) -> dict[str, Any] | None:
        """Return where the graph was read from, for the run's folder; None for a dataset."""
        if self.path is None:
            return None
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in PLACES}
        options = {name: value for name, value in own.items() if value is not None}
        return remember_tables(Path(self.path), self.edges, options)

    def inputs(self, run: SavedGraph | None = None) -> list[Path]:
        """Return the files that the graph is read from: without GRAPH, those of the run. No output may be one."""
        if self.path is not None:
            return [*files_of(Path(self.path), self.edges).values()]
        tables = (run and run.tables) or {}
        return [Path(tables[name]["path"]) for name in ("nodes", "edges") if name in tables]

    def columns(self) -> dict[str, Any]:
        """Return the options about tables under the names that `read_tables` has for them."""
        options = {
            "edges": self.edges,
            "id": self.id_column,
            "label": self.label,
            "text": self.text,
            "words": self.words,
            "ignore": self.ignore,
            "source": self.source_column,
            "target": self.target_column,
            "weight": self.weight,
            "directed": self.directed,
            "unknown_edges": self.unknown_edges,
            "features": self.structure,
        }
        return {key: value for key, value in options.items() if value}


def takes_options(kind: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter ``source`` of a command by one option per field of `kind`, a dataclass."""
    options = get_type_hints(kind, include_extras=True)
    for name in options.keys() - {"graph", "dataset", "data_dir", "download"}:
        options[name].__metadata__[0].rich_help_panel = TABLES

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        parameters = []
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name != "source":
                parameters.append(parameter.replace(annotation=hints[parameter.name], kind=parameter.KEYWORD_ONLY))
                continue
            parameters += [
                inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=options[f.name])
                for f in fields(kind)
            ]

        def wrapped(**values: Any) -> None:
            source = kind(**{f.name: values.pop(f.name) for f in fields(kind)})
            command(source=source, **values)

        wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapped

    return decorate


takes_graph = takes_options(GraphSource)
"""Replaces the parameter ``source`` of a command by the options of `GraphSource`."""


def read_graph(run: SavedGraph, source: GraphSource, assignments: Sequence[str]) -> Graph:
    """Read a graph to use a run on, in the same way as the run's own graph; refuse a graph with other features.

    A dataset keeps the options of the run, unless they are given. Without GRAPH, the dataset of the run is read.
    """
    if source == GraphSource(data_dir=source.data_dir):
        if run.tables is not None and not assignments:
            return _read_remembered(run, run.tables)
        if run.dataset_options is None or run.dataset not in datasets.DATASETS:
            raise ConfigError(f"name the GRAPH; nfcgcn does not include that of the run, '{run.dataset}'")
        source = replace(source, graph=run.dataset)
    settings = read_assignments(assignments)
    options = source.take_options(settings)
    if settings:
        raise ConfigError(f"`--set` takes only options of the dataset here, got '{next(iter(settings))}'")
    if source.dataset == run.dataset:
        options = {**(run.dataset_options or {}), **options}
    graph = source.load(options, encoding=run.encoding)
    run.check_features(graph)
    return graph


def _read_remembered(run: SavedGraph, memory: Mapping[str, Any]) -> Graph:
    """Read the graph of the run again, from the files that it was trained on."""
    nodes, edges = remembered_paths(memory)
    options = {f.name: memory["options"].get(f.name, f.default) for f in fields(GraphSource) if f.name not in PLACES}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenWarning)  # rare words of the very table that was trained on
        graph = GraphSource(nodes=nodes, edges=edges, **options).load(encoding=run.encoding)
    run.check_features(graph)
    return graph


def extend_graph(run: SavedGraph, graph: Graph, nodes: Path | None, edges: Path | None) -> Graph:
    """Return the graph with new nodes and edges from tables, read as the run's own were."""
    if nodes is None and edges is None:
        return graph
    if run.encoding is None or graph.node_names is None:
        raise ConfigError("--add-nodes and --add-edges are for runs on tables of nodes and edges; this run has none")
    return add_tables(graph, nodes, edges, encoding=run.encoding)
