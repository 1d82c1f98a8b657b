"""The sample tables are what their script writes, and the README's commands on them run as printed."""

from __future__ import annotations

import csv
import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = ROOT / "examples" / "data"
OWN_GRAPH = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Your own graph")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", OWN_GRAPH, flags=re.DOTALL)
COMMANDS = [line for language, text in BLOCKS if not language for line in text.splitlines()]


def test_the_tables_are_what_the_script_writes(tmp_path):
    runpy.run_path(str(DATA / "make_tables.py"))["main"](tmp_path)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in DATA.glob("*.csv")}
    assert set(written) == {"papers.csv", "cites.csv", "missing_topics.csv"}


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")  # of standardised years, which the README announces
def test_the_readmes_commands_run_as_printed(run, tmp_path):
    shutil.copytree(DATA, tmp_path / "examples" / "data")
    assert [line.split()[:2] for line in COMMANDS] == [
        ["nfcgcn", command] for command in ("train", "predict", "explain", "explore", "compare")
    ]
    quick = {
        "compare": ["--seeds", "2", "--set", "epochs=2", "--no-select", "--jobs", "1"],  # the last option counts
        "explore": ["--out", "graph.gexf"],  # instead of a server that runs until Ctrl-C
    }
    for line in COMMANDS:
        _, command, *arguments = shlex.split(line, comments=True)
        code, out, err = run(command, *arguments, *quick.get(command, ()))
        assert code == 0, err
        if command == "explain":  # in a terminal of 80 columns no heading is cut
            assert re.search(r" away .* the table +value +contribution *$", out, re.MULTILINE)
    assert (tmp_path / "runs" / "papers" / "report.html").exists()
    assert out
    with (tmp_path / "predictions.csv").open(newline="", encoding="utf-8") as file:
        predicted = {
            row["id"]: max((name for name in row if name.startswith("p_")), key=lambda name: float(row[name]))[2:]
            for row in csv.DictReader(file)
        }
    with (DATA / "missing_topics.csv").open(newline="", encoding="utf-8") as file:
        missing = {row["id"]: row["topic"] for row in csv.DictReader(file)}
    assert sum(predicted[paper] == topic for paper, topic in missing.items()) > 0.6 * len(missing)
    page = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert "Why node P017 is in class" in page
    assert "Runner-up" in page
    assert "cell of the table" in page
    assert "Neighbourhood" in page


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
def test_the_readmes_python_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (code,) = [text for language, text in BLOCKS if language == "python"]
    quick = code.replace("random_state=0", "random_state=0, epochs=20, select=False")
    assert quick != code
    exec("import nfcgcn\n" + quick, {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 6
    assert re.fullmatch(r"P\d+ .+ -?\d\.\d+(e-\d+)?", lines[-1])
