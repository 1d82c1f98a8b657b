"""The choice of settings before a command trains, as a user sees it."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import torch

from nfcgcn.cli.console import err, training_bar
from nfcgcn.config.inspection import check_classes
from nfcgcn.config.registry import Config
from nfcgcn.config.selection import COST, Selection, select
from nfcgcn.graph import Graph


def choose_settings(
    graph: Graph, config: Config, *, seed: int, held: Collection[str], device: torch.device
) -> Selection:
    """Choose settings on validation nodes, show progress, and say what was chosen and why."""
    check_classes(graph)
    show = partial(err.print, highlight=False, markup=False, soft_wrap=True)
    with training_bar(round(COST * config.training.epochs), what="candidate") as on_epoch:
        selection = select(graph, config, seed=seed, held=held, device=device, on_epoch=on_epoch)
    tried = len(selection.candidates)
    if selection.cost:
        show(
            f"chose among {tried} candidates on the validation nodes of seed {seed}, in {selection.seconds:.1f} s "
            f"({selection.cost:.1f} times the work of one run)"
        )
    show(f"chosen: {selection.reason}")
    if selection.caution:
        show(selection.caution)
    return selection
