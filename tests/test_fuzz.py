"""A short fuzz of every reader and what follows; `make fuzz` runs 10,000 cases."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited as Linux does it"),
    pytest.mark.thorough,  # `data/formats/test_any_input.py` feeds the same readers
]
SCRIPT = """
import os, pickle, sys
import fuzz
from fuzzed_graphs import Trap

def foreign(draw, folder): {}["x"]
def greedy(draw, folder): bytearray(3 * 2**30)
def aborted(draw, folder): os.abort()
def trapped(draw, folder): pickle.loads(pickle.dumps(Trap()))
def refused(draw, folder): raise fuzz.NFCError

kinds, fuzz.KINDS = fuzz.KINDS, (foreign, greedy, aborted, trapped, refused)
for number in range(5):
    good, message, _ = fuzz.forked(number)
    print(good, message.strip().splitlines()[-1])
fuzz.KINDS, sys.argv = kinds, ["fuzz.py", "--cases", str(len(kinds))]
fuzz.main()
"""


@pytest.fixture(scope="module")
def done():
    """One process for both tests: it takes long to load all that is fuzzed."""
    return subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=Path(__file__).parent)


def test_a_case_of_every_kind(done):
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("0 failures in ")


def test_the_fuzz_sees_what_it_looks_for(done):
    assert done.stdout.splitlines()[:5] == [
        "False KeyError: 'x'",
        "False MemoryError",
        "False killed by SIGABRT",
        "False RuntimeError: code from a file was run",
        "True refused: refused",
    ], done.stderr
