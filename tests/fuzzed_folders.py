"""Odd and damaged presets, studies and folders for `fuzz.py`: of runs, unfinished ones too, and of comparisons."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, load_file, save, save_file

import nfcgcn
from fuzzed_graphs import NUMBERS, TEXTS, Draw
from nfcgcn.cli.report import write_comparison_page
from nfcgcn.cli.resumption import chosen_before
from nfcgcn.cli.run_page import write_run_page
from nfcgcn.config.registry import MODELS, Config, make_config
from nfcgcn.evaluation import describe, repeat
from nfcgcn.explore import Explorer, Subject, page_file, to_gexf
from nfcgcn.files import to_json
from nfcgcn.inference.checkpoint import Scored, load_run, save_run
from nfcgcn.search.comparison import compare
from nfcgcn.search.tuning import tune
from nfcgcn.settings import settings_of
from nfcgcn.training import Unfinished
from nfcgcn.training import unfinished as unfinished_module
from random_graphs import random_graph

ODD = (None, -1, 0, 10**9, 10**400, "x", [], {}, [1], {"a": 1}, 1.5, True, float("nan"), "\x1b", [["a"]], 1e300, 2**61)
"""Values that hardly anything in a file of JSON may have."""


def settings(draw: Draw, model: str, share: float = 0.15) -> dict[str, Any]:
    """Some settings of a model at odd but legal values, and some that are not."""
    classes = (MODELS[model].config, type(make_config(model).training))
    return odd_settings(draw, classes, (*MODELS[model].fixed, "epochs", "precision", "backend"), share)


def odd_settings(draw: Draw, classes: tuple[type, ...], but: tuple[str, ...], share: float) -> dict[str, Any]:
    """Some settings of some classes at odd values."""
    values: dict[str, Any] = {}
    for name, s in {name: s for c in classes for name, s in settings_of(c).items()}.items():
        if not draw.chance(share) or name in but:
            continue
        if s.choices:
            values[name] = draw.one(s.choices)
        elif draw.chance(0.1):
            values[name] = draw.one((0, -1, 1e400, "x", None, [1], 10**400, 10**9, True, "nan", 10**6, 1e-300))
        else:
            whole = s.type is not float
            values[name] = draw.one((1, 2, 3, 5)) if whole else draw.one((1e-3, 0.5, 0.999, draw.one((0.0, 1.0))))
    return values


def presets(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    model = draw.one(MODELS)
    values = settings(draw, model, draw.one((0.1, 0.4)))
    lines = [f"{key} = {json.dumps('none' if value is None else value)}" for key, value in values.items()]
    odd = (f"x = {'[' * 2000}{']' * 2000}", f"activation{'.a' * 2000} = 1", "x = 1" + "0" * 400)
    lines += [draw.one(odd)] if draw.chance(0.1) else []
    text = "\n".join([f"[{draw.one(TEXTS) if draw.chance(0.05) else model}]", *lines])
    draw.write(folder / "p.toml", text.encode(), 0.2)
    config = make_config(model, preset=str(folder / "p.toml"), settings={"epochs": 1, "split": "ratio"})
    repeat(random_graph(40, 12, sparse=draw.chance(0.5)), config, [0])
    return None


def studies(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    shutil.copy(SEEDS["study file"], folder / "s.jsonl")
    lines = (folder / "s.jsonl").read_bytes().split(b"\n")
    values = (b"1" + b"0" * 400, b"NaN", b"-1", b"null", b"[]", b'"x"', b"{}", b"1e400", b"[" * 2000, b"true")
    for _ in range(draw.one((0, 1, 2))):
        place = int(draw.rng.integers(len(lines)))
        record = lines[place].split(b":")
        record[int(draw.rng.integers(len(record)))] = b" " + draw.one(values) + draw.one((b",", b"}", b""))
        lines[place] = b":".join(record) if draw.chance(0.8) else lines[int(draw.rng.integers(len(lines)))]
    draw.write(folder / "s.jsonl", b"\n".join(lines), 0.3)
    tune(*SEEDS["study"], trials=3, study=folder / "s.jsonl")
    return None


def change(draw: Draw, values: Any, times: int) -> None:
    """Replace or remove some of the values in what JSON holds, at any depth."""
    for _ in range(times):
        inside, key = values, None
        while isinstance(inside, dict | list) and inside and (key is None or draw.chance(0.8)):
            around, key = inside, draw.one(inside if isinstance(inside, dict) else range(len(inside)))
            inside = around[key]
        if key is None:
            return
        if draw.chance(0.1):
            del around[key]
        else:
            around[key] = copy.deepcopy(draw.one(ODD))


def other_tensors(draw: Draw, state: dict[str, Any]) -> dict[str, Any]:
    """Give some tensors other values, types or shapes."""
    changes: tuple[Callable[[Any], Any], ...] = (
        torch.Tensor.double, torch.Tensor.int, torch.Tensor.half, torch.Tensor.ravel, torch.zeros_like,
        lambda t: t[:0], lambda t: t[None],
        lambda t: torch.full_like(t, min(draw.one(NUMBERS), 3e38) if t.is_floating_point() else 255),
    )  # fmt: skip
    return {
        draw.one((name, name, name + "x")) if draw.chance(0.05) else name: draw.one(changes)(tensor).contiguous()
        if draw.chance(0.3)
        else tensor
        for name, tensor in state.items()
    }


def runs(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    """A run folder with odd values, damaged bytes or other weights; most of its checksums are made to fit."""
    model = draw.one(("nfc-gcn", "gcn"))
    run = folder / "run"
    shutil.copytree(SEEDS[model], run)
    config = json.loads((run / "config.json").read_text())
    change(draw, config, draw.one((0, 1, 1, 3)))
    if draw.chance(0.3):
        result = json.loads((run / "result.json").read_text())
        change(draw, result, draw.one((1, 3)))
        (run / "result.json").write_text(json.dumps(result))
    for name in ("weights", "test_nodes", "split"):
        path = run / f"{name}.safetensors"
        kind = draw.one(("as it is", "as it is", "damaged", "other tensors", "missing"))
        if kind == "damaged":
            path.write_bytes(draw.damage(path.read_bytes()))
        elif kind == "other tensors":
            save_file(other_tensors(draw, load_file(path)), path)
        elif kind == "missing" and draw.chance(0.3):
            path.unlink()
    if draw.chance(0.8) and isinstance(config.get("sha256"), dict):
        for path in run.iterdir():
            if path.name in config["sha256"]:
                config["sha256"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    draw.write(run / "config.json", json.dumps(config).encode(), 0.1)
    if draw.chance(0.3):
        write_run_page(run)
    saved = load_run(run)
    graph = SEEDS[f"{model} graph"]
    saved.check_features(graph)
    saved.read_labels(graph)
    use(draw, saved.model, graph)
    if draw.chance(0.2):
        (run / "layout.safetensors").write_bytes(draw.damage(SEEDS["layout"]))
        look(saved, graph, run)
    return None


def unfinished(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    """What is kept of an unfinished run, with odd values and checksums that mostly fit."""
    shutil.copytree(SEEDS["unfinished"], folder / "unfinished")
    if draw.chance(0.3):
        series = json.loads((folder / "unfinished" / "series.json").read_text())
        change(draw, series["notes"] if draw.chance(0.8) else series, 1)
        draw.write(folder / "unfinished" / "series.json", json.dumps(series).encode(), 0.1)
    for path in sorted((folder / "unfinished").glob("seed-*")):
        _, text, tensors = path.read_bytes().split(b"\n", 2)
        notes = json.loads(text)
        change(draw, notes, draw.one((0, 0, 1)))
        others = save(other_tensors(draw, load(tensors)))
        tensors = draw.one((tensors, others, others, draw.damage(tensors)))
        content = json.dumps(notes).encode() + b"\n" + tensors
        digest = hashlib.sha256(content if draw.chance(0.95) else b"").hexdigest().encode()
        draw.write(path, digest + b"\n" + content, 0.02)
    graph, config = SEEDS["unfinished graph"]
    kept = Unfinished(folder / "unfinished", {"graph": "any"})
    kept.resume()
    repeats = repeat(graph, chosen_before(kept, config) or config, [0, 1], keep=kept)
    keep_run(folder / "whole", graph, config, repeats)
    return None


def comparisons(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    """The folder of a comparison, with odd values and damaged bytes."""
    shutil.copytree(SEEDS["comparison"], folder / "both")
    for name in ("comparison.json", "cells.jsonl"):
        path = folder / "both" / name
        lines = [json.loads(line) for line in path.read_text().splitlines()] if name == "cells.jsonl" else [None]
        values = lines if name == "cells.jsonl" else json.loads(path.read_text())
        change(draw, values, draw.one((0, 1, 2)))
        text = "".join(json.dumps(line) + "\n" for line in values) if name == "cells.jsonl" else json.dumps(values)
        draw.write(path, text.encode(), 0.2)
    if draw.chance(0.5):
        write_comparison_page(folder / "both")
    graph, models, options = SEEDS["compared"]
    compare(graph, models, folder=folder / "both", **options)
    return None


SEEDS: dict[str, Any] = {}
"""What damaged presets, studies and folders start from."""


def prepare(folder: Path) -> None:
    """Fill `SEEDS`, and load all that children would each have to load."""
    for model, sparse in (("nfc-gcn", True), ("gcn", False)):
        graph = SEEDS[f"{model} graph"] = random_graph(40, 20, sparse=sparse)
        settings = {"epochs": 1, "calibrate": "temperature", "class_weight": "balanced"}
        config = make_config(model, graph=graph, settings=settings)
        repeats = repeat(graph, config, [0])
        SEEDS[model] = folder / model
        keep_run(SEEDS[model], graph, config, repeats)
        use(Draw(1), repeats[0].model, graph)
        nfcgcn.explain_classes(repeats[0].model, graph)
        nfcgcn.export(repeats[0].model)
    write_run_page(SEEDS[model])
    look(load_run(SEEDS[model]), graph, SEEDS[model])
    SEEDS["layout"] = (SEEDS[model] / "layout.safetensors").read_bytes()
    (SEEDS[model] / "layout.safetensors").unlink()
    SEEDS["study"] = (graph, make_config("gcn", graph=graph, settings={"epochs": 1}))
    tune(*SEEDS["study"], trials=2, study=folder / "study.jsonl")
    SEEDS["study file"] = folder / "study.jsonl"
    SEEDS["unfinished"], SEEDS["unfinished graph"] = folder / "unfinished", (graph, repeats_of := _two_epochs(graph))
    _leave_unfinished(graph, repeats_of, SEEDS["unfinished"])
    options = {"seeds": 1, "settings": {"epochs": 1, "split": "ratio"}, "select": True, "jobs": 1}
    SEEDS["compared"], SEEDS["comparison"] = (graph, ["mlp"], options), folder / "both"
    result = compare(graph, ["mlp"], folder=SEEDS["comparison"], **options)
    (SEEDS["comparison"] / "comparison.json").write_text(to_json(result.values))
    write_comparison_page(SEEDS["comparison"])


def _two_epochs(graph: nfcgcn.Graph) -> Config:
    return make_config("gcn", graph=graph, settings={"epochs": 2})


def _leave_unfinished(graph: nfcgcn.Graph, config: Config, folder: Path) -> None:
    """Keep a finished seed 0 and a seed 1 that was stopped after its first epoch."""

    class Stopped(BaseException):
        pass

    def stop(seed: int, epoch: Any) -> None:
        if (seed, epoch["epoch"]) == (1, 2):
            raise Stopped

    kept = Unfinished(folder, {"graph": "any"})
    kept.notes = {"settings": config.values, "selection": {"seconds": 1.0}}
    before, unfinished_module.SECONDS = unfinished_module.SECONDS, 0.0
    try:
        repeat(graph, config, [0, 1], keep=kept, on_epoch=stop)
    except Stopped:
        pass
    finally:
        unfinished_module.SECONDS = before


def keep_run(folder: Path, graph: nfcgcn.Graph, config: Config, repeats: Any) -> None:
    """Write the folder of a run, as `nfcgcn train` does."""
    first = repeats[0]
    folder.mkdir()
    result = describe(graph, config, repeats, device=torch.device("cpu"))
    result["selection"] = None
    nodes = first.split.test
    hidden = nfcgcn.embed(first.model, graph)[nodes]
    scored = Scored(first.labels, first.predictions[nodes], np.arange(len(nodes)), hidden, first.probabilities.max(1))
    save_run(folder, graph, result, {r.seed: r.run for r in repeats}, first.seed, scored, first.split)


def look(saved: Any, graph: nfcgcn.Graph, folder: Path | None) -> None:
    """Write the page and the file for Gephi that `nfcgcn explore` writes."""
    explorer = Explorer(Subject(graph, saved, 2), folder=folder)
    explorer.prepare()
    page_file(explorer)
    to_gexf(explorer)


def use(draw: Draw, model: Any, graph: nfcgcn.Graph) -> None:
    """Predict, embed, explain and, as it takes long, seldom export."""
    nfcgcn.predict_proba(model, graph, draws=draw.one((1, 2)))
    nfcgcn.embed(model, graph)
    if graph.num_nodes and draw.chance(0.5):
        nfcgcn.explain(model, graph, int(draw.rng.integers(graph.num_nodes)))
    if draw.chance(0.1):
        nfcgcn.explain_classes(model, graph)
    if draw.chance(0.03):
        nfcgcn.export(model)
