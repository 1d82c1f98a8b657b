"""An imbalanced table from training to predictions: scores, baselines, confidence, and nodes that come later."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn import metrics

import nfcgcn
from nfcgcn import cli
from nfcgcn.cli import training_task
from nfcgcn.evaluation import repeats
from nfcgcn.inference.checkpoint import load_run

NODES, EDGES = "papers.csv", "cites.csv"


def write(path, rows):
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def read(path):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def make_tables(folder):
    """A hundred papers in five groups without an edge between them; three topics, one rare; every tenth unlabelled."""
    rng = np.random.default_rng(3)
    kind = rng.choice(3, 100, p=[0.7, 0.2, 0.1])
    topics = np.array(["a", "b", "c"], dtype=object)[kind]
    topics[::10] = ""
    colour = np.where(rng.random(100) < 0.7, np.array(["red", "green", "blue"])[kind], "red")
    rows = [
        (f"n{i}", topics[i], colour[i], round(rng.normal() + kind[i], 3), f"word{kind[i]} any{i % 4} text")
        for i in range(100)
    ]
    write(folder / NODES, [("id", "topic", "colour", "size", "abstract"), *rows])
    pairs = [(20 * g + a, 20 * g + b) for g in range(5) for a, b in rng.integers(0, 20, (25, 2)).tolist()]
    write(folder / EDGES, [("source", "target"), *((f"n{a}", f"n{b}") for a, b in pairs)])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with tables and a run on them; tests may not change it."""
    folder = tmp_path_factory.mktemp("tables")
    make_tables(folder)
    arguments = [
        "train", "--nodes", folder / NODES, "--edges", folder / EDGES, "--label", "topic", "--text", "abstract",
        "--no-select", "--set", "epochs=12", "--set", "class_weight=balanced", "--set", "calibrate=temperature",
        "--set", "train_ratio=0.5", "--monitor", "macro-f1", "--seeds", 2, "--jobs", 1, "--out", folder / "run",
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["nfcgcn", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
    assert not leaving.value.code
    return folder


def own_graph(folder):
    return nfcgcn.load(folder / NODES, edges=folder / EDGES, label="topic", text="abstract")


def split_of(graph, seed):
    return nfcgcn.make_split(graph, "ratio", seed=seed, train_ratio=0.5)


def test_the_result_has_every_score_as_scikit_learn_computes_it(trained):
    result = json.loads((trained / "run" / "result.json").read_text())
    config = json.loads((trained / "run" / "config.json").read_text())
    graph, place = own_graph(trained), result["seeds"].index(config["seed"])
    split = split_of(graph, config["seed"])
    p = nfcgcn.predict_proba(nfcgcn.load_model(trained / "run"), graph).probabilities[split.test]
    y, guesses = graph.labels[split.test], p.argmax(1)
    found = {name: summary["runs"][place] for name, summary in result["test_scores"].items()}
    assert found["accuracy"] == result["test_accuracy"]["runs"][place] == metrics.accuracy_score(y, guesses)
    assert found["macro-f1"] == pytest.approx(metrics.f1_score(y, guesses, average="macro"))
    assert found["balanced-accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, guesses))
    assert found["roc-auc"] == pytest.approx(metrics.roc_auc_score(y, p, multi_class="ovr"))
    assert found["log-loss"] == pytest.approx(metrics.log_loss(y, p))
    assert 0 <= found["calibration-error"] <= 1
    assert config["temperature"] == result["temperatures"][place]
    assert {t != 1 for t in result["temperatures"]} == {True}


def test_baselines_stand_beside_the_result(trained):
    result = json.loads((trained / "run" / "result.json").read_text())
    graph = own_graph(trained)
    assert list(result["baselines"]) == ["majority class", "mlp"]
    most, losses = [], []
    for seed in result["seeds"]:
        split = split_of(graph, seed)
        counts = np.bincount(graph.labels[split.train])
        most.append(np.mean(graph.labels[split.test] == counts.argmax()))
        losses.append(-np.log((counts / counts.sum())[graph.labels[split.test]]).mean())
    majority = result["baselines"]["majority class"]
    assert majority["accuracy"]["runs"] == pytest.approx(most)
    assert majority["log-loss"]["runs"] == pytest.approx(losses)
    assert majority["roc-auc"]["mean"] == 0.5
    chosen = {name: result["config"][name] for name in ("epochs", "monitor", "class_weight", "calibrate", "patience")}
    mlp = nfcgcn.make_config("mlp", graph=graph, settings=chosen)
    splits = [split_of(graph, seed) for seed in result["seeds"]]
    repeats = nfcgcn.repeat(graph, mlp, result["seeds"], splits=splits)
    assert result["baselines"]["mlp"]["accuracy"]["runs"] == [r.test_accuracy for r in repeats]


def test_the_report_shows_them(trained):
    page = " ".join((trained / "run" / "report.html").read_text().split())
    assert "Scores on the test nodes" in page
    for word in ("macro-F1", "balanced accuracy", "ROC-AUC", "log loss", "calibration error", "majority class"):
        assert word in page
    assert 'alt="Share of right predictions by confidence. ' in page
    assert "Scores were divided by" in page
    result = json.loads((trained / "run" / "result.json").read_text())
    assert f"{100 * result['test_scores']['macro-f1']['mean']:.1f} %" in page


def test_predictions_say_how_sure_they_are_and_what_is_known(run, trained):
    code, _, err = run("predict", trained / "run", "--out", "p.csv")
    assert code == 0
    assert err.startswith("read 100 nodes and 109 edges; ")
    rows, graph, saved = read("p.csv"), own_graph(trained), load_run(trained / "run")
    assert list(rows[0]) == ["id", "label", "confidence", "margin", "true_label", "split", "p_a", "p_b", "p_c"]
    p = np.sort(nfcgcn.predict_proba(saved.model, graph).probabilities, axis=1)
    np.testing.assert_allclose([float(row["confidence"]) for row in rows], p[:, 2], rtol=1e-5)
    np.testing.assert_allclose([float(row["margin"]) for row in rows], p[:, 2] - p[:, 1], rtol=1e-3, atol=1e-6)
    assert [row["true_label"] for row in rows] == [row["topic"] for row in read(trained / NODES)]
    split = split_of(graph, saved.seed)
    for part in ("train", "val", "test"):
        assert [i for i, row in enumerate(rows) if row["split"] == part] == sorted(getattr(split, part).tolist())


def test_only_missing(run, trained):
    code, out, _ = run("predict", trained / "run", "--only-missing", "--out", "p.csv")
    assert code == 0
    assert [row["id"] for row in read("p.csv")] == [f"n{i}" for i in range(0, 100, 10)]
    assert out.startswith("10 of 100 nodes have no label; ")


@pytest.mark.filterwarnings("always::nfcgcn.errors.NFCWarning")
def test_new_nodes_change_nothing_beyond_their_reach(run, trained):
    write("new.csv", [("id", "topic", "colour", "size", "abstract"), ("m0", "", "red", 0.5, "word0 any1 yak"),
                      ("m1", "b", "pink", 1.5, "zebra yak word1")])  # fmt: skip
    write("new_edges.csv", [("source", "target"), ("m0", "n3"), ("m1", "m0"), ("n5", "n6")])
    code, _, err = run(
        "predict", trained / "run", "--add-nodes", "new.csv", "--add-edges", "new_edges.csv", "--out", "p.csv"
    )
    assert code == 0
    assert err.partition("\n")[2] == (
        "warning: new.csv holds values that are not among the features, and were left out: "
        "colour (1 of 2 cells), abstract (3 of 6 words)\n"
    )
    assert run("predict", trained / "run", "--out", "before.csv")[0] == 0
    rows, before = Path("p.csv").read_text().splitlines(), Path("before.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows[-2:]] == ["m0", "m1"]
    assert read("p.csv")[-1]["true_label"] == "b"
    assert rows[21:101] == before[21:]  # the other four groups
    assert rows[1:21] != before[1:21]
    assert read("p.csv")[0]["split"] == read("before.csv")[0]["split"]


@pytest.mark.parametrize("model", ["nfc-gcn", "gcn", "sage-mean", "gat"])
def test_nodes_beyond_the_reach_keep_every_bit(trained, model):
    graph = own_graph(trained)
    known = np.flatnonzero(graph.labels >= 0)
    fitted = nfcgcn.NFCClassifier(graph, model=model, epochs=2, select=False, random_state=0)
    fitted.fit(known, graph.labels[known])
    new = np.zeros((3, graph.num_features), np.float32) + 0.25
    grown = graph.extend(new, [[100, 101, 102], [3, 100, 5]], names=["x", "y", "z"])
    before, after = fitted.predict_proba(np.arange(100)), fitted.predict_proba(np.arange(103), graph=grown)
    assert np.array_equal(before[20:], after[20:100])
    assert not np.array_equal(before[:20], after[:20])
    assert fitted.predict(["x", "n50"], graph=grown).tolist() == [
        fitted.classes_[after[100].argmax()], fitted.classes_[before[50].argmax()],
    ]  # fmt: skip


def test_a_classifier_takes_graphs_with_its_features_only(trained):
    graph = own_graph(trained)
    fitted = nfcgcn.NFCClassifier(graph, epochs=1, select=False, random_state=0).fit(np.arange(1, 9), np.arange(8) % 2)
    other = nfcgcn.Graph.from_edges([], np.ones((3, 2)))
    count = graph.num_features
    remedy = "read it with `encoding=graph.encoding`, `graph` being the one of `fit`"
    with pytest.raises(nfcgcn.NFCError, match=f"^`graph` must have the {count} features of `fit`, got 2; {remedy}$"):
        fitted.predict([0], graph=other)
    names = [*graph.feature_names[:-1], "else"]
    renamed = nfcgcn.Graph.from_edges([], np.ones((3, count)), feature_names=names)
    with pytest.raises(
        nfcgcn.NFCError, match=rf"^feature {count - 1} of `graph` is 'else', in `fit` it was 'abstract: "
    ):
        fitted.predict([0], graph=renamed)
    alone = nfcgcn.NFCClassifier(epochs=1, random_state=0).fit(
        np.random.default_rng(0).normal(size=(20, 3)), [0, 1] * 10
    )
    with pytest.raises(nfcgcn.NFCError, match=r"^`graph` is for an estimator that was fitted with one; "):
        alone.predict([0], graph=graph)


def test_the_estimator_calibrates_too(trained):
    graph = own_graph(trained)
    known = np.flatnonzero(graph.labels >= 0)
    options = {"epochs": 12, "select": False, "random_state": 0, "class_weight": {"a": 1, "c": 4}}
    plain, scaled = (
        nfcgcn.NFCClassifier(graph, calibrate=how, **options).fit(known, np.array(["a", "b", "c"])[graph.labels[known]])
        for how in (None, "temperature")
    )
    assert plain.config_.training.class_weight.table == {"a": 1.0, "c": 4.0}
    t = scaled.model_.temperature
    assert t != 1 == plain.model_.temperature
    powers = plain.predict_proba(known) ** (1 / t)
    np.testing.assert_allclose(scaled.predict_proba(known), powers / powers.sum(1, keepdims=True), rtol=1e-9)


def test_what_cannot_be_added_is_one_line(run, trained):
    head = ("id", "topic", "colour", "size", "abstract")
    write("again.csv", [head, ("n7", "", "red", 1, "x"), ("n8", "", "red", 1, "x")])
    write("new.csv", [head, ("m0", "", "red", 1, "x")])
    write("edges.csv", [("source", "target"), ("m0", "q9")])
    for arguments, line in {
        "--add-nodes again.csv": "again.csv repeats 2 ids of 'papers': 'n7', 'n8'; leave these rows out",
        "--add-nodes again.csv --add-edges edges.csv": "2 problems: (1) again.csv repeats 2 ids of 'papers': 'n7', "
        "'n8'; leave these rows out (2) edges.csv names 2 ids that no row of 'papers' or again.csv has, in 1 of 1 "
        "edge: 'm0', 'q9'; add the nodes or remove the edges",
        "--add-nodes gone.csv --add-edges lost.csv": "2 problems: (1) gone.csv does not exist (2) lost.csv does not "
        "exist",
        "--add-nodes new.csv --add-edges edges.csv": "edges.csv names 1 id that no row of 'papers' or "
        "new.csv has, in 1 of 1 edge: 'q9'; add the nodes or remove the edges",
        "--add-edges edges.csv": "edges.csv names 2 ids that no row of 'papers' has, in 1 of 1 edge: 'm0', 'q9'; "
        "add the nodes or remove the edges",
    }.items():
        code, out, err = run("predict", trained / "run", *arguments.split(), "--out", "p.csv")
        assert (code, out) == (2, "")
        assert err.splitlines()[-1] == f"error: {line}"
    assert not Path("p.csv").exists()


def test_changed_and_missing_tables_are_refused(run, trained, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(trained, moved)
    config = json.loads((moved / "run" / "config.json").read_text())
    for name, file in (("nodes", NODES), ("edges", EDGES)):
        assert config["tables"][name]["path"] == str((trained / file).resolve())
        config["tables"][name]["path"] = str(moved / file)
    (moved / "run" / "config.json").write_text(json.dumps(config))
    assert run("predict", moved / "run", "--out", "p.csv")[0] == 0
    with (moved / EDGES).open("a") as file:
        file.write("n1,n99\n")
    assert run("predict", moved / "run", "--out", "p.csv") == (2, "", (
        f"error: {moved / EDGES} is not as it was when the run was trained: its sha256 differs; put the old file back, "
        "train again, or give the tables with --nodes and --edges\n"
    ))  # fmt: skip
    tables = ("--nodes", moved / NODES, "--edges", moved / EDGES)
    assert run("predict", moved / "run", *tables, "--out", "p.csv")[0] == 0
    (moved / NODES).unlink()
    code, _, err = run("explain", moved / "run", "--node", "n1")
    assert (code, err) == (2, f"error: {moved / NODES}, which the run was trained on, is gone; "
                              "give it with --nodes and --edges\n")  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [("temperature", 0), ("temperature", "1"), ("tables", []), ("tables", {"nodes": {"path": 1, "sha256": ""}}),
     ("tables", {"nodes": {"path": "a\0", "sha256": ""}, "options": {}}),
     ("tables", {"nodes": {"path": "a", "sha256": ""}, "options": {"label": {}}})],
)  # fmt: skip
def test_a_damaged_memory_is_refused(run, trained, tmp_path, key, value):
    folder = shutil.copytree(trained / "run", tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    code, _, err = run("predict", folder, "--out", "p.csv")
    assert code == 2
    assert re.match(rf"error: .*run is damaged or was not written by nfcgcn: `{key}` must be ", err)
    assert err.count("\n") == 1


def test_explanations_say_what_the_temperature_does(run, trained):
    code, out, _ = run("explain", trained / "run", "--node", "n1", "--out", "why.html")
    assert code == 0
    temperature = load_run(trained / "run").model.temperature
    line = f"Scores are shown before temperature scaling, which divides them by {temperature:.3g}; probabilities are"
    assert line in out
    assert line in Path("why.html").read_text()


def test_an_explanation_has_the_probabilities_of_predict(run, trained):
    saved, graph = load_run(trained / "run"), own_graph(trained)
    assert saved.model.temperature != 1
    expected = nfcgcn.predict_proba(saved.model, graph).probabilities
    for node in (graph.node_names[1], 7):
        explanation = nfcgcn.explain(saved.model, graph, node)
        assert explanation.probabilities == pytest.approx(expected[explanation.node], abs=1e-6)
    assert nfcgcn.explain(saved.model, graph, graph.node_names[1]).node == 1
    code, out, _ = run("explain", trained / "run", "--node", graph.node_names[1])
    assert code == 0
    assert f"(probability {100 * expected[1].max():.1f} %;" in out


def test_without_baselines_none_is_trained(run, trained):
    tables = ("--nodes", trained / NODES, "--edges", trained / EDGES, "--label", "topic", "--ignore", "abstract")
    quick = ("--no-select", "--model", "gcn", "--set", "epochs=1", "--no-baselines", "--out", "here")
    code, out, err = run("train", *tables, *quick)
    assert code == 0, err
    result = json.loads(Path("here/result.json").read_text())
    assert list(result["baselines"]) == ["majority class"]
    assert "\nmlp: " not in out
    assert "\nmajority class: accuracy " in out
    assert result["temperatures"] == [1.0]


def test_an_interrupted_baseline_costs_no_result(run, trained, monkeypatch):
    whole = nfcgcn.repeat

    def interrupted(graph, config, *arguments, **options):
        runs = whole(graph, config, *arguments, **options)
        return [replace(r, run=replace(r.run, interrupted=config.name == "mlp")) for r in runs]

    for module in (repeats, training_task):
        monkeypatch.setattr(module, "repeat", interrupted)
    tables = ("--nodes", trained / NODES, "--edges", trained / EDGES, "--label", "topic", "--ignore", "abstract")
    code, out, err = run("train", *tables, "--no-select", "--model", "gcn", "--set", "epochs=1", "--out", "here")
    assert code == 0
    assert err.splitlines()[-1] == "no perceptron to compare with: interrupted"
    assert "report: here/report.html" in out
    assert list(json.loads(Path("here/result.json").read_text())["baselines"]) == ["majority class"]


def test_exported_programs_name_the_temperature(run, trained, monkeypatch):
    told = {}

    def fake(_, path, *, notes):
        told.update(notes)
        return SimpleNamespace(graph_signature=SimpleNamespace(user_inputs=["x"]))

    monkeypatch.setattr("nfcgcn.cli.export.export", fake)
    assert run("export", trained / "run", "--out", "m.pt2")[0] == 0
    assert told["temperature"] == load_run(trained / "run").model.temperature


def test_settings_are_chosen_by_the_monitored_score(trained):
    graph = own_graph(trained)
    settings = {"epochs": 22, "monitor": "balanced-accuracy"}
    config = nfcgcn.make_config("gcn", graph=graph, settings=settings)
    selection = nfcgcn.select(graph, config, seed=1, held=("monitor",))
    assert f"balanced-accuracy {selection.chosen.figure:.3f} (" in selection.reason
    assert selection.describe()["by"] == "balanced-accuracy"
    for candidate in selection.candidates:
        highest = [max(epoch["val_score"] for epoch in trial.history) for trial in candidate.trials]
        assert candidate.figure == (pytest.approx(sum(highest) / len(highest)) if highest else None)
        for trial in candidate.trials:
            best = max(epoch["val_score"] for epoch in trial.history)
            assert trial.score == pytest.approx(best - 0.1 * min(epoch["val_loss"] for epoch in trial.history))
