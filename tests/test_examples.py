"""The examples, run as a reader would run them."""

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = pytest.mark.filterwarnings("default")  # a reader's Python ends at no warning


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run an example as the main module, in an empty folder that it leaves empty; return the lines it prints."""

    def call(name):
        monkeypatch.chdir(tmp_path)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        assert list(tmp_path.iterdir()) == []
        return printed.getvalue().splitlines()

    return call


def test_inside_pyg(run):
    *epochs, last = run("inside_pyg.py")
    assert [line.split(":")[0] for line in epochs] == [f"epoch {n}" for n in (20, 40, 60, 80, 100)]
    found = re.fullmatch(r"test accuracy (\d+\.\d)% at the best validation, (\d+\.\d)%", last)
    assert float(found[1]) > 94
    assert float(found[2]) > 94


def test_own_csv(run):
    lines = run("own_csv.py")
    assert re.fullmatch(r"Graph\('papers', nodes=240, edges=\d+, features=\d+ sparse, classes=4\)", lines[0])
    topics = "(astronomy|botany|cooking|geology)"
    assert all(re.fullmatch(rf"P\d+: {topics} \(\d+%\)", line) for line in lines[1:6])
    assert int(re.fullmatch(r"(\d+) of 48 missing topics were found", lines[6])[1]) >= 36
    assert re.fullmatch(rf"why P007 is {topics}:", lines[7])
    assert len(lines) == 13
    assert all(re.fullmatch(r"  .+ of P\d+: [+-]\d+\.\d{3}", line) for line in lines[8:])
