"""What a pickle may name. That only checked bytes get here at all is tested in test_planetoid_files."""

import os
import pickle
import pickletools
from collections import defaultdict

import numpy as np
import planetoid_writer
import pytest
import scipy.sparse as sp

from nfcgcn.data.unpickle import _ALLOWED, read_pickle
from nfcgcn.errors import DatasetError


def short(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode()


def call(module: str, name: str, argument: str) -> bytes:
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + short(argument) + b"\x85R."


class Payload:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


SYSTEM = f"{os.name}.system"  # os.system pickles as posix.system, or nt.system

ATTACKS = {
    "GLOBAL": (lambda run: call("os", "system", run), "os.system"),
    "GLOBAL after data": (lambda run: b"\x80\x02](K\x01K\x02e" + call("os", "system", run)[2:], "os.system"),
    "INST": (lambda run: b"(" + short(run) + b"ios\nsystem\n.", "os.system"),
    "STACK_GLOBAL": (
        lambda run: b"\x80\x02" + short("os") + short("system") + b"\x93" + short(run) + b"\x85R.",
        "os.system",
    ),
    "protocol 0": (lambda run: pickle.dumps(Payload(run), protocol=0), SYSTEM),
    "protocol 2": (lambda run: pickle.dumps(Payload(run), protocol=2), SYSTEM),
    "protocol 4": (lambda run: pickle.dumps(Payload(run), protocol=4), SYSTEM),
    "eval": (lambda run: call("__builtin__", "eval", f"__import__('os').system({run!r})"), "__builtin__.eval"),
    "builtins": (lambda run: call("builtins", "eval", f"__import__('os').system({run!r})"), "builtins.eval"),
    "numpy function": (lambda run: call("numpy", "load", run), "numpy.load"),
    "dotted": (lambda run: call("numpy", "ndarray.tofile", run), "numpy.ndarray.tofile"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_is_refused_and_never_runs(attack, tmp_path):
    mark = tmp_path / "ran"
    make, name = ATTACKS[attack]
    with pytest.raises(DatasetError) as caught:
        read_pickle(make(f"touch {mark}"), "ind.cora.allx")
    assert str(caught.value) == (
        f"ind.cora.allx names '{name}', which no Planetoid file needs, and was not loaded; get the published file"
    )
    assert not mark.exists()


@pytest.mark.skipif(os.name == "nt", reason="`touch` is no command of Windows")
@pytest.mark.parametrize("attack", sorted(ATTACKS.keys() - {"numpy function", "dotted", "STACK_GLOBAL", "INST"}))
def test_attacks_are_real(attack, tmp_path):
    mark = tmp_path / "ran"
    pickle.loads(ATTACKS[attack][0](f"touch {mark}"))
    assert mark.exists()


def test_pickles_of_python_2_are_read():
    rows = [[1, 0, 2], [0, 3, 0]]
    matrix = read_pickle(planetoid_writer.dumps(planetoid_writer.matrix(rows)), "a")
    assert sp.issparse(matrix)
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix.toarray(), rows)
    labels = read_pickle(planetoid_writer.dumps(np.eye(3, dtype=np.int32)), "a")
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(labels, np.eye(3))
    lists = defaultdict(list, {0: [1, 2], 1: [0], 2: [0]})
    assert read_pickle(planetoid_writer.dumps(lists), "a") == lists


@pytest.mark.data
def test_allows_what_the_published_files_need_and_nothing_more(planetoid_dir):
    names = {
        tuple(argument.split(" "))
        for path in planetoid_dir.glob("ind.*")
        if path.suffix in (".allx", ".ally", ".tx", ".ty", ".graph")
        for instruction, argument, _ in pickletools.genops(path.read_bytes())
        if instruction.name == "GLOBAL"
    }
    assert names == _ALLOWED.keys()
