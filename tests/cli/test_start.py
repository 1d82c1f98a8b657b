"""The first seconds: what is loaded for what, which threads there are, and kernels that are compiled once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nfcgcn import cli
from nfcgcn.cli import COMMANDS
from nfcgcn.cli.console import app

PACKAGE = Path(cli.__file__).parents[1]


def nfcgcn(*arguments, **environment):
    command = [sys.executable, "-m", "nfcgcn", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), (), ("no-such-command",)])
def test_an_overview_loads_no_torch(arguments):
    code = (
        f"import sys\nsys.argv = ['nfcgcn', *{arguments!r}]\nfrom nfcgcn.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('loaded', *{n.split('.')[0] for n in sys.modules} & {'torch', 'numpy', 'scipy', 'numba', 'pandas'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded"


def test_the_overview_says_what_the_commands_say():
    for name, (module, _) in COMMANDS.items():
        assert __import__(f"nfcgcn.cli.{module}"), name
    real = {c.name or c.callback.__name__: c.callback.__doc__ for c in app.registered_commands}
    real |= {g.name: g.typer_instance.info.help for g in app.registered_groups}
    assert set(real) == set(COMMANDS)
    for name, (_, summary) in COMMANDS.items():
        assert real[name].strip().split("\n\n")[0].replace("\n", " ").startswith(summary), name
    shown = nfcgcn("--help", COLUMNS="300").stdout
    for name in COMMANDS:
        assert re.search(rf"│ {name} ", shown), name


def test_an_unknown_command_is_one_error():
    done = nfcgcn("trian")
    assert done.returncode == 2
    assert "No such command" in done.stderr


@pytest.mark.parametrize("value", ["0", "-1", "two", "", "99999999999999999999"])
def test_a_bad_number_of_threads_is_one_line(value):
    done = nfcgcn("settings", f"--threads={value}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: --threads takes a number from 1 on")
    assert done.stderr.count("\n") == 1


@pytest.mark.thorough  # after the command, they are set in the test below
def test_threads_before_the_command():
    where = ["--threads", "2", "settings"]
    code = (
        f"import sys\nsys.argv = ['nfcgcn', *{where!r}]\nfrom nfcgcn.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nimport torch\nprint('threads', torch.get_num_threads())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "threads 2"


def test_a_run_with_its_report_loads_nothing_slow(tmp_path):
    """Each of these takes a second or more to load."""
    options = ["train", "citations", "--set", "nodes=200", "--set", "epochs=2", "--no-baselines", "--out", "run"]
    options += ["--threads=2"]  # which the environment of the tests does not say
    code = (
        f"import sys\nsys.argv = ['nfcgcn', *{options}]\nfrom nfcgcn.cli import main\n"
        "try:\n    main()\nexcept SystemExit as leaving:\n    assert not leaving.code\n"
        "slow = {'torch._dynamo', 'sklearn', 'scipy.stats', 'pandas', 'torch_geometric'}\n"
        "import torch\nprint('threads', torch.get_num_threads())\n"
        "print('slow:', *sorted(slow & set(sys.modules)))"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.strip() for line in done.stdout.splitlines()[-2:]] == ["threads 2", "slow:"]
    assert (tmp_path / "run" / "report.html").exists()


COMPILE = """
import os, sys
from numba.core import event
count = [0]
class Count(event.Listener):
    def on_start(self, e): count[0] += 1
    def on_end(self, e): pass
event.register("numba:compile", Count())
import torch
from nfcgcn.kernels.cpu import masks
masks.mask(3, 4, dropout=0.5, seed=0, dtype=torch.float32)
print(count[0], flush=True)
if len(sys.argv) > 1: os.kill(os.getpid(), 9)
"""


def compiled(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | environment,
    )
    assert done.stdout, done.stderr
    return int(done.stdout)


def test_what_a_killed_process_compiled_is_there_for_the_next(tmp_path):
    assert compiled("die", NUMBA_CACHE_DIR=str(tmp_path)) > 0
    assert compiled(NUMBA_CACHE_DIR=str(tmp_path)) == 0


@pytest.fixture
def read_only_package(tmp_path):
    """A copy of the package on a path below which nothing can be made, whoever asks."""
    folder = tmp_path / "installed"
    shutil.copytree(PACKAGE, folder / "nfcgcn", ignore=shutil.ignore_patterns("__pycache__"))
    for place in folder.rglob("*"):
        if place.is_dir():
            (place / "__pycache__").write_text("a file where a folder would be needed")
    return folder


@pytest.mark.thorough
def test_kernels_of_a_read_only_package_are_compiled_once(tmp_path, read_only_package):
    places = {"PYTHONPATH": str(read_only_package), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)}
    nowhere = tmp_path / "nowhere"
    nowhere.write_text("")  # no home either
    homeless = places | {"HOME": str(nowhere), "XDG_CACHE_HOME": str(nowhere)}
    assert compiled(**homeless) > 0
    assert compiled(**homeless) == 0
    (kept,) = tmp_path.glob("nfcgcn-kernels-*")
    assert kept.stat().st_mode & 0o077 == 0
    kept.chmod(0o777)  # others could have put pickles there
    assert compiled(**homeless) > 0


@pytest.mark.parametrize(
    ("words", "offered", "not_offered"),
    [
        ("nfcgcn re", {"report", "reproduce"}, {"train"}),
        ("nfcgcn export --o", {"--out"}, {"--nodes"}),
        ("nfcgcn --threads 2 settings --mo", {"--model"}, {"--out"}),
        ("nfcgcn train --model gc", {"gcn"}, {"gat", "nfc-gcn"}),
        ("nfcgcn train ci", {"citeseer", "citations"}, {"cora"}),
        ("nfcgcn predict run --unknown-edges d", {"drop"}, {"add"}),
        ("nfcgcn compare cora --models gcn,sa", {"gcn,sage-mean"}, {"gcn,gat"}),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_is_told_how_to_go_on(words, offered, not_offered, shell, run, monkeypatch):
    monkeypatch.setenv("_NFCGCN_COMPLETE", f"complete_{shell}")
    if shell == "bash":
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    else:
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", words)
    code, out, _ = run()
    assert code == 0
    found = set(out.split() if shell == "bash" else re.findall(r'"([^"]+)"', out))
    assert offered <= found
    assert not not_offered & found


def test_completion_can_be_installed(run, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    code, out, err = run("--install-completion", "bash")
    assert code == 0, err
    assert "bash completion installed" in out
    assert "_NFCGCN_COMPLETE=complete_bash" in (tmp_path / ".bash_completions" / "nfcgcn.sh").read_text()
