"""A graph in a store, as a user meets it: train in mini-batches, go on, predict, embed."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nfcgcn
from nfcgcn import memory
from nfcgcn.cli import training_task
from nfcgcn.config import registry, sizes
from nfcgcn.graph import Graph
from nfcgcn.memory import in_words

SMALL = ("--set", "epochs=2", "--set", "kernel_size=10", "--set", "stride=5", "--set", "filters=4", "--no-baselines")


@pytest.fixture
def store(run, make_graph, monkeypatch):
    monkeypatch.setattr(training_task, "write_run_page", lambda _: None)
    graph = make_graph(num_nodes=80, sparse=True)
    graph = Graph.from_edges(
        graph.edge_index.numpy(), graph.features, labels=graph.labels, class_names=["a", "b", "c"],
        node_names=[f"n{i}" for i in range(80)], name="mine",
    )  # fmt: skip
    nfcgcn.write_store(graph, "store", split=nfcgcn.make_split(graph, "ratio"))
    return graph


def test_from_a_store_to_predictions(run, store):
    code, _, errors = run("train", "store", "--batch-size", "16", *SMALL, "--out", "runs/one")
    assert code == 0, errors
    assert (
        "trains in mini-batches, as the graph is in a store: a step takes 16 nodes and draws 10 neighbours per node "
        "and graph convolution (--batch-size, --fan-out)"
    ) in errors
    config = json.loads(Path("runs/one/result.json").read_text())["config"]
    assert (config["batch_size"], config["fan_out"]) == (16, "10")
    model = nfcgcn.load_model("runs/one")
    expected = nfcgcn.predict_proba(model, store).probabilities  # by the whole graph at once

    assert run("predict", "runs/one", "--out", "p.csv")[0] == 0
    with Path("p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == list(store.node_names)
    found = np.array([[float(row[f"p_{name}"]) for name in "abc"] for row in rows])
    np.testing.assert_allclose(found, expected, rtol=2e-5)
    assert {row["split"] for row in rows} == {"train", "val", "test"}

    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("predict", "runs/one", "store", "--out", "p.parquet")[0] == 0
    table = parquet.read_table("p.parquet").to_pydict()
    assert list(table) == list(rows[0])
    assert [table[key] for key in ("id", "label", "true_label", "split")] == [
        [row[key] for row in rows] for key in ("id", "label", "true_label", "split")
    ]
    np.testing.assert_allclose(np.stack([table[f"p_{name}"] for name in "abc"], 1), expected, rtol=2e-5)
    assert run("embed", "runs/one", "store", "--out", "e.parquet")[0] == 0
    table = parquet.read_table("e.parquet").to_pydict()
    embedding = np.stack([column for name, column in table.items() if name != "id"], 1)
    np.testing.assert_allclose(embedding, nfcgcn.embed(model, store), rtol=1e-4, atol=1e-6)


def test_links_of_named_nodes(run, store):
    code, _, errors = run("links", "train", "store", "--model", "gae", "--set", "epochs=1", "--out", "runs/links")
    assert code == 0, errors
    assert json.loads(Path("runs/links/config.json").read_text())["node_names"] == list(store.node_names)


def test_mini_batches_where_a_full_step_does_not_fit(run, store, monkeypatch):
    nfcgcn.write_npz(store, "graph.npz")
    config = registry.make_config("nfc-gcn", graph=store, settings={"kernel_size": 10, "stride": 5, "filters": 4})
    batches, line = config.in_batches(store)
    assert (batches, line) == (config, None)
    needed = config.memory(store)
    monkeypatch.setattr(registry, "available", lambda: needed - 1)
    monkeypatch.setattr(registry, "FAN_OUT", 1)
    monkeypatch.setattr(registry, "BATCH_SIZE", 2)
    batches, line = config.in_batches(store)
    assert batches.training.fan_out == "1"
    why = rf"a full step would need about {in_words(needed)} of memory, but only [\d.]+ MiB are"
    need = rf"trains in mini-batches, as {why}"
    assert re.match(need, line)
    assert batches.memory(store) < needed
    usual = registry.make_config("nfc-gcn", settings={"kernel_size": 10, "stride": 5})  # no setting is to blame
    for module in (registry, sizes, memory):
        monkeypatch.setattr(module, "available", lambda: 0)
    with pytest.raises(nfcgcn.NFCError, match=r"; train in mini-batches with fan_out='1', leave out some, or choose"):
        usual.check_memory(store)
    monkeypatch.setattr(registry, "available", lambda: needed - 1)
    sage = registry.make_config("sage-mean")
    assert sage.in_batches(store) == (sage, None)  # it is refused later, as it always was
    with pytest.raises(
        nfcgcn.NFCError, match=r"^several processes can train nfc-gcn, nfc-gcn-2d, gcn and mlp, not sage"
    ):
        sage.in_batches(store, processes=2)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--batch-size", "0"], "`batch_size` must be at least 1 or none, got 0"),
        (["--fan-out", "0"], "`fan_out` must be a whole number of neighbours from 1 up, or one per graph convolution"),
        (["--fan-out", "1,2,3"], "`fan_out` 1,2,3 is for 3 graph convolutions, and the model has 2"),
        (["--fan-out", "5", "--model", "gat"], "a GAT reads the whole graph in every step, so `fan_out` must be none"),
    ],
)
def test_bad_options(run, store, arguments, line):
    code, _, errors = run("train", "store", *arguments, "--no-select", "--set", "epochs=1", "--out", "runs/bad")
    assert code == 2
    assert errors.splitlines()[-1].startswith(f"error: {line}")
    assert not Path("runs/bad").exists()


AFTER_A_KILL = """
import os, signal, sys
from contextlib import suppress
from nfcgcn.cli import main

sys.argv = ["nfcgcn", "--version"]
with suppress(SystemExit):
    main()
from torch.distributed import TCPStore

read, write = os.pipe()
first = os.fork()
if not first:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(write, str(store.port).encode())
    signal.pause()
store = TCPStore("127.0.0.1", int(os.read(read, 9)), wait_for_workers=False)
os.kill(first, signal.SIGKILL)
os.waitpid(first, 0)
with suppress(RuntimeError):
    store.add("key", 1)
print("lost")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a process is forked")
def test_torch_writes_nothing_when_the_process_that_joins_the_ranks_is_killed():
    result = subprocess.run([sys.executable, "-c", AFTER_A_KILL], capture_output=True, text=True, check=True)
    assert (result.stdout.splitlines()[-1], result.stderr) == ("lost", "")
