"""Whole epochs as CUDA graphs: step, validation and the choice of the best state happen on the device.

The host launches one graph per epoch and reads the figures every few epochs. Early stopping is exact all the same: once
a run has given up, the device no longer changes its best state, and later epochs of that run are not reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nfcgcn.graph import Graph, Ints
from nfcgcn.kernels.choice import triton_refusal
from nfcgcn.kernels.reference.adam import corrections
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.model import NFCGCN
from nfcgcn.randomness import torch_randomness
from nfcgcn.training import side_by_side
from nfcgcn.training.values import Epoch, Run, TrainingConfig, check_finite

LOOK = 25
"""Epochs between two reads of the figures by the host."""
WARM_UP = 2
"""Steps before the capture, in which libraries allocate what they must not allocate during a capture."""


class Refusal(Exception):  # noqa: N818  (not an error: training takes another way)
    """Why these models cannot train as a CUDA graph, or not together."""


class One(nn.Module):
    """A single model of any kind, called as a stack of one."""

    def __init__(self, model: NodeClassifier, x: Tensor, edge_index: Tensor) -> None:
        super().__init__()
        self.model, self.inputs = model, (x, edge_index)
        self.names = [name for name, _ in model.named_parameters()]
        self.decayed = model.decayed_parameters()

    def forward(self, _: Tensor) -> Tensor:
        """Return class scores ``[1, N, C]``."""
        scores: Tensor = self.model(*self.inputs)
        return scores[None]

    def forget(self) -> None:
        """Forget what former passes have derived from the graph: nothing."""

    def draw_seeds(self, _: int) -> list[int]:
        """Return the seeds that a training pass needs: none, it draws its masks on the device."""
        return []

    def states(self, values: Sequence[Tensor]) -> list[dict[str, Tensor]]:
        """Return the state of the model with these values."""
        state = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
        return [state | {name: v.detach().cpu().clone() for name, v in zip(self.names, values, strict=True)}]


class _Start(torch.autograd.Function):
    """A number from which a backward pass starts with a given gradient of the scores.

    Given to `Tensor.backward`, the gradient would be checked by code that loads SymPy, which takes seconds.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, grad: Tensor) -> Tensor:
        ctx.save_for_backward(grad)
        return scores.new_empty(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return *ctx.saved_tensors, None


class Trainer:
    """A stack of runs on a device: its steps and their results so far."""

    def __init__(
        self,
        net: side_by_side.SideBySide | One,
        graph: Graph,
        parts: Sequence[tuple[Ints, Ints]],
        config: TrainingConfig,
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        self.net, self.config, self.seeds, self.device = net, config, seeds, device
        from nfcgcn.kernels.gpu.adam import adam
        from nfcgcn.kernels.gpu.cross_entropy import cross_entropy
        from nfcgcn.kernels.gpu.launch import compile_ahead

        self.adam, self.cross_entropy, self.compile_ahead = adam, cross_entropy, compile_ahead
        y = graph.y.to(device)
        self.params = list(self.net.parameters())
        self.train_nodes, self.val_nodes = (_stacked(nodes).to(device) for nodes in zip(*parts, strict=True))
        self.train_labels, self.val_labels = y[self.train_nodes], y[self.val_nodes]
        decayed = self.net.decayed
        self.decays = [config.weight_decay if any(p is d for d in decayed) else 0.0 for p in self.params]
        self.moments = [torch.zeros(2, *p.shape, device=device) for p in self.params]
        self.corrections = corrections(config.epochs).to(device)
        runs = len(seeds)
        self.epoch = torch.zeros(1, dtype=torch.int64, device=device)
        self.draws = self.draw_seeds().to(device)
        self.history = torch.zeros(config.epochs, 4, runs, dtype=torch.float64, device=device)
        self.best = torch.zeros(2, runs, dtype=torch.float64, device=device)
        self.best_epoch = torch.zeros(runs, dtype=torch.int64, device=device)
        self.stopped = torch.zeros(runs, dtype=torch.bool, device=device)
        self.best_params = [torch.zeros_like(p) for p in self.params]
        self.start_params = [p.detach().clone() for p in self.params]

    def train_step(self) -> Tensor:
        """Make a step; return loss and accuracy of its training pass, ``[2, S]``."""
        self.net.train()
        for p in self.params:
            p.grad = None
        seeds = self.draws.index_select(0, self.epoch)[0]
        scores = self.net(seeds)
        loss, accuracy, grad = self.cross_entropy(scores, self.train_nodes, self.train_labels, grad=True)
        _Start.apply(scores, grad).backward()  # type: ignore[no-untyped-call]
        for p, moments, decay in zip(self.params, self.moments, self.decays, strict=True):
            if p.grad is None:
                raise Refusal("the scores do not depend on one of the parameters")
            rate = self.config.learning_rate
            self.adam(p.data, p.grad, moments, self.corrections, self.epoch, rate=rate, decay=decay)
        return torch.stack([loss.double(), accuracy])

    @torch.no_grad()
    def validate(self) -> Tensor:
        """Return loss and accuracy on the validation nodes, ``[2, S]``."""
        self.net.eval()
        loss, accuracy, _ = self.cross_entropy(self.net(self.draws[0]), self.val_nodes, self.val_labels, grad=False)
        return torch.stack([loss.double(), accuracy])

    @torch.no_grad()
    def run_epoch(self) -> None:
        """Train, validate, record the figures, and keep the state if it is the best so far."""
        with torch.enable_grad():
            trained = self.train_step()
        validated = self.validate()
        self.history.index_copy_(0, self.epoch, torch.cat([trained, validated])[None])
        loss, accuracy = -validated[0], validated[1]
        merit = torch.stack([accuracy, loss] if self.config.monitor == "accuracy" else [loss, accuracy])
        ahead = (merit[0] > self.best[0]) | ((merit[0] == self.best[0]) & (merit[1] > self.best[1]))
        better = (ahead | (self.epoch == 0)) & ~self.stopped
        self.epoch += 1
        self.best.copy_(torch.where(better, merit, self.best))
        self.best_epoch.copy_(torch.where(better, self.epoch, self.best_epoch))
        for kept, p in zip(self.best_params, self.params, strict=True):
            kept.copy_(torch.where(better.view(-1, *[1] * (p.dim() - 1)) if len(self.seeds) > 1 else better, p, kept))
        if self.config.patience is not None:
            self.stopped |= self.epoch - self.best_epoch >= self.config.patience

    def reset(self) -> None:
        """Go back to before the first epoch."""
        with torch.no_grad():
            for p, start in zip(self.params, self.start_params, strict=True):
                p.copy_(start)
        for t in (*self.moments, self.epoch, self.history, self.best, self.best_epoch, self.stopped):
            t.zero_()

    def draw_seeds(self) -> Tensor:
        """Draw all seeds of all epochs, ``[epochs, draws, S]``, for each run as if it trained alone."""
        drawn = []
        for run, seed in enumerate(self.seeds):
            with torch_randomness(seed, "training"):
                drawn.append([self.net.draw_seeds(run) for _ in range(self.config.epochs)])
        return torch.tensor(drawn, dtype=torch.int64).permute(1, 2, 0).contiguous()

    def capture(self, step: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """Capture a step as a graph, then reset the state to that before the first epoch."""
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        graph = torch.cuda.CUDAGraph()
        try:
            self.compile_ahead(step, side)
            self.net.forget()
            self.reset()
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    step()
                    self.epoch.zero_()
            torch.cuda.current_stream(self.device).wait_stream(side)
            with torch.cuda.graph(graph):
                step()
        except RuntimeError as error:
            torch.cuda.synchronize(self.device)
            # For the generator a failed capture never ends, and it would refuse to draw from now on.
            generator = torch.cuda.default_generators[self.device.index or 0]
            generator.graphsafe_set_state(generator.clone_state())
            raise Refusal(str(error).splitlines()[0]) from error
        finally:
            self.reset()
        return graph


def fit_as_graph(
    models: Sequence[NodeClassifier],
    graph: Graph,
    parts: Sequence[tuple[Ints, Ints]],
    config: TrainingConfig,
    *,
    seeds: Sequence[int],
    device: torch.device,
    on_epoch: Callable[[int, Epoch], None] | None,
) -> list[Run]:
    """Train all models at once and leave each in its best state, or raise :class:`Refusal`, the models unchanged."""
    if config.batch_size is not None:
        raise Refusal("the training nodes are taken in batches")
    if config.class_weight is not None:
        raise Refusal("the classes have weights")
    if config.monitor not in ("accuracy", "loss"):
        raise Refusal(f"the best epoch is chosen by {config.monitor}")
    if missing := triton_refusal():
        raise Refusal(missing)
    start = time.perf_counter()
    for model in models:
        model.to(device)
    with _rounding(config):
        # Seeded twice: the warm-up draws too.
        with torch_randomness(seeds[0], "training", device):
            trainer = Trainer(make_net(models, graph, config, device), graph, parts, config, seeds, device)
            replay = trainer.capture(trainer.run_epoch)
        with torch_randomness(seeds[0], "training", device):
            record = Record(trainer, on_epoch)
            interrupted = _replay(replay, trainer, record)
    states = trainer.net.states(trainer.best_params)
    seconds = (time.perf_counter() - start) / len(models)
    runs = []
    for model, history, best, state in zip(models, record.histories, record.best, states, strict=True):
        assert best is not None  # noqa: S101  (epochs >= 1)
        model.load_state_dict(state)
        model.eval()
        runs.append(Run(tuple(history), best, state, seconds, interrupted))
    return runs


def _replay(replay: torch.cuda.CUDAGraph, trainer: Trainer, record: Record) -> bool:
    """Run the epochs, reading the figures every `LOOK` epochs; return whether that was interrupted."""
    epochs = trainer.config.epochs
    try:
        while record.seen < epochs and not all(record.gone):
            until = min(record.seen + LOOK, epochs)
            for _ in range(record.seen, until):
                replay.replay()
            record.read(until)
    except KeyboardInterrupt:
        done = int(trainer.epoch)
        if not done:
            raise
        record.read(done)
        return True
    return False


class Record:
    """The figures of each run's epochs, up to the one after which it gave up."""

    def __init__(self, trainer: Trainer, on_epoch: Callable[[int, Epoch], None] | None) -> None:
        self.trainer, self.on_epoch = trainer, on_epoch
        self.seen = 0
        self.histories: list[list[Epoch]] = [[] for _ in trainer.seeds]
        self.best: list[Epoch | None] = [None] * len(trainer.seeds)
        self.gone = [False] * len(trainer.seeds)

    def read(self, until: int) -> None:
        """Read what the device has recorded for the epochs up to this one."""
        stopping = self.trainer.config.stopping
        figures = self.trainer.history[self.seen : until].tolist()
        for number, of_runs in enumerate(figures, self.seen + 1):
            self.seen = number
            for run, values in enumerate(zip(*of_runs, strict=True)):
                if self.gone[run]:
                    continue
                keys = ("train_loss", "train_accuracy", "val_loss", "val_accuracy")
                epoch: Epoch = {"epoch": number, **dict(zip(keys, values, strict=True))}  # type: ignore[typeddict-item]
                check_finite(epoch, self.trainer.config, self.trainer.seeds[run])
                self.histories[run].append(epoch)
                best = self.best[run] = stopping.best(self.best[run], epoch)
                self.gone[run] = stopping.gives_up(number, best["epoch"])
                if self.on_epoch:
                    self.on_epoch(run, epoch)


def make_net(
    models: Sequence[NodeClassifier], graph: Graph, config: TrainingConfig, device: torch.device
) -> side_by_side.SideBySide | One:
    """Return the models as one that a trainer calls; they are on the device already."""
    if graph.is_weighted:
        raise Refusal("the edges have weights")
    x, edge_index = graph.x.to(device), graph.edge_index.to(device)
    reason = side_by_side.refusal(models, x)
    if reason is None:
        return side_by_side.SideBySide(models, x, edge_index, config.precision)  # type: ignore[arg-type]
    if len(models) > 1:
        raise Refusal(reason)
    model = models[0]
    if isinstance(model, NFCGCN):
        raise Refusal(reason)
    if type(model).further_loss is not NodeClassifier.further_loss:
        raise Refusal("the loss is not that of the scores alone")
    if type(model).score_nodes is not NodeClassifier.score_nodes:
        raise Refusal("the model samples nodes for every step")
    if getattr(model.config, "edge_dropout", 0):
        raise Refusal("the model leaves out edges, other ones in every step")
    return One(model, x, edge_index)


def _stacked(nodes: Sequence[Ints]) -> Tensor:
    if any(len(n) != len(nodes[0]) for n in nodes):
        raise Refusal("the splits differ in size")
    return torch.stack([torch.from_numpy(n) for n in nodes])


@contextmanager
def _rounding(config: TrainingConfig) -> Iterator[None]:
    """Let PyTorch's own products round as the config says."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = config.precision != "float32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
