"""The command line: parse, call, print. One file per command or group of commands."""

from __future__ import annotations

import atexit
import io
import logging
import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from nfcgcn.errors import ConfigError, NFCError, NFCWarning, SilentError, on_command_line, visible
from nfcgcn.memory import enough_memory
from nfcgcn.settings import one_line

COMMANDS = {
    "train": (
        "train",
        "Train a model, score it on the test nodes, and write a folder with weights, metrics and a report.",
    ),
    "predict": (
        "predict",
        "Write the class of each node, and the probability of every class, to a CSV or Parquet file.",
    ),
    "embed": (
        "predict",
        "Write a representation of each node: .npz (`ids`, `embedding`), .parquet or .csv (columns `id`, `h0`, ...).",
    ),
    "explain": ("explain", "Show which features of which nodes decided the class of a node."),
    "explore": (
        "explore",
        "Open a page on this machine that shows the graph and answers questions about the model.",
    ),
    "links": ("links", "Predict which nodes should be linked: train, predict pairs, suggest missing links."),
    "recommend": ("recommend", "Learn who liked what, suggest items to users, compare recommenders."),
    "inspect": (
        "inspect",
        "Describe a graph, say what would go wrong in training, and suggest settings; nothing is trained.",
    ),
    "pack": (
        "pack",
        "Write a graph that may be larger than memory as a store, a folder that other commands take as GRAPH.",
    ),
    "tune": ("tune", "Search for settings that do better on validation nodes, and write them as a preset."),
    "compare": (
        "compare",
        "Compare models on a graph: the same splits, settings chosen in the same way, paired differences.",
    ),
    "export": (
        "export",
        "Write a run's model as a program for graphs of any size, which needs only PyTorch (.pt2) or an ONNX runtime.",
    ),
    "reproduce": (
        "reproduce",
        "Run the paper's experiments and write a page that compares the results with the paper's.",
    ),
    "report": (
        "report",
        "Write the page of a run, a comparison or the reproduction again, from stored results. Nothing is trained.",
    ),
    "bench": ("bench", "Measure the time of the kernels, the models and the page of `explore`."),
    "datasets": ("listing", "List the datasets: sizes, sources, and where they are."),
    "models": (
        "listing",
        "List the models: what each is, where it was published, its settings with defaults, and its presets.",
    ),
    "settings": (
        "listing",
        "List the settings that `nfcgcn train --set KEY=VALUE` accepts for a model, with defaults.",
    ),
}
"""The file of each command and what it does. Only the one that is called is loaded, and torch with it."""


def run() -> None:
    """Be the program `nfcgcn`: when it ends, the system tidies up, which saves a second after work on a GPU."""
    code: object = 0
    for name in ("stdout", "stderr"):  # one that was closed: the next file to be opened would take its place
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    try:
        main()
    except SystemExit as leaving:
        code = leaving.code
    if not isinstance(code, int):
        sys.exit(code if code is None else str(code))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Run the command line; an error that the user can do something about is printed as one line, with exit code 2."""
    debug = "--debug" in sys.argv
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    # Threads that wait for each other sleep. This must be set before torch starts its first ones.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not debug:  # or torch writes a C++ stack before our line when the process that joins the ranks is gone
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        try:
            if isinstance(sys.stdout, io.TextIOWrapper):  # what the terminal's encoding lacks is written out
                sys.stdout.reconfigure(errors="backslashreplace")  # which writes what is waiting
            arguments = _take_threads([a for a in sys.argv[1:] if a != "--debug"])
            with enough_memory(), on_command_line():
                _load(arguments)(arguments, prog_name="nfcgcn")
        finally:
            if sys.stdout is not None and not sys.stdout.closed:
                sys.stdout.flush()  # here, where a full disk or a closed pipe can still be reported
    except KeyboardInterrupt:  # while modules are loaded; commands have their own answers
        if debug:
            raise
        print("interrupted; nothing was done", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        line = _explain(error)
        if debug or line is None:
            raise
        if isinstance(error, OSError):  # what could not be written is not tried again when Python ends
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if line:
            print(f"error: {visible(line)}", file=sys.stderr)
        sys.exit(2 if line else 1)


def _explain(error: Exception) -> str | None:
    """Return what to tell the user; "" for nothing, None for an error that is a mistake of ours."""
    if isinstance(error, SilentError):
        return ""
    if isinstance(error, NFCError):
        return str(error)
    if isinstance(error, BrokenPipeError):
        return ""
    if isinstance(error, OSError) and error.errno is None:  # no file: a library that could not be loaded
        return one_line(error)
    if isinstance(error, OSError):
        where = f" {os.fsdecode(error.filename)}" if error.filename is not None else " the output"
        return f"cannot read or write{where}: {error.strerror or error}"
    if isinstance(error, UnicodeError):
        return f"text that cannot be written: {one_line(error)}"
    return None


def _take_threads(arguments: list[str]) -> list[str]:
    """Obey ``--threads N``, wherever it stands, and return the other arguments."""
    rest: list[str] = []
    given = iter(arguments)
    for argument in given:
        name, equals, value = argument.partition("=")
        if name != "--threads" or "bench" in rest[:1]:  # where it is an option of the command itself
            rest.append(argument)
            continue
        value = value if equals else next(given, "")
        if not (value.isascii() and value.isdigit() and 1 <= int(value) <= 10_000):
            raise ConfigError(f"--threads takes a number from 1 on, got '{value}'")
        os.environ["OMP_NUM_THREADS"] = value
    return rest


def _load(arguments: list[str]) -> Any:
    """Return the application: with the one command that is called, or with the names of all for an overview."""
    from nfcgcn.cli import console

    completed = _words_to_complete()
    if completed is not None:
        name = next((word for word in completed if word in COMMANDS), None)
    else:
        name = next((a for a in arguments if not a.startswith("-")), None)
    if name in COMMANDS:
        import_module(f"nfcgcn.cli.{COMMANDS[name][0]}")
        from nfcgcn.kernels.threads import settle_in

        settle_in()
        log = logging.getLogger("nfcgcn")
        log.setLevel(logging.INFO)
        log.handlers = [console.Notes()]
        return console.app
    overview = console.make_app()
    for command, (_, summary) in COMMANDS.items():
        overview.command(command, help=summary)(_nothing)
    return overview


def _words_to_complete() -> list[str] | None:
    """Return the words of the line that a shell asks to complete, of which it gives us none as arguments; else None."""
    if "_NFCGCN_COMPLETE" not in os.environ:
        return None
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""  # bash; zsh, fish, PowerShell
    return line.split()[1:]


def _nothing() -> None:
    pass


def _show_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    if issubclass(category, NFCWarning):
        print(f"warning: {visible(message)}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, *where[:2]), end="", file=sys.stderr)
