"""The examples, run as a reader would run them."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    return done.stdout.splitlines()


def test_inside_pyg(tmp_path):
    *epochs, last = run("inside_pyg.py", tmp_path)
    assert [line.split(":")[0] for line in epochs] == [f"epoch {n}" for n in (20, 40, 60, 80, 100)]
    found = re.fullmatch(r"test accuracy (\d+\.\d)% at the best validation, (\d+\.\d)%", last)
    assert float(found[1]) > 94
    assert float(found[2]) > 94


def test_own_csv(tmp_path):
    lines = run("own_csv.py", tmp_path)
    assert re.fullmatch(r"Graph\('papers', nodes=240, edges=\d+, features=\d+ sparse, classes=4\)", lines[0])
    topics = "(astronomy|botany|cooking|geology)"
    assert all(re.fullmatch(rf"P\d+: {topics} \(\d+%\)", line) for line in lines[1:6])
    assert int(re.fullmatch(r"(\d+) of 48 missing topics were found", lines[6])[1]) >= 36
    assert re.fullmatch(rf"why P007 is {topics}:", lines[7])
    assert len(lines) == 13
    assert all(re.fullmatch(r"  .+ of P\d+: [+-]\d+\.\d{3}", line) for line in lines[8:])
