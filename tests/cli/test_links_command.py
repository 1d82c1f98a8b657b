"""`nfcgcn links`: train, predict and suggest, from tables and datasets; damaged folders and bad input are one line."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from nfcgcn import cli
from nfcgcn.data import load
from nfcgcn.links import training
from nfcgcn.links.run_folder import load_link_outcome, load_link_run
from nfcgcn.links.splits import pair_keys, pairs_of

QUICK = ("--model", "gcn", "--set", "epochs=2", "--set", "channels=4")


def write_tables():
    """Sixty people in a ring, each linked to the next three, since a day of their own."""
    rng = np.random.default_rng(0)
    with Path("nodes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "a", "b"), *((f"p{i}", *rng.normal(size=2).round(3)) for i in range(60))])
    rows = [(f"p{i}", f"p{(i + step) % 60}") for i in range(60) for step in (1, 2, 3)]
    days = [f"2024-{1 + day // 28:02}-{1 + day % 28:02}" for day in rng.permutation(180)]
    with Path("edges.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("source", "target", "since"), *((*row, day) for row, day in zip(rows, days, strict=True))]
        )
    return rows, days


TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv")


def read_csv(path):
    with Path(path).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A folder with tables and a run on them."""
    folder = tmp_path_factory.mktemp("links")
    command = ["links", "train", *TABLES, *QUICK, "--seeds", "2", "--out", "there", "--json", "result.json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rows, _ = write_tables()
        patch.setattr(sys, "argv", ["nfcgcn", *command])
        with suppress(SystemExit):
            cli.main()
    assert (folder / "there" / "report.html").exists()
    return folder, rows


@pytest.fixture
def trained(run, once, tmp_path):
    """Copies of these in an empty folder, which is the current one."""
    folder, rows = once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return rows


def test_seeds_before_one_that_diverges_are_kept(run, trained, monkeypatch):
    check = training._check_finite

    def diverge(epoch, config, seed):
        check({**epoch, "val_loss": float("nan")} if seed == 1 else epoch, config, seed)

    monkeypatch.setattr(training, "_check_finite", diverge)
    code, _, err = run("links", "train", *TABLES, *QUICK, "--seeds", "3", "--out", "there", "--force")
    assert code == 2
    assert err.splitlines()[-1] == (
        "error: training diverged in epoch 1 with seed 1: the loss is not finite; lower `learning_rate`, now 0.01; "
        "there has the 1 seed before it"
    )
    result = json.loads(Path("there/result.json").read_text())
    assert (result["seeds"], result["interrupted"]) == ([0], True)
    load_link_run("there")


def test_train_predict_suggest_and_report(run, trained):
    rows = trained
    result = json.loads(Path("result.json").read_text())
    assert result["split_sizes"] == {"train": 153, "val": 9, "test": 18}
    assert len(result["test_scores"]["auc"]["runs"]) == 2
    assert set(result["baselines"]) == {"common-neighbours", "adamic-adar", "resource-allocation"}
    page = Path("there/report.html").read_text()
    assert "Precision and recall" in page
    assert "Right" in page

    Path("pairs.csv").write_text("source,target\np0,p1\np0,p30\n")
    code, _, err = run("links", "predict", "there", "--pairs", "pairs.csv", "--out", "found.csv")
    assert code == 0, err
    found = read_csv("found.csv")
    assert [row["known"] for row in found] == ["yes", "no"]
    assert all(0 <= float(row["probability"]) <= 1 for row in found)
    code, out, _ = run("links", "predict", "there", "--pairs", "pairs.csv")
    assert out.splitlines()[1].startswith("p0,p1,")

    code, out, err = run("links", "suggest", "there", "--node", "p5", "--top", 3)
    assert code == 0, err
    code, _, err = run("links", "suggest", "there", "--out", "all.csv", "--top", 2)
    assert code == 0, err
    suggestions = read_csv("all.csv")
    assert len(suggestions) == 120
    known = {frozenset(row) for row in rows}
    assert not [row for row in suggestions if frozenset((row["node"], row["suggestion"])) in known]
    of_five = [row["suggestion"] for row in suggestions if row["node"] == "p5"]
    assert all(name in out for name in of_five)

    parquet = pytest.importorskip("pyarrow.parquet")
    code, _, err = run("links", "suggest", "there", "--out", "all.parquet", "--top", 2)
    assert code == 0, err
    table = parquet.read_table("all.parquet").to_pylist()
    assert [(r["node"], str(r["rank"]), r["suggestion"]) for r in table] == [
        (r["node"], r["rank"], r["suggestion"]) for r in suggestions
    ]
    before = page
    Path("there/report.html").unlink()
    assert run("report", "there")[0] == 0
    assert Path("there/report.html").read_text() == before


def test_what_was_judged_is_predicted_again(run, trained):
    """With --read train, the test edges have the probabilities that the run was scored by."""
    saved = load_link_run("there")
    outcome = load_link_outcome("there")
    Path("pairs.csv").write_text("a,b\n" + "".join(f"p{u},p{v}\n" for u, v in saved.split.test.T))
    code, out, err = run("links", "predict", "there", "--pairs", "pairs.csv", "--read", "train")
    assert code == 0, err
    found = [float(line.split(",")[2]) for line in out.splitlines()[1:]]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-outcome.edge_scores)), rtol=1e-5)


def test_by_time(run):
    rows, days = write_tables()
    code, _, err = run("links", "train", *TABLES, *QUICK, "--time", "since", "--out", "there")
    assert code == 0, err
    split = load_link_run("there").split
    numbers = np.array([[int(name[1:]) for name in row] for row in rows]).T
    when = dict(zip(pair_keys(numbers, 60).tolist(), days, strict=True))
    parts = [[when[key] for key in pair_keys(part, 60).tolist()] for part in (split.train, split.val, split.test)]
    assert max(parts[0]) < min(parts[1])
    assert max(parts[1]) < min(parts[2])
    assert split.name == "time"


