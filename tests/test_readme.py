"""The README is true: its Python prints what it says, its figures are those of `results/`."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from nfcgcn.reproduction.comparison import compare, select
from nfcgcn.reproduction.experiment import EXPERIMENTS, load_experiment
from nfcgcn.reproduction.ledger import read
from nfcgcn.reproduction.page import main_table, reproduce_page, to_markdown

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
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


def test_the_tables_of_the_results_are_those_of_their_files():
    cells = re.findall(r"\[([\d.]+ ± [\d.]+)\]\((.*?\.json)\)", (RESULTS / "README.md").read_text(encoding="utf-8"))
    assert len(cells) >= 15
    for printed, file in cells:
        content = json.loads((RESULTS / file).read_text())
        result = content.get("results", [content])[0]["test_accuracy"]  # of a comparison, the first model's
        assert printed == f"{100 * result['mean']:.1f} ± {100 * result['std']:.1f}", file
        assert len(result["runs"]) == 10


@pytest.fixture(scope="module")
def runs():
    return read(RESULTS / "reproduction")


def test_the_main_table_is_that_of_the_runs(runs):
    assert main_table(runs) in README


def test_the_page_is_that_of_the_runs(runs):
    page = (RESULTS / "reproduction" / "report.md").read_text(encoding="utf-8")
    assert page == to_markdown(reproduce_page(runs))


def test_every_experiment_was_run_with_ten_seeds(runs):
    of_one_place = select(runs).records
    for name in EXPERIMENTS:
        experiment = load_experiment(name)
        for cell in compare(experiment, of_one_place).cells:
            assert len(cell.records) == (10 if experiment.kind == "train" else 1), (name, cell.entry)


def test_it_is_short():
    assert len(README.splitlines()) < 200
