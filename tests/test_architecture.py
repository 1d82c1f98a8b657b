"""The tree is the pipeline: imports go one way, and importing the package loads only what it needs."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import nfcgcn

ROOT = Path(nfcgcn.__file__).parent
ORDER = [
    {"errors"},
    {"files", "memory", "randomness", "settings"},
    {"graph"},
    {"data", "method"},
    {"kernels"},
    {"baselines"},
    {"training"},
    {"config"},
    {"inference"},
    {"evaluation", "estimator"},
    {"links"},
    {"recommendation"},
    {"reports"},
    {"explore"},
    {"bench"},
    {"reproduction"},
    {"search"},
    {"cli"},
]
RANK = {stage: rank for rank, stages in enumerate(ORDER) for stage in stages}
ENTRANCES = {"__init__", "__main__"}
"""They stand above all others and are imported by none."""
LATE = {
    "numba",
    "matplotlib",
    "pandas",
    "pydantic",
    "typer",
    "triton",
    "sklearn",
    "torch_geometric",
    "pooch",
    "pyarrow",
    "optuna",
}
ON_DEMAND = {"LinkPredictor", "NFCClassifier", "NFCEmbedder"}
"""Public names that load scikit-learn, and so only when they are asked for."""
MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def stage_of(module):
    return module.parts[0].removesuffix(".py")


def imported(module):
    """The dotted names of our modules that a file imports, wherever in the file it does so."""
    for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "nfcgcn")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports by dots"
            if node.module == "nfcgcn":
                yield from (f"nfcgcn.{alias.name}" for alias in node.names)
            elif node.module.split(".")[0] == "nfcgcn":
                yield node.module


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_imports_go_one_way(module):
    here = stage_of(module)
    if here in ENTRANCES:
        return
    assert here in RANK, f"{module} has no place in the order of imports"
    for name in imported(module):
        there = name.split(".")[1]
        if there in ("__version__", here):  # the version is no module, and a folder's own files are one stage
            continue
        assert there in RANK, f"{there} has no place in the order of imports"
        assert RANK[there] < RANK[here], f"{module} imports {name}"


def test_every_stage_of_the_order_exists():
    assert set(RANK) == {stage_of(module) for module in MODULES} - ENTRANCES


def test_no_cycles_within_folders():
    files = {
        ".".join(["nfcgcn", *module.with_suffix("").parts]).removesuffix(".__init__"): module for module in MODULES
    }
    graph = {
        name: {found for found in imported(module) if found in files and found != name}
        for name, module in files.items()
    }
    done: set[str] = set()

    def visit(name, path):
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            for other in graph[name]:
                visit(other, [*path, name])
            done.add(name)

    for name in graph:
        visit(name, [])


def test_few_modules_stand_alone():
    loose = [module for module in MODULES if len(module.parts) == 1]
    assert len(loose) <= 12, loose


def test_the_method_is_plain_torch():
    allowed = {"errors", "graph", "method", "randomness", "settings"}
    for module in MODULES:
        if stage_of(module) == "method":
            assert {name.split(".")[1] for name in imported(module)} <= allowed, module


@pytest.mark.parametrize(
    ("folder", "other"), [("cpu", "gpu"), ("gpu", "cpu"), ("reference", "cpu"), ("reference", "gpu")]
)
def test_kernels_of_one_device_know_nothing_of_another(folder, other):
    for module in MODULES:
        if module.parts[:2] == ("kernels", folder):
            assert not [name for name in imported(module) if name.startswith(f"nfcgcn.kernels.{other}")], module


def test_no_file_for_the_homeless():
    homeless = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not homeless & {part.removesuffix(".py") for module in MODULES for part in module.parts}


PUBLIC = "import nfcgcn\nnfcgcn.NodeFeatureConv(9, bandwidth=2, kernel_size=3, stride=1)"
DIRECT = "from nfcgcn.method.graph_conv import GraphConv\nGraphConv(3, 2)"


def loaded_by(statement):
    code = f"{statement}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split()), done.stderr


def test_importing_the_package_loads_nothing_else():
    loaded, said = loaded_by("import nfcgcn")
    assert not loaded & (LATE | {"torch", "numpy", "scipy"})
    assert said == ""


def test_public_names_load_no_more_than_they_need():
    names = ", ".join(set(nfcgcn.__all__) - ON_DEMAND)
    loaded, said = loaded_by(f"from nfcgcn import {names}\nimport nfcgcn.reports.figures, nfcgcn.reports.run_page")
    assert {"torch", "nfcgcn"} <= loaded
    assert not (LATE | {"matplotlib"}) & loaded
    assert said == ""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_layers_bring_their_kernels():
    code = """
import os, sys, torch
for statement in sys.argv[1:]:
    child = os.fork()
    if not child:
        exec(statement)
        os._exit('nfcgcn.kernels.dispatch' not in sys.modules)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code, PUBLIC, DIRECT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0"], done.stderr


@pytest.mark.parametrize("name", nfcgcn.__all__)
def test_public_names_say_what_they_are(name):
    thing = getattr(nfcgcn, name)
    said = thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert said, name
    first = said.strip().splitlines()[0]
    assert first.endswith((".", ":", "`.")), f"{name}: {first}"
    assert not first.startswith(f"{name}("), name  # what a dataclass writes by itself


def test_public_names_are_all_there():
    """What type checkers read and what is loaded at run time are the same."""
    (block,) = [node for node in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(node, ast.If)]
    written = {alias.asname: node.module for node in block.body for alias in node.names}
    assert written == nfcgcn._HOMES
    assert list(nfcgcn._HOMES) == nfcgcn.__all__
    assert set(nfcgcn.__all__) <= set(dir(nfcgcn))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nfcgcn.nothing


def test_a_version():
    assert nfcgcn.__version__.count(".") == 2
