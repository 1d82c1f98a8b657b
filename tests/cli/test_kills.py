"""A crash or an error at any file operation of any command that writes: the old state or the new one stays, whole."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import zipfile
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import nfcgcn
from nfcgcn.config.registry import make_config
from nfcgcn.graph import Graph
from nfcgcn.links.run_folder import load_link_run
from nfcgcn.recommendation.run_folder import load_recommender
from nfcgcn.reproduction import read_ledger

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="forks are watched by way of /proc")
MODEL = "--model mlp --split ratio --set epochs=1"


def check_run(path):
    graph = nfcgcn.load(path.parent / "graph.npz")
    assert len(nfcgcn.predict(nfcgcn.load_model(path), graph)) == graph.num_nodes  # the command is tried at the end
    if (path / "report.html").exists():
        check_page(path / "report.html")


def check_page(path):
    assert path.read_text().rstrip().endswith("</html>")


def check_json(path):
    assert json.loads(path.read_text())["model"] == "mlp"


def check_comparison(path):
    comparison = path / "comparison.json"
    if comparison.exists():
        assert json.loads(comparison.read_text())["models"] == ["mlp"]
    if (path / "comparison.html").exists():
        check_page(path / "comparison.html")
    assert all(record["kind"] in ("train", "cost") for record in read_ledger(path))


def check_arrays(path):
    with np.load(path) as arrays:
        assert len(arrays["embedding"]) == 24


def check_predictions(path):
    assert len(list(csv.reader(path.read_text().splitlines()))) == 25


def check_program(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def check_graph(path):
    assert path.read_text().count("<node ") == 24
    assert path.read_text().endswith("</gexf>\n")


def check_links(path):
    assert load_link_run(path).num_nodes == 24
    if (path / "report.html").exists():
        check_page(path / "report.html")


def check_links_json(path):
    assert json.loads(path.read_text())["task"] == "links"


def check_recommender(path):
    assert len(load_recommender(path).log.users) == 24
    if (path / "report.html").exists():
        check_page(path / "report.html")


def check_suggestions(path):
    assert len(list(csv.reader(path.read_text().splitlines()))) == 25  # one for each


def check_store(path):
    graph = nfcgcn.open_store(path, verify=True)
    assert (graph.num_nodes, graph.num_edges, graph.node_names[3]) == (24, 24, "n3")


def check_preset(path):
    make_config("mlp", preset=str(path))


# A command; what it writes, with how to check that; and steps (a, b, c): it is killed at every a-th file operation,
# meets an error at every b-th, and finds the disk full from every c-th on. 0: not at all. By default the suite takes
# only FEW of these operations, evenly spread, since one module writes for all commands and `test_files.py` fails at
# each operation of that; `NFCGCN_TESTS=all` takes them all.
FEW = {"killed": 1, "error": 1, "full": 1}
MORE = {("train", "killed"): 6, ("resume", "killed"): 5, ("pack", "killed"): 2, ("compare", "killed"): 2}
COMMANDS = {
    "train": (
        f"train graph.npz {MODEL} --out run --force --json r.json",
        {"run": check_run, "r.json": check_json},
        (1, 4, 12),
    ),
    "resume": (
        f"train graph.npz {MODEL} --no-select --seeds 2 --jobs 1 --out long --force --resume",
        {"long": check_run},
        (5, 11, 0),
    ),
    "predict": ("predict run graph.npz --out p.csv", {"p.csv": check_predictions}, (1, 2, 4)),
    "embed": ("embed run graph.npz --out e.npz", {"e.npz": check_arrays}, (4, 0, 0)),
    "explain": ("explain run graph.npz --node 0 --out why.html", {"why.html": check_page}, (2, 4, 0)),
    "explore": ("explore run graph.npz --out e.gexf", {"e.gexf": check_graph, "run": check_run}, (1, 0, 0)),
    "export": ("export run --out m.pt2", {"m.pt2": check_program}, (1, 5, 0)),
    "report": ("report run", {"run": check_run}, (1, 4, 0)),
    "compare": (
        "compare graph.npz --models mlp --seeds 2 --no-select --set split=ratio --set epochs=1 --out both",
        {"both": check_comparison},
        (1, 7, 0),
    ),
    "links": (
        "links train graph.npz --model gcn --set epochs=1 --set channels=2 --out linked --force --json l.json",
        {"linked": check_links, "l.json": check_links_json},
        (2, 5, 0),
    ),
    "suggest": ("links suggest linked graph.npz --top 1 --out s.csv", {"s.csv": check_suggestions}, (1, 2, 0)),
    "recommend": (
        "recommend train --interactions log.csv --model mf --set epochs=1 --out liked --force",
        {"liked": check_recommender},
        (2, 5, 0),
    ),
    "for": ("recommend for liked --all --top 1 --out for.csv", {"for.csv": check_suggestions}, (1, 2, 0)),
    "pack": (
        "pack nodes.csv edges.csv --text about --memory 256MiB --out packed --force",
        {"packed": check_store},
        (1, 11, 17),
    ),
    "tune": (
        f"tune graph.npz {MODEL} --trials 2 --seeds 1 --test-seeds 1 --out best.toml",
        {"best.toml": check_preset, "best.html": check_page},
        (1, 11, 0),
    ),
}
WAYS = ("killed", "error", "full")
CASES = [(name, way) for name, (*_, steps) in COMMANDS.items() for way, step in zip(WAYS, steps, strict=True) if step]


@pytest.fixture(scope="module")
def started(tmp_path_factory, everything):
    """A folder with a graph, filled by each command once, and what became of its copies."""
    folder = tmp_path_factory.mktemp("kills") / "start"
    folder.mkdir()
    ring = np.stack([np.arange(24), (np.arange(24) + 1) % 24])
    features = np.random.default_rng(0).normal(size=(24, 4))
    nfcgcn.write_npz(Graph.from_edges(ring, features, labels=np.arange(24) % 2), folder / "graph.npz")
    rows = [f"n{i},{'ab'[i % 2]},{i % 5},some words {i % 3}" for i in range(24)]
    (folder / "nodes.csv").write_text("\n".join(["id,label,x,about", *rows]))
    (folder / "edges.csv").write_text("\n".join(["source,target", *(f"n{i},n{j}" for i, j in ring.T.tolist())]))
    liked = [f"u{i},i{(i + k) % 24}" for i in range(24) for k in (0, 1, 3, 7)]
    (folder / "log.csv").write_text("\n".join(["user,item", *liked]))
    commands = [
        {
            "name": name,
            "arguments": text.split(),
            "ways": {
                way: (step, 0 if everything else MORE.get((name, way), FEW[way]))
                for way, step in zip(WAYS, steps, strict=True)
                if step
            },
        }
        for name, (text, _, steps) in COMMANDS.items()
    ]
    setup = [text.replace("--trials 2", "--trials 1").split() for text, *_ in COMMANDS.values()]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NFCGCN_COMMIT": "none"}
    done = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "killer.py"],
        input=json.dumps({"folder": str(folder), "setup": setup, "commands": commands}),
        env={**os.environ, **one_thread}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = defaultdict(list)
    for line in done.stdout.splitlines():
        result = json.loads(line)
        results[result["command"], result["way"]].append(result)
    return folder, results


@cache
def contents(path):
    """All visible files of a folder, or one file, with what they hold."""
    files = path.rglob("*") if path.is_dir() else [path]
    return {str(f.relative_to(path)): f.read_bytes() for f in files if f.is_file() and not f.name.startswith(".")}


def newest(path):
    return max(file.stat().st_mtime_ns for file in (path, *path.rglob("*")))


@pytest.mark.parametrize(("command", "way"), CASES)
def test_the_old_state_or_the_new_one_is_whole(started, everything, command, way):
    start, results = started
    arguments, outputs, steps = COMMANDS[command]
    (whole,) = results[command, ""]
    assert whole["code"] == 0, whole["output"]
    failed = [result for result in results[command, way] if result["reached"]]
    assert failed, "no file operation was counted"
    changed = False
    for result in failed:
        where = f"{arguments}, {way} at operation {result['number']}: {result['what']}\n{result['output']}"
        folder = Path(result["folder"])
        for name, check in outputs.items():
            check(folder / name)
            changed |= newest(folder / name) > newest(start / name)
        for other in start.iterdir():  # nothing else is touched
            if other.name not in outputs and not other.name.endswith(".study.jsonl"):
                assert contents(folder / other.name) == contents(other), where
        added = {path.name for path in folder.iterdir()} - {path.name for path in start.iterdir()}
        assert all(name.startswith((".", "best.study.jsonl")) for name in added), where  # Optuna's locks are seen
        if way == "killed":
            assert result["code"] == -9, where
            continue
        assert result["code"] in (0, 2), where
        errors = [line for line in result["output"].splitlines() if line.startswith("error: ")]
        assert len(errors) == (result["code"] == 2), where
        assert "Traceback" not in result["output"], where
        hidden = [path for path in folder.rglob(".*") if "nfcgcn" in path.name]
        assert not hidden or "os.r" in result["what"], where  # only what may not be removed stays
    assert changed or way != "killed" or steps[0] > 1 or not everything, "every kill came before the first change"


def test_after_a_kill_a_run_goes_on_to_the_same_bits(started):
    start, results = started
    states = set()
    for result in results["resume", "killed"]:
        if not result["reached"]:
            continue
        kept = tuple(sorted(path.name for path in Path(result["folder"]).glob("long/unfinished/[!.]*.*")))
        again, folder = result["again"], Path(result["again"]["folder"]) / "long"
        assert again["code"] == 0, again["output"]
        assert ("resumed: " in again["output"]) == ("seed-0.state" in kept), again["output"]
        for name in ("weights.safetensors", "metrics.jsonl"):
            assert (folder / name).read_bytes() == (start / "long" / name).read_bytes()
        assert not (folder / "unfinished").exists()
        states.add(kept)
    assert () in states
    assert any("seed-0.state" in kept for kept in states)


def test_after_a_kill_the_commands_work_and_clear_up(started, run, monkeypatch):
    _, results = started
    killed = [Path(result["folder"]) for result in results["train", "killed"]]
    folder = next(f for f in killed if len([path for path in f.glob(".*") if path.is_dir() and any(path.iterdir())]))
    monkeypatch.chdir(folder)
    for command in ("train", "predict"):
        code, _, err = run(*COMMANDS[command][0].split())
        assert code == 0, err
    assert not [path for path in folder.rglob(".*") if path.name != ".lock"]  # which is the ledger's
