"""Who wants to hear of runs while they train: any object with two methods, or TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from nfcgcn.errors import ConfigError
from nfcgcn.training.values import Epoch, Run


class Tracker(Protocol):
    """What hears of runs while they train: any object with these two methods.

    Both are called in the process and the thread that called ``fit`` or ``repeat``, whatever the number of processes.
    Epochs of one seed come in order; those of seeds that train at the same time come in turns. On a GPU, where whole
    epochs run as CUDA graphs, they come in blocks of 25. An error that a method raises ends training.

    >>> import nfcgcn
    >>> class Printer:
    ...     def on_epoch(self, seed, epoch):
    ...         print(f"seed {seed}, epoch {epoch['epoch']}")
    ...     def on_end(self, seed, run):
    ...         print(f"seed {seed}: {len(run.history)} epochs")
    >>> graph = nfcgcn.load("digits")
    >>> config = nfcgcn.make_config("mlp", dataset="digits", settings={"epochs": 1})
    >>> model, split = config.build(graph, seed=0), config.split.make(graph, 0)
    >>> _ = nfcgcn.fit(model, graph, split, config.training, track=Printer())
    seed 0, epoch 1
    seed 0: 1 epochs
    """

    def on_epoch(self, seed: int, epoch: Epoch) -> None:
        """Hear of an epoch: a mapping with its number, ``epoch``, from 1 on, and its figures by name."""

    def on_end(self, seed: int, run: Run) -> None:
        """Hear that a run has ended, by itself or because it was interrupted; one that diverged has no end."""


class TensorBoardTracker:
    """Writes the figures of every epoch for TensorBoard, in one folder per seed: ``tensorboard --logdir FOLDER``.

    ``settings`` are shown as a text beside the curves. Needs the package tensorboard: ``pip install 'nfcgcn[track]'``.

    >>> tracker = TensorBoardTracker("runs/track")  # doctest: +SKIP
    >>> run = nfcgcn.fit(model, graph, split, track=tracker)  # doctest: +SKIP
    """

    def __init__(self, folder: Path | str, *, settings: Mapping[str, Any] | None = None) -> None:
        check_tensorboard()
        self.folder, self.settings = Path(folder), settings or {}
        self._writers: dict[int, Any] = {}

    def on_epoch(self, seed: int, epoch: Epoch) -> None:
        """Write the figures of an epoch."""
        number = epoch["epoch"]
        if seed not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            # Of a run that goes on, what was written beyond this epoch before it was killed is dropped.
            writer = self._writers[seed] = SummaryWriter(str(self.folder / f"seed-{seed}"), purge_step=number)
            if self.settings:
                rows = [f"| {name} | {value} |" for name, value in self.settings.items()]
                writer.add_text("settings", "\n".join(["| setting | value |", "| --- | --- |", *rows]), number)
        for name, value in epoch.items():
            if name != "epoch":
                part, _, figure = name.partition("_")
                self._writers[seed].add_scalar(f"{figure}/{part}", value, number)

    def on_end(self, seed: int, run: Run) -> None:
        """Write which epoch was the best, and close the files of this seed."""
        writer = self._writers.pop(seed, None)
        if writer is not None:
            writer.add_scalar("best epoch", run.best["epoch"], len(run.history))
            writer.close()


def check_tensorboard() -> None:
    """Refuse to track runs where TensorBoard, or a package that it needs, is missing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ConfigError("tracking needs the package tensorboard: pip install 'nfcgcn[track]'") from error
