"""`nfcgcn pack` and what other commands make of the store."""

import os
import signal
import subprocess
import sys
import time

import pytest

import nfcgcn
from nfcgcn.cli.pack import read_size
from nfcgcn.errors import NFCError

pytest.importorskip("duckdb")
pytestmark = pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
TRAIN = ("--model", "gcn", "--no-select", "--no-baselines", "--split", "ratio", "--set", "epochs=2")


@pytest.fixture
def tables(tmp_path):
    words = ("graph", "node", "edge", "paper")
    rows = [f"n{i},{'ab'[i % 2]},{i % 5},{words[i % 4]} {words[i // 2 % 4]} text" for i in range(60)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,x,about", *rows]))
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *(f"n{i},n{i * 7 % 60}" for i in range(60))]))
    return ("--nodes", "nodes.csv", "--edges", "edges.csv", "--text", "about")


def test_a_store_is_trained_on_as_its_tables_are(run, tmp_path, tables):
    code, out, err = run("pack", "nodes.csv", "edges.csv", "--text", "about", "--out", "store")
    assert code == 0, err
    assert out.startswith("store: 60 nodes, 51 edges, 6 sparse features, 2 classes")
    assert run("train", *tables, *TRAIN, "--out", "one")[0] == 0
    assert run("train", "store", *TRAIN, "--out", "other")[0] == 0
    one, other = ((tmp_path / name / "weights.safetensors").read_bytes() for name in ("one", "other"))
    assert one == other
    assert run("inspect", "store")[1] == run("inspect", *tables)[1].replace("store", "nodes")
    for arguments in (("store",), ()):  # the run remembers its store
        assert run("predict", "other", *arguments, "--out", "p.csv")[0] == 0
        assert (tmp_path / "p.csv").read_text().splitlines()[1].startswith("n0,")
    code, _, err = run("pack", "nodes.csv", "edges.csv", "--text", "about", "--out", "store")
    assert (code, err.count("error: ")) == (2, 1)
    assert "store holds an earlier store" in err
    assert run("pack", "nodes.csv", "edges.csv", "--out", "store", "--force", "--ignore", "about")[0] == 0
    code, _, err = run("predict", "other", "--out", "p.csv")
    assert code == 2
    assert "meta.json is not as it was when the run was trained" in err


def test_generated_graphs_are_those_of_memory(run, tmp_path):
    arguments = ("--set", "nodes=300", "--set", "seed=3", "--set", "words=5")
    assert run("pack", "citations", *arguments, "--out", "store")[0] == 0
    stored, graph = nfcgcn.load(tmp_path / "store"), nfcgcn.load("citations", nodes=300, seed=3, words=5)
    for name in ("adjacency", "features"):
        for part in ("indptr", "indices", "data"):
            assert (getattr(getattr(stored, name), part) == getattr(getattr(graph, name), part)).all()
    assert (stored.labels == graph.labels).all()
    assert (stored.name, stored.class_names) == (graph.name, graph.class_names)


def test_any_graph_and_a_folder_of_tables(run, tmp_path, tables):
    assert run("pack", "digits", "--out", "digits.store")[0] == 0
    assert nfcgcn.load(tmp_path / "digits.store").num_nodes == 1797
    assert run("pack", "digits.store", "--out", "again")[0] == 0
    (tmp_path / "folder").mkdir()
    for name in ("nodes.csv", "edges.csv"):
        (tmp_path / name).rename(tmp_path / "folder" / name)
    assert run("pack", "folder", "--text", "about", "--out", "from-folder")[0] == 0
    stored = nfcgcn.load(tmp_path / "from-folder")
    assert (stored.name, stored.num_edges) == ("folder", 51)


REFUSED = {
    "memory": (("--memory", "much"), "--memory takes a size such as 2GB, got 'much'"),
    "little": (("--memory", "1MB"), "--memory must be at least 256 MB, got 1 MB"),
    "twice": (("--edges", "edges.csv"), "give the tables once: as GRAPH and EDGES, or with --nodes and --edges"),
    "set": (("--set", "nodes=5"), "`--set` takes only options of the dataset here, got 'nodes'"),
    "hash": (("--hash-text", "8"), "--hash-text is for tables with columns of --text; name them"),
    "features": (("--features", "degree"), "pack makes features of columns alone"),
    "not a store": (("--out", "."), "exists and is not a store of nfcgcn"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_line_for_what_cannot_be(run, tmp_path, tables, case):
    arguments, message = REFUSED[case]
    code, _, err = run("pack", "nodes.csv", "edges.csv", "--ignore", "about", "--out", "store", *arguments)
    assert code == 2
    assert message in next(line for line in err.splitlines() if line.startswith("error: ")), err
    assert {path.name for path in tmp_path.iterdir()} == {"nodes.csv", "edges.csv"}


def test_the_least_memory_that_a_message_names_is_enough(run, tables):
    assert run("pack", "nodes.csv", "edges.csv", "--ignore", "about", "--memory", "256MB", "--out", "store")[0] == 0


def test_sizes():
    assert [read_size(text) for text in ("2GB", "1.5gib", "800 MB", "7")] == [2 * 10**9, 3 * 2**29, 8 * 10**8, 7]
    for text in ("", "GB", "-1GB", "1XB", "1e9", "9" * 30):
        with pytest.raises(NFCError, match="takes a size such as 2GB"):
            read_size(text)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_leaves_nothing(tmp_path, tables):
    lines = "\n".join(f"n{i % 60},n{i * 7 % 60}" for i in range(1_000_000))
    (tmp_path / "edges.csv").write_text(f"source,target\n{lines}\n")
    command = [sys.executable, "-m", "nfcgcn", "pack", "nodes.csv", "edges.csv", "--text", "about", "--out", "store"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.glob(".store*/tmp/tables.duckdb")):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGINT, err
    assert err.splitlines()[-1] == "interrupted; nothing was written"
    assert {path.name for path in tmp_path.iterdir()} == {"nodes.csv", "edges.csv"}
