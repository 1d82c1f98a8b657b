"""`nfcgcn pack`: graphs larger than memory as stores."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from nfcgcn import files
from nfcgcn.cli.console import Lines, app, err, interruptible, out
from nfcgcn.cli.sources import GraphSource, takes_graph
from nfcgcn.data.formats import find_tables
from nfcgcn.data.formats.tables import stem
from nfcgcn.data.packing import MEMORY, Progress, pack_tables
from nfcgcn.data.packing.generated import pack_citations
from nfcgcn.data.store import is_store, write_store
from nfcgcn.data.store.layout import read_meta
from nfcgcn.errors import ConfigError, visible
from nfcgcn.files import is_folder
from nfcgcn.settings import one_line, read_assignments

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@app.command()
@takes_graph
def pack(
    source: GraphSource,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder to write; it appears once it is complete.")],
    edge_table: Annotated[
        str | None, typer.Argument(metavar="[EDGES]", help="Table of edges, if GRAPH is a table of nodes.")
    ] = None,
    memory: Annotated[
        str, typer.Option(help="Memory for tables: DuckDB uses 60 % of it, and beyond that the disk.")
    ] = f"{MEMORY // 10**9}GB",
    hash_text: Annotated[
        int | None,
        typer.Option(help="Map each word of --text columns to one of so many features by its hash; learn no words."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier store in the --out folder.")] = False,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of the dataset.")
    ] = None,
) -> None:
    """Write a graph that may be larger than memory as a store, a folder that other commands take as GRAPH.

    GRAPH and EDGES are tables (.csv, .tsv, .parquet), or patterns of several, in quotes, such as "nodes-*.parquet".
    Without EDGES, GRAPH is a folder with both tables, `citations` (see --set), or any graph that fits into memory.
    """
    nodes, edges = _tables(source, edge_table)
    size = read_size(memory)
    settings = read_assignments(assignments or [])
    options: dict[str, Any] = {} if nodes is not None else source.take_options(settings)
    if settings:
        raise ConfigError(f"`--set` takes only options of the dataset here, got '{next(iter(settings))}'")
    if hash_text is not None and (nodes is None or not source.text):
        raise ConfigError("--hash-text is for tables with columns of --text; name them")
    files.check_free(out_dir, force=force, kind="store")
    with interruptible() as interruption, _shown() as progress:
        try:
            if nodes is not None and edges is not None:
                columns = {key: value for key, value in source.columns().items() if key != "edges"}
                own: dict[str, Any] = {"memory": size, "hash_text": hash_text, "force": force, "progress": progress}
                pack_tables(nodes, edges, out_dir, name=_folder_name(source), **own, **columns)
            elif source.dataset == "citations":
                pack_citations(out_dir, force=force, progress=progress, **options)
            else:
                graph = source.load(options)
                progress.show("writing", 0, 0)
                write_store(graph, out_dir, force=force)
        except KeyboardInterrupt:
            err.print("interrupted; nothing was written", soft_wrap=True)
            raise typer.Exit(interruption.exit_code) from None
    meta = read_meta(out_dir)
    form = "sparse" if meta.sparse else "dense"
    out.print(
        f"{out_dir}: {meta.nodes:,} nodes, {meta.edges:,} edges, {meta.features:,} {form} features, "
        f"{meta.classes} classes, {meta.size / 2**20:,.1f} MiB",
        soft_wrap=True,
    )


def _tables(source: GraphSource, edge_table: str | None) -> tuple[str | None, str | None]:
    """Return the tables of nodes and edges; None twice for a graph that is none of tables."""
    given = [str(path) for path in (edge_table, source.edges) if path is not None]
    nodes = source.graph if source.nodes is None else str(source.nodes)
    if len(given) == 2 or (source.nodes is not None and source.graph is not None):
        raise ConfigError("give the tables once: as GRAPH and EDGES, or with --nodes and --edges")
    if given:
        if nodes is None:
            raise ConfigError("name the table of nodes as GRAPH, before the table of edges")
        return nodes, given[0]
    if nodes is not None and source.path is not None and is_folder(Path(nodes)) and not is_store(Path(nodes)):
        tables = find_tables(Path(nodes))
        if tables[1] is not None:
            return str(tables[0]), str(tables[1])
    return None, None


def _folder_name(source: GraphSource) -> str | None:
    """Return the name of the folder that holds the tables, after which a graph is called; None for single tables."""
    folder = Path(source.graph or "")
    return stem(folder.resolve()) if source.graph is not None and is_folder(folder) else None


def read_size(text: str) -> int:
    """Read a size such as 2GB or 1.5GiB as bytes."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([kmgt]i?|)b?", text.strip().lower())
    if match is None:
        raise ConfigError(f"--memory takes a size such as 2GB, got '{one_line(text)}'")
    return int(float(match[1]) * UNITS[match[2]])


@contextmanager
def _shown() -> Iterator[Progress]:
    """Show how far packing is: one changing line in a terminal, a line every ten seconds or so elsewhere."""
    lines, stop, text = Lines(), threading.Event(), "reading"

    def tick() -> None:
        while not stop.wait(1.0):
            lines.show(lambda: text)

    with err.status(text) as status:

        def show(stage: str, done: int, total: int) -> None:
            nonlocal text
            text = visible(f"{stage}: {done:,} of {total:,}" if total else stage)
            status.update(text)

        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        try:
            yield Progress(show)
        finally:
            stop.set()
            ticker.join()
