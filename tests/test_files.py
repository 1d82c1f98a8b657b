"""Files written whole or not at all, and bounds on what is read."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from killer import Failure
from nfcgcn.errors import DatasetError, GraphError, WriteError
from nfcgcn.files import (
    FREE_BYTES,
    MAX_BYTES,
    check_free,
    check_size,
    check_writable,
    draft_of,
    drafts,
    in_folder,
    is_folder,
    new_file,
    new_folder,
    parsing,
    read_regular,
    reading,
    recover,
    to_json,
    write_text,
)

OLD, NEW, NEWER = (f'{{"format": "{age}"}}' for age in ("old", "new", "newer"))
"""The config.json of runs."""


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
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "none", f"{tmp_path / 'none'} does not exist"),
        (tmp_path / "pipe", f"{tmp_path / 'pipe'} is not a regular file"),
        (Path("a\0b"), r"a\x00b is not a path: it holds a zero byte"),
        (Path("/dev/zero"), "/dev/zero is not a regular file"),
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
    assert str(caught.value) == f"{tmp_path} needs more memory than there is; read less of it, or on a larger machine"
    with pytest.raises(GraphError, match=r"^ours$"), parsing(tmp_path, ".npz"):
        raise GraphError("ours")


# Folders, whole or not at all


def contents(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def old_run(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(OLD)
    return folder


def test_a_new_folder_appears_when_the_block_ends(tmp_path):
    folder = tmp_path / "deep" / "run"
    with new_folder(folder) as draft:
        (draft / "config.json").write_text(NEW)
        assert not folder.exists()
        assert draft.parent == folder.parent
    assert contents(tmp_path / "deep") == {"run/config.json": NEW}
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
        (draft / "config.json").write_text(NEW)
        assert contents(folder)["config.json"] == OLD
    assert contents(tmp_path) == {"run/config.json": NEW}
    assert list(tmp_path.iterdir()) == [folder]


def test_an_earlier_run_is_replaced_by_force_only(tmp_path):
    folder = old_run(tmp_path / "run")
    text = f"{folder} holds an earlier run; choose another folder with --out, or replace it with --force"
    with pytest.raises(WriteError, match=message(text)):
        check_free(folder, force=False)
    with pytest.raises(WriteError, match=message(text)), new_folder(folder):
        pass
    check_free(folder, force=True)
    assert contents(folder) == {"config.json": OLD}


CONFIGS = {"another program's": '{"name": "my app"}', "no JSON": "[", "a number": "4", "nested": "[" * 10**5}
"""What a config.json may hold that is not one of ours."""


@pytest.mark.parametrize("force", [False, True], ids=["", "force"])
@pytest.mark.parametrize("kind", ["folder", "file", "link", *CONFIGS])
def test_what_is_no_run_is_never_replaced(tmp_path, kind, force):
    place = tmp_path / "precious"
    if kind == "file":
        place.write_text("years")
    else:
        place.mkdir()
        (place / "thesis.txt").write_text("years")
    if kind in CONFIGS:
        (place / "config.json").write_text(CONFIGS[kind])
    elif kind == "link":  # what is unfinished is a folder of ours, not one that somebody else chose
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "unfinished").symlink_to(place)
        place = tmp_path / "run"
    text = f"{place} exists and is not a run of nfcgcn; choose another folder with --out"
    with pytest.raises(WriteError, match=message(text)), new_folder(place, force=force):
        pass
    assert "years" in (contents(tmp_path).values())


@pytest.mark.parametrize("kind", ["run", "store"])
def test_what_lies_beside_a_run_is_not_lost_with_it(tmp_path, kind):
    mark, listed = {"run": ("config.json", "sha256"), "store": ("meta.json", "files")}[kind]
    place = tmp_path / "run"
    place.mkdir()
    (place / mark).write_text(f'{{"format": 4, "{listed}": {{"weights": ""}}}}')
    for name in ("weights", "report.html", "explore.html", "layout.safetensors", ".p-1-2.nfcgcn-draft"):
        (place / name).touch()
    (place / "unfinished").mkdir()
    check_free(place, force=True, kind=kind)
    for name, more in (("thesis.txt", ""), ("a.csv", " and 1 more")):
        (place / name).touch()
        text = (
            f"{place} holds {name}{more} beside an earlier {kind}, which would be lost; move it away, or choose "
            "another folder with --out"
        )
        with pytest.raises(WriteError, match=message(text)):
            check_free(place, force=True, kind=kind)


def test_a_link_in_a_folder_of_others_is_not_followed(tmp_path):
    """A run folder that somebody sent may hold links to any file of the user's."""
    (tmp_path / "report.html").symlink_to(tmp_path / "precious")
    text = f"{tmp_path / 'report.html'} is a link, which nfcgcn does not write to; remove it"
    with pytest.raises(WriteError, match=message(text)):
        in_folder(tmp_path, "report.html")
    assert in_folder(tmp_path, "other") == tmp_path / "other"


