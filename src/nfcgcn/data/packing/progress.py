"""How far packing is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Show = Callable[[str, int, int], None]


def _silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Progress:
    """Calls ``show(stage, rows done, rows in all)``; the rows are 0 where they are not known."""

    show: Show = _silent
