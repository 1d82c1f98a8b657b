"""What `nfcgcn train` does once its options are read: choose settings, train, score, write the run, draw its page."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

from nfcgcn import files
from nfcgcn.cli.console import Interruption, err, interruptible, out, this_command, training_bar
from nfcgcn.cli.resumption import chosen_before, open_series, remember_choice, say_what_is_left
from nfcgcn.cli.run_page import write_run_page
from nfcgcn.cli.selection import choose_settings
from nfcgcn.config.registry import Config
from nfcgcn.errors import NFCError, counted
from nfcgcn.evaluation import Repeat, TestScores, UnfinishedError, describe, majority_class, perceptron, repeat
from nfcgcn.graph import Graph
from nfcgcn.inference import checkpoint
from nfcgcn.inference.checkpoint import Scored
from nfcgcn.inference.pieces import compute, in_pieces
from nfcgcn.randomness import generator
from nfcgcn.reports import write_score
from nfcgcn.settings import one_line
from nfcgcn.training import DivergedError, Unfinished
from nfcgcn.training.ranks import joined
from nfcgcn.training.scores import SCORES
from nfcgcn.training.tracking import TensorBoardTracker

MOST_PICTURED = 600
"""The picture of the learned representation shows at most this many test nodes."""


@dataclass(frozen=True)
class Task:
    """What is to be trained, and how."""

    graph: Graph
    config: Config
    dataset: str | None
    """The name of a built-in dataset; None for a graph of the user's."""
    options: Mapping[str, Any]
    """The options of the dataset."""
    tables: Any
    """What the run remembers of the files that the graph came from."""
    seeds: range
    held: Mapping[str, Any] | None
    """Settings that are not chosen on validation nodes; None if none are to be chosen."""
    start: Mapping[str, torch.Tensor]
    """Weights to start with, by name."""
    device: torch.device
    jobs: int
    baselines: bool
    """Whether a perceptron is trained for comparison."""
    track: Path | None
    """The folder for TensorBoard."""


def run_task(task: Task, folder: Path, *, json_file: Path | None, force: bool, resume: bool) -> None:
    """Train once per seed, and write the run and its page to `folder`."""
    with interruptible() as interruption, joined(task.device) as ranks:
        series = open_series(
            folder,
            task.graph,
            task.config,
            first_seed=task.seeds[0],
            choosing=task.held is not None,
            device=task.device,
            resume=resume,
            start=task.start,
        )
        try:
            task = replace(task, config=_settle(task, series))
            repeats, failure = _repeat(task, series, tracked=ranks.is_first)
        except KeyboardInterrupt:
            kept = "nothing was written"
            if series.folder.exists():
                kept = f"{folder} keeps what was done, and --resume goes on with it"
            err.print(f"interrupted before the first run was scored; {kept}", soft_wrap=True)
            raise typer.Exit(interruption.exit_code) from None
        except DivergedError:  # it would again
            series.clear()
            raise
        whole = failure is None and len(repeats) == len(task.seeds) and not repeats[-1].run.interrupted
        simple = _perceptron(task, repeats) if task.baselines and whole else {}
        interruption.hold()
        stopping = task.config.training.stopping
        shown = max(repeats, key=lambda r: stopping.merit(r.run.best))
        scored = _scored(task.graph, shown, task.device)
        if not ranks.is_first:
            return
        result = _describe(task, repeats, simple)
        result["selection"] = series.notes.get("selection")
        with files.new_folder(folder, force=force, resume=True) as draft:
            runs = {r.seed: r.run for r in repeats}
            checkpoint.save_run(draft, task.graph, result, runs, shown.seed, scored, shown.split, task.tables)
            resumable = result["interrupted"] and series.copy_to(draft / files.UNFINISHED)
        if json_file:
            files.write_text(json_file, files.to_json(result))
        if result["interrupted"] and failure is None:
            more = "; --resume goes on with it" if resumable else ""
            err.print(f"interrupted: the best state so far was kept and scored{more}")
        _print_result(result, best_is=stopping.best_is)
        _draw(folder, interruption)
    if failure is not None:
        kept = counted(len(repeats), "seed")
        raise NFCError(f"{failure}; {folder} has the {kept} before it") from failure
    if result["interrupted"]:
        raise typer.Exit(interruption.exit_code)


def _settle(task: Task, series: Unfinished) -> Config:
    """Return the settings to train with: those of the task, or those chosen on validation nodes, now or before."""
    if task.held is None:
        return task.config
    config = chosen_before(series, task.config)
    if config is None:
        selection = choose_settings(task.graph, task.config, seed=task.seeds[0], held=task.held, device=task.device)
        remember_choice(series, selection)
        config = selection.config
    return config


