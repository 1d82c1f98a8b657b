"""`nfcgcn train --resume`: what an unfinished run belongs to, and what is left of it to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nfcgcn import files
from nfcgcn.cli.console import err
from nfcgcn.config.registry import SELECTED, Config, make_config
from nfcgcn.config.selection import Selection
from nfcgcn.errors import ConfigError
from nfcgcn.evaluation import environment, processor
from nfcgcn.graph import Graph
from nfcgcn.search.fingerprint import fingerprint
from nfcgcn.training import Unfinished
from nfcgcn.training.ranks import current


def open_series(
    folder: Path,
    graph: Graph,
    config: Config,
    *,
    first_seed: int,
    choosing: bool,
    device: torch.device,
    resume: bool,
    start: Mapping[str, torch.Tensor],
) -> Unfinished:
    """Return where to keep the runs of `train` while they last, with what is there already if `resume` is true."""
    here = environment(device)
    identity: dict[str, Any] = {
        "graph": f"{graph.name} {fingerprint(graph)[:16]}",
        "model": config.name,
        "preset": config.preset,
        **config.values,
        "--select": choosing,
        "--seed": first_seed,
        **({"--init": _digest(start)} if start else {}),
        **{f"version of {name}": number for name, number in here["versions"].items()},
        "commit": here["commit"],
        "device": device.type,
        "processor": processor(device),
    }
    if config.training.fan_out is not None:
        # Dropout masks depend on the parts of a batch, and so on the number of processes if that is theirs.
        identity["batch_parts"] = config.training.batch_parts or current().count
    current().agree("graph", identity["graph"])
    current().agree("command or version", hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:16])
    series = Unfinished(folder / files.UNFINISHED, identity)
    if not resume:
        series.clear()
    elif not series.resume():
        err.print(f"{folder} holds no unfinished run; starting from the beginning", soft_wrap=True)
    return series


def _digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return what some weights are known by."""
    content = b"".join(name.encode() + tensors[name].numpy().tobytes() for name in sorted(tensors))
    return hashlib.sha256(content).hexdigest()[:16]


def remember_choice(series: Unfinished, selection: Selection) -> None:
    """Keep the chosen settings with the series."""
    series.notes = {"settings": selection.config.values, "selection": selection.describe()}


def chosen_before(series: Unfinished, config: Config) -> Config | None:
    """Return the settings that were chosen when the series began; None if none were."""
    settings = series.notes.get("settings")
    if settings is None:
        return None
    try:
        return replace(make_config(config.name, settings=settings), preset=SELECTED)
    except ConfigError as error:
        raise series.refusal(error) from error


def say_what_is_left(series: Unfinished, seeds: Sequence[int]) -> int:
    """Say how far a resumed series is, and return how many seeds are left."""
    done = series.finished(seeds)
    places = [(seed, read[0]) for seed in seeds if seed not in done and (read := series.read(seed)) is not None]
    if done or places:
        under_way = "".join(f"; seed {seed} is at epoch {len(notes['history'])}" for seed, notes in places)
        err.print(f"resumed: {len(done)} of {len(seeds)} seeds are done{under_way}", soft_wrap=True)
    return len(seeds) - len(done)
