import os
import pickle
from collections import defaultdict
from contextlib import suppress

import numpy as np
import planetoid_writer
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from nfcgcn.data import unpickle
from nfcgcn.errors import DatasetError

READERS = [unpickle.read_matrix, unpickle.read_array, unpickle.read_lists]


def short(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode()


def call(module: str, name: str, argument: str) -> bytes:
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + short(argument) + b"\x85R."


def error_of(reader, data: bytes) -> str:
    with pytest.raises(DatasetError) as caught:
        reader(data, "ind.cora.allx")
    return str(caught.value)


def named(name: str) -> str:
    return f"ind.cora.allx names '{name}', which no Planetoid file needs; refused"


def uses(instruction: str) -> str:
    return f"ind.cora.allx uses the pickle instruction {instruction}, which no Planetoid file needs; refused"


class Payload:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


SYSTEM = f"{os.name}.system"  # os.system pickles as posix.system, or nt.system

ATTACKS = {
    "GLOBAL": (lambda run: call("os", "system", run), named("os.system")),
    "GLOBAL after data": (lambda run: b"\x80\x02](K\x01K\x02e" + call("os", "system", run)[2:], named("os.system")),
    "INST": (lambda run: b"(" + short(run) + b"ios\nsystem\n.", named("os.system")),
    "STACK_GLOBAL": (
        lambda run: b"\x80\x02" + short("os") + short("system") + b"\x93" + short(run) + b"\x85R.",
        uses("STACK_GLOBAL"),
    ),
    "protocol 0": (lambda run: pickle.dumps(Payload(run), protocol=0), named(SYSTEM)),
    "protocol 2": (lambda run: pickle.dumps(Payload(run), protocol=2), named(SYSTEM)),
    "protocol 4": (lambda run: pickle.dumps(Payload(run), protocol=4), uses("FRAME")),
    "eval": (lambda run: call("__builtin__", "eval", f"__import__('os').system({run!r})"), named("__builtin__.eval")),
    "builtins": (lambda run: call("builtins", "eval", f"__import__('os').system({run!r})"), named("builtins.eval")),
    "numpy function": (lambda run: call("numpy", "load", run), named("numpy.load")),
    "dotted": (lambda run: call("numpy", "ndarray.tofile", run), named("numpy.ndarray.tofile")),
}


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_is_refused_and_never_runs(attack, reader, tmp_path):
    mark = tmp_path / "ran"
    make, message = ATTACKS[attack]
    assert error_of(reader, make(f"touch {mark}")) == message
    assert not mark.exists()


@pytest.mark.skipif(os.name == "nt", reason="`touch` is no command of Windows")
@pytest.mark.parametrize("attack", sorted(ATTACKS.keys() - {"numpy function", "dotted", "STACK_GLOBAL", "INST"}))
def test_attacks_are_real(attack, tmp_path):
    mark = tmp_path / "ran"
    pickle.loads(ATTACKS[attack][0](f"touch {mark}"))
    assert mark.exists()


@pytest.mark.parametrize("attack", ["GLOBAL", "INST", "STACK_GLOBAL", "eval", "numpy function"])
def test_second_wall_holds_without_the_scan(attack, tmp_path):
    mark = tmp_path / "ran"
    with pytest.raises(DatasetError, match="names '"):
        unpickle._Unpickler(ATTACKS[attack][0](f"touch {mark}"), "ind.cora.allx").load()
    assert not mark.exists()


@pytest.mark.parametrize(
    ("data", "instruction"),
    [
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02\x83\x01\x01.", "EXT2"),
        (b"\x80\x02\x84\x01\x01\x01\x01.", "EXT4"),
        (b"\x80\x02Pname\n.", "PERSID"),
        (b"\x80\x02NQ.", "BINPERSID"),
        (b"\x80\x02N)}\x92.", "NEWOBJ_EX"),
        (b"\x80\x02(cnumpy\nndarray\no.", "OBJ"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_needless_instruction_is_refused(data, instruction):
    assert error_of(unpickle.read_array, data) == uses(instruction)


def test_tuples_that_take_for_ever_to_hash_are_refused():
    level = b"\x86q\x01h\x01h\x01"
    bomb = b"\x80\x02}(K\x00K\x00" + level * 60 + b"\x86Nu."
    assert error_of(unpickle.read_matrix, bomb) == uses("BINPUT at byte 9")


def test_tuples_too_deep_to_hash_are_refused():
    bomb = b"\x80\x02}()" + b"\x85" * 10**6 + b"Nu."
    assert error_of(unpickle.read_matrix, bomb) == uses("TUPLE1 at byte 69")


def test_memo_index_beyond_the_file_is_refused():
    assert error_of(unpickle.read_lists, b"\x80\x02]r\xff\xff\xff\x7f.") == uses("LONG_BINPUT at byte 3")


def test_state_of_a_class_cannot_be_set():
    for name in (b"numpy\nndarray", b"numpy\ndtype", b"scipy.sparse.csr\ncsr_matrix", b"collections\ndefaultdict"):
        data = b"\x80\x02c" + name + b"\nN}(" + short("state") + b"K\x01" + short("args") + b"K\x02u\x86b."
        assert error_of(unpickle.read_array, data) == "ind.cora.allx is broken: its pickle cannot be executed"
    values = np.array([[1, 2]], np.int32)
    np.testing.assert_array_equal(unpickle.read_array(planetoid_writer.dumps(values), "ind.cora.ally"), values)
    assert unpickle._Array.state is None


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"", "its pickle cannot be read to the end"),
        (b"\x80\x02]", "its pickle cannot be read to the end"),
        (b"\x80\x02\xff.", "its pickle cannot be read to the end"),
        (b"\x80\x02T\xff\xff\xff\x7fabc.", "its pickle cannot be read to the end"),
        (b"\x80\x02].junk", "4 bytes follow its pickle"),
        (b"\x80\x02R.", "its pickle cannot be executed"),
        (b"\x80\x02h\x07.", "its pickle cannot be executed"),
        (b"\x80\x02c__builtin__\nlist\nK\x01\x85b.", "its pickle cannot be executed"),
        (b"\x80\x02}(]Nu.", "its pickle cannot be executed"),
        (b"\x80\x02].", "no array where one belongs"),
    ],
    ids=[
        "empty",
        "truncated",
        "no instruction",
        "string too long",
        "more behind",
        "empty stack",
        "empty memo",
        "state of list",
        "unhashable key",
        "list",
    ],
)
def test_broken_pickle(data, fact):
    assert error_of(unpickle.read_array, data) == f"ind.cora.allx is broken: {fact}"


def test_too_large(monkeypatch):
    monkeypatch.setattr(unpickle, "MAX_BYTES", 10)
    assert error_of(unpickle.read_array, b"x" * 11) == "ind.cora.allx is broken: 11 bytes, where at most 10 are read"


VALID = [
    planetoid_writer.dumps(planetoid_writer.matrix([[1, 0, 2], [0, 3, 0]])),
    planetoid_writer.dumps(np.eye(3, dtype=np.int32)),
    planetoid_writer.dumps(defaultdict(list, {0: [1, 2], 1: [0], 2: [0]})),
]


@given(st.one_of(st.binary(max_size=40), st.builds(lambda tail: b"\x80\x02" + tail, st.binary(max_size=40))))
def test_any_bytes_give_a_value_or_a_dataset_error(data):
    for reader in READERS:
        with suppress(DatasetError):
            reader(data, "ind.cora.allx")


@given(st.sampled_from([0, 1, 2]), st.data())
def test_damaged_pickle_gives_a_value_or_a_dataset_error(which, data):
    damaged = bytearray(VALID[which])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DatasetError):
        READERS[which](bytes(damaged), "ind.cora.allx")


