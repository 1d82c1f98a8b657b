"""Errors with a message that a user can act on: one line that names the cause and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches


class NFCError(Exception):
    """Base of every error this package raises on purpose.

    >>> import nfcgcn
    >>> try:
    ...     nfcgcn.load("coral")
    ... except NFCError as error:
    ...     print(error)
    unknown dataset 'coral'; did you mean 'cora'?
    """

    def __str__(self) -> str:
        """Return the message; several, one per argument, are numbered."""
        return joined([str(message) for message in self.args])


class GraphError(NFCError, ValueError):
    """A graph or a split that is inconsistent or unsuitable."""


class ConfigError(NFCError, ValueError):
    """A setting that is unknown, of the wrong type or out of range."""


class DatasetError(NFCError):
    """A dataset that cannot be found, fetched or trusted."""


class WriteError(NFCError):
    """A file or folder that cannot be written."""


class OutOfMemoryError(NFCError, MemoryError):
    """Work that was begun and for which there is not enough memory after all."""


class SilentError(NFCError):
    """An error that another process reports for all."""


class NFCWarning(UserWarning):
    """Something that works, but probably not as the user hopes."""


class UnseenWarning(NFCWarning):
    """Texts or words of a table that is read as an earlier one was are not among the features."""


def visible(text: object) -> str:
    """Return text whose control characters are written out (``\\x1b``), so that no terminal obeys what a file holds.

    Halves of surrogate pairs, which stand for bytes of a path that are not UTF-8, are written out, too.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


_speakers = ["python"]


@contextmanager
def on_command_line() -> Iterator[None]:
    """Let messages name options as the command line does, for as long as the block runs."""
    _speakers.append("command line")
    try:
        yield
    finally:
        _speakers.pop()


def option(name: str, *values: str) -> str:
    """Write an option as the user gives it: for Python as here, on the command line ``--unknown-edges drop or add``.

    >>> option("unknown_edges", "drop", "add"), option("id")
    ("unknown_edges='drop' or 'add'", 'id=')
    """
    if _speakers[-1] == "python":
        return f"{name}={' or '.join(map(repr, values))}"
    return " ".join([f"--{name.replace('_', '-')}", " or ".join(values)]).strip()


def counted(value: int, noun: str, plural: str | None = None) -> str:
    """Write a count with its noun, which takes an s unless it is one.

    >>> counted(1, "edge"), counted(1200, "edge"), counted(2, "class", "classes")
    ('1 edge', '1,200 edges', '2 classes')
    """
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


MOST_PROBLEMS = 12
"""More problems than that are counted, not listed."""


def joined(messages: Sequence[str]) -> str:
    """Write problems as one message.

    >>> joined(["the first", "the second"])
    '2 problems: (1) the first (2) the second'
    """
    if len(messages) < 2:
        return "".join(messages)
    numbered = " ".join(f"({number}) {message}" for number, message in enumerate(messages[:MOST_PROBLEMS], 1))
    more = f" and {len(messages) - MOST_PROBLEMS} more" if len(messages) > MOST_PROBLEMS else ""
    return f"{len(messages)} problems: {numbered}{more}"


MOST_LISTED = 50
"""So many names are listed where one is not known; there may be as many as users."""


def unknown(kind: str, name: str, options: Iterable[str]) -> str:
    """Return the message for a `name` that is not a known `kind`: it lists similar names, or the first if none is."""
    known = sorted(options)
    similar = get_close_matches(name, known, n=3, cutoff=0.6)
    if similar:
        return f"unknown {kind} '{name}'; did you mean {' or '.join(repr(n) for n in similar)}?"
    more = f" and {len(known) - MOST_LISTED:,} more" if len(known) > MOST_LISTED else ""
    return f"unknown {kind} '{name}'; choose from {', '.join(known[:MOST_LISTED])}{more}"
