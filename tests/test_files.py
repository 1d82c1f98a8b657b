"""Files written whole or not at all, and bounds on what is read."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nfcgcn import files
from nfcgcn.errors import DatasetError, GraphError, WriteError
from nfcgcn.files import (
    FREE_BYTES,
    MAX_BYTES,
    check_free,
    check_size,
    check_writable,
    draft_of,
    is_folder,
    new_file,
    new_folder,
    parsing,
    reading,
    to_json,
    write_text,
)


def message(text):
    return f"^{re.escape(text)}$"


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
    assert str(caught.value) == f"{tmp_path} is not a valid .npz file: two lines"
    with pytest.raises(DatasetError) as caught, parsing(tmp_path, ".npz"):
        raise MemoryError
    assert str(caught.value) == f"{tmp_path} is not a valid .npz file: MemoryError"
    with pytest.raises(GraphError, match=r"^ours$"), parsing(tmp_path, ".npz"):
        raise GraphError("ours")


# Folders, whole or not at all


def contents(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def old_run(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("old")
    return folder


def test_a_new_folder_appears_when_the_block_ends(tmp_path):
    folder = tmp_path / "deep" / "run"
    with new_folder(folder) as draft:
        (draft / "config.json").write_text("new")
        assert not folder.exists()
        assert draft.parent == folder.parent
    assert contents(tmp_path / "deep") == {"run/config.json": "new"}
    assert folder.stat().st_mode & 0o777 == 0o755


def test_an_empty_folder_may_be_filled(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with new_folder(folder) as draft:
        (draft / "a").write_text("new")
    assert contents(tmp_path) == {"run/a": "new"}
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt], ids=lambda e: e.__name__)
@pytest.mark.parametrize("force", [False, True], ids=["new", "replacing"])
def test_an_exception_leaves_things_as_they_were(tmp_path, error, force):
    folder = tmp_path / "run"
    if force:
        old_run(folder)
    before = contents(tmp_path)

    def write():
        with new_folder(folder, force=force) as draft:
            (draft / "config.json").write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert contents(tmp_path) == before
    assert list(tmp_path.iterdir()) == ([folder] if force else [])


def test_force_replaces_the_old_run_whole(tmp_path):
    folder = old_run(tmp_path / "run")
    (folder / "left over").write_text("old")
    with new_folder(folder, force=True) as draft:
        (draft / "config.json").write_text("new")
        assert contents(folder)["config.json"] == "old"
    assert contents(tmp_path) == {"run/config.json": "new"}
    assert list(tmp_path.iterdir()) == [folder]


def test_an_earlier_run_is_replaced_by_force_only(tmp_path):
    folder = old_run(tmp_path / "run")
    text = f"{folder} holds an earlier run; choose another folder with --out or replace it by --force"
    with pytest.raises(WriteError, match=message(text)):
        check_free(folder, force=False)
    with pytest.raises(WriteError, match=message(text)), new_folder(folder):
        pass
    check_free(folder, force=True)
    assert contents(folder) == {"config.json": "old"}


@pytest.mark.parametrize("force", [False, True], ids=["", "force"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_no_run_is_never_replaced(tmp_path, kind, force):
    place = tmp_path / "precious"
    if kind == "folder":
        place.mkdir()
        (place / "thesis.txt").write_text("years")
    else:
        place.write_text("years")
    text = f"{place} exists and is no run of nfcgcn; choose another folder with --out"
    with pytest.raises(WriteError, match=message(text)), new_folder(place, force=force):
        pass
    assert "years" in (contents(tmp_path).values())


def test_a_free_place_is_free(tmp_path):
    check_free(tmp_path / "new", force=False)
    check_free(tmp_path, force=False)


KILLED = """
import sys, time
from pathlib import Path
from nfcgcn.files import new_folder
with new_folder(Path(sys.argv[1]), force=True) as draft:
    (draft / "config.json").write_text("half")
    print("inside", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_leaves_the_old_folder(tmp_path):
    folder = old_run(tmp_path / "run")
    command = [sys.executable, "-c", KILLED, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert contents(folder) == {"config.json": "old"}
    with new_folder(folder, force=True) as draft:  # what the dead left behind is in nobody's way
        (draft / "config.json").write_text("new")
    assert contents(folder) == {"config.json": "new"}


def test_a_folder_below_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    folder = tmp_path / "file" / "run"
    text = f"cannot write {folder}: "
    with pytest.raises(WriteError, match=f"^{re.escape(text)}.+; choose another place$"), new_folder(folder):
        pass


def test_a_read_only_parent(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", kwargs.get("dir"))

    # Root may write everywhere, and tests may run as root: let the system call itself refuse.
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    folder = tmp_path / "run"
    text = f"cannot write {folder}: Permission denied; choose another place"
    with pytest.raises(WriteError, match=message(text)), new_folder(folder):
        pass
    with pytest.raises(WriteError, match=message(text)):
        write_text(folder, "x")


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    folder = tmp_path / "run"

    def write():
        with new_folder(folder) as draft:
            (draft / "half").write_text("x")
            raise OSError(28, "No space left on device")

    text = f"cannot write {folder}: No space left on device; choose another place"
    with pytest.raises(WriteError, match=message(text)):
        write()
    assert list(tmp_path.iterdir()) == []


# Files, whole or not at all


def test_write_text_replaces_and_makes_folders(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    write_text(path, "first")
    write_text(path, "zweite ü")
    assert path.read_text(encoding="utf-8") == "zweite ü"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_write_text_keeps_the_old_text_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def refuse(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    text = f"cannot write {path}: No space left on device; choose another place"
    with pytest.raises(WriteError, match=message(text)):
        write_text(path, "new")
    assert contents(tmp_path) == {"file.txt": "old"}


def test_write_text_to_a_folder(tmp_path):
    with pytest.raises(WriteError, match=f"^{re.escape(f'cannot write {tmp_path}: ')}.+; choose another place$"):
        write_text(tmp_path, "x")


def test_json_has_no_numbers_that_json_does_not_know():
    assert to_json({"a": [1, None]}) == '{\n  "a": [\n    1,\n    null\n  ]\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(float("nan"))


def test_the_old_folder_is_only_removed_after_the_new_one_stands(tmp_path, monkeypatch):
    folder = old_run(tmp_path / "run")
    seen = []
    real = shutil.rmtree

    def watch(path, *args, **kwargs):
        seen.append(contents(folder))
        real(path, *args, **kwargs)

    monkeypatch.setattr(files.shutil, "rmtree", watch)
    with new_folder(folder, force=True) as draft:
        (draft / "config.json").write_text("new")
    assert seen[0] == {"config.json": "new"}


def test_a_new_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "file"
    with new_file(path) as file:
        file.write(b"first")
        assert not path.exists()
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(RuntimeError), new_file(path) as file:  # noqa: PT012
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"first"
    full = f"cannot write {path}: No space left on device; choose another place"
    with pytest.raises(WriteError, match=message(full)), new_file(path):
        raise OSError(28, "No space left on device")
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_folder_is_no_file_to_write(tmp_path):
    text = f"cannot write {tmp_path}: it is a folder; choose another place"
    with pytest.raises(WriteError, match=message(text)):
        check_writable(tmp_path)
