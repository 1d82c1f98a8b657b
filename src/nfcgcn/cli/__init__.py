"""The command line: parse, call, print. One file per command or group of commands."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer

from nfcgcn import __version__
from nfcgcn.cli import bench, explain, export, inspect, listing, predict, report, reproduce, train, tune
from nfcgcn.cli.console import app
from nfcgcn.errors import NFCError, NFCWarning

__all__ = [
    "app",
    "bench",
    "explain",
    "export",
    "inspect",
    "listing",
    "main",
    "predict",
    "report",
    "reproduce",
    "train",
    "tune",
]


def main() -> None:
    """Run the command line; one of our errors is printed as one line, with exit code 2."""
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


def _show_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    if issubclass(category, NFCWarning):
        print(f"warning: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, *where[:2]), end="", file=sys.stderr)
