"""`nfcgcn tune`, as a user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nfcgcn.cli import tune as command
from nfcgcn.cli.console import Console

SMALL = ("citations", "--set", "nodes=200", "--set", "num_val=50", "--set", "epochs=4", "--model", "gcn")


def test_a_search_writes_a_preset_that_train_takes(run):
    code, out, err = run("tune", *SMALL, "--trials", "3")
    assert code == 0, err
    found = re.search(r"validation accuracy (\S+) %, before (\S+) %; 3 trials in 0\.\d minutes\n", out)
    assert float(found[1]) >= float(found[2])
    assert out.endswith("preset: citations-gcn.toml\n")
    assert sorted(p.name for p in Path().iterdir()) == ["citations-gcn.study.jsonl", "citations-gcn.toml"]
    preset = Path("citations-gcn.toml").read_text()
    assert "\nepochs = 4\n" in preset
    assert "\nnum_val = 50\n" in preset

    # The same command has nothing left to do, and a longer one goes on.
    before = Path("citations-gcn.study.jsonl").read_text()
    assert run("tune", *SMALL, "--trials", "3")[0] == 0
    assert Path("citations-gcn.study.jsonl").read_text() == before
    assert Path("citations-gcn.toml").read_text() == preset
    assert run("tune", *SMALL, "--trials", "4")[0] == 0
    assert Path("citations-gcn.study.jsonl").read_text().count('"result":') == 4


def test_training_with_the_preset_is_what_the_search_saw(run):
    """Of one seed, whose split is the search's, and with nothing else told."""
    code, out, err = run("tune", *SMALL, "--trials", "4", "--out", "a/b.toml", "--study", "c/d.json", "--seeds", "1")
    assert code == 0, err
    assert out.endswith("preset: a/b.toml\n")
    assert sorted(str(p) for p in Path().rglob("*.*")) == ["a/b.toml", "c/d.json"]
    code, _, err = run(
        "train", *SMALL[:3], "--model", "gcn", "--preset", "a/b.toml", "--out", "here", "--json", "out.json"
    )
    assert code == 0, err
    result = json.loads(Path("out.json").read_text())
    assert result["preset"] == "a/b.toml"
    found = re.search(r"# (\S+) % on validation", Path("a/b.toml").read_text())[1]
    assert f"{100 * result['val_accuracy']['mean']:.2f}" == found


BAD_INPUT = {
    "tune coda": "unknown dataset 'coda'; did you mean 'cora'?",
    "tune --model gnc": "unknown model 'gnc'; did you mean 'gcn'?",
    "tune --set bandwith=3": "unknown setting 'bandwith'; did you mean 'bandwidth'?",
    "tune --minutes 0": "`minutes` must be above 0, got 0.0",
    "tune --minutes nan": "`minutes` must be above 0, got nan",
    "tune --out mine.json": "a preset's name must end in .toml, got mine.json; choose another with --out",
    "tune --out mine.toml": "mine.toml exists and was not written by `nfcgcn tune`; choose another file with --out",
    "tune --study mine.toml": "mine.toml is damaged or not a study of `nfcgcn tune`: Expecting value: line 1 column 2 "
    "(char 1); choose another file with --study",
    "train --preset mine.toml": "mine.toml has no settings for model 'nfc-gcn'; it covers no known model",
    "train --preset no.toml": "no.toml is not a file; give the path of a preset that `nfcgcn tune` wrote",
}


@pytest.mark.parametrize("arguments", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_nothing(run, arguments):
    Path("mine.toml").write_text("[project]\n")
    code, out, err = run(*arguments.split())
    assert code == 2
    assert err.splitlines()[-1] == f"error: {BAD_INPUT[arguments]}"
    assert "Traceback" not in err
    assert out == ""
    assert [p.name for p in Path().iterdir()] == ["mine.toml"]
    assert Path("mine.toml").read_text() == "[project]\n"


def test_a_terminal_sees_how_far_it_is(run, monkeypatch):
    monkeypatch.setattr(command, "err", Console(stderr=True, force_terminal=True, width=100))
    code, _, err = run("tune", *SMALL, "--trials", "2")
    assert code == 0
    assert "trial 2, epoch" in err
    assert "best so far" in err


def test_an_interrupted_search_keeps_its_best(run, monkeypatch):
    """Ctrl-C in the third trial."""
    ticks = []

    def press(done, *_):
        ticks.append(1)
        if len(done) == 2:
            raise KeyboardInterrupt

    from contextlib import contextmanager

    @contextmanager
    def bar(_):
        yield press

    monkeypatch.setattr(command, "_search_bar", bar)
    code, out, err = run("tune", *SMALL, "--trials", "5")
    assert code == 130
    assert "2 trials" in out
    assert err.endswith("interrupted: the best settings so far were written; the same command goes on\n")
    assert Path("citations-gcn.toml").exists()
