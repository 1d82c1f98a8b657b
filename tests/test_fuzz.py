"""A short fuzz of every reader and what follows; `make fuzz` runs 10,000 cases."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited as Linux does it")
SCRIPT = Path(__file__).with_name("fuzz.py")


def test_a_few_cases_of_every_kind():
    done = subprocess.run([sys.executable, str(SCRIPT), "--cases", "24"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("0 failures in 24 cases")


BROKEN = """
import os, pickle, sys
import fuzz

def foreign(draw, folder): {}["x"]
def greedy(draw, folder): bytearray(3 * 2**30)
def aborted(draw, folder): os.abort()
def trapped(draw, folder): pickle.loads(pickle.dumps(fuzz.Trap()))
def refused(draw, folder): raise fuzz.NFCError

fuzz.KINDS = (foreign, greedy, aborted, trapped, refused)
for number in range(5):
    good, message = fuzz.forked(number)
    print(good, message.strip().splitlines()[-1])
"""


def test_the_fuzz_sees_what_it_looks_for():
    done = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, cwd=SCRIPT.parent)
    assert done.stdout.splitlines() == [
        "False KeyError: 'x'",
        "False MemoryError",
        "False killed by SIGABRT",
        "False RuntimeError: code from a file was run",
        "True refused: refused",
    ], done.stderr
