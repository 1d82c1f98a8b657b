"""The examples, run as a reader would run them."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, tmp_path):
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    return done.stdout, time.perf_counter() - start


def test_inside_pyg(tmp_path):
    printed, seconds = run("inside_pyg.py", tmp_path)
    *epochs, last = printed.splitlines()
    assert [line.split(":")[0] for line in epochs] == [f"epoch {n}" for n in (20, 40, 60, 80, 100)]
    found = re.fullmatch(r"test accuracy (\d+\.\d)% at the best validation, (\d+\.\d)%", last)
    assert float(found[1]) > 94
    assert float(found[2]) > 94
    assert seconds < 60  # alone on a core it takes a third of that


def test_own_csv(tmp_path):
    pytest.importorskip("nfcgcn.data.formats")
    pytest.importorskip("nfcgcn.inference.explanation")
    printed, seconds = run("own_csv.py", tmp_path)
    lines = printed.splitlines()
    assert re.fullmatch(r"Graph\('papers', nodes=150, edges=\d+, features=\d+ sparse, classes=3\)", lines[0])
    topics = "(astronomy|botany|cooking)"
    assert [re.fullmatch(rf"(paper \d+): {topics} \(\d+%\)", line)[1] for line in lines[1:6]] == [
        "paper 0", "paper 5", "paper 10", "paper 15", "paper 20",
    ]  # fmt: skip
    assert int(re.fullmatch(r"(\d+) of 30 missing topics were found", lines[6])[1]) >= 27
    assert re.fullmatch(rf"why paper 0 is {topics}:", lines[7])
    assert len(lines) == 13
    assert all(re.fullmatch(r"  .+ of paper \d+: [+-]\d+\.\d{3}", line) for line in lines[8:])
    assert seconds < 60
