"""The documentation is true: its Python runs, its commands exist, its links lead somewhere, and it has every name."""

from __future__ import annotations

import re
import runpy
import shlex
import xml.etree.ElementTree as ET
from importlib import import_module
from pathlib import Path

import pytest
import typer

import nfcgcn
from nfcgcn.cli import COMMANDS
from nfcgcn.cli.console import app
from nfcgcn.config.registry import MODELS
from nfcgcn.inference.export import EXPORTABLE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
if not DOCS.exists():
    pytest.skip("only in a checkout", allow_module_level=True)
PAGES = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
BLOCKS = {page: re.findall(r"```(\w*)\n(.*?)```", text, flags=re.DOTALL) for page, text in PAGES.items()}
CODE = {page: [code for language, code in blocks if language == "python"] for page, blocks in BLOCKS.items()}
LINES = [line for blocks in BLOCKS.values() for language, code in blocks if not language for line in code.splitlines()]


def test_every_public_name_is_described_once():
    assert sorted(re.findall(r"^::: nfcgcn\.(\w+)$", PAGES["api.md"], flags=re.MULTILINE)) == sorted(nfcgcn.__all__)


def test_every_command_is_listed():
    assert re.findall(r"^\| `nfcgcn (\w+)`", PAGES["command-line.md"], flags=re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)\)", PAGES[page])
    assert [link for link in links if not (DOCS / page).parent.joinpath(link).exists()] == []


def test_the_site_has_every_page():
    nav = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert nav == set(PAGES)


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
@pytest.mark.parametrize("page", [page for page, blocks in CODE.items() if blocks])
def test_the_python_of_a_guide_runs(page, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("nfcgcn.kernels.cpu.compiler.AFTER", 1e6)  # no line about compiling, however long it takes
    names: dict[str, object] = {}
    for block in CODE[page]:
        exec(compile(block, page, "exec"), names)
    assert capsys.readouterr().err == ""


def test_commands_have_these_options():
    assert len(LINES) > 8
    for module, _ in COMMANDS.values():
        import_module(f"nfcgcn.cli.{module}")
    group = typer.main.get_command(app)
    for line in LINES:
        name, *words = shlex.split(line)
        assert name == "nfcgcn", line
        command = group
        for word in words:
            if not hasattr(command, "commands") or word not in command.commands:
                break
            command = command.commands[word]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_the_figures_are_what_their_script_draws():
    """Their texts, at least: another version of matplotlib places them otherwise."""

    def texts(drawing):
        return [
            "".join(node.itertext()) for node in ET.fromstring(drawing.encode()).iter() if node.tag.endswith("text")
        ]

    for name, drawing in runpy.run_path(str(DOCS / "figures" / "make_figures.py"))["make_figures"]().items():
        assert texts(drawing) == texts((DOCS / "figures" / f"{name}.svg").read_text(encoding="utf-8")), name


def test_every_model_is_in_the_table_of_what_is_supported():
    rows = re.findall(r"^\| (`[^|]+`) \| yes \|.*\| (yes|no) \|$", PAGES["supported.md"], flags=re.MULTILINE)
    listed = {name: exported == "yes" for names, exported in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert listed == {name: issubclass(entry.model, EXPORTABLE) for name, entry in MODELS.items()}


def test_no_option_of_a_command_hides_another():
    for module, _ in COMMANDS.values():
        import_module(f"nfcgcn.cli.{module}")
    waiting = [typer.main.get_command(app)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        names = [name for option in command.params for name in (*option.opts, *option.secondary_opts)]
        assert len(names) == len(set(names)), (command.name, names)
