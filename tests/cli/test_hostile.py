"""What a terminal, a disk, a path or a file does to a command ends in one line, and no file speaks to the terminal."""

import io
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from nfcgcn import cli
from nfcgcn.errors import DatasetError, NFCError, visible

pytestmark = pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
ESCAPE = "\x1b[31mred\x9b\u202e"
SHOWN = r"\x1b[31mred\x9b\u202e"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


def table(folder, name="nodes.csv", column="x", ids=ESCAPE, label="a"):
    rows = [f"{ids}{i},{label if i % 2 else 'b'},{i % 5}" for i in range(40)]
    (folder / name).write_text("\n".join([f"id,label,{column}", *rows]), encoding="utf-8")
    return folder / name


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect",),
        ("inspect", "--id", f"no{ESCAPE}"),
        ("inspect", "--text", f"x{ESCAPE}", "--label", f"x{ESCAPE}"),
    ],
    ids=["inspect", "unknown column", "two meanings"],
)
def test_no_file_speaks_to_the_terminal(run, tmp_path, arguments):
    path = table(tmp_path, column=f"x{ESCAPE}", label=f"a{ESCAPE}")
    command, *options = arguments
    code, out, err = run(command, "--nodes", path, *options)
    assert code in (0, 2)
    assert not CONTROL.search(out + err)
    assert SHOWN in out + err


def test_what_a_trained_model_says_of_such_names(run, tmp_path):
    path = table(tmp_path, column=f"={ESCAPE}", label=f"a{ESCAPE}", ids="=1+")
    assert run("train", "--nodes", path, "--set", "epochs=1", "--out", "run")[0] == 0
    for arguments in (
        ("predict", "run", "--nodes", path, "--out", "p.csv"),
        ("explain", "run", "--nodes", path, "--node", "=1+1", "--out", "e.csv"),
        ("explain", "run", "--nodes", path, "--global", "--out", "e.csv"),
        ("explain", "run", "--nodes", path, "--node", "=1+1", "--class", "zz"),
    ):
        code, out, err = run(*arguments)
        assert code == (2 if "zz" in arguments else 0), err
        assert not CONTROL.search(out + err)
        assert ("begin like formulas" in err) == ("--out" in arguments)


def test_brackets_are_no_markup(run, tmp_path):
    path = table(tmp_path, ids="n")
    code, out, err = run("train", "--nodes", path, "--set", "epochs=1", "--out", "a[/b]", "--json", "c[/d].json")
    assert (code, "report: a[/b]/report.html" in out) == (0, True), err
    assert run("inspect", "[/e].csv")[2] == "error: [/e].csv does not exist\n"


def test_a_path_that_is_not_utf8(run, tmp_path):
    path = table(tmp_path, os.fsdecode(b"\xff.csv"), ids="n")
    code, out, err = run("train", "--nodes", path, "--set", "epochs=1", "--out", os.fsdecode(b"run\xfe"))
    assert code == 0, err
    assert r"run\udcfe/report.html" in out
    assert (tmp_path / os.fsdecode(b"run\xfe") / "report.html").is_file()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError("Unable to allocate 9 GiB\x1b"), "there is not enough memory: Unable to allocate "
         "9 GiB\\x1b; use a smaller graph or settings"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "there is not enough memory: "
         "DefaultCPUAllocator: can't allocate memory; use a smaller graph or settings"),
        (OSError(28, "No space left on device"), "cannot read or write the output: No space left on device"),
        (OSError("Could not find/load\nlibllvmlite.so"), "Could not find/load libllvmlite.so"),
        (PermissionError(13, "Permission denied", "/a\x1b"), r"cannot read or write /a\x1b: Permission denied"),
        (DatasetError("a\x1b\nb"), r"a\x1b\nb"),
    ],
    ids=["memory", "torch's memory", "disk", "library", "file", "ours"],
)  # fmt: skip
def test_errors_of_the_system_are_one_line(run, monkeypatch, error, line):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("nfcgcn.data.load", fail)
    assert run("inspect", "digits") == (2, "", f"error: {line}\n")
    with pytest.raises((type(error), NFCError)):
        run("inspect", "digits", "--debug")


