"""What all commands share: the two consoles, tables, the device, the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from nfcgcn.training import Epoch
from nfcgcn.training import choose_device as choose_device

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""

app = typer.Typer(
    help="Learning on graphs whose nodes carry features, with NFC-GCN.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)


@contextmanager
def training_bar(total: int) -> Iterator[Callable[[int, Epoch], None] | None]:
    """Show a progress bar on stderr, if that is a terminal."""
    if not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("training", total=total)

        def on_epoch(seed: int, epoch: Epoch) -> None:
            text = f"seed {seed}: loss {epoch['train_loss']:.3f}, validation accuracy {epoch['val_accuracy']:.1%}"
            bar.update(task, advance=1, description=text)

        yield on_epoch


def make_table(*columns: str) -> Table:
    """Return an empty table; a column whose name starts with ">" is aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return table