@given(st.sampled_from([0, 1, 2]), st.data())
def test_truncated_pickle_is_broken(which, data):
    end = data.draw(st.integers(0, len(VALID[which]) - 1))
    with pytest.raises(DatasetError, match=r"^ind\.cora\.allx is broken: its pickle cannot be read to the end$"):
        READERS[which](VALID[which][:end], "ind.cora.allx")


def test_valid_pickles_are_read():
    expected = np.array([[1, 0, 2], [0, 3, 0]], np.float32)
    matrix = unpickle.read_matrix(VALID[0], "a")
    assert isinstance(matrix, sp.csr_array)
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix.toarray(), expected)
    np.testing.assert_array_equal(unpickle.read_array(VALID[1], "a"), np.eye(3, dtype=np.int32))
    assert unpickle.read_lists(VALID[2], "a") == {0: [1, 2], 1: [0], 2: [0]}


NO_FIT = "the indices of a sparse matrix do not fit its 2 x 3"


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"indices": np.array([0, 3, 1], np.int32)}, NO_FIT),
        ({"indices": np.array([0, -1, 1], np.int32)}, NO_FIT),
        ({"indices": np.array([0, 1], np.int32)}, NO_FIT),
        ({"indptr": np.array([0, 2], np.int32)}, NO_FIT),
        ({"indptr": np.array([0, 9, 3], np.int32)}, NO_FIT),
        ({"indptr": np.array([1, 2, 3], np.int32)}, NO_FIT),
        ({"indptr": np.array([0, 2, 2], np.int32)}, NO_FIT),
        ({"data": np.array([[1, 2, 3]], np.float32)}, NO_FIT),
        ({"data": np.array([1, np.nan, 3], np.float32)}, "features that are not finite"),
        ({"data": np.array([1, 2, 3], np.int32)}, "a sparse matrix of other types than float32 and int32"),
        ({"data": np.array([1, 2, 3], np.float64)}, "an array of another type than int32 or float32"),
        ({"data": np.array([1, 2, 3], ">f4")}, "an array of another type than int32 or float32"),
        ({"data": np.array([1, None], object)}, "an array without a shape, in columns or without content"),
        ({"data": [1, 2, 3]}, "no array where one belongs"),
        ({"data": None}, "no array where one belongs"),
        ({"_shape": None}, "a sparse matrix without a shape"),
        ({"_shape": (2,)}, "a sparse matrix without a shape"),
        ({"_shape": (2, -3)}, "a sparse matrix without a shape"),
        ({"_shape": (2, "3")}, "a sparse matrix without a shape"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_hostile_sparse_matrix(changes, fact):
    matrix = planetoid_writer.matrix([[1, 0, 2], [0, 3, 0]])
    vars(matrix).update(changes)
    assert error_of(unpickle.read_matrix, planetoid_writer.dumps(matrix)) == f"ind.cora.allx is broken: {fact}"


def test_array_shorter_than_its_shape():
    data = planetoid_writer.dumps(np.zeros((2, 3), np.int32)).replace(b"K\x02K\x03\x86", b"K\x02K\x04\x86")
    assert (
        error_of(unpickle.read_array, data) == "ind.cora.allx is broken: an array of 24 bytes, where its shape needs 32"
    )


def test_array_in_columns():
    data = planetoid_writer.dumps(np.asfortranarray(np.zeros((2, 3), np.int32)))
    fact = "an array without a shape, in columns or without content"
    assert error_of(unpickle.read_array, data) == f"ind.cora.allx is broken: {fact}"


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ({0: [1], 1: [0]}, "no lists of neighbours"),
        (defaultdict(list, {0: [1], 1: None}), "no lists of neighbours"),
        (defaultdict(list, {0: [1], 1: ["0"]}), "nodes that are not whole numbers"),
        (defaultdict(list, {0: [1], "1": [0]}), "nodes that are not whole numbers"),
        (defaultdict(list, {0: [1], 1: [True]}), "nodes that are not whole numbers"),
    ],
    ids=["dict", "no list", "text", "text as key", "truth"],
)
def test_hostile_lists(value, fact):
    assert error_of(unpickle.read_lists, planetoid_writer.dumps(value)) == f"ind.cora.allx is broken: {fact}"


@pytest.mark.data
def test_admits_what_the_published_files_need_and_nothing_more(planetoid_dir):
    import pickletools

    instructions, names = set(), set()
    for path in planetoid_dir.glob("ind.*"):
        if path.suffix in (".allx", ".ally", ".tx", ".ty", ".graph"):
            for instruction, argument, _ in pickletools.genops(path.read_bytes()):
                instructions.add(instruction.name)
                if instruction.name == "GLOBAL":
                    names.add(tuple(argument.split(" ")))
    assert instructions == unpickle._INSTRUCTIONS
    assert names == unpickle._ADMITTED.keys()