def test_an_interrupt_while_modules_are_loaded_is_one_line(run, monkeypatch):
    def fail(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", fail)
    assert run("inspect", "digits") == (130, "", "interrupted; nothing was done\n")
    with pytest.raises(KeyboardInterrupt):
        run("inspect", "digits", "--debug")


def test_a_mistake_of_ours_is_not_hidden(run, monkeypatch):
    monkeypatch.setattr("nfcgcn.data.load", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("inspect", "digits")


OUTPUTS = """
import os, sys
from nfcgcn import cli
from nfcgcn.cli import listing  # once, not in every fork
from nfcgcn.config import registry
from nfcgcn.cli.console import app, out
cli.COMMANDS["say"] = ("listing", "")
app.command("say")(lambda: out.print("caf\\u00e9 \\u2714"))
for kind in sys.argv[1:]:
    child = os.fork()
    if child:
        print(kind, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        sys.stdout.flush()
        continue
    reader, writer = os.pipe()
    os.close(reader)
    place = {"full": "/dev/full"}.get(kind, kind + ".out")
    os.dup2(writer if kind == "pipe" else os.open(place, os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(os.open(kind + ".err", os.O_WRONLY | os.O_CREAT), 2)
    sys.argv = ["nfcgcn", "say" if kind == "ascii" else "models"]
    cli.main()
"""


@pytest.mark.parametrize(
    "stream", [pytest.param(1, id="stdout"), pytest.param(2, id="stderr", marks=pytest.mark.thorough)]
)
def test_a_standard_stream_that_is_closed(stream):
    code = "import os, sys; os.close(int(sys.argv[1])); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
    command = [sys.executable, "-c", code, str(stream), "-m", "nfcgcn", "models"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("NFC-GCN" in done.stdout) == (stream == 2)


def test_a_standard_output_that_takes_less(tmp_path):
    ends = {
        "ascii": (0, "caf\\xe9 \\u2714\n", ""),
        "full": (2, None, "error: cannot read or write the output: No space left on device\n"),
        "pipe": (1, None, ""),
    }
    done = subprocess.run(
        [sys.executable, "-c", OUTPUTS, *ends],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    )
    assert (done.stdout, done.stderr) == ("".join(f"{kind} {code}\n" for kind, (code, *_) in ends.items()), "")
    for kind, (_, out, err) in ends.items():
        assert (tmp_path / f"{kind}.err").read_text() == err
        assert out is None or (tmp_path / f"{kind}.out").read_text() == out


def test_an_output_that_fails_before_the_command_begins(monkeypatch, capsys):
    class Full(io.TextIOWrapper):
        def reconfigure(self, **_):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "argv", ["nfcgcn", "models"])
    monkeypatch.setattr(sys, "stdout", Full(io.BytesIO()))
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == 2
    assert capsys.readouterr().err == "error: cannot read or write the output: No space left on device\n"


def test_a_graph_without_columns(run, tmp_path):
    ring = {"adj_data": np.ones(9), "adj_indices": (np.arange(9) + 1) % 9, "adj_indptr": np.arange(10)}
    np.savez(tmp_path / "bare.npz", **ring, adj_shape=[9, 9], attr_matrix=np.zeros((9, 0)), labels=np.arange(9) % 2)
    for model in ("nfc-gcn", "gcn", "gcn-5"):
        code, _, err = run("train", tmp_path / "bare.npz", "--model", model)
        assert (code, err.splitlines()[-1]) == (
            2,
            "error: 'bare' has no features: there is nothing to learn from; add at least one column",
        )


NESTED = {
    "lists": "[nfc-gcn]\nactivation = " + "[" * 2000 + "]" * 2000,
    "tables": "[nfc-gcn]\nactivation" + ".a" * 2000 + " = 1",
    "a huge number": "[nfc-gcn]\nbandwidth = 1" + "0" * 400,
    "a huger number": "[nfc-gcn]\nbandwidth = 1" + "0" * 5000,
}


@pytest.mark.parametrize("case", NESTED)
def test_presets_that_ask_for_too_much(run, tmp_path, case):
    (tmp_path / "p.toml").write_text(NESTED[case])
    code, _, err = run("train", "digits", "--preset", "p.toml")
    assert code == 2
    assert err.startswith("error: p.toml")
    assert len(err) < 400


def test_visible_text_stays_as_it_is():
    assert visible("caf\u00e9 \u2714 [x] \\") == "caf\u00e9 \u2714 [x] \\"
    assert visible("\x00\t\r\n\x85\u2028\udcff") == r"\x00\t\r\n\x85\u2028\udcff"
