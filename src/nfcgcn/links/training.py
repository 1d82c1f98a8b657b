"""Training for link prediction: a step hides some training edges, the encoder reads the others, the loss is on those.

What is kept apart, and the tests prove it:

- The encoder reads training edges only. Neighbour tables, sums and normalisations are made of what it reads.
- In a training step it reads no edge that the step scores: a share of the training edges (`hide`), drawn anew in every
  step, is taken out in both directions, and the loss is on these and on as many pairs without a training edge. With
  ``hide`` 0 it reads all of them while it scores them, as the published GAE does.
- Pairs without an edge for training are drawn without knowledge of validation and test edges, those for validation
  without knowledge of test edges. So nothing before the test depends on a test edge.
- An encoder that learns vectors from the edges alone (DeepWalk and its like) makes other vectors for other edges: for
  it the hidden share is drawn once, and it reads the same others in training, validation, testing and prediction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.graph import Edges, Graph, Ints, WeightedEdges
from nfcgcn.kernels.threads import one_pool
from nfcgcn.links.config import LinkConfig, LinkSetup, make_link_setup
from nfcgcn.links.model import LinkModel
from nfcgcn.links.negatives import NegativeSampler
from nfcgcn.links.scores import auc, average_precision
from nfcgcn.links.splits import EdgeSplit, split_edges, with_edges
from nfcgcn.memory import enough_memory
from nfcgcn.randomness import generator, torch_randomness
from nfcgcn.training.adam import Adam
from nfcgcn.training.values import DivergedError


class LinkEpoch(TypedDict):
    """The figures of one epoch; the training loss comes from the training pass, with dropout on."""

    epoch: int
    train_loss: float
    val_loss: float
    val_auc: float
    val_ap: float


@dataclass(frozen=True, eq=False)
class LinkRun:
    """One finished training: the model in the state of its best epoch, and how it went."""

    setup: LinkSetup
    seed: int
    split: EdgeSplit
    read: Ints
    """``[2, R]``: the edges that the model reads in evaluation: all training edges, or those that were never scored."""
    model: LinkModel
    """On the CPU, in evaluation mode."""
    history: tuple[LinkEpoch, ...]
    best: LinkEpoch
    seconds: float
    interrupted: bool = False

    def _repr_html_(self) -> str:
        """Return a small table for notebooks."""
        rows = {
            "model": self.setup.name,
            "edges": ", ".join(f"{size:,} {part}" for part, size in self.split.sizes.items()),
            "epochs": f"{len(self.history):,}" + ", interrupted" * self.interrupted,
            "best epoch": f"{self.best['epoch']:,}",
            "validation AUC": f"{self.best['val_auc']:.1%}",
            "validation AP": f"{self.best['val_ap']:.1%}",
            "time": f"{self.seconds:.1f} s",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in rows.items())
        return f"<table><caption>Link prediction</caption>{cells}</table>"


def fit_links(
    graph: Graph,
    model: str = "nfc-gcn",
    *,
    dataset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    split: EdgeSplit | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[LinkEpoch], None] | None = None,
) -> LinkRun:
    """Learn which nodes of `graph` have an edge, and return the model in the state of its best epoch.

    `model` is any name from ``nfcgcn models``, or "gae" or "vgae". The settings are those of the preset for the
    `dataset`, or what suits the graph, and then `settings`; ``nfcgcn links settings`` lists them. Without a `split`,
    85 % of the edges train, 5 % validate and 10 % are for testing, drawn by `seed`. The best epoch is chosen on
    validation edges; test edges are never read. Ctrl-C ends training early and keeps the best state so far.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> run = fit_links(graph, "gcn", settings={"epochs": 3})
    >>> len(run.history), run.split.sizes["train"] == run.read.shape[1]
    (3, True)
    """
    setup = make_link_setup(model, dataset=dataset, graph=graph, settings=settings)
    return fit(graph, setup, split=split, seed=seed, device=device, on_epoch=on_epoch)


@enough_memory()
@one_pool()
def fit(
    graph: Graph,
    setup: LinkSetup,
    *,
    split: EdgeSplit | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[LinkEpoch], None] | None = None,
) -> LinkRun:
    """See :func:`fit_links`."""
    c, device = setup.links, torch.device(device)
    split = split or split_edges(graph, seed=seed, val_ratio=c.val_ratio, test_ratio=c.test_ratio)
    split.check()
    model = setup.build(graph, seed).to(device)
    steps = _Steps(graph, setup, split, model, seed, device)
    optimizer = Adam(model, c)
    history: list[LinkEpoch] = []
    best: LinkEpoch | None = None
    state: dict[str, Tensor] = {}
    interrupted = False
    start = time.perf_counter()
    try:
        with torch_randomness(seed, "training", device):
            for number in range(1, c.epochs + 1):
                epoch: LinkEpoch = {"epoch": number, "train_loss": steps.train(optimizer), **steps.validate()}  # type: ignore[typeddict-item]
                _check_finite(epoch, c, seed)
                history.append(epoch)
                if best is None or _merit(epoch, c) > _merit(best, c):
                    best, state = epoch, {n: t.detach().to("cpu", copy=True) for n, t in model.state_dict().items()}
                if on_epoch:
                    on_epoch(epoch)
                if c.patience is not None and number - best["epoch"] >= c.patience:
                    break
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted = True
    assert best is not None  # noqa: S101  (epochs >= 1)
    model.cpu().load_state_dict(state)
    model.eval()
    return LinkRun(
        setup, seed, split, steps.read, model, tuple(history), best, time.perf_counter() - start, interrupted
    )


class _Steps:
    """What stays the same from step to step, and the generator that draws what changes."""

    def __init__(
        self, graph: Graph, setup: LinkSetup, split: EdgeSplit, model: LinkModel, seed: int, device: torch.device
    ) -> None:
        self.config, self.model, self.device = setup.links, model, device
        self.rng = generator(seed, "draws")
        self.train_edges = split.train
        self.sampler = NegativeSampler(split.train, graph.num_nodes)
        self.x = graph.x.to(device)
        whole = model.encoder.edges_of(with_edges(graph, split.train))
        self.fixed_hidden = None if setup.reads_features else self._draw_hidden()
        self.read = split.train if self.fixed_hidden is None else np.delete(split.train, self.fixed_hidden, axis=1)
        self.edges = whole.to(device)
        self.numbers = _numbers_of(self.edges, split.train, graph.num_nodes)
        self.read_edges = self.edges if self.fixed_hidden is None else self._without(self.fixed_hidden)
        self.val = _to(device, split.val)
        known = NegativeSampler(np.concatenate([split.train, split.val], axis=1), graph.num_nodes)
        drawn = known.draw_distinct(split.val, self.config.test_negatives, generator(seed, "val-negatives"))
        self.val_others = _to(device, drawn)

    def train(self, optimizer: Adam) -> float:
        """Make one step and return its loss."""
        c = self.config
        hidden = self._draw_hidden() if self.fixed_hidden is None else self.fixed_hidden
        reads_all = not len(hidden)
        scored = self.train_edges if reads_all else self.train_edges[:, hidden]
        edges = self.read_edges if reads_all or self.fixed_hidden is not None else self._without(hidden)
        others = self.sampler.draw(np.tile(scored, c.num_negatives), c.negatives, self.rng)
        self.model.train()
        optimizer.forget_gradients()
        vectors = self.model(self.x, edges)
        scores = self.model.decoder.score(vectors, _to(self.device, np.concatenate([scored, others], axis=1)))
        count = scored.shape[1]
        loss = _loss(scores[:count], scores[count:])
        if self.model.divergence is not None:
            loss = loss + self.model.divergence / len(vectors)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return the figures on validation edges."""
        self.model.eval()
        vectors = self.model(self.x, self.read_edges)
        edges, others = (
            self.model.decoder.score(vectors, pairs).double().cpu().numpy() for pairs in (self.val, self.val_others)
        )
        if not (np.isfinite(edges).all() and np.isfinite(others).all()):
            return {"val_loss": math.nan, "val_auc": math.nan, "val_ap": math.nan}
        loss = float(np.logaddexp(0, -edges).mean() + np.logaddexp(0, others).mean())
        return {"val_loss": loss, "val_auc": auc(edges, others), "val_ap": average_precision(edges, others)}

    def _draw_hidden(self) -> Ints:
        """Return the numbers of the training edges that are hidden and scored; none if all are read and scored."""
        c, count = self.config, self.train_edges.shape[1]
        if not c.hide:
            return np.zeros(0, np.int64)
        wanted = min(max(1, round(c.hide * count)), c.batch_size or count, max(1, count - 1))
        return np.sort(self.rng.permutation(count)[:wanted])

    def _without(self, hidden: Ints) -> Edges:
        """Return the training edges without those that are hidden, in both directions."""
        keep = torch.ones(self.train_edges.shape[1], dtype=torch.bool)
        keep[torch.from_numpy(hidden)] = False
        kept = keep.to(self.device)[self.numbers]
        if isinstance(self.edges, WeightedEdges):
            return WeightedEdges(self.edges.edge_index[:, kept], self.edges.weight[kept])
        return self.edges[:, kept]


