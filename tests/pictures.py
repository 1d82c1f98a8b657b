"""Pages without pictures, for tests of commands that write a page and never look at its figures."""

from __future__ import annotations

from collections.abc import Callable

FIGURES = ("curves", "confusion", "representation", "reliability")
EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"></svg>'


def leave_out(setattr: Callable[[object, str, object], None]) -> None:
    """Let a run's page have empty pictures: drawing them takes longer than the training of a small graph."""
    from nfcgcn.reports import run_page

    for name in FIGURES:
        setattr(run_page, name, lambda *_: EMPTY)