def test_baselines_that_learn(run):
    small = ("citations", "--set", "nodes=120", "--set", "features=60", *QUICK)
    code, out, err = run("links", "train", *small, "--baselines", "--out", "x", "--json", "result.json")
    assert code == 0, err
    assert "vgae" in out
    assert {"mlp", "gae", "vgae"} < set(json.loads(Path("result.json").read_text())["baselines"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source,target\np0,p99\n", "pairs.csv names 1 id that no row of 'nodes' has, in 1 of 1 edge: 'p99'"),
        ("source,target\n", "pairs.csv has no row; give at least one pair of nodes"),
        ("source,target\np0,p1\np3,p3\n", "row 2 of pairs.csv joins a node to itself; leave it out"),
        ("source\np0\n", "pairs.csv must have two columns, one per node of a pair, got 1"),
    ],
    ids=["unknown node", "no pair", "a loop", "one column"],
)
def test_bad_pairs_are_one_line(run, trained, text, message):
    Path("pairs.csv").write_text(text)
    code, out, err = run("links", "predict", "there", "--pairs", "pairs.csv")
    assert (code, out) == (2, "")
    assert err.count("error:") == 1
    assert message in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("suggest", "there", "--node", "p99"), "unknown node 'p99'; did you mean"),
        (("suggest", "there"), "name a node with --node, or a file for the suggestions of all nodes with --out"),
        (("suggest", "there", "--out", "x.txt"), "`--out` must end in .parquet or .csv, got 'x.txt'"),
        (("suggest", "there", "--node", "p0", "--read", "most"), "unknown choice of edges to read 'most'"),
        (("suggest", "nodes.csv", "--node", "p0"), "nodes.csv is not a run folder: config.json is missing"),
        (("train", "digits", "--time", "since"), "--time is for tables of nodes and edges with a column of times"),
        (("train", *TABLES, "--time", "when"), "edges.csv has no column 'when'; it has source, target, since"),
        (("train", *TABLES, "--time", "source"), "must hold a number or a date such as 2024-05-31 for each edge"),
        (("train", *TABLES, "--set", "hide=1"), "`hide` must be at least 0 and below 1, got 1"),
        (("train", *TABLES, "--set", "test_ratio=0.99"), "must be above 0 and below 1 together, got 0.05 and 0.99"),
        (("train", *TABLES, "--model", "gea"), "unknown model 'gea'; did you mean"),
    ],
)
def test_bad_input_is_one_line(run, trained, arguments, message):
    code, _, err = run("links", *arguments)
    assert code == 2
    assert err.count("error:") == 1
    assert message in err.splitlines()[-1]


def test_folders_of_another_task_are_told_apart(run, trained):
    code, _, err = run("predict", "there", "--out", "x.csv")
    assert (code, err) == (
        2,
        "error: there holds a run of link prediction; use it with `nfcgcn links predict` or `suggest`\n",
    )
    Path("classes").mkdir()
    Path("classes/config.json").write_text('{"format": 4, "model": "gcn"}')
    code, _, err = run("links", "suggest", "classes", "--node", "1")
    assert (code, err) == (
        2, "error: classes holds no run of link prediction; `nfcgcn links train` writes one\n"
    )  # fmt: skip


def test_damaged_folders_are_refused(run, trained):
    for name in ("weights.safetensors", "split.safetensors"):
        shutil.copytree("there", "damaged")
        path = Path("damaged", name)
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        code, _, err = run("links", "suggest", "damaged", "--node", "p0")
        assert code == 2
        assert f"{name} is not the file that was written; its sha256 differs" in err
        shutil.rmtree("damaged")
    config = json.loads(Path("there/config.json").read_text())
    for key, value, message in [
        ("format", 9, "has format 9; this version reads format 1"),
        ("num_nodes", "many", "`num_nodes` must be a whole number of at least 0, got 'many'"),
        ("num_nodes", 3, "`train` in split.safetensors must be pairs of nodes from 0 to 2"),
        ("settings", {"epochs": []}, "`settings` must be a table of settings"),
        ("model", "gat", "unknown setting"),
    ]:
        changed = {**config, key: value, "node_names": None}
        Path("there/config.json").write_text(json.dumps(changed))
        code, _, err = run("links", "suggest", "there", "--node", "p0")
        assert code == 2
        assert message in err, key


def test_another_graph_can_be_read_but_not_by_the_split_of_the_run(run, trained):
    edges = Path("edges.csv").read_text().splitlines()
    Path("fewer.csv").write_text("\n".join(edges[:100]) + "\n")
    other = ("--nodes", "nodes.csv", "--edges", "fewer.csv")
    code, _, err = run("links", "suggest", "there", *other, "--out", "x.csv")
    assert code == 0, err
    code, _, err = run("links", "suggest", "there", *other, "--out", "x.csv", "--read", "train")
    assert code == 2
    assert "is not the graph that the run was trained on; leave out --read" in err


def test_known_edges_are_those_of_the_graph(run, trained):
    saved = load_link_run("there")
    assert saved.num_nodes == 60
    everything = np.concatenate([saved.split.train, saved.split.val, saved.split.test], axis=1)
    graph = load("nodes.csv", edges="edges.csv")
    assert sorted(pair_keys(everything, 60)) == sorted(pair_keys(pairs_of(graph), 60))


def test_settings_are_listed(run):
    code, out, _ = run("links", "settings", "--model", "gcn")
    assert code == 0
    assert "hide" in out
    assert "hidden_channels" in out
