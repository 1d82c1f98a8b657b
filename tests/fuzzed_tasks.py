"""Odd and damaged input of link prediction, recommendation and packing for `fuzz.py`."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file

import nfcgcn
from fuzzed_folders import SEEDS, change, odd_settings, other_tensors
from fuzzed_graphs import TEXTS, Draw, cells, columns, edge_table, write_table
from nfcgcn.cli.links_page import write_links_page
from nfcgcn.cli.recommend_page import write_recommendation_page
from nfcgcn.data.packing import pack_tables
from nfcgcn.links.config import LINK_MODELS, LinkConfig, make_link_setup
from nfcgcn.links.evaluation import describe, repeat
from nfcgcn.links.prediction import encode, predict_pairs, suggest_links
from nfcgcn.links.run_folder import load_link_run, save_link_run
from nfcgcn.links.tables import read_pairs
from nfcgcn.recommendation.interactions import read_interactions
from nfcgcn.recommendation.outcome import judge, with_everything
from nfcgcn.recommendation.recommender import fit_recommender
from nfcgcn.recommendation.run_folder import load_reading, load_recommender, save_recommender
from nfcgcn.recommendation.settings import ENCODERS, RecommendConfig, make_settings
from nfcgcn.recommendation.splits import RULES, split_log
from random_graphs import random_graph

CPU = torch.device("cpu")


def find_links(draw: Draw, graph: nfcgcn.Graph, folder: Path) -> None:
    """Learn links of a graph that was accepted, keep the run, read it back and use it."""
    model = draw.one(("nfc-gcn", "gae", draw.one(LINK_MODELS)))
    fixed = LINK_MODELS[model].fixed
    encoder = type(make_link_setup(model).model)
    values = odd_settings(draw, (encoder, LinkConfig), ("backend", "conv", *fixed), 0.1)
    setup = make_link_setup(model, graph=graph, settings={**values, "epochs": 1})
    judged = repeat(graph, setup, [draw.one((0, 2**40))])
    keep_links(folder / "links", graph, setup, judged)
    use_links(draw, folder / "links", graph)


def keep_links(folder: Path, graph: nfcgcn.Graph, setup: Any, judged: Any) -> None:
    folder.mkdir()
    result = {**describe(graph, setup, judged, device=CPU, baselines={}), "interrupted": False}
    save_link_run(folder, graph, result, judged, judged[0])


def use_links(draw: Draw, folder: Path, graph: nfcgcn.Graph) -> None:
    saved = load_link_run(folder)
    saved.check_features(graph)
    saved.check_edges(graph)
    predict_pairs(saved.model, graph, np.array([[0], [1]]), read=draw.one((None, saved.read)))
    list(suggest_links(saved.model, encode(saved.model, graph), graph, np.arange(2), top=draw.one((1, 3, 10**9))))


def damage_run(draw: Draw, run: Path) -> None:
    """Put odd values and other tensors into the files of a run; most of its checksums are made to fit."""
    config = json.loads((run / "config.json").read_text())
    change(draw, config, draw.one((0, 0, 1, 3)))
    for path in sorted(run.iterdir()):
        kind = draw.one(("damaged", "other", "other", "other", "missing"))
        if path.name == "config.json" or draw.chance(0.8):
            continue
        if kind == "missing":
            path.unlink()
        elif kind == "damaged":
            path.write_bytes(draw.damage(path.read_bytes()))
        elif path.suffix == ".safetensors":
            save_file(other_tensors(draw, load_file(path)), path)
        elif path.suffix == ".json":
            values = json.loads(path.read_text())
            change(draw, values, draw.one((1, 3)))
            path.write_text(json.dumps(values))
        elif path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            change(draw, lines, 1)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if draw.chance(0.95) and isinstance(config.get("sha256"), dict):
        present = [path for path in run.iterdir() if path.name in config["sha256"]]
        config["sha256"] |= {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in present}
    draw.write(run / "config.json", json.dumps(config).encode(), 0.05)


def link_runs(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    """A run folder of link prediction, damaged, and a damaged table of pairs."""
    graph = SEEDS["links graph"]
    shutil.copytree(SEEDS["links"], folder / "links")
    damage_run(draw, folder / "links")
    if draw.chance(0.3):
        write_links_page(folder / "links")
    use_links(draw, folder / "links", graph)
    pairs = pd.DataFrame(draw.rng.integers(0, 40, (5, 2)), columns=draw.one((["source", "target"], ["a", "b"])))
    read_pairs(write_table(draw, folder / "pairs.csv", pairs, 0.4), graph)
    return None


def recommenders(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    """The folder of a recommender, damaged, and further users, items and interactions, at times damaged as well."""
    shutil.copytree(SEEDS["recommender"], folder / "run")
    damage_run(draw, folder / "run")
    if draw.chance(0.3):
        write_recommendation_page(folder / "run")
    recommender = load_recommender(folder / "run")
    recommender.recommend(draw.one(TEXTS) if draw.chance(0.05) else "u1", top=draw.one((1, 5, 10**9)))
    added = log_tables(draw, folder, 12, 0.2)
    more = read_interactions(**added, **load_reading(folder / "run"), known=recommender.log)
    recommender = recommender.with_log(more)
    user, item = more.users.names[-1], more.items.names[-1]
    recommender.recommend(user)
    recommender.explain(user, item)
    return None


def log_tables(draw: Draw, folder: Path, n: int, share: float) -> dict[str, Any]:
    """Write a table of interactions and, at times, of users and of items."""
    log: dict[str, Any] = {"user": [f"u{i % 9}" for i in range(3 * n)], "item": [f"i{i % 7}" for i in range(3 * n)]}
    log |= {"rating": [draw.one("12345") for _ in log["user"]], "time": [str(i) for i in range(3 * n)]}
    for name in log:
        if draw.chance(share):
            log[name] = cells(draw, 3 * n)
    tables: dict[str, Any] = {"interactions": write_table(draw, folder / "log.csv", pd.DataFrame(log), share / 2)}
    for name, prefix in (("users", "u"), ("items", "i")):
        if draw.chance(0.5):
            kind = {"id": [f"{prefix}{i}" for i in range(n)], "c0": [str(i % 5) for i in range(n)]}
            kind |= {"c1": cells(draw, n)} if draw.chance(share) else {}
            tables[name] = write_table(draw, folder / f"{name}.csv", pd.DataFrame(kind), share / 2)
    return tables


def logs(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    """Odd tables of interactions, and a recommender with odd settings that learns from what is accepted."""
    rated = {"rating": "rating", "at_least": draw.one((3, 0, -1, draw.one((3, 10**400))))}
    options: dict[str, Any] = rated if draw.chance(0.3) else {}
    options |= {"time": "time"} if draw.chance(0.8) else {}
    options |= {key: [draw.one(("c0", "c1"))] for key in ("text", "words", "ignore") if draw.chance(0.05)}
    rows = draw.one((1, 3, 12, 12, 12))
    log = read_interactions(**log_tables(draw, folder, rows, 0.15), user="user", item="item", **options)
    model = draw.one(("nfc-gcn", "lightgcn", draw.one(ENCODERS)))
    encoder = vars(ENCODERS[model].__init__)["config_class"]
    values = odd_settings(draw, (encoder, RecommendConfig), ("backend", "conv"), 0.1)
    rule, top = draw.one(RULES), draw.one((1, 10))
    parts = split_log(log, rule, share=draw.one((None, 0.3, 0.9)), seed=0)
    fitted = fit_recommender(parts.train, settings=make_settings(model, {**values, "epochs": 1}))
    result = judge(fitted, parts, split=rule, top=top, device=CPU, command="none")
    (folder / "run").mkdir()
    save_recommender(folder / "run", with_everything(fitted, parts), result, {})
    write_recommendation_page(folder / "run")
    again = load_recommender(folder / "run")
    again.explain(again.log.users.names[0], again.log.items.names[0])
    return None


def packs(draw: Draw, folder: Path) -> nfcgcn.Graph:
    """Odd or damaged tables that are packed into a store."""
    table, pairs, options = columns(draw)
    edges, more = edge_table(draw, pairs)
    more.pop("features", None)
    suffix = draw.one((".csv", ".tsv", ".csv.gz", ".parquet"))
    if suffix == ".parquet":
        paths = [folder / "nodes.parquet", folder / "edges.parquet"]
        for path, frame in zip(paths, (pd.DataFrame(table, dtype=str), edges.astype(str)), strict=True):
            frame.to_parquet(path, index=False)
            draw.write(path, path.read_bytes(), 0.1)
    else:
        paths = [write_table(draw, folder / f"nodes{suffix}", pd.DataFrame(table), 0.15)]
        paths += [write_table(draw, folder / f"edges{suffix}", edges, 0.05)]
    hashed = draw.one((None, 1, 16, 2**20)) if options.get("text") else None
    lists = {key: [options[key]] for key in ("text", "words", "ignore") if key in options}
    pack_tables(*paths, folder / "store", memory=2**28, hash_text=hashed, **{**options, **lists}, **more)
    return nfcgcn.load(folder / "store")


def prepare_tasks(folder: Path) -> None:
    """Fill `SEEDS`, and load all that children would each have to load."""
    graph = SEEDS["links graph"] = random_graph(40, 20, sparse=True)
    setup = make_link_setup("gcn", graph=graph, settings={"epochs": 1})
    SEEDS["links"] = folder / "links"
    keep_links(SEEDS["links"], graph, setup, repeat(graph, setup, [0]))
    use_links(Draw(1), SEEDS["links"], graph)
    write_links_page(SEEDS["links"])
    (SEEDS["links"] / "report.html").unlink()
    log = read_interactions(**log_tables(Draw(3), folder, 12, 0.0), user="user", item="item")
    parts = split_log(log, "random", seed=0)
    fitted = fit_recommender(parts.train, settings=make_settings("nfc-gcn", {"epochs": 1}))
    result = judge(fitted, parts, split="random", top=5, device=CPU, command="none")
    SEEDS["recommender"] = folder / "recommender"
    SEEDS["recommender"].mkdir()
    save_recommender(SEEDS["recommender"], with_everything(fitted, parts), result, {"user": "user", "item": "item"})
    write_recommendation_page(SEEDS["recommender"])
    load_recommender(SEEDS["recommender"]).explain("u1", "i1")
    (SEEDS["recommender"] / "report.html").unlink()
