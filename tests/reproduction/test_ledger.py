"""The ledger: complete lines, each run once, with several writers and after a kill."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from nfcgcn.errors import NFCError
from nfcgcn.reproduction.ledger import FILE, Ledger, LedgerError, key_of, read

RECORD = {
    "setup": "abc",
    "kind": "train",
    "dataset": "cora",
    "model": "gcn",
    "seed": 0,
    "where": {"device": "cpu"},
    "hardware": "a processor",
    "test_accuracy": 0.5,
    "val_accuracy": 0.25,
    "best_epoch": 3,
    "epochs_run": 4,
    "reach99": 2,
    "seconds": 0.5,
    "parameters": 10,
    "test_nodes": 1000,
}


def key(record):
    return key_of(record["setup"], record["seed"], record["where"])


def test_a_folder_without_a_ledger_has_no_runs(tmp_path):
    assert read(tmp_path / "nowhere") == []


def test_what_is_added_is_read_back_once(tmp_path):
    with Ledger(tmp_path / "new" / "folder") as ledger:
        assert key(RECORD) not in ledger
        assert ledger.add(RECORD)
        assert key(RECORD) in ledger
        assert not ledger.add({**RECORD, "test_accuracy": 0.75})
        assert ledger.add({**RECORD, "seed": 1})
        assert ledger.add({**RECORD, "where": {"device": "cuda"}})
    assert read(tmp_path / "new" / "folder") == [
        RECORD,
        {**RECORD, "seed": 1},
        {**RECORD, "where": {"device": "cuda"}},
    ]


def test_another_ledger_of_the_same_folder_sees_it(tmp_path):
    with Ledger(tmp_path) as one, Ledger(tmp_path) as other:
        one.add(RECORD)
        assert key(RECORD) in other
        assert not other.add(RECORD)


@pytest.mark.parametrize("cut", [b'{"setup":"ab', b"\xff\xfe", b'{"setup": 1}'])
def test_a_line_cut_short_counts_as_unwritten_and_goes_with_the_next(tmp_path, cut):
    with Ledger(tmp_path) as ledger:
        ledger.add(RECORD)
    file = tmp_path / FILE
    file.write_bytes(file.read_bytes() + cut)
    assert read(tmp_path) == [RECORD]
    with Ledger(tmp_path) as ledger:
        assert ledger.add({**RECORD, "seed": 1})
    assert [json.loads(line)["seed"] for line in file.read_bytes().splitlines()] == [0, 1]


def _degrees(**changes):
    counts = {"highest": 9, "lowest": 1, "mean": 3.5, "median": 3, **changes}
    return {"without_self": counts, "with_self": counts, "isolated": 0}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"test_accuracy": 1.5}, "`test_accuracy` must be a number from 0 to 1, got 1.5"),
        ({"test_accuracy": "0.5"}, "`test_accuracy` must be a number from 0 to 1, got '0.5'"),
        ({"seconds": -1}, "`seconds` must be a number of at least 0, got -1"),
        ({"seed": True}, "`seed` must be a whole number, got True"),
        ({"kind": "guess"}, "`kind` must be one of train, cost, degrees, selection, got 'guess'"),
        ({"kind": "selection"}, "'chosen' is missing"),
        ({"kind": "selection", "chosen": 3, "selection": {}}, "`chosen` and `selection` must be objects"),
        ({"where": "here"}, "`where` must map names to text"),
        ({"model": 7}, "`model` must be text, got 7"),
        ({"history": {"train_loss": ["x"]}}, "`train_loss` must hold finite numbers only"),
        (
            {"history": {"train_loss": []}},
            "`train_loss` has 0 epochs and `train_loss` 0; all curves must have the same number, at least 1",
        ),
        (
            {"history": {"train_loss": [1], "train_accuracy": [1, 1]}},
            "`train_accuracy` has 2 epochs and `train_loss` 1; all curves must have the same number, at least 1",
        ),
        ({"history": None}, "'NoneType' object is not subscriptable"),
        ({"where": {}}, "`where` must name a device"),
        ({"versions": {"torch": 2}}, "`versions` must map names to text"),
        ({"seconds": 10**400}, "int too large to convert to float"),
        ({"kind": "degrees"}, "'degrees' is missing"),
        ({"kind": "degrees", "degrees": _degrees(mean="x")}, "`degrees` must hold finite numbers only"),
    ],
)
def test_an_error_names_the_line_that_is_not_a_run(tmp_path, change, reason):
    lines = [json.dumps(RECORD), json.dumps({**RECORD, **change})]
    (tmp_path / FILE).write_text("\n".join(lines) + "\n")
    expected = f"{tmp_path / FILE}, line 2, is not a finished run: {reason}; remove the line to run it again"
    with pytest.raises(LedgerError) as caught:
        read(tmp_path)
    assert str(caught.value) == expected
    with pytest.raises(LedgerError) as caught:
        Ledger(tmp_path)
    assert str(caught.value) == expected


def test_an_error_about_a_line_that_is_not_json_has_no_control_characters(tmp_path):
    (tmp_path / FILE).write_bytes(b'{"setup": "\x1b[31m"}\n')
    with pytest.raises(LedgerError, match=r"line 1, is not a finished run: Invalid control character") as caught:
        read(tmp_path)
    assert "\x1b" not in str(caught.value)
    (tmp_path / FILE).write_bytes(json.dumps(RECORD).replace("0.25", "NaN").encode() + b"\n")
    with pytest.raises(LedgerError, match="NaN is not a finite number"):
        read(tmp_path)
    (tmp_path / FILE).write_bytes(b'{"seed": 0}\n')
    with pytest.raises(LedgerError, match="'setup' is missing"):
        read(tmp_path)


def test_a_record_that_is_not_a_run_is_not_written(tmp_path):
    with Ledger(tmp_path) as ledger, pytest.raises(ValueError, match="must be a number from 0 to 1, got nan"):
        ledger.add({**RECORD, "val_accuracy": float("nan")})
    assert read(tmp_path) == []


@pytest.mark.parametrize("name", [FILE, ".lock"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_refused_at_once(tmp_path, name, kind):
    path = tmp_path / name
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    what = "not a regular file$" if kind == "pipe" else "a link, which nfcgcn does not write to; remove it$"
    with pytest.raises(NFCError, match=f"^{re.escape(str(path))} is {what}"):
        Ledger(tmp_path)
    if name == FILE:
        with pytest.raises(LedgerError, match=f"^{re.escape(str(path))} is not a regular file$"):
            read(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match=r"cannot write to .*file: File exists"):
        Ledger(tmp_path / "file")


CLAIM_AND_WAIT = """
import sys
from pathlib import Path
from nfcgcn.reproduction.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
print(ledger.claim(("a", 0, "b")), flush=True)
sys.stdin.read()
"""


def test_a_claim_keeps_others_off_until_its_process_is_killed(tmp_path):
    with Ledger(tmp_path) as ledger:
        command = [sys.executable, "-c", CLAIM_AND_WAIT, tmp_path]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert other.stdout.readline() == "True\n"
            assert not ledger.claim(("a", 0, "b"))
            assert ledger.claim(("a", 1, "b"))
        finally:
            other.kill()
            other.communicate()
        assert ledger.claim(("a", 0, "b"))
        ledger.release(("a", 0, "b"))


WRITE_MANY = """
import multiprocessing, os, sys
from pathlib import Path
from nfcgcn.reproduction.ledger import Ledger

def write(all_here):
    all_here.wait()
    with Ledger(Path(sys.argv[1])) as ledger:
        record = eval(sys.argv[2])
        added = [ledger.add({**record, "seed": seed, "padding": "x" * seed * 150}) for seed in range(60)]
    os.write(1, b"%d\\n" % sum(added))  # at once: `print` may write twice

fork = multiprocessing.get_context("fork")
all_here = fork.Barrier(3)
for _ in range(3):
    fork.Process(target=write, args=[all_here]).start()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_processes_that_write_at_once_leave_whole_lines_each_once(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", WRITE_MANY, tmp_path, repr(RECORD)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    written = [int(count) for count in done.stdout.split()]
    assert len(written) == 3
    assert sum(written) == 60
    assert sorted(record["seed"] for record in read(tmp_path)) == list(range(60))
