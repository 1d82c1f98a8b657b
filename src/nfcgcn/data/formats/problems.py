"""What is wrong with a user's tables, all of it in one message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nfcgcn.errors import DatasetError, GraphError


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
        self._kind: type[DatasetError | GraphError] = DatasetError

    @contextmanager
    def gather(self) -> Iterator[None]:
        """Keep an error that the block raises, and go on after the block."""
        try:
            yield
        except (DatasetError, GraphError) as error:
            self._kind = GraphError if isinstance(error, GraphError) else self._kind
            self.messages += [message for message in error.args if message not in self.messages]

    def check(self) -> None:
        """Raise what was gathered as one error."""
        if self.messages:
            raise self._kind(*self.messages)
