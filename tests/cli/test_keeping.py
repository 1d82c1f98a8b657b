"""What was trained is kept, whatever goes wrong with the place to write to, the page, or a later seed."""

from __future__ import annotations

import hashlib
import json
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nfcgcn
from nfcgcn.cli import run_page, training_task
from nfcgcn.files import drafts
from nfcgcn.training import DivergedError, loop

TRAIN = ("train", "graph.npz", "--model", "mlp", "--set", "epochs=2", "--split", "ratio", "--out", "here")


@pytest.fixture
def graph(run, make_graph):
    """A small graph, in the folder in which commands run."""
    graph = make_graph(num_nodes=60, sparse=True)
    nfcgcn.write_npz(graph, "graph.npz")
    return graph


ENDLESS = ("--set", "epochs=1000000")
WRITING = {
    "train": ("train", "graph.npz", "--model", "mlp", *ENDLESS, "--out"),
    "train --json": ("train", "graph.npz", "--model", "mlp", *ENDLESS, "--out", "new", "--json"),
    "predict": ("predict", "here", "graph.npz", "--out"),
    "embed": ("embed", "here", "graph.npz", "--out"),
    "explain": ("explain", "here", "graph.npz", "--node", "0", "--out"),
    "export": ("export", "here", "--out"),
    "tune": ("tune", "graph.npz", "--model", "mlp", *ENDLESS, "--out"),
    "tune --study": ("tune", "graph.npz", "--model", "mlp", *ENDLESS, "--study"),
    "tune --page": ("tune", "graph.npz", "--model", "mlp", *ENDLESS, "--page"),
    "inspect --json": ("inspect", "graph.npz", "--json"),
    "bench step --json": ("bench", "step", "--json"),
    "bench models --json": ("bench", "models", "--json"),
    "reproduce": ("reproduce", "all", "--jobs", "1", "--out"),
}
SUFFIX = {"predict": ".csv", "embed": ".npz", "explain": ".html", "export": ".pt2", "tune": ".toml"}


def test_a_place_that_cannot_be_written_is_told_before_any_work(run, graph):
    assert run(*TRAIN)[0] == 0
    before = sorted(Path().rglob("*"))
    places = ("graph.npz/run", "n" * 252, "/proc/run")
    for number, (name, arguments) in enumerate(WRITING.items()):
        for place in places if name == "train" else places[number % 3 :][:1]:
            path = place + SUFFIX.get(name, ".any")
            code, out, err = run(*arguments, path)
            assert code == 2, (name, err)
            last = err.splitlines()[-1]
            begins = (
                f"error: cannot write {path}: ",
                f"error: cannot write to {path}: ",
                f"error: cannot write {path}/",
            )
            assert last.startswith(begins), (name, last)
            assert "accuracy" not in out
    assert sorted(Path().rglob("*")) == before


INPUTS = {
    "train --json": (*TRAIN, "--out", "new", "--json", "graph.npz"),
    "train --json in --out": (*TRAIN, "--out", "new", "--json", "new/config.json"),
    "inspect --json": ("inspect", "graph.npz", "--json", "graph.npz"),
    "predict": ("predict", "here", "graph.npz", "--add-nodes", "new.csv", "--out", "new.csv"),
    "embed": ("embed", "here", "graph.npz", "--out", "graph.npz"),
}


def test_no_command_writes_over_what_it_reads_or_wrote(run, graph):
    assert run(*TRAIN)[0] == 0
    Path("new.csv").write_text("id\n60\n")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    for name, arguments in INPUTS.items():
        code, _, err = run(*arguments)
        assert code == 2, (name, err)
        assert err.startswith(f"error: cannot write {arguments[-1]}"), (name, err)
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "arguments",
    [TRAIN, ("links", *TRAIN[:4]), ("recommend", "train"), ("compare", "graph.npz"), ("tune", "graph.npz")],
    ids=lambda arguments: arguments[0],
)
def test_a_seed_that_could_not_be_read_back_is_refused(run, arguments):
    """A run with a seed of 2**62 was trained and written, and its folder was called damaged."""
    code, _, err = run(*arguments, "--seed", 2**53 + 1)
    assert code == 2
    assert "Invalid value for '--seed': Input should be less than or equal to" in err


LINKED = {
    "report.html": ("report", "here"),
    "layout.safetensors": ("explore", "here", "graph.npz", "--out", "e.gexf"),
    "cells.jsonl": ("compare", "graph.npz", "--models", "mlp", "--no-select", "--seeds", "1", "--out", "here"),
    ".lock": ("compare", "graph.npz", "--models", "mlp", "--no-select", "--seeds", "1", "--out", "here"),
    "comparison.json": ("compare", "graph.npz", "--models", "mlp", "--no-select", "--seeds", "1", "--out", "here"),
}


