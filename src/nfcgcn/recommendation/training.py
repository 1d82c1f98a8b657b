"""Training of an encoder on interactions: the epoch is chosen by the NDCG of interactions held out for it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.threads import one_pool
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.randomness import torch_randomness
from nfcgcn.recommendation.bipartite import Bipartite
from nfcgcn.recommendation.interactions import Interactions
from nfcgcn.recommendation.losses import Task
from nfcgcn.recommendation.metrics import score_lists
from nfcgcn.recommendation.ranking import top_items
from nfcgcn.recommendation.settings import RecommendConfig
from nfcgcn.training import DivergedError, TrainingConfig
from nfcgcn.training.adam import Adam

FEW = 0.2
"""At most this share of its interactions is left to a user or an item that a step treats as new."""


class Epoch(TypedDict, total=False):
    """The figures of one epoch; those of validation only where it was validated."""

    epoch: int
    train_loss: float
    val_ndcg: float
    val_recall: float


@dataclass(frozen=True)
class Fitted:
    """One finished training."""

    history: tuple[Epoch, ...]
    best_epoch: int
    state: dict[str, Tensor]
    seconds: float
    cpu_seconds: float
    interrupted: bool = False


class Network:
    """An encoder with the graph it reads, on a device."""

    def __init__(self, encoder: NodeClassifier, bipartite: Bipartite, device: torch.device) -> None:
        self.encoder = encoder.to(device)
        self.x = bipartite.graph.x.to(device)
        self.edges = bipartite.graph.edge_index.to(device)
        self.users, self.items = (torch.from_numpy(part).to(device) for part in (bipartite.users, bipartite.items))
        self.num_identities = len(bipartite.layout.identified)

    @torch.no_grad()
    def vectors(self) -> tuple[Tensor, Tensor]:
        """Return the vectors of users and of items, without dropout."""
        self.encoder.eval()
        vectors: Tensor = self.encoder(self.x, self.edges)
        return vectors[self.users], vectors[self.items]

    def without(self, nodes: Tensor) -> Tensor:
        """Return the features of all nodes, some of which are stripped of their identities; `nodes` is a mask."""
        x = self.x
        rows = torch.repeat_interleave(
            torch.arange(x.shape[0], device=x.device), x.crow_indices().diff(), output_size=len(x.values())
        )
        lost = nodes[rows] & (x.col_indices() < self.num_identities)
        return csr_tensor(x.crow_indices(), x.col_indices(), x.values().masked_fill(lost, 0.0), x.shape)


@one_pool()
def train(
    encoder: NodeClassifier,
    bipartite: Bipartite,
    log: Interactions,
    config: RecommendConfig,
    *,
    seed: int,
    device: torch.device,
    validation: Interactions | None,
    epochs: int,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Fitted:
    """Train on the interactions of `log`, and leave the encoder in its best state, or in its last without `validation`.

    ``bipartite`` is the graph of the same interactions. Ctrl-C ends training early and keeps what was best so far.
    """
    start, cpu = time.perf_counter(), time.process_time()
    network = Network(encoder, bipartite, device)
    ends = torch.from_numpy(log.pairs).to(device)
    task = Task(*ends, num_users=len(log.users), num_items=len(log.items), config=config)
    optimizer = Adam(encoder, TrainingConfig(learning_rate=config.learning_rate, weight_decay=config.weight_decay))
    history: list[Epoch] = []
    best, best_epoch, state, interrupted = -math.inf, 0, _copy(encoder), False
    try:
        with torch_randomness(seed, "training", device):
            for number in range(1, epochs + 1):
                epoch: Epoch = {"epoch": number, "train_loss": _train_epoch(network, task, optimizer, config)}
                if not math.isfinite(epoch["train_loss"]):
                    raise DivergedError(
                        f"training diverged in epoch {number} with seed {seed}: the loss is not finite; "
                        f"lower `learning_rate`, now {config.learning_rate:g}"
                    )
                if validation is not None and (number % config.check_every == 0 or number == epochs):
                    epoch |= _validate(network, log, validation, config.top)
                    if epoch["val_ndcg"] > best:
                        best, best_epoch, state = epoch["val_ndcg"], number, _copy(encoder)
                history.append(epoch)
                if on_epoch:
                    on_epoch(epoch)
                if validation is not None and number - max(best_epoch, 1) >= config.patience:
                    break
    except KeyboardInterrupt:
        if not history:
            raise
        interrupted = True
    if validation is None:
        best_epoch, state = len(history), _copy(encoder)
    encoder.load_state_dict(state)
    encoder.eval()
    spent = time.perf_counter() - start, time.process_time() - cpu
    return Fitted(tuple(history), best_epoch, state, *spent, interrupted)


def _train_epoch(network: Network, task: Task, optimizer: Adam, config: RecommendConfig) -> float:
    """Make one step per batch, and return the mean loss."""
    count = len(task.users)
    # Drawn on the CPU, so that the order is the same on every device.
    order = torch.arange(count) if config.batch_size is None else torch.randperm(count)
    batches = torch.split(order, config.batch_size or count)
    total = 0.0
    for batch in batches:
        total += _step(network, task, optimizer, config, batch) * len(batch) / count
    return total


def _step(network: Network, task: Task, optimizer: Adam, config: RecommendConfig, batch: Tensor) -> float:
    encoder, device = network.encoder, task.users.device
    encoder.train()
    optimizer.forget_gradients()
    x, edges, targets, visible = network.x, network.edges, batch.to(device), None
    if config.hidden_share or config.cold_share:
        x, edges, targets, visible = _hide(network, task, config, batch)
    vectors: Tensor = encoder(x, edges)
    ends = vectors[network.users], vectors[network.items]
    # The loss is computed in parts. Each adds to the gradient of the vectors, which then goes through the encoder once.
    inner = [part.detach().requires_grad_() for part in ends]
    total = torch.zeros((), device=device)
    for part in task.losses(inner[0], inner[1], targets, visible):
        part.backward()  # type: ignore[no-untyped-call]
        total += part.detach()
    torch.autograd.backward(ends, [part.grad for part in inner])
    optimizer.step()
    return total.item()


def _hide(
    network: Network, task: Task, config: RecommendConfig, batch: Tensor
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor] | None]:
    """Hide interactions, and treat some users and items as new: return features, edges, targets and what is visible.

    All that is hidden is drawn on the CPU, so that it is the same on every device.
    """
    device = task.users.device
    count, hidden = len(task.users), torch.zeros(len(task.users), dtype=torch.bool)
    hidden[batch[torch.rand(len(batch)) < config.hidden_share]] = True
    new = torch.rand(network.x.shape[0]) < config.cold_share
    # Half of those that are new have no interaction, the others have a few.
    shares = torch.where(new, FEW * torch.rand(len(new)) * (torch.rand(len(new)) < 0.5), 1.0).to(device)
    hidden, new, numbers = hidden.to(device), new.to(device), torch.rand(count).to(device)
    ends = torch.stack([network.users[task.users], network.items[task.items]])
    hidden |= numbers >= shares[ends].amin(0)
    shown = ends[:, ~hidden]
    edges = torch.cat([shown, shown.flip(0)], dim=1)
    x = network.without(new) if config.cold_share else network.x
    if not config.hidden_share:
        return x, edges, batch.to(device), None
    inside = torch.zeros(count, dtype=torch.bool, device=device)
    inside[batch.to(device)] = True
    targets = (hidden & inside).nonzero()[:, 0]
    if not len(targets):
        return x, edges, batch.to(device), None
    return x, edges, targets, (task.users[~hidden], task.items[~hidden])


def _validate(network: Network, log: Interactions, validation: Interactions, top: int) -> Epoch:
    lists, _ = top_items(*network.vectors(), top=top, seen=log.matrix)
    scores = score_lists(lists, validation.matrix)
    return {"val_ndcg": scores["ndcg"], "val_recall": scores["recall"]}


def _copy(encoder: NodeClassifier) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in encoder.state_dict().items()}