def _numbers_of(edges: Edges, pairs: Ints, num_nodes: int) -> Tensor:
    """Return the number of the undirected edge, its place among `pairs`, of each directed edge."""
    edge_index = edges.edge_index if isinstance(edges, WeightedEdges) else edges
    low, high = edge_index.cpu().numpy().min(axis=0), edge_index.cpu().numpy().max(axis=0)
    numbers = np.searchsorted(pairs[0] * num_nodes + pairs[1], low * num_nodes + high)
    return torch.from_numpy(numbers).to(edge_index.device)


def _loss(edges: Tensor, others: Tensor) -> Tensor:
    """Return the cross-entropy, in which edges together count as much as all pairs without one."""
    ones, zeros = torch.ones_like(edges), torch.zeros_like(others)
    return F.binary_cross_entropy_with_logits(edges, ones) + F.binary_cross_entropy_with_logits(others, zeros)


def _to(device: torch.device, pairs: Ints) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(pairs)).to(device)


def _merit(epoch: LinkEpoch, config: LinkConfig) -> tuple[float, float]:
    """Rank epochs: the larger, the better; of equal figures the one with the lower loss is better."""
    figure = {"auc": epoch["val_auc"], "ap": epoch["val_ap"], "loss": -epoch["val_loss"]}[config.monitor]
    return figure, -epoch["val_loss"]


def _check_finite(epoch: LinkEpoch, config: LinkConfig, seed: int) -> None:
    if not math.isfinite(epoch["train_loss"] + epoch["val_loss"]):
        raise DivergedError(
            f"training diverged in epoch {epoch['epoch']} with seed {seed}: the loss is not finite; "
            f"lower `learning_rate`, now {config.learning_rate:g}"
        )
