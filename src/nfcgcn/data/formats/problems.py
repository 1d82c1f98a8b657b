"""What is wrong with a user's tables, all of it in one message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nfcgcn.errors import GraphError

MOST = 12
"""More problems than that are counted, not told."""


class Problems:
    """Collects errors while a table is read, so that a user can correct everything at once.

    >>> problems = Problems()
    >>> with problems.gather():
    ...     raise GraphError("the first")
    >>> with problems.gather():
    ...     raise GraphError("the second")
    >>> problems.check()
    Traceback (most recent call last):
    nfcgcn.errors.GraphError: 2 problems: (1) the first (2) the second
    """

    def __init__(self) -> None:
        self.messages: list[str] = []

    @contextmanager
    def gather(self) -> Iterator[None]:
        """Keep an error that the block raises, and go on after the block."""
        try:
            yield
        except GraphError as error:
            self.messages.append(str(error))

    def check(self) -> None:
        """Raise what was gathered as one error."""
        if len(self.messages) == 1:
            raise GraphError(self.messages[0])
        if self.messages:
            told = " ".join(f"({number}) {message}" for number, message in enumerate(self.messages[:MOST], 1))
            more = f" and {len(self.messages) - MOST} more" if len(self.messages) > MOST else ""
            raise GraphError(f"{len(self.messages)} problems: {told}{more}")
