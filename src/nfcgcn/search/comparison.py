"""Compare models on graphs: each with settings chosen in the same way, on the same splits, with paired differences.

Every choice of settings and every run is kept in a ledger as soon as it ends, as those of the reproduction are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from nfcgcn.config.inspection import check_classes
from nfcgcn.config.registry import MODELS, Config, make_config
from nfcgcn.data.splits import RANDOM
from nfcgcn.errors import ConfigError, GraphError, unknown
from nfcgcn.evaluation import environment, paired, summarise
from nfcgcn.graph import Graph
from nfcgcn.reproduction.experiment import Setup
from nfcgcn.reproduction.ledger import Key, Ledger, Record, key_of, read
from nfcgcn.reproduction.measurement import describe_machine
from nfcgcn.reproduction.schedule import Task
from nfcgcn.search.fingerprint import fingerprint
from nfcgcn.search.series import Series
from nfcgcn.training import choose_device

DEFAULT_MODELS = ("nfc-gcn", "gcn", "sage-mean", "gat", "mlp")


@dataclass(frozen=True)
class Comparison:
    """What models reach on graphs, as plain values ready for JSON."""

    values: dict[str, Any]
    failed: tuple[str, ...] = ()
    """One line per model and graph that could not be run."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One per graph and model, in the order given: scores, difference from the first model, cost, settings."""
        rows: list[dict[str, Any]] = self.values["results"]
        return rows

    def __str__(self) -> str:
        lines = []
        for row in self.rows:
            score = row["test_accuracy"]
            spread = "" if score["std"] is None else f" ± {100 * score['std']:.2f}"
            lines.append(f"{row['graph']}  {row['model']}  {100 * score['mean']:.2f}{spread} %  {row['verdict']}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Request:
    """What is to be compared, and how."""

    graphs: Sequence[Graph]
    models: Sequence[str] = DEFAULT_MODELS
    seeds: Sequence[int] = range(10)
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    choose: bool = True

    def check(self) -> None:
        """Raise an error for what cannot be compared, before anything is trained or written."""
        if not self.graphs or not self.models or not self.seeds:
            raise ConfigError("a comparison needs at least one graph, one model and one seed")
        for name in self.models:
            if name not in MODELS:
                raise ConfigError(unknown("model", name, MODELS))
        for graph in self.graphs:
            check_classes(graph)
            for name in self.models:
                config = self.start(graph, name)
                split = config.split.make(graph, self.seeds[0])
                for part in ("train", "val", "test"):
                    if not len(getattr(split, part)):
                        raise GraphError(
                            f"the split '{split.name}' of '{graph.name}' has no {part} nodes; choose another --split"
                        )
                config.build(graph, self.seeds[0])

    def start(self, graph: Graph, model: str) -> Config:
        """Return the settings that a model starts from; a setting that it does not have is left out."""
        known = make_config(model).values
        everywhere = {name for other in self.models for name in make_config(other).values}
        for name in self.settings:
            if name not in everywhere:
                raise ConfigError(unknown("setting", name, everywhere))
        own = {name: value for name, value in self.settings.items() if name in known}
        dataset = graph.name if self.preset and not self.preset.endswith(".toml") else None
        return make_config(model, graph=graph, dataset=dataset, preset=self.preset, settings=own)


def compare(
    graphs: Graph | Sequence[Graph],
    models: Sequence[str] = DEFAULT_MODELS,
    *,
    seeds: int | Sequence[int] = 10,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    select: bool = True,
    folder: Path | str | None = None,
    device: torch.device | str = "cpu",
    jobs: int | None = None,
    on_record: Callable[[Record, int, int], None] | None = None,
    on_wait: Callable[[list[str], int, int], None] | None = None,
) -> Comparison:
    """Train models on graphs, each with the same splits and seeds, and estimate how they differ.

    For each graph and model, settings are chosen on validation nodes (:func:`nfcgcn.select`), unless ``select`` is
    False or a ``preset`` is given; ``settings`` are held. With a random split they are chosen for every seed anew, as
    the validation nodes of one seed are test nodes of others; with a fixed one, once. Differences are paired over
    seeds, with 95 % intervals. ``folder`` keeps every finished run: the same call goes on after an
    interruption, and several processes may share it. On the CPU up to ``jobs`` runs train at the same time, by default
    one per core. ``on_record`` is called with each finished part, how many are finished and how many there are,
    ``on_wait`` about twice a second with the names of those under way, and the same numbers.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("digits")
    >>> result = nfcgcn.compare(graph, ["gcn", "mlp"], seeds=2, settings={"epochs": 2}, select=False)
    >>> [row["model"] for row in result.rows]
    ['gcn', 'mlp']
    """
    request = Request(
        graphs=[graphs] if isinstance(graphs, Graph) else list(graphs),
        models=list(dict.fromkeys(models)),
        seeds=range(seeds) if isinstance(seeds, int) else list(seeds),
        preset=preset,
        settings=settings or {},
        choose=select and preset is None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # every run would repeat them
        request.check()
        if folder is None:
            with TemporaryDirectory() as temporary:
                return _run(request, Path(temporary), torch.device(device), jobs, on_record, on_wait)
        return _run(request, Path(folder), torch.device(device), jobs, on_record, on_wait)


def _run(
    request: Request,
    folder: Path,
    device: torch.device,
    jobs: int | None,
    on_record: Callable[[Record, int, int], None] | None,
    on_wait: Callable[[list[str], int, int], None] | None,
) -> Comparison:
    device = choose_device(device.type)
    names = {graph.name: f"{graph.name} {fingerprint(graph)[:16]}" for graph in request.graphs}
    if len(names) < len(request.graphs):
        raise ConfigError("two of the graphs have the same name; give each its own")
    by_name = {names[graph.name]: graph for graph in request.graphs}
    started = [
        Setup("selection", name, model, request.start(graph, model).values, tuple(request.settings))
        for name, graph in by_name.items()
        for model in request.models
    ]
    with Ledger(folder) as ledger:
        choosing = [_seeds_of_choice(setup, request) for setup in started]
        total = len(started) * (len(request.seeds) + 1) + sum(map(len, choosing))
        series = Series(ledger, by_name, device, jobs=jobs, on_record=on_record, on_wait=on_wait, total=total)
        series.run(
            Task(setup, (seed,), history=False)
            for seed in request.seeds
            for setup, seeds in zip(started, choosing, strict=True)
            if seed in seeds
        )
        chosen = [
            (setup, _trained(setup, series.chosen(setup, seeds), request.seeds))
            for setup, seeds in zip(started, choosing, strict=True)
        ]
        series.run(_training_tasks(chosen, together=device.type == "cuda"))
        for _, trained in chosen:  # one at a time: its time is measured
            if first := trained.get(request.seeds[0]):
                series.run([Task(replace(first, kind="cost"), (request.seeds[0],), history=False)], alone=True)
    records = {key_of(r["setup"], r["seed"], r["where"]): r for r in read(folder)}
    rows = _rows(request, chosen, names, records, describe_machine(device))
    values = {
        "graphs": [graph.name for graph in request.graphs],
        "models": list(request.models),
        "seeds": list(request.seeds),
        "selected": request.choose,
        "settings": dict(request.settings),
        "results": rows,
        **environment(device),
    }
    failed = [series.failed.get((setup.dataset, setup.model)) for setup in started]
    return Comparison(values, tuple(line for line in failed if line))


def _seeds_of_choice(setup: Setup, request: Request) -> list[int]:
    """Return the seeds on whose validation nodes settings are chosen; those of a fixed split are the same for all."""
    if not request.choose:
        return []
    return list(request.seeds if setup.config().split.split in RANDOM else request.seeds[:1])


def _trained(setup: Setup, chosen: Mapping[int, Mapping[str, Any]] | None, seeds: Sequence[int]) -> dict[int, Setup]:
    """Return what each seed trains, with the settings chosen for it; nothing if their choice failed (None)."""
    if chosen is None:
        return {}
    values = {seed: chosen.get(seed) or chosen.get(seeds[0]) or setup.values for seed in seeds}
    return {seed: replace(setup, kind="train", values=own, held=()) for seed, own in values.items()}


def _training_tasks(chosen: Sequence[tuple[Setup, Mapping[int, Setup]]], *, together: bool) -> Iterator[Task]:
    """List the runs: seed by seed or, on a GPU, all seeds with the same settings together."""
    if not together:
        for seed in dict.fromkeys(seed for _, trained in chosen for seed in trained):
            yield from (Task(trained[seed], (seed,), history=False) for _, trained in chosen if seed in trained)
        return
    for _, trained in chosen:
        for setup in {other.id: other for other in trained.values()}.values():
            yield Task(setup, tuple(seed for seed, own in trained.items() if own.id == setup.id), history=False)


def _rows(
    request: Request,
    chosen: Sequence[tuple[Setup, Mapping[int, Setup]]],
    names: Mapping[str, str],
    records: Mapping[Key, Record],
    machine: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return one row per graph and model that has a run."""
    rows = []
    for graph in request.graphs:
        scores: dict[str, dict[int, float]] = {}
        for setup, trained in chosen:
            if setup.dataset != names[graph.name]:
                continue
            runs = {
                seed: record for seed, own in trained.items() if (record := records.get(key_of(own.id, seed, machine)))
            }
            if not runs:
                continue
            scores[setup.model] = {seed: r["test_accuracy"] for seed, r in runs.items()}
            first = next(iter(scores))
            difference = None if setup.model == first else paired(scores[setup.model], scores[first])
            start = request.seeds[0]
            cost = records.get(key_of(replace(trained[start], kind="cost").id, start, machine)) or {}
            rows.append(
                {
                    "graph": graph.name,
                    "model": setup.model,
                    "seeds": list(runs),
                    "test_accuracy": summarise(list(scores[setup.model].values())),
                    "val_accuracy": summarise([r["val_accuracy"] for r in runs.values()]),
                    "difference": None if difference is None else asdict(difference),
                    "verdict": _verdict(setup.model, first, difference),
                    "seconds": sum(r["seconds"] for r in runs.values()),
                    "ms_per_epoch": cost and 1000 * cost["seconds_per_epoch"],
                    "peak_mib": cost and cost["peak_mib"],
                    "parameters": next(iter(runs.values()))["parameters"],
                    "configs": {str(seed): dict(trained[seed].values) for seed in runs},
                    "selections": {
                        str(seed): record["selection"]
                        for seed in request.seeds
                        if (record := records.get(key_of(setup.id, seed, machine)))
                    },
                }
            )
    return rows


def _verdict(model: str, first: str, difference: Any) -> str:
    if model == first:
        return "compared with the others"
    if difference is None:
        return "unknown: more than one seed is needed"
    side = "above" if difference.is_above else "below" if difference.is_below else "no clear difference"
    interval = f"{100 * difference.low:+.2f} to {100 * difference.high:+.2f}"
    return f"{100 * difference.mean:+.2f} ({interval}): {side}"
