"""Files written whole or not at all, and bounds on what is read."""

from __future__ import annotations

import pytest

from nfcgcn.errors import DatasetError, GraphError
from nfcgcn.files import FREE_BYTES, MAX_BYTES, check_size, draft_of, is_folder, parsing, reading


def test_a_draft_of_takes_its_place_only_when_all_went_well(tmp_path):
    path = tmp_path / "deep" / "file"
    with draft_of(path) as draft:
        draft.write_text("first")
        assert not path.exists()
    assert path.read_text() == "first"
    assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(ZeroDivisionError), draft_of(path) as draft:
        draft.write_text(f"second {1 / 0}")
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]


def test_bounds(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1_000_000)
    check_size(path, 200_000_000)
    with pytest.raises(DatasetError) as caught:
        check_size(path, 200_000_001)
    assert str(caught.value) == (
        f"{path} would unpack to 191 MiB, 200 times its size: refused as a decompression bomb (at most 200 times)"
    )
    path.write_bytes(b"")
    check_size(path, FREE_BYTES)
    with pytest.raises(DatasetError) as caught:
        check_size(path, MAX_BYTES + 1)
    assert str(caught.value) == f"{path} would unpack to 8.0 GiB; at most 8 GiB are read from a file"


def test_what_the_system_says_is_one_line(tmp_path):
    for path, message in (
        (tmp_path / "none", f"{tmp_path / 'none'} does not exist"),
        (tmp_path, f"{tmp_path} is a folder, not a file"),
        (tmp_path / ("x" * 300), f"cannot read {tmp_path / ('x' * 300)}: File name too long"),
    ):
        with pytest.raises(DatasetError) as caught, reading(path):
            pass
        assert str(caught.value) == message
    assert is_folder(tmp_path)
    assert not is_folder(tmp_path / ("x" * 300))


def test_what_a_parser_says_is_one_line(tmp_path):
    with pytest.raises(DatasetError) as caught, parsing(tmp_path, ".npz"):
        raise RuntimeError("two\n  lines")
    assert str(caught.value) == f"{tmp_path} is no sound .npz file: two lines"
    with pytest.raises(DatasetError) as caught, parsing(tmp_path, ".npz"):
        raise MemoryError
    assert str(caught.value) == f"{tmp_path} is no sound .npz file: MemoryError"
    with pytest.raises(GraphError, match=r"^ours$"), parsing(tmp_path, ".npz"):
        raise GraphError("ours")
