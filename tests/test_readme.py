"""The README is true: its Python prints what it says, its figures are those of `results/`."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)


def test_the_first_example_prints_what_the_readme_says():
    number = next(i for i, (language, _) in enumerate(BLOCKS) if language == "python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(BLOCKS[number][1], {})
    found, promised = printed.getvalue().splitlines(), BLOCKS[number + 1][1].splitlines()
    assert found[:-2] == promised[:-2]
    # Another processor rounds otherwise: the epoch may differ, the accuracy hardly.
    accuracies = [float(re.findall(r"([\d.]+)%", lines[-1])[0]) for lines in (found, promised)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=1.0)


@pytest.mark.parametrize(("page", "at_least"), [("README.md", 32), ("results/README.md", 12)])
def test_the_tables_are_those_of_the_results(page, at_least):
    text = (ROOT / page).read_text(encoding="utf-8")
    cells = re.findall(r"\[([\d.]+ ± [\d.]+)\]\((.*?\.json)\)", text)
    assert len(cells) >= at_least
    for printed, file in cells:
        result = json.loads(((ROOT / page).parent / file).read_text())["test_accuracy"]
        assert printed == f"{100 * result['mean']:.1f} ± {100 * result['std']:.1f}", file
        assert len(result["runs"]) == 10


def test_it_is_short():
    assert len(README.splitlines()) < 150
