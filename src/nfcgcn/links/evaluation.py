"""Judge models on test edges, over several seeds, beside baselines that learn nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nfcgcn.errors import NFCError, OutOfMemoryError
from nfcgcn.evaluation import Summary, environment, summarise
from nfcgcn.graph import Graph, Ints
from nfcgcn.links.config import LinkSetup
from nfcgcn.links.heuristics import HEURISTICS, score_by_neighbours
from nfcgcn.links.negatives import Negatives, NegativeSampler
from nfcgcn.links.prediction import encode, score_pairs
from nfcgcn.links.scores import SCORES, Doubles, measure
from nfcgcn.links.splits import EdgeSplit, pairs_of
from nfcgcn.links.training import LinkEpoch, LinkRun, fit
from nfcgcn.randomness import generator
from nfcgcn.training.values import DivergedError

LinkScores = dict[str, Summary | None]
"""Every figure on test edges by name, over all seeds; None where there are too few pairs for it."""


@dataclass(frozen=True, eq=False)
class Judged:
    """One seed: its training, and its one evaluation on test edges."""

    run: LinkRun
    others: Ints
    """``[2, T]``: as many pairs without an edge as there are test edges."""
    edge_scores: Doubles
    """``[T]``: the scores of the test edges."""
    other_scores: Doubles
    """``[T]``"""

    @property
    def scores(self) -> dict[str, float | None]:
        """Every figure by name."""
        return measure(self.edge_scores, self.other_scores)


def draw_test_negatives(graph: Graph, split: EdgeSplit, way: Negatives, seed: int) -> Ints:
    """Return one pair without any edge per test edge, ``[2, T]``; the same for every model with this seed."""
    return NegativeSampler(pairs_of(graph), graph.num_nodes).draw_distinct(
        split.test, way, generator(seed, "test-negatives")
    )


def judge(run: LinkRun, graph: Graph, *, device: torch.device | str = "cpu") -> Judged:
    """Score the test edges once, and as many pairs without an edge."""
    others = draw_test_negatives(graph, run.split, run.setup.links.test_negatives, run.seed)
    vectors = encode(run.model, graph, run.read, device=device)
    edges, rest = (score_pairs(run.model, vectors, pairs) for pairs in (run.split.test, others))
    run.model.cpu()
    return Judged(run, others, edges, rest)


class UnfinishedLinksError(NFCError):
    """A run failed after others of its series had ended well."""

    def __init__(self, message: str, judged: list[Judged]) -> None:
        super().__init__(message)
        self.judged = judged


def repeat(
    graph: Graph,
    setup: LinkSetup,
    seeds: Sequence[int],
    *,
    splits: Sequence[EdgeSplit] | None = None,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, LinkEpoch], None] | None = None,
) -> list[Judged]:
    """Train once per seed, each with its own split unless ``splits`` are given, and judge each on its test edges.

    An interruption ends the series; what was trained until then is judged. A run that fails ends it with an error,
    which has the runs before it.
    """
    judged: list[Judged] = []
    for number, seed in enumerate(seeds):
        tell = None if on_epoch is None else _with_seed(on_epoch, seed)
        split = None if splits is None else splits[number]
        try:
            run = fit(graph, setup, split=split, seed=seed, device=device, on_epoch=tell)
        except KeyboardInterrupt:
            if not judged:
                raise
            break
        except (DivergedError, OutOfMemoryError) as error:
            if not judged:
                raise
            raise UnfinishedLinksError(str(error), judged) from error
        judged.append(judge(run, graph, device=device))
        if run.interrupted:
            break
    return judged


def judge_heuristics(graph: Graph, judged: Sequence[Judged]) -> dict[str, LinkScores]:
    """Return the figures of each heuristic, on the same splits and pairs; it reads training edges alone."""
    summaries: dict[str, LinkScores] = {}
    for name in HEURISTICS:
        figures = []
        for j in judged:
            read = j.run.split.train
            both = (score_by_neighbours(name, read, graph.num_nodes, pairs) for pairs in (j.run.split.test, j.others))
            figures.append(measure(*both))
        summaries[name] = summarise_scores(figures)
    return summaries


def summarise_scores(figures: Sequence[Mapping[str, float | None]]) -> LinkScores:
    """Summarise the figures of several runs."""
    columns = {name: [f[name] for f in figures] for name in SCORES}
    return {name: None if None in column else summarise(column) for name, column in columns.items()}  # type: ignore[arg-type]


def describe(
    graph: Graph,
    setup: LinkSetup,
    judged: Sequence[Judged],
    *,
    device: torch.device,
    command: str | None = None,
    dataset_options: Mapping[str, Any] | None = None,
    baselines: Mapping[str, LinkScores] | None = None,
) -> dict[str, Any]:
    """Return the result of repeated runs as plain values, ready for JSON."""
    runs = [j.run for j in judged]
    return {
        "task": "links",
        "dataset": graph.name,
        "dataset_options": None if dataset_options is None else dict(dataset_options),
        "model": setup.name,
        "preset": setup.preset,
        "split": runs[0].split.name,
        "split_sizes": runs[0].split.sizes,
        "seeds": [r.seed for r in runs],
        "test_scores": summarise_scores([j.scores for j in judged]),
        "val_scores": {name: summarise([r.best[f"val_{name}"] for r in runs]) for name in ("auc", "ap")},  # type: ignore[literal-required]
        "baselines": dict(baselines or {}),
        "epochs": [r.best["epoch"] for r in runs],
        "epochs_run": [len(r.history) for r in runs],
        "seconds": sum(r.seconds for r in runs),
        "interrupted": any(r.interrupted for r in runs),
        "parameters": sum(p.numel() for p in runs[0].model.parameters()),
        "config": setup.values,
        "graph": {"nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features},
        **environment(device),
        "command": command,
    }


def _with_seed(on_epoch: Callable[[int, LinkEpoch], None], seed: int) -> Callable[[LinkEpoch], None]:
    return lambda epoch: on_epoch(seed, epoch)