def test_no_input_is_an_output(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("x")
    (tmp_path / "link.csv").symlink_to(path)
    check_writable(path, [tmp_path / "edges.csv"])
    for name in ("nodes.csv", "link.csv", "../" + tmp_path.name + "/nodes.csv"):
        text = f"cannot write {tmp_path / name}: it is read as input; choose another place"
        with pytest.raises(WriteError, match=message(text)):
            check_writable(tmp_path / name, [tmp_path / "edges.csv", path])


def test_no_output_lies_in_a_folder_that_is_written_as_a_whole(tmp_path):
    for path in (tmp_path / "run", tmp_path / "run" / "config.json", tmp_path / "run" / "deep" / "x.json"):
        text = f"cannot write {path}: it lies in {tmp_path / 'run'}, which is written as a whole; choose another place"
        with pytest.raises(WriteError, match=message(text)):
            check_writable(path, outside=tmp_path / "run")
    check_writable(tmp_path / "runs" / "x.json", outside=tmp_path / "run")


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
    assert contents(folder) == {"config.json": OLD}
    with new_folder(folder, force=True) as draft:  # what the dead left behind is in nobody's way
        (draft / "config.json").write_text(NEW)
    assert contents(folder) == {"config.json": NEW}


def test_a_folder_below_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    folder = tmp_path / "file" / "run"
    text = f"cannot write {folder}: "
    with pytest.raises(WriteError, match=f"^{re.escape(text)}.+; choose another place$"), new_folder(folder):
        pass


PLACES = {
    "below a file": "file/run",
    "a name too long": "n" * 256,
    "a folder's name too long": f"{'n' * 256}/run",
    "where nothing can be made, not even by root": "/proc/run",
    "in a folder that cannot be made": "/proc/deep/run",
    "a loop of links": "loop/run",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path, place):
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    before = sorted(tmp_path.iterdir())
    path = tmp_path / PLACES[place]
    told = f"^{re.escape(f'cannot write {path}: ')}.+; choose another place$"
    for check in (lambda: check_free(path, force=False), lambda: check_writable(path), lambda: write_text(path, "x")):
        with pytest.raises(WriteError, match=told):
            check()
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_without_permission(tmp_path):
    """As a user who is not root, to whom everything is permitted."""
    (tmp_path / "shut").mkdir(mode=0o555)
    path = tmp_path / "shut" / "deep" / "file"

    def attempt():
        if os.getuid() == 0:
            for folder in (tmp_path, *tmp_path.parents):
                if folder.stat().st_uid == 0 and folder != Path("/"):
                    os.chmod(folder, folder.stat().st_mode | 0o755)  # noqa: PTH101
            os.setresuid(65534, 65534, 65534)
        with pytest.raises(WriteError, match=message(f"cannot write {path}: Permission denied; choose another place")):
            check_writable(path)
        with pytest.raises(WriteError, match=message(f"cannot write {path}: Permission denied; choose another place")):
            check_free(path, force=True)

    assert in_fork(attempt) == 0


def test_trying_out_a_place_leaves_nothing(tmp_path):
    check_writable(tmp_path / "a" / "b" / "file")
    check_free(tmp_path / "a" / "b" / "run", force=False)
    check_writable(tmp_path / ("n" * 255))
    assert list(tmp_path.iterdir()) == []


def test_names_of_any_length_that_the_system_allows(tmp_path):
    for name in ("n" * 255, "\u00fc" * 127, "\U0001f600" * 63, "*?[a]", " ", "-"):
        write_text(tmp_path / name, "x")
        with new_folder(tmp_path / "below" / name) as draft:
            (draft / "config.json").write_text(NEW)
        with new_folder(tmp_path / "below" / name, force=True) as draft:
            (draft / "config.json").write_text(NEWER)
        assert contents(tmp_path / "below" / name) == {"config.json": NEWER}
    assert len(list(tmp_path.iterdir())) == 7
    assert len(list((tmp_path / "below").iterdir())) == 6


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        text = f"cannot write {path}: it is not a regular file; choose another place"
        with pytest.raises(WriteError, match=message(text)):
            check_writable(path)
    with pytest.raises(WriteError, match=r"a disk is mounted there; name a folder below it; choose another place$"):
        check_free(Path("/proc"), force=True)


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    old_run(tmp_path / "run")
    (tmp_path / "other").symlink_to("run")
    with new_folder(tmp_path / "other", force=True) as draft:
        (draft / "config.json").write_text(NEW)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "other").is_symlink()
    assert contents(tmp_path) == {"link": "new", "real": "new", "run/config.json": NEW}
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("mask", "file_mode", "folder_mode"), [(0o077, 0o600, 0o700), (0o022, 0o644, 0o755), (0o002, 0o664, 0o775)]
)
def test_new_files_follow_the_umask(tmp_path, mask, file_mode, folder_mode):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "made" / "file", "x")
        with new_folder(tmp_path / "run") as draft:
            (draft / "a").write_text("x")
    finally:
        os.umask(before)
    modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.rglob("*")}
    assert modes == {"made": folder_mode, "file": file_mode, "run": folder_mode, "a": file_mode}


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Every file and its folder are synced before the rename, and the folder that holds the name after it."""
    events = []

    def listen(event, details):
        if listening and event == "os.rename":
            events.append(("rename", Path(details[1]).name))

    sys.addaudithook(listen)
    fsync, exchange = os.fsync, drafts._exchange

    def sync(handle):
        path = Path(f"/proc/self/fd/{handle}").readlink()
        events.append(("sync", "draft" if path.suffix == drafts.DRAFT else path.name))
        fsync(handle)

    def swap(one, other):
        events.append(("rename", other.name))
        return exchange(one, other)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(drafts, "_exchange", swap)
    listening = True
    folder = tmp_path.name
    write_text(tmp_path / "file", "x")
    assert events == [("sync", "draft"), ("rename", "file"), ("sync", folder)]
    events.clear()
    write_text(tmp_path / "new" / "file", "x")
    assert events == [("sync", folder), ("sync", "draft"), ("rename", "file"), ("sync", "new")]
    for force in (False, True):
        events.clear()
        with new_folder(tmp_path / "run", force=force) as draft:
            (draft / "config.json").write_text(NEW)
        assert events == [("sync", "config.json"), ("sync", "draft"), ("rename", "run"), ("sync", folder)]
    listening = False


def in_fork(act):
    """Run a function in a fork and return its exit code: 0, 1 after an exception, negative if it was killed."""
    child = os.fork()
    if not child:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            pass
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("exchange", [True, False], ids=["exchanged", "in two steps"])
@pytest.mark.parametrize("way", ["killed", "error", "interrupted"])
def test_a_failure_at_any_operation_leaves_the_old_or_the_new_run(tmp_path, monkeypatch, exchange, way):
    """And the next command on that folder finds it, and clears up."""
    if not exchange:
        monkeypatch.setattr(drafts, "_exchange", lambda *_: False)
    seen = set()
    for number in range(1, 100):
        place = tmp_path / str(number)
        folder = old_run(place / "run")
        (folder / "left over").write_text("old")

        def replace(place=place, folder=folder, number=number):
            os.chdir(place)
            failure = Failure(number, way)
            with new_folder(folder, force=True) as draft:
                (draft / "config.json").write_text(NEW)
            os._exit(0 if not failure.what else 3)

        code = in_fork(replace)
        if way != "killed":
            assert code in (0, 1, 3)
            assert folder.exists()
        recover(folder)
        held = contents(folder)
        assert held in ({"config.json": OLD, "left over": "old"}, {"config.json": NEW}), (number, held)
        seen.add(held["config.json"])
        assert [path.name for path in place.iterdir()] == ["run"]
        if code == 0:
            break
    assert seen == {OLD, NEW}
    assert number > 10


def test_what_another_process_is_writing_is_left_alone(tmp_path):
    with new_folder(tmp_path / "run") as draft, draft_of(tmp_path / "file") as other:
        assert in_fork(lambda: (recover(tmp_path / "run"), recover(tmp_path / "file"))) == 0
        assert draft.exists()
        assert other.exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large"])
def test_reading_regular_files_only(tmp_path, kind):
    path = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"x" * 2**20)
        assert read_regular(path, 2**20) == b"x" * 2**20
        path.write_bytes(b"x" * (2**20 + 1))
    text = f"{path} has 1 MiB; at most 1 MiB are read" if kind == "large" else f"{path} is not a regular file"
    with pytest.raises(DatasetError, match=message(text)):
        read_regular(path, 2**20)


def test_a_small_file_takes_little_memory_whatever_is_allowed(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 99)
    tracemalloc.start()
    assert read_regular(tmp_path / "file", 2**30) == b"x" * 99
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


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

    monkeypatch.setattr(drafts.shutil, "rmtree", watch)
    with new_folder(folder, force=True) as draft:
        (draft / "config.json").write_text(NEW)
    assert seen[0] == {"config.json": NEW}


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