def _repeat(task: Task, series: Unfinished, *, tracked: bool) -> tuple[Sequence[Repeat], UnfinishedError | None]:
    """Train once per seed; return the runs, and the error that ended the series early."""
    left = say_what_is_left(series, task.seeds)
    track = TensorBoardTracker(task.track, settings=task.config.values) if tracked and task.track else None
    try:
        with training_bar(left * task.config.training.epochs) as on_epoch:
            repeats = repeat(
                task.graph,
                task.config,
                task.seeds,
                device=task.device,
                jobs=task.jobs,
                on_epoch=on_epoch,
                track=track,
                keep=series,
                start=task.start,
            )
    except UnfinishedError as error:
        return error.repeats, error
    return repeats, None


def _describe(task: Task, repeats: Sequence[Repeat], simple: Mapping[str, TestScores]) -> dict[str, Any]:
    """Return the result of the runs, beside that of simple models."""
    result = describe(
        task.graph,
        task.config,
        repeats,
        device=task.device,
        command=this_command(),
        dataset_options=task.options if task.dataset else None,
        baselines={"majority class": majority_class(task.graph, repeats), **simple},
    )
    result["interrupted"] = result["interrupted"] or len(repeats) < len(task.seeds)
    return result


def _perceptron(task: Task, repeats: Sequence[Repeat]) -> dict[str, TestScores]:
    """Return the scores of a perceptron by its name; nothing if it fails or is interrupted, which costs no result."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the model's own training has warned already
            scores = perceptron(
                task.graph, task.config, repeats, dataset=task.dataset, device=task.device, jobs=task.jobs
            )
            return {"mlp": scores}
    except (KeyboardInterrupt, NFCError) as error:
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else one_line(error)
        err.print(f"no perceptron to compare with: {reason}", highlight=False, markup=False, soft_wrap=True)
        return {}


@torch.no_grad()
def _scored(graph: Graph, shown: Repeat, device: torch.device) -> Scored:
    """Return what the report shows of the test nodes."""
    nodes = shown.split.test
    pictured = np.arange(len(nodes))
    if len(nodes) > MOST_PICTURED:
        pictured = generator(shown.seed, "picture").choice(pictured, MOST_PICTURED, replace=False)
    if in_pieces(shown.model, graph):
        hidden = torch.from_numpy(compute(shown.model, graph, nodes[pictured], layer="last", device=device))
    else:
        hidden = shown.model.embed(graph.x.to(device), shown.model.edges_of(graph).to(device)).cpu()
    if hidden.layout != torch.strided:
        hidden = hidden.to_sparse()
    rows = hidden.index_select(0, torch.from_numpy(nodes[pictured]))
    return Scored(
        labels=graph.labels[nodes],
        predictions=shown.predictions[nodes],
        pictured=pictured,
        embedding=(rows.to_dense() if rows.layout != torch.strided else rows).numpy(),
        confidences=shown.probabilities.max(1),
    )


def _draw(folder: Path, interruption: Interruption) -> None:
    """Draw the page of a run that is already saved, so that nothing that happens meanwhile can take the run away."""
    remedy = f"{folder} has the whole run but no page; `nfcgcn report {shlex.quote(str(folder))}` draws it"
    try:
        interruption.release()
        write_run_page(folder)
    except KeyboardInterrupt:
        err.print(f"interrupted: {remedy}", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(interruption.exit_code) from None
    except Exception as error:
        raise NFCError(f"the page could not be drawn: {one_line(error) or type(error).__name__}; {remedy}") from error


def _print_result(result: dict[str, Any], *, best_is: str) -> None:
    test, val = result["test_accuracy"], result["val_accuracy"]
    spread = "" if test["std"] is None else f" ± {100 * test['std']:.2f}"
    count = len(result["seeds"])
    out.print(
        f"test accuracy [bold]{100 * test['mean']:.2f}{spread} %[/bold] over {count} seed{'s' if count > 1 else ''}, "
        f"at the epoch with the {best_is} (validation accuracy {100 * val['mean']:.2f} %); "
        f"{result['seconds']:.1f} s on {result['device']}",
        markup=True,
        soft_wrap=True,
    )
    for name, scores in {result["model"]: result["test_scores"], **result["baselines"]}.items():
        figures = [f"{SCORES[key].title} {write_score(key, value)}" for key, value in scores.items()]
        out.print(f"{name}: {', '.join(figures)}", highlight=False, markup=False, soft_wrap=True)
