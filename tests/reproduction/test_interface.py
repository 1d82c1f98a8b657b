"""The room has one door: the command line imports from `nfcgcn.reproduction` and from none of its modules."""

import ast
from pathlib import Path

import pytest

import nfcgcn
from nfcgcn import reports, reproduction

COMMANDS = sorted((Path(nfcgcn.__file__).parent / "cli").glob("*.py"))


@pytest.mark.parametrize("file", COMMANDS, ids=lambda file: file.stem)
@pytest.mark.parametrize("room", ["reproduction", "reports"])
def test_commands_import_from_the_room_and_not_from_its_modules(file, room):
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert not [module for module in modules if module.startswith(f"nfcgcn.{room}.")]


@pytest.mark.parametrize("room", [reproduction, reports], ids=["reproduction", "reports"])
def test_exported_names_exist(room):
    assert [name for name in room.__all__ if not hasattr(room, name)] == []
