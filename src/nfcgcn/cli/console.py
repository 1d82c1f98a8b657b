"""What all commands share: the application, the two consoles, tables, the progress bar."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

from nfcgcn import __version__
from nfcgcn.errors import visible

if TYPE_CHECKING:
    from nfcgcn.training import Epoch


class Interruption:
    """Ctrl-C or SIGTERM; both raise KeyboardInterrupt. While held, which the first one begins, the next one waits."""

    number: int = signal.SIGINT
    is_held = is_waiting = False

    @property
    def exit_code(self) -> int:
        """The exit code of a process that a signal ended, as in shells."""
        return 128 + self.number

    def handle(self, number: int, _: object) -> None:
        """Handle a signal."""
        self.number = number
        if self.is_held:
            self.is_waiting = True
            return
        self.is_held = True
        raise KeyboardInterrupt

    def hold(self) -> None:
        """Let nothing be interrupted until `release`: results are being saved."""
        self.is_held = True

    def release(self) -> None:
        """Let signals interrupt again; one that is waiting does so now."""
        self.is_held = False
        if self.is_waiting:
            self.is_waiting = False
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Treat SIGTERM as Ctrl-C inside the block; a signal that the parent process had us ignore stays ignored."""
    interruption = Interruption()
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {n: signal.signal(n, interruption.handle) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class PlainCommand(TyperCommand):
    """A command whose help says in plain words what each option takes."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        return list(map(_in_plain_words, super().get_params(ctx)))


class PlainGroup(TyperGroup):
    """A group of commands whose help says in plain words what each option takes."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        return list(map(_in_plain_words, super().get_params(ctx)))


def _in_plain_words(parameter: Any) -> Any:
    """Name what an option takes NUMBER, PATH, COLUMN or TEXT, if it has no name of its own; a switch takes nothing."""
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = lambda ctx: None  # noqa: ARG005  (its name stands there already)
        return parameter
    if parameter.metavar is not None:
        return parameter
    kind = str(getattr(getattr(parameter, "type_descriptor", None), "annotation", ""))
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    elif "Path" in kind:
        parameter.metavar = "PATH"
    elif "int" in kind or "float" in kind:
        parameter.metavar = "NUMBER"
    elif "str" in kind:
        parameter.metavar = "COLUMN" if (parameter.help or "").startswith("Column") else "TEXT"
    return parameter


class Application(typer.Typer):
    """An application whose commands are all of `PlainCommand`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=PlainGroup, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Register a command."""
        return super().command(name, cls=PlainCommand, **options)


def make_app() -> typer.Typer:
    """Return the application without any command."""
    app = Application(
        help="Learning on graphs whose nodes carry features, with NFC-GCN.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback(epilog="Add --debug to any command to see the full traceback of an error.")(_options)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of any command; by default one per core that it may use.")
    ] = None,
) -> None:
    pass


app = make_app()


class SafeConsole(Console):
    """Takes text as it is, without markup, and writes out the control characters of whatever it shows."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Return the segments of a renderable; those that carry text carry no control characters."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else "\n".join(map(visible, text.split("\n"))), style, control)


out = SafeConsole()
err = SafeConsole(stderr=True)


class Notes(logging.Handler):
    """Prints what the library has to say, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        err.print(record.getMessage(), highlight=False, markup=False, soft_wrap=True)


def this_command() -> str:
    """Return the command line of this process, as results state it."""
    return f"nfcgcn {shlex.join(sys.argv[1:])}"


def among(names: Iterable[str], *, several: bool = False) -> Callable[[str], list[str]]:
    """Return what completes a value in a shell, by the names that begin as it does; `several` stand with commas."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        return [f"{before}{comma}{name}" for name in names if name.startswith(last)]

    return complete


DEVICES = ("auto", "cpu", "cuda")


MOST_SEED = 2**53
"""Largest seed; that of a run is kept in JSON, where many programs know no larger number exactly."""
MOST_SEEDS = 1000
"""Most runs of a command, each with its own seed."""
MOST_DRAWS = 10_000
"""Most draws of neighbours to average over."""
SECONDS_PER_LINE = 10.0
"""How often progress is printed where no bar can be shown."""


class Lines:
    """Prints how far a command is, a line on stderr now and then, where no bar can be shown."""

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()

    def show(self, text: str | Callable[[], str]) -> None:
        """Print a line, with the time since the start, unless the last one was a short while ago."""
        now = time.monotonic()
        if err.is_terminal or now - self.last < SECONDS_PER_LINE:
            return
        self.last = now
        minutes, seconds = divmod(round(now - self.start), 60)
        err.print(f"{minutes}:{seconds:02} {text if isinstance(text, str) else text()}", soft_wrap=True)


@contextmanager
def training_bar(total: int, *, what: str = "seed") -> Iterator[Callable[[int, Epoch], None]]:
    """Show progress on stderr: a bar in a terminal, a line now and then elsewhere; runs are numbered by `what`."""

    def describe(seed: int, epoch: Epoch) -> str:
        return f"{what} {seed}: loss {epoch['train_loss']:.3f}, validation accuracy {epoch['val_accuracy']:.1%}"

    if not err.is_terminal:
        lines, done = Lines(), 0

        def show(seed: int, epoch: Epoch) -> None:
            nonlocal done
            done += 1
            lines.show(lambda: f"{done} of {total} epochs at most; {describe(seed, epoch)}")

        yield show
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("training", total=total)

        def on_epoch(seed: int, epoch: Epoch) -> None:
            bar.update(task, advance=1, description=describe(seed, epoch))

        yield on_epoch


def make_table(*columns: str) -> Table:
    """Return an empty table; a column whose name starts with ">" is aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        name, justify = column.lstrip(">"), "right" if column.startswith(">") else "left"
        widest = max(map(len, name.split()), default=0)  # a word of a heading is never cut in two
        table.add_column(name, justify=justify, overflow="fold", min_width=widest)  # type: ignore[arg-type]
    return table


def warn_of_formulas(cells: Iterable[str]) -> None:
    """Warn of cells of a CSV file that a spreadsheet would take for formulas."""
    # Names must stay as they are, so that the file can be joined to other tables: we warn of such cells, but keep them.
    risky = [cell for cell in cells if cell[:1] in tuple("=+-@\t\r") and not _is_number(cell)]
    if risky:
        err.print(
            f"warning: {len(risky)} ids or labels begin like formulas, first {risky[0]!r}; "
            "in a spreadsheet, open the file as text only",
            soft_wrap=True,
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
