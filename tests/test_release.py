"""What a release states: pins with hashes, and a bill of materials."""

import ast
import json
import re
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
if not (ROOT / ".ci").exists():
    pytest.skip("only in a checkout", allow_module_level=True)


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    ("file", "least", "some"),
    [
        ("constraints.txt", 60, {"hatchling", "editables", "requests", "threadpoolctl", "pytest"}),
        (
            "docs/requirements.txt",
            30,
            {"mkdocs", "mkdocs-material", "mkdocstrings", "mkdocstrings-python", "griffelib"},
        ),
    ],
)
def test_every_pin_has_a_hash(file, least, some):
    text = (ROOT / file).read_text()
    pins = re.split(r"\n(?=\w)", re.sub(r"(?m)^#.*\n", "", text).strip())
    assert len(pins) > least
    for pin in pins:
        assert re.fullmatch(r"[\w.-]+==[\w.]+(; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+", pin), pin
    names = {normal(pin.split("==")[0]) for pin in pins}
    assert some <= names
    assert re.search(r"(?m)^TORCH := torch==[\d.]+$", (ROOT / "Makefile").read_text())


def test_imported_packages_are_declared():
    declared = {normal(re.match(r"[\w.-]+", line)[0]) for line in requires("nfcgcn") or ()} | set(
        re.findall(r'"([a-z-]+)>=', (ROOT / "pyproject.toml").read_text())
    )
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.split(".")[0])
    others = {"sklearn": "scikit-learn", "torch_geometric": "torch-geometric", "llvmlite": "numba"}
    outside = {others.get(name, name) for name in imported - set(sys.stdlib_module_names) - {"nfcgcn", "tomli"}}
    assert outside - declared == set()


def test_the_bill_names_what_is_installed():
    done = subprocess.run([sys.executable, str(ROOT / ".ci" / "bill")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    named = {c["name"]: c["version"] for c in bill["components"]}
    assert named["torch"] == version("torch")
    of_extras = {"pyarrow", "optuna", "duckdb", "implicit"}
    assert {"numpy", "scipy", "pandas", "urllib3"} | of_extras <= set(named)
    assert not {"pytest", "ruff", "playwright"} & set(named)
    known = {c["bom-ref"] for c in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {d["ref"] for d in bill["dependencies"]} == known
    assert all(other in known for d in bill["dependencies"] for other in d["dependsOn"])
