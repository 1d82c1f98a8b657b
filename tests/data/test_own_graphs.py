"""A user's own graph on the command line: from files to a run, and what is refused on the way."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import nfcgcn
from nfcgcn import files
from nfcgcn.cli.sources import GraphSource
from nfcgcn.errors import ConfigError
from nfcgcn.inference import checkpoint

QUICK = ("--set", "epochs=3", "--set", "kernel_size=4", "--set", "stride=2")
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def papers(tmp_path) -> Path:
    """Sixty papers of three topics, every tenth without one, whose words and numbers tell the topic."""
    rng = np.random.default_rng(0)
    n = 60
    kind = np.arange(n) % 3
    topics = np.array([SCRIPT, r"$\frac{", "[red]c[/red]"], dtype=object)[kind]
    topics[::10] = None
    frame = pd.DataFrame(
        {
            "key": [f"<b>{i}</b>" for i in range(n)],
            "about": [f"<img src=x onerror=alert(1)> topic{k} paper{i % 7} words" for i, k in enumerate(kind)],
            **{f"f{j}": (rng.random(n) + (kind == j % 3)).round(4) for j in range(6)},
            "topic": topics,
        }
    )
    frame.to_csv(tmp_path / "pa pers!.csv", index=False)
    ends = rng.integers(0, n, (2, 150))
    pd.DataFrame({"from": frame.key.values[ends[0]], "to": frame.key.values[ends[1]]}).to_csv(
        tmp_path / "cites.csv", index=False
    )
    return tmp_path


TABLES = (
    "--nodes", "pa pers!.csv", "--edges", "cites.csv", "--label", "topic", "--text", "about", "--source", "from",
    "--target", "to",
)  # fmt: skip


def test_from_two_tables_to_a_run_that_remembers_its_columns(run, papers):
    code, _, err = run("train", *TABLES, *QUICK)
    assert code == 0, err
    assert "Graph('pa pers!', nodes=60" in err
    assert "split ratio" in " ".join(err.split())
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("pa_pers-nfc-gcn-")
    saved = checkpoint.load_run(folder)
    graph = nfcgcn.load("pa pers!.csv", edges="cites.csv", label="topic", text="about", source="from", target="to")
    assert saved.feature_names == graph.feature_names
    assert saved.class_names == (r"$\frac{", SCRIPT, "[red]c[/red]")
    assert saved.encoding == json.loads(json.dumps(graph.encoding))

    # Later tables need no words about their columns, and may have no labels.
    frame = pd.read_csv("pa pers!.csv").drop(columns="topic")
    frame.to_csv("later.csv", index=False)
    again = GraphSource(nodes=Path("later.csv"), edges=Path("cites.csv")).load(encoding=saved.encoding)
    assert again.feature_names == graph.feature_names
    torch.testing.assert_close(again.x.to_dense(), graph.x.to_dense(), rtol=0, atol=0)
    assert (again.labels == -1).all()
    assert nfcgcn.predict(saved.model, again).tolist() == nfcgcn.predict(saved.model, graph).tolist()


def test_names_from_tables_are_escaped_in_the_report(run, papers):
    assert run("train", *TABLES, *QUICK, "--out", "here")[0] == 0
    page = Path("here/report.html").read_text()
    assert SCRIPT not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page
    assert "<img src=x" not in page


def test_a_folder_with_a_given_split(run, papers):
    Path("own").mkdir()
    frame = pd.read_csv("pa pers!.csv")
    frame["split"] = np.array(["train", "val", "test", ""])[np.arange(60) // 3 % 4]
    frame.loc[frame.topic.isna(), "split"] = ""
    frame.to_parquet("own/nodes.parquet")
    pd.read_csv("cites.csv").to_csv("own/edges.tsv", sep="\t", index=False)
    options = ("--label", "topic", "--ignore", "about", "--source", "from", "--target", "to")
    code, _, err = run("train", "own", *options, *QUICK, "--json", "out.json")
    assert code == 0, err
    result = json.loads(Path("out.json").read_text())
    assert result["split"] == "given"
    counted = frame.split.value_counts()
    assert result["split_sizes"] == {part: counted[part] for part in ("train", "val", "test")}
    assert next(Path("runs").iterdir()).name.startswith("own-nfc-gcn-")
    code, _, err = run("train", "own", *options, *QUICK, "--split", "ratio", "--json", "out.json", "--out", "ratio")
    assert code == 0, err
    assert json.loads(Path("out.json").read_text())["split"] == "ratio"


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_whole_graphs(run, papers, make_graph, suffix):
    graph = make_graph(60, 12, sparse=True)
    if suffix == ".npz":
        nfcgcn.write_npz(graph, "graph.npz")
    else:
        torch.save(graph.to_pyg(), "graph.pt")
    code, _, err = run("train", f"graph{suffix}", *QUICK, "--out", "here")
    assert code == 0, err
    assert checkpoint.load_run("here").encoding is None


@pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
def test_no_edges_works_with_a_warning(run, papers):
    code, _, err = run("train", "--nodes", "pa pers!.csv", "--label", "topic", "--text", "about", *QUICK)
    assert code == 0
    assert "warning: no edges were given: every node is judged only by its own features\n" in err


BAD = {
    ("cora.npz",): "cora.npz does not exist",
    ("somewhere/else",): "somewhere/else does not exist",
    ("--nodes", "missing.csv"): "missing.csv does not exist",
    ("--nodes", "missing.csv", "--edges", "gone.csv"): "2 problems: (1) missing.csv does not exist (2) gone.csv does",
    ("cora", "--nodes", "pa pers!.csv"): "give GRAPH or --nodes, not both; got 'cora' and --nodes pa pers!.csv",
    ("cora", "--label", "topic"): "--label is for tables of nodes and edges; 'cora' has none",
    ("--edges", "cites.csv"): "--edges is for tables of nodes and edges; name them with --nodes, --edges",
    ("pa pers!.csv", "--edges", "cites.csv", "--text", "about"): (
        "2 problems: (1) cites.csv has no column 'source'; it has from, to; name another with --source (2) cites.csv "
        "has no column 'target'; it has from, to; name another with --target"
    ),
    (*TABLES, "--set", "neighbours=3"): "unknown setting 'neighbours'",
    (*TABLES, "--id", "f0", "--ignore", "key"): "cites.csv names 60 ids that no row of pa pers!.csv has, in 150 of 150",
}


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_nothing(run, papers, arguments):
    before = sorted(p.name for p in Path().iterdir())
    code, out, err = run("train", *arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {BAD[arguments]}")
    assert "Traceback" not in err
    assert sorted(p.name for p in Path().iterdir()) == before


def test_one_class_is_nothing_to_learn(run, tmp_path, make_graph):
    graph = make_graph(30, 8, sparse=False, num_classes=1)
    nfcgcn.write_npz(graph, "one.npz")
    code, _, err = run("train", "one.npz", *QUICK)
    assert code == 2
    assert err.splitlines()[-1] == "error: every label of 'random dense' is '0': there is nothing to tell apart"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/data/my graph.npz", "my_graph"),
        ("nodes.csv.gz", "nodes"),
        ("a/b.c.tsv", "b.c"),
        ("<b>.pt", "b"),
        ("../..csv", "graph"),
        ("données.parquet", "données"),
        ("x" * 200 + ".npz", "x" * 60),
    ],
)
def test_names_fit_for_folders(path, name):
    assert GraphSource(graph=path).name == name
    assert GraphSource(nodes=Path(path)).name == name
    assert GraphSource(graph=path).dataset is None


def test_datasets_are_as_they_were():
    source = GraphSource(graph="cora")
    assert (source.name, source.dataset, source.path) == ("cora", "cora", None)
    assert (GraphSource().name, GraphSource().dataset) == ("digits", "digits")
    with pytest.raises(ConfigError):
        GraphSource(graph="cora", text=["x"]).load()


@pytest.mark.parametrize(("limit", "kept"), [(1000, False), (20_000, True)], ids=["nothing fits", "the page does not"])
def test_a_full_disk_leaves_nothing_half_written(run, papers, full_disk, limit, kept):
    before = sorted(p.name for p in papers.iterdir())
    full_disk(limit)
    arguments = ("--model", "gcn", "--set", "epochs=2", "--json", "deep/out.json", "--out", "here")
    code, _, err = run("train", *TABLES, *arguments)
    assert code == 2, err
    last = err.splitlines()[-1]
    assert "cannot write here" in last
    assert ": File too large; choose another place" in last
    assert "Traceback" not in err
    left = sorted(p.relative_to(papers).as_posix() for p in papers.rglob("*"))
    if kept:  # the whole run is worth more than its page
        assert checkpoint.load_run("here").encoding is not None
        assert [name for name in left if name.startswith((".", "here/."))] == []
        assert {"deep/out.json", "here/result.json"} < set(left)
        assert "here/report.html" not in left
    else:
        assert left == before


@pytest.mark.skipif(sys.platform == "win32", reason="rights are others there")
def test_a_read_only_folder_is_refused_and_left_as_it_was():
    graph = nfcgcn.Graph.from_edges([[0], [1]], np.ones((2, 3)))
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for mode in (0o555, 0o000):
            place.chmod(mode)
            with nobody():
                with pytest.raises(nfcgcn.NFCError) as caught:
                    nfcgcn.write_npz(graph, place / "g.npz")
                with pytest.raises(nfcgcn.errors.WriteError) as run_caught, files.new_folder(place / "run"):
                    pass
            place.chmod(0o755)
            assert str(caught.value) == f"cannot write {place / 'g.npz'}: Permission denied; choose another place"
            assert str(run_caught.value) == f"cannot write {place / 'run'}: Permission denied; choose another place"
            assert list(place.iterdir()) == []


@contextmanager
def nobody():
    """Be a user without rights, as root may write everywhere."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)
