"""Run folders: written whole or not at all, weights as safetensors, the rest as JSON; nothing is ever unpickled."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from nfcgcn.errors import NFCError
from nfcgcn.evaluation import Repeat
from nfcgcn.graph import Graph
from nfcgcn.models import NodeClassifier
from nfcgcn.systems import make_config

FORMAT = 2
"""Version of the run folder's layout; a reader refuses versions it does not know."""


class CheckpointError(NFCError):
    """A run folder that cannot be written or read."""


def check_free(folder: Path, *, force: bool) -> None:
    """Refuse a folder that holds something already, unless it is an earlier run and `force` is on."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} exists and is no run of nfcgcn; choose another folder with --out")
    if not force:
        raise CheckpointError(
            f"{folder} holds an earlier run; choose another folder with --out or replace it by --force"
        )


@contextmanager
def new_folder(folder: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder to write into; it takes the place of `folder` only when the block ends well."""
    check_free(folder, force=force)
    with _plain_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            draft.chmod(0o755)
            yield draft
            if folder.exists():
                old = draft.with_name(draft.name + "-old")
                folder.rename(old)
                draft.rename(folder)
                shutil.rmtree(old)
            else:
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written later, before the work that would be lost."""
    with _plain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with _plain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}-", delete=False) as draft:
            name = Path(draft.name)
            try:
                draft.write(content)
                draft.flush()
                name.chmod(0o644)
                name.replace(path)
            finally:
                name.unlink(missing_ok=True)


def to_json(value: Any) -> str:
    """Write a value as indented JSON text."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def save_run(folder: Path, graph: Graph, result: Mapping[str, Any], repeats: Sequence[Repeat], shown: Repeat) -> None:
    """Write config, result, metrics a epoch of every seed, and the weights of the run `shown`."""
    config = {
        "format": FORMAT,
        "model": result["model"],
        "settings": result["config"],
        "seed": shown.seed,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "feature_names": graph.feature_names,
        "class_names": graph.class_names,
        "dataset": result["dataset"],
        "dataset_options": result["dataset_options"],
        "encoding": graph.encoding,
    }
    write_text(folder / "config.json", to_json(config))
    write_text(folder / "result.json", to_json(result))
    lines = [json.dumps({"seed": r.seed, **epoch}) for r in repeats for epoch in r.run.history]
    write_text(folder / "metrics.jsonl", "\n".join(lines) + "\n")
    save_file(shown.run.state, folder / "weights.safetensors", metadata={"format": "pt"})
    (folder / "weights.safetensors").chmod(0o644)


@dataclass(frozen=True)
class SavedRun:
    """What a run folder keeps: the model, and what one must know to give it another graph."""

    folder: Path
    model: NodeClassifier
    system: str
    settings: dict[str, Any]
    seed: int
    num_features: int
    feature_names: tuple[str, ...] | None
    class_names: tuple[str, ...] | None
    dataset: str
    dataset_options: dict[str, Any]
    encoding: dict[str, Any] | None
    """How the columns of the training graph's tables were read; None where it did not come from tables."""

    def class_name(self, label: int) -> str:
        """Name a class as the training graph did."""
        return self.class_names[label] if self.class_names is not None else str(label)


def load_run(folder: Path | str) -> SavedRun:
    """Read a run folder back; its model is in evaluation mode."""
    folder = Path(folder)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        found = config["format"]
        if found != FORMAT:
            raise CheckpointError(f"{folder} has format {found}, this version of nfcgcn reads {FORMAT}; train anew")
        weights = folder / "weights.safetensors"
        weights.stat()  # names the file where it is missing, which safetensors does not
        state = load_file(weights)
        model = make_config(config["model"], settings=config["settings"]).build_for(
            int(config["num_features"]), int(config["num_classes"]), seed=int(config["seed"])
        )
        model.load_state_dict(state)
        return SavedRun(
            folder=folder,
            model=model.eval(),
            system=config["model"],
            settings=dict(config["settings"]),
            seed=int(config["seed"]),
            num_features=int(config["num_features"]),
            feature_names=None if config["feature_names"] is None else tuple(config["feature_names"]),
            class_names=None if config["class_names"] is None else tuple(config["class_names"]),
            dataset=config["dataset"],
            dataset_options=dict(config["dataset_options"]),
            encoding=config["encoding"],
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(f"{folder} is no run folder: {Path(error.filename).name} is missing") from error
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(f"{folder} is damaged or foreign: {reason}") from error


def load_model(folder: Path | str) -> NodeClassifier:
    """Rebuild the model that a run folder keeps, in evaluation mode."""
    return load_run(folder).model


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
