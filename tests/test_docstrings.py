"""The examples in docstrings run, and every public name has one."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest
import torch

import nfcgcn
from nfcgcn import files
from nfcgcn.evaluation import describe
from nfcgcn.inference import checkpoint

ROOT = Path(nfcgcn.__file__).parent
MODULES = [
    ".".join(("nfcgcn", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(ROOT.rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


@pytest.fixture(scope="module")
def somewhere(tmp_path_factory):
    """A folder with a run, as `make demo` leaves one."""
    folder = tmp_path_factory.mktemp("somewhere")
    graph, config = nfcgcn.load("digits"), nfcgcn.make_config("gcn", dataset="digits", settings={"epochs": 1})
    (done,) = nfcgcn.repeat(graph, config, [0])
    result = describe(graph, config, [done], device=torch.device("cpu"), command="", dataset_options={})
    (folder / "runs").mkdir()
    with files.new_folder(folder / "runs" / "demo") as draft:
        checkpoint.save_run(draft, graph, result, {0: done.run}, 0)
    return folder


def run_examples(thing, name, module):
    """Run the examples of an object and of what is inside it; return how many the object's own docstring has."""
    found = doctest.DocTestFinder().find(thing, name, module=False, globs=vars(module).copy())
    runner = doctest.DocTestRunner()
    failures: list[str] = []
    for test in found:
        runner.run(test, out=failures.append)
    assert not failures, "".join(failures)
    return sum(len(test.examples) for test in found if test.name == name)


@pytest.mark.parametrize("name", nfcgcn.__all__)
def test_every_public_name_has_an_example_that_runs(name, somewhere, monkeypatch):
    monkeypatch.chdir(somewhere)
    thing, home = getattr(nfcgcn, name), nfcgcn._HOMES[name]
    written = getattr(thing, "__module__", None) or ""  # a folder has names from its files
    module = import_module(written if written.startswith(f"{home}.") else home)
    assert run_examples(thing, name, module), f"{name} has no example"


@pytest.mark.parametrize("name", MODULES)
def test_other_examples_run(name):
    module = import_module(name)
    for inside, thing in vars(module).items():
        if getattr(thing, "__module__", None) == name and inside not in nfcgcn.__all__ and ">>>" in str(thing.__doc__):
            run_examples(thing, inside, module)
