"""The parts of `nfcgcn links train`: the split by time, the baselines, progress, and the table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from nfcgcn.cli.console import Lines, err, make_table, out
from nfcgcn.cli.sources import GraphSource
from nfcgcn.data.formats import find_tables
from nfcgcn.errors import ConfigError, NFCError
from nfcgcn.graph import Graph
from nfcgcn.links.config import LinkSetup, make_link_setup
from nfcgcn.links.evaluation import Judged, LinkScores, repeat, summarise_scores
from nfcgcn.links.splits import EdgeSplit, split_by_time
from nfcgcn.links.tables import read_times
from nfcgcn.links.training import LinkEpoch
from nfcgcn.settings import one_line

BASELINES = ("mlp", "gae", "vgae")
"""The models that --baselines trains beside the one that is asked for."""


def time_split(source: GraphSource, graph: Graph, time: str, setup: LinkSetup) -> EdgeSplit:
    """Split the edges by the column `time` of their table: the latest for testing."""
    if source.path is None:
        raise ConfigError("--time is for tables of nodes and edges with a column of times")
    path = Path(source.path)
    edges = source.edges or (find_tables(path)[1] if path.is_dir() else None)
    if edges is None:
        raise ConfigError("--time needs a table of edges; name it with --edges")
    ends = {"source": source.source_column or "source", "target": source.target_column or "target"}
    pairs, times = read_times(edges, graph, time, **ends)
    c = setup.links
    return split_by_time(graph, pairs, times, val_ratio=c.val_ratio, test_ratio=c.test_ratio)


def train_baselines(
    graph: Graph,
    dataset: str | None,
    settings: Mapping[str, Any],
    own: str,
    judged: list[Judged],
    device: torch.device,
) -> dict[str, LinkScores]:
    """Return the figures of the baselines that learn, by name; one that fails or is interrupted costs no result."""
    seeds, splits = [j.run.seed for j in judged], [j.run.split for j in judged]
    figures: dict[str, LinkScores] = {}
    for name in BASELINES:
        if name == own:
            continue
        try:
            other = make_link_setup(name, dataset=dataset, graph=graph, settings=settings)
            with show_progress(len(seeds) * other.links.epochs, name) as on_epoch:
                done = repeat(graph, other, seeds, splits=splits, device=device, on_epoch=on_epoch)
            if len(done) < len(seeds) or done[-1].run.interrupted:
                raise KeyboardInterrupt
            figures[name] = summarise_scores([j.scores for j in done])
        except (KeyboardInterrupt, NFCError) as error:
            reason = "interrupted" if isinstance(error, KeyboardInterrupt) else one_line(error)
            err.print(f"no {name} to compare with: {reason}", soft_wrap=True)
            break
    return figures


@contextmanager
def show_progress(total: int, what: str = "") -> Iterator[Callable[[int, LinkEpoch], None]]:
    """Show progress on stderr: a status in a terminal, a line now and then elsewhere."""
    lines, done = Lines(), 0

    def text(seed: int, epoch: LinkEpoch) -> str:
        name = f"{what} seed {seed}" if what else f"seed {seed}"
        return f"{done} of {total} epochs at most; {name}: loss {epoch['train_loss']:.3f}, AUC {epoch['val_auc']:.1%}"

    with err.status("training") as status:

        def on_epoch(seed: int, epoch: LinkEpoch) -> None:
            nonlocal done
            done += 1
            if err.is_terminal:
                status.update(text(seed, epoch))
            lines.show(lambda: text(seed, epoch))

        yield on_epoch


def print_result(result: Mapping[str, Any]) -> None:
    """Print the test scores of the model and of the baselines."""
    table = make_table("model", *(f">{name}" for name in result["test_scores"]))
    for name, scores in {result["model"]: result["test_scores"], **result["baselines"]}.items():
        table.add_row(name, *(_cell(score) for score in scores.values()))
    out.print(table)
    count = len(result["seeds"])
    sizes = ", ".join(f"{size:,} {part}" for part, size in result["split_sizes"].items())
    out.print(
        f"in %, over {count} seed{'s' if count > 1 else ''}; edges: {sizes}; validation AUC "
        f"{100 * result['val_scores']['auc']['mean']:.2f}; {result['seconds']:.1f} s on {result['device']}",
        soft_wrap=True,
    )


def _cell(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return "n/a"
    return f"{100 * score['mean']:.1f}" + ("" if score["std"] is None else f"±{100 * score['std']:.1f}")