def test_no_command_follows_a_link_in_a_run_folder(run, graph):
    """Whoever made the folder could name any file of the user's."""
    assert run(*TRAIN)[0] == 0
    Path("precious").write_text("years")
    for name, arguments in LINKED.items():
        path = Path("here", name)
        path.unlink(missing_ok=True)
        path.symlink_to("../precious")
        code, _, err = run(*arguments)
        assert code == (0 if name == "layout.safetensors" else 2), err
        assert Path("precious").read_text() == "years", name
        path.unlink()


@pytest.mark.parametrize(
    "problem", [KeyboardInterrupt(), MemoryError(), OSError(28, "No space left on device")], ids=repr
)
def test_a_run_without_its_page_is_whole_and_report_draws_it(run, graph, monkeypatch, problem):
    def fail(_):
        raise problem

    assert run(*TRAIN)[0] == 0
    page = Path("here/report.html").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(run_page, "render", fail)
        code, out, err = run(*TRAIN, "--force", "--json", "out.json")
    remedy = "here has the whole run but no page; `nfcgcn report here` draws it"
    if isinstance(problem, KeyboardInterrupt):
        assert (code, err.splitlines()[-1]) == (130, f"interrupted: {remedy}")
    else:
        assert code == 2
        assert err.splitlines()[-1].startswith("error: the page could not be drawn: ")
        assert err.splitlines()[-1].endswith(f"; {remedy}")
    assert "test accuracy" in out
    assert json.loads(Path("out.json").read_text()) == json.loads(Path("here/result.json").read_text())
    assert not Path("here/report.html").exists()
    assert run("predict", "here", "graph.npz", "--out", "p.csv")[0] == 0
    assert run("report", "here") == (0, "report: here/report.html\n", "")
    assert len(Path("here/report.html").read_bytes()) == pytest.approx(len(page), rel=0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_while_the_run_is_saved_waits(run, graph, monkeypatch, number):
    save = training_task.checkpoint.save_run

    def interrupted(*arguments):
        signal.raise_signal(number)
        save(*arguments)

    monkeypatch.setattr(training_task.checkpoint, "save_run", interrupted)
    code, out, err = run(*TRAIN)
    assert code == 128 + number
    assert "test accuracy" in out
    assert err.splitlines()[-1].startswith("interrupted: here has the whole run but no page")
    assert run("report", "here")[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_second_signal_does_not_undo_what_the_first_promised(run, graph, monkeypatch, number):
    class Bar:
        def __enter__(self):
            return lambda seed, epoch: signal.raise_signal(number) if epoch["epoch"] == 2 else None

        def __exit__(self, *_):
            signal.raise_signal(number)

    monkeypatch.setattr(training_task, "training_bar", lambda _: Bar())
    code, out, err = run(*TRAIN, "--no-select", "--set", "epochs=1000")
    assert code == 128 + number
    assert "interrupted: the best state so far was kept and scored" in err
    assert "test accuracy" in out
    assert json.loads(Path("here/result.json").read_text())["epochs_run"] == [2]


def test_seeds_before_one_that_diverges_are_kept(run, graph, monkeypatch):
    check = loop.check_finite

    def diverge(epoch, config, seed):
        check({**epoch, "val_loss": float("nan")} if (seed, epoch["epoch"]) == (7, 2) else epoch, config, seed)

    assert run(*TRAIN, "--seed", "5", "--seeds", "2")[0] == 0
    expected = json.loads(Path("here/result.json").read_text())
    monkeypatch.setattr(loop, "check_finite", diverge)
    code, out, err = run(*TRAIN, "--force", "--seed", "5", "--seeds", "9")
    assert code == 2
    assert err.splitlines()[-1] == (
        "error: training diverged in epoch 2 with seed 7: the loss is not finite; lower `learning_rate`, now 0.01; "
        "here has the 2 seeds before it"
    )
    assert "over 2 seeds" in out
    result = json.loads(Path("here/result.json").read_text())
    assert result["seeds"] == [5, 6]
    assert result["test_accuracy"] == expected["test_accuracy"]
    assert result["interrupted"]
    assert "<strong>Interrupted.</strong>" in Path("here/report.html").read_text()
    nfcgcn.load_model("here")
    code, _, err = run(*TRAIN, "--force", "--seed", "7")
    assert (code, "before it" in err) == (2, False)
    assert json.loads(Path("here/result.json").read_text()) == result


def test_fit_together_says_what_was_finished(graph):
    config = nfcgcn.make_config("mlp", settings={"epochs": 2, "split": "ratio", "learning_rate": 1e30})
    with pytest.raises(DivergedError, match="with seed 3: ") as caught:
        nfcgcn.repeat(graph, config, [3, 4])
    assert caught.value.finished == []


@pytest.mark.parametrize(
    "command", [TRAIN, ("tune", "graph.npz", "--model", "mlp", "--trials", "1")], ids=lambda c: c[0]
)
@pytest.mark.parametrize(("stray", "gap"), [(99999, 3), (4, 3)])
def test_a_stray_label_is_told_before_training(run, graph, command, stray, gap):
    labels = graph.labels.copy()
    labels[17] = stray
    nfcgcn.write_npz(replace(graph, labels=labels, name="mine"), "graph.npz")
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == (
        f"error: node 17 of 'mine' has class {stray}, but no node has class {gap}; "
        "write -1 for a missing label, and number the classes from 0 without gaps"
    )
    labels[17] = -1
    nfcgcn.write_npz(replace(graph, labels=labels), "graph.npz")
    if command is TRAIN:
        assert run(*command)[0] == 0


@pytest.mark.parametrize(("num_classes", "there"), [(1000, True), (1001, False)])
def test_many_classes_have_no_confusion_matrix(run, graph, monkeypatch, num_classes, there):
    if there:  # a matrix of 1,000 classes takes long to draw
        monkeypatch.setattr("nfcgcn.reports.run_page.confusion", lambda *_: '<svg viewBox="0 0 1 1"></svg>')
    names = tuple(f"class {number}" for number in range(num_classes))  # which need no node each
    nfcgcn.write_npz(replace(graph, class_names=names), "graph.npz")
    assert run(*TRAIN)[0] == 0
    page = Path("here/report.html").read_text()
    assert ("Confusion matrix" in page) == there
    assert "Per-class scores" in page


def test_report_draws_the_page_of_a_run_again(run, graph):
    assert run(*TRAIN, "--seeds", "2")[0] == 0
    page = Path("here/report.html").read_text()
    Path("here/report.html").unlink()
    Path("graph.npz").unlink()
    assert run("report", "here") == (0, "report: here/report.html\n", "")
    assert Path("here/report.html").read_text() == page
    assert run("report", "here", "--device", "cpu") == (
        2, "", "error: --device is for the page of the reproduction; here holds a run\n",
    )  # fmt: skip


def test_report_refuses_a_damaged_run(run, graph):
    assert run(*TRAIN)[0] == 0
    config = json.loads(Path("here/config.json").read_text())
    for name in ("result.json", "metrics.jsonl", "test_nodes.safetensors"):
        content = Path("here", name).read_bytes()
        Path("here", name).write_bytes(content[:-3] + b"}\n\n")
        code, out, err = run("report", "here")
        assert (code, out) == (2, "")
        assert err == (
            "error: here is damaged or was not written by nfcgcn: "
            f"{name} is not the file that was written; its sha256 differs\n"
        )
        Path("here", name).write_bytes(content)
    Path("here/config.json").write_text(json.dumps({**config, "num_classes": 10**9}))
    assert run("report", "here")[2].endswith("`num_classes` must be a whole number up to 100,000, got 1000000000\n")
    for text in ("{}", "[]", '{"seeds": [0]}', '{"seeds": "x", "config": 3}'):
        Path("here/result.json").write_text(text)
        config["sha256"]["result.json"] = hashlib.sha256(text.encode()).hexdigest()
        Path("here/config.json").write_text(json.dumps(config))
        code, out, err = run("report", "here")
        assert (code, out) == (2, ""), text
        assert err.startswith("error: here")
        assert err.count("\n") == 1


@pytest.mark.parametrize("command", [("predict", "here", "graph.npz", "--out", "p.csv"), ("report", "here")])
def test_a_run_that_a_killed_process_had_moved_aside_comes_back(run, graph, command):
    assert run(*TRAIN)[0] == 0
    Path("here").rename(drafts._prefix(Path("here")) + "0123abcd" + drafts.OLD)
    code, _, err = run(*command)
    assert code == 0, err
    assert Path("here").is_dir()
    assert not list(Path().glob(".*"))


def test_what_a_page_shows_is_that_of_the_model(run, graph):
    assert run(*TRAIN)[0] == 0
    outcome = nfcgcn.inference.checkpoint.load_outcome("here")
    seed = outcome.seed
    test = nfcgcn.make_split(graph, "ratio", seed=seed).test
    scored = outcome.scored
    assert scored.labels.tolist() == graph.labels[test].tolist()
    assert scored.predictions.tolist() == nfcgcn.predict(nfcgcn.load_model("here"), graph)[test].tolist()
    embedding = nfcgcn.embed(nfcgcn.load_model("here"), graph)
    np.testing.assert_array_equal(scored.embedding, embedding[test][scored.pictured])
