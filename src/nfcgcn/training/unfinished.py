"""A series of runs on its way: kept on the disk while it lasts, so that it can go on after a kill.

``series.json`` says what the runs belong to. ``seed-N.state`` holds a finished run, or the place that it has reached:
weights, optimiser, generators, epochs so far and the best state. A file is replaced in one step, and it begins with the
sha256 of the rest. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from nfcgcn import files
from nfcgcn.errors import NFCError, NFCWarning, SilentError, WriteError
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.settings import MOST, one_line
from nfcgcn.training.adam import Adam
from nfcgcn.training.calibration import is_temperature
from nfcgcn.training.ranks import current
from nfcgcn.training.values import Epoch, Run

FORMAT = 2
SERIES = "series.json"
MOST_SERIES = 16 * 2**20
"""Most bytes of series.json that are read."""
SECONDS = 10.0
"""How often the place of a run is kept, unless writing takes long."""
SHARE = 0.05
"""At most this share of the time is spent on writing."""
BEST, NOW, MOMENTS, GENERATOR = "best.", "now.", "moments.", "generator."


class Within(NamedTuple):
    """A place within an epoch."""

    batch: int
    """How many batches are done."""
    loss: float
    weight: float
    correct: float
    """Sums over the nodes of these batches: weighted losses, weights, and nodes that were recognised."""


class Place(NamedTuple):
    """What a run has reached."""

    history: list[Epoch]
    best: Epoch | None
    state: dict[str, Tensor]
    """The weights of the best epoch."""
    seconds: float
    within: Within | None
    """Where in the epoch after the last one of `history`; None at its beginning."""


class ResumeError(NFCError):
    """An unfinished series that cannot go on."""


class Unfinished:
    """A folder that holds what is done of a series; ``identity`` is all that can change a result.

    Nothing is written before there is something to keep. ``notes``, plain values, are kept with the series.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder, self.identity = folder, json.loads(json.dumps(identity))
        self.notes: dict[str, Any] = {}
        self._begun = self._failed = False

    def resume(self) -> bool:
        """Take up what the folder holds; return False if it holds nothing, and refuse a series that is another."""
        try:
            content = current().from_first(lambda: files.read_regular(self.folder / SERIES, MOST_SERIES))
            series = files.parse_json(content)
            if series["format"] != FORMAT:
                raise ValueError(f"its format is {series['format']!r:.40}, and this version reads {FORMAT}")
            identity, self.notes = dict(series["identity"]), dict(series["notes"])
            if not isinstance(self.notes.get("settings", {}), dict):
                raise TypeError("its settings are not a table")
        except FileNotFoundError:
            return False
        except SilentError:
            raise
        except Exception as error:
            raise _refusal(self.folder / SERIES, error) from error
        names = dict.fromkeys([*self.identity, *identity])
        pairs = [(name, identity.get(name), self.identity.get(name)) for name in names]
        changed = [f"`{name}` was {was} and is now {now}" for name, was, now in pairs if was != now]
        if changed and not current().is_first:
            raise SilentError("rank 0 says why")
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise ResumeError(
                f"{self.folder.parent} cannot be resumed: {one_line(', '.join(changed[:3]))}{more}; "
                "continue it as it was started, or start anew with --force"
            )
        self._begun = True
        return True

    def refusal(self, error: Exception) -> NFCError:
        """Return the error for notes that cannot be used."""
        return _refusal(self.folder / SERIES, error)

    def clear(self) -> None:
        """Remove what is kept, and the folder around it if that is empty then."""
        if self.folder.exists() and current().is_first:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):
                self.folder.parent.rmdir()

    def copy_to(self, folder: Path) -> bool:
        """Copy what is kept into a folder; return whether there is anything."""
        kept = [path for path in (self.folder / SERIES, *sorted(self.folder.glob("seed-*.state"))) if path.is_file()]
        for path in kept:  # nothing else: a link to an endless device would fill the disk
            folder.mkdir(exist_ok=True)
            shutil.copyfile(path, folder / path.name)
        return bool(kept)

    def finished(self, seeds: Iterable[int]) -> dict[int, Run]:
        """Return those of the runs that are finished."""
        runs = {}
        for seed in seeds:
            if (read := self.read(seed)) is not None and read[0]["finished"]:
                notes, tensors = read
                history, state = tuple(notes["history"]), _part(tensors, BEST)
                temperature = notes["temperature"]
                runs[seed] = Run(history, notes["best"], state, notes["seconds"], temperature=temperature)
        return runs

    def restore(self, seed: int, run: Run, model: NodeClassifier) -> None:
        """Give a model the state of a finished run."""
        try:
            model.load_state_dict(run.state)
        except RuntimeError as error:
            raise _refusal(self._path(seed), error) from error
        model.temperature = run.temperature
        model.eval()

    def add(self, seed: int, run: Run) -> None:
        """Keep a finished run; one that was interrupted is not finished."""
        if not run.interrupted:
            notes = {"finished": True, "history": run.history, "best": run.best, "seconds": run.seconds}
            notes["temperature"] = run.temperature
            self.write(seed, notes, {BEST + name: tensor for name, tensor in run.state.items()})

    def write(self, seed: int, notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Replace what is kept of a seed. If that fails, training goes on without."""
        if self._failed or not current().is_first:
            return
        parts = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        # In pieces: weights can be a large part of memory, and each `+` would copy them.
        content = [json.dumps(notes).encode() + b"\n", safetensors.torch.save(parts)]
        digest = hashlib.sha256()
        for piece in content:
            digest.update(piece)
        try:
            if not self._begun:
                series = {"format": FORMAT, "identity": self.identity, "notes": self.notes}
                files.write_text(files.in_folder(self.folder, SERIES), files.to_json(series))
                self._begun = True
            with files.new_file(files.in_folder(self.folder, self._path(seed).name)) as file:
                file.writelines([digest.hexdigest().encode() + b"\n", *content])
        except WriteError as error:
            self._failed = True
            warnings.warn(f"no further progress is stored for --resume: {error}", NFCWarning, stacklevel=2)

    def read(self, seed: int) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return notes and tensors of a seed; None if nothing is kept of it."""
        if not self._begun and current().count == 1:  # of several, rank 0 alone knows
            return None
        path = self._path(seed)
        try:
            read = current().from_first(lambda: files.read_regular(path, files.MAX_BYTES))
            digest, _, content = read.partition(b"\n")
            if hashlib.sha256(content).hexdigest().encode() != digest:
                raise ValueError("it is not the file that was written; its sha256 differs")
            text, _, tensors = content.partition(b"\n")
            notes = files.parse_json(text)
            _check(notes)
            loaded = safetensors.torch.load(tensors)
            for name, tensor in loaded.items():
                if not name.startswith(GENERATOR) and (tensor.dtype != torch.float32 or not tensor.isfinite().all()):
                    raise ValueError(f"'{name:.80}' must hold finite numbers of float32")
            return notes, loaded
        except FileNotFoundError:
            return None
        except SilentError:
            raise
        except Exception as error:
            raise _refusal(path, error) from error

    def _path(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}.state"


class Bookmark:
    """The place that one run of a series has reached, kept every so often."""

    def __init__(self, series: Unfinished, seed: int, model: NodeClassifier, optimizer: Adam) -> None:
        self.series, self.seed, self.model, self.optimizer = series, seed, model, optimizer
        self.device = optimizer.parameters[0].device
        self._due = time.monotonic() + SECONDS

    def open(self) -> Place | None:
        """Put model, optimiser and generators where they were, and return the place."""
        read = self.series.read(self.seed)
        if read is None:
            return None
        notes, tensors = read
        try:
            best = _part(tensors, BEST)
            if notes["best"] is not None:
                self.model.load_state_dict(best)  # which must fit, too
            self.model.load_state_dict(_part(tensors, NOW))
            for number, moments in enumerate(self.optimizer.moments):
                moments.copy_(tensors[f"{MOMENTS}{number}"].reshape(moments.shape))
            self.optimizer.steps = notes["steps"]
            torch.set_rng_state(tensors[f"{GENERATOR}cpu"])
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(tensors[f"{GENERATOR}cuda"], self.device)
            within = None if notes.get("within") is None else Within(**notes["within"])
        except Exception as error:
            raise _refusal(self.series.folder, error) from error
        return Place(notes["history"], notes["best"], best, notes["seconds"], within)

    def keep(self, place: Place, start: float) -> None:
        """Keep a place, if it is time to; `start` is when the run began, by ``perf_counter``."""
        before = time.monotonic()
        if before < self._due:
            return
        tensors = {BEST + name: tensor for name, tensor in place.state.items()}
        tensors |= {NOW + name: tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"{MOMENTS}{number}": moments for number, moments in enumerate(self.optimizer.moments)}
        tensors[f"{GENERATOR}cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors[f"{GENERATOR}cuda"] = torch.cuda.get_rng_state(self.device)
        notes = {
            "finished": False,
            "history": place.history,
            "best": place.best,
            "seconds": time.perf_counter() - start,
            "steps": self.optimizer.steps,
            "within": None if place.within is None else place.within._asdict(),
        }
        self.series.write(self.seed, notes, tensors)
        after = time.monotonic()
        self._due = after + max(SECONDS, (after - before) / SHARE)


def _refusal(path: Path, error: Exception) -> NFCError:
    if not current().is_first:
        return SilentError("rank 0 says why")
    reason = one_line(error) or type(error).__name__
    return ResumeError(f"{path} is damaged or was not written by nfcgcn: {reason}; start anew with --force")


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _check(notes: Any) -> None:
    """Raise an error for notes that are not those of a run."""
    within = None if notes["finished"] else notes.get("within")
    for epoch in notes["history"]:
        if not Epoch.__required_keys__ <= epoch.keys() <= Epoch.__required_keys__ | Epoch.__optional_keys__:
            raise ValueError(f"an epoch lacks a figure, or has an unknown one: {', '.join(epoch):.80}")
    tables = [*notes["history"], *([within] if within else [])]
    numbers = [notes["seconds"], *(number for table in tables for number in table.values())]
    if not all(type(number) in (int, float) and abs(number) <= sys.float_info.max for number in numbers):
        raise ValueError("a figure is not a number")
    if notes["finished"] and not is_temperature(notes["temperature"]):
        raise ValueError("its temperature is not a number above 0")
    if not notes["finished"] and not (type(notes["steps"]) is int and 0 <= notes["steps"] <= MOST):
        raise ValueError("its number of steps is not a whole number of at least 0")
    if [epoch["epoch"] for epoch in notes["history"]] != list(range(1, len(notes["history"]) + 1)):
        raise ValueError("its epochs are not numbered from 1 on")
    if type(notes["finished"]) is not bool or (notes["best"] is None) != (not notes["history"]):
        raise ValueError("its best epoch is not one of its epochs")
    if notes["best"] is not None and notes["best"] not in notes["history"]:
        raise ValueError("its best epoch is not one of its epochs")
    if within is not None and set(within) != set(Within._fields):
        raise ValueError("its place within an epoch is not one")
    if not notes["history"] and (notes["finished"] or within is None):
        raise ValueError("it has no epoch")
