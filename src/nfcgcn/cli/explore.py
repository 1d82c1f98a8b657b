"""`nfcgcn explore`."""

from __future__ import annotations

import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from nfcgcn import files
from nfcgcn.cli.console import MOST_DRAWS, app, err, interruptible, out
from nfcgcn.cli.run_page import write_run_page
from nfcgcn.cli.sources import GraphSource, read_graph, takes_graph
from nfcgcn.errors import ConfigError
from nfcgcn.inference import checkpoint

if TYPE_CHECKING:
    from nfcgcn.explore import Server

SUFFIXES = (".html", ".gexf")


@app.command()
@takes_graph
def explore(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A folder that `nfcgcn train` wrote; or a GRAPH alone.")
    ] = None,
    *,
    source: GraphSource,
    node: Annotated[str | None, typer.Option(metavar="ID", help="The node to show first.")] = None,
    draws: Annotated[
        int, typer.Option(min=1, max=MOST_DRAWS, help="Draws of neighbours for the spread of probabilities.")
    ] = 10,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="Write one .html file that needs no server, or the graph as .gexf, and end."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Open a page on this machine that shows the graph and answers questions about the model.

    Without a RUN, it shows a graph before any training. Ctrl-C ends it. Nothing changes, except that the run's folder
    keeps the layout of the picture.
    """
    from nfcgcn.explore import Explorer, Server, Subject, page_file, to_gexf
    from nfcgcn.reports import EXPLORED

    if out_file is not None and out_file.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out must end in {' or '.join(SUFFIXES)}, got '{out_file.name}'")
    saved, source = _take_run(run, source)
    if out_file is not None:
        files.check_writable(out_file, source.inputs(saved))
    graph = source.load() if saved is None else read_graph(saved, source, [])
    explorer = Explorer(Subject(graph, saved, draws), folder=None if saved is None else saved.folder)
    first = None if node is None else graph.find_node(node)
    with err.status("arranging the graph and asking the model"):
        explorer.prepare()
    if out_file is not None and out_file.suffix.lower() == ".gexf":
        files.write_text(out_file, to_gexf(explorer))
    elif out_file is not None:
        with err.status("collecting answers") as status:
            text = page_file(
                explorer, first=first, on_answer=lambda n, of: status.update(f"collecting answers: {n} of {of}")
            )
        files.write_text(out_file, text)
        if saved is not None and out_file.resolve() == (saved.folder / EXPLORED).resolve():
            write_run_page(saved.folder)  # which links to it
    else:
        _serve(Server(explorer, start=node), browser=browser)
        return
    out.print(Text(f"written: {out_file}"), soft_wrap=True)


def _take_run(run: str | None, source: GraphSource) -> tuple[checkpoint.SavedRun | None, GraphSource]:
    """Tell a run from a graph that stands in its place."""
    if run is None:
        if source == GraphSource(data_dir=source.data_dir):
            raise ConfigError("name a RUN, or a GRAPH to look at before training")
        return None, source
    is_graph = source.graph is None and not (Path(run) / checkpoint.CONFIG).exists() and not _was_run(Path(run))
    if is_graph:
        return None, replace(source, graph=run)
    return checkpoint.load_run(run), source


def _was_run(folder: Path) -> bool:
    """Return whether a run that a killed process was replacing is there again."""
    files.recover(folder)
    return (folder / checkpoint.CONFIG).exists()


def _serve(server: Server, *, browser: bool) -> None:
    with server, interruptible():
        out.print(Text(f"open {server.link}"), soft_wrap=True)
        out.print(Text("Ctrl-C ends it; the link works only on this machine"), soft_wrap=True)
        if browser and out.is_terminal:
            webbrowser.open(server.link)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            out.print(Text("ended"))
