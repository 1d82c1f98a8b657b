import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nfcgcn import files, load_model
from nfcgcn.config.registry import SYSTEMS, make_config
from nfcgcn.errors import GraphError, NFCError
from nfcgcn.evaluation import describe, predict, repeat
from nfcgcn.files import check_free, new_folder, to_json, write_text
from nfcgcn.graph import Graph
from nfcgcn.inference import checkpoint
from nfcgcn.inference.checkpoint import CheckpointError, load_run, save_run


def message(text):
    return f"^{re.escape(text)}$"


def trained(graph, system, **settings):
    if system.startswith("nfc-gcn"):
        settings = {"kernel_size": 10, "stride": 5, "filters": 4, **settings}
    config = make_config(system, settings={"split": "ratio", "epochs": 3, **settings})
    repeats = repeat(graph, config, [4, 6])
    return describe(graph, config, repeats, device=torch.device("cpu")), repeats


@pytest.fixture(scope="module")
def gcn_run(sparse_graph):
    return trained(sparse_graph, "gcn")


@pytest.fixture
def run_folder(tmp_path, sparse_graph, gcn_run):
    result, repeats = gcn_run
    folder = tmp_path / "run"
    folder.mkdir()
    save_run(folder, sparse_graph, result, {r.seed: r.run for r in repeats}, repeats[1].seed)
    return folder


# Weights and settings


@pytest.mark.parametrize(
    ("system", "settings"),
    [
        *[pytest.param(system, {}, id=system) for system in SYSTEMS],
        pytest.param("nfc-gcn", {"num_layers": 0, "activation": "tanh", "slot_order": "similarity"}, id="no layers"),
        pytest.param("nfc-gcn", {"resample": "epoch", "patience": 2, "bandwidth": 3}, id="resampled"),
        pytest.param("nfc-gcn", {"representation_dropout": 0.5, "classifier": "linear"}, id="literal"),
        pytest.param("gcn", {"feature_scale": "row-sum"}, id="divided by sums"),
    ],
)
def test_a_loaded_model_is_the_saved_one(system, settings, sparse_graph, tmp_path):
    result, repeats = trained(sparse_graph, system, **settings)
    save_run(tmp_path, sparse_graph, result, {r.seed: r.run for r in repeats}, repeats[1].seed)
    before = torch.get_rng_state()
    model = load_model(str(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training
    with torch.no_grad():
        found = model(sparse_graph.x, sparse_graph.edge_index)
        expected = repeats[1].model(sparse_graph.x, sparse_graph.edge_index)
    assert torch.equal(found, expected)
    assert predict(model, sparse_graph).tolist() == repeats[1].predictions.tolist()


def test_a_run_from_before_a_setting_was_added(sparse_graph, tmp_path):
    result, repeats = trained(sparse_graph, "nfc-gcn")
    save_run(tmp_path, sparse_graph, result, {r.seed: r.run for r in repeats}, repeats[1].seed)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for name in ("representation_dropout", "classifier", "labels_per_class"):
        del config["settings"][name]
    path.write_text(json.dumps(config))
    assert predict(load_model(str(tmp_path)), sparse_graph).tolist() == repeats[1].predictions.tolist()


def test_files_of_a_run(run_folder, sparse_graph, gcn_run):
    result, repeats = gcn_run
    names = ["config.json", "metrics.jsonl", "result.json", "weights.safetensors"]
    assert sorted(path.name for path in run_folder.iterdir()) == names
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in run_folder.iterdir())
    config = json.loads((run_folder / "config.json").read_text())
    assert config == {
        "format": 2, "model": "gcn", "settings": result["config"], "seed": 6, "num_features": 40, "num_classes": 3,
        "feature_names": None, "class_names": None, "dataset": sparse_graph.name, "dataset_options": None,
        "encoding": None,
    }  # fmt: skip
    assert json.loads((run_folder / "result.json").read_text()) == json.loads(json.dumps(result))
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"seed": r.seed, **epoch} for r in repeats for epoch in r.run.history]
    assert (run_folder / "metrics.jsonl").read_text().endswith("}\n")
    for name, tensor in load_file(run_folder / "weights.safetensors").items():
        assert torch.equal(tensor, repeats[1].run.state[name])


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "delete"}))


@pytest.mark.parametrize("found", [3, 1, "2"], ids=["newer", "older", "text"])
def test_formats_of_other_versions(run_folder, found):
    edit_config(run_folder, format=found)
    text = f"{run_folder} has format {found}, this version of nfcgcn reads 2; train anew"
    with pytest.raises(CheckpointError, match=message(text)):
        load_model(run_folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "delete"}, "'format'"),
        ({"model": "delete"}, "'model'"),
        ({"model": "gnc"}, "unknown model 'gnc'; did you mean 'gcn'?"),
        ({"settings": {"epoch": 3}}, "unknown setting 'epoch'; did you mean 'epochs'?"),
        ({"settings": {"epochs": "x"}}, "`epochs` must be a whole number, got 'x'"),
        ({"num_features": "many"}, "invalid literal for int() with base 10: 'many'"),
        ({"num_classes": 0}, "`out_channels` must be at least 1, got 0"),
    ],
    ids=str,
)
def test_damaged_configs(run_folder, changes, reason):
    edit_config(run_folder, **changes)
    with pytest.raises(CheckpointError, match=message(f"{run_folder} is damaged or foreign: {reason}")):
        load_model(run_folder)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", '"x"', "\x00"], ids=repr)
def test_a_config_that_is_no_json_of_ours(run_folder, text):
    (run_folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=f"^{re.escape(f'{run_folder} is damaged or foreign: ')}.+"):
        load_model(run_folder)


@pytest.mark.parametrize("keep", [0, 4, 100, -4], ids=["empty", "length", "header", "cut"])
def test_cut_weights(run_folder, keep):
    weights = run_folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=f"^{re.escape(f'{run_folder} is damaged or foreign: ')}.+"):
        load_model(run_folder)


@pytest.mark.parametrize(
    "state",
    [{"other": torch.ones(1)}, {"layers.0.weight": torch.ones(2, 2), "layers.1.weight": torch.ones(2, 2)}],
    ids=["names", "shapes"],
)
def test_weights_of_another_model(run_folder, state):
    save_file(state, run_folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match=f"^{re.escape(f'{run_folder} is damaged or foreign: ')}.+"):
        load_model(run_folder)


def test_a_pickle_in_place_of_the_weights_is_never_opened(run_folder, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    torch.save(Bomb(), run_folder / "weights.safetensors")
    with pytest.raises(CheckpointError):
        load_model(run_folder)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("make", [True, False], ids=["empty folder", "no folder"])
def test_no_run_folder(tmp_path, make):
    folder = tmp_path / "nothing"
    if make:
        folder.mkdir()
    with pytest.raises(CheckpointError, match=message(f"{folder} is no run folder: config.json is missing")):
        load_model(folder)


def test_checkpoint_errors_are_ours():
    assert issubclass(CheckpointError, NFCError)


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
    with pytest.raises(CheckpointError, match=message(text)):
        check_free(folder, force=False)
    with pytest.raises(CheckpointError, match=message(text)), new_folder(folder):
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
    with pytest.raises(CheckpointError, match=message(text)), new_folder(place, force=force):
        pass
    assert "years" in (contents(tmp_path).values())


def test_a_free_place_is_free(tmp_path):
    check_free(tmp_path / "new", force=False)
    check_free(tmp_path, force=False)


KILLED = """
import sys, time
from pathlib import Path
from nfcgcn.inference.checkpoint import new_folder
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
        assert process.wait(timeout=30) == -signal.SIGKILL
    assert contents(folder) == {"config.json": "old"}
    with new_folder(folder, force=True) as draft:  # what the dead left behind is in nobody's way
        (draft / "config.json").write_text("new")
    assert contents(folder) == {"config.json": "new"}


def test_a_folder_below_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    folder = tmp_path / "file" / "run"
    text = f"cannot write {folder}: "
    with pytest.raises(CheckpointError, match=f"^{re.escape(text)}.+; choose another place$"), new_folder(folder):
        pass


def test_a_read_only_parent(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", kwargs.get("dir"))

    # Root may write everywhere, and tests may run as root: let the system call itself refuse.
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    folder = tmp_path / "run"
    text = f"cannot write {folder}: Permission denied; choose another place"
    with pytest.raises(CheckpointError, match=message(text)), new_folder(folder):
        pass
    with pytest.raises(CheckpointError, match=message(text)):
        write_text(folder, "x")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_truly_read_only_parent(tmp_path):
    tmp_path.chmod(0o555)
    folder = tmp_path / "run"
    text = f"cannot write {folder}: Permission denied; choose another place"
    try:
        with pytest.raises(CheckpointError, match=message(text)), new_folder(folder):
            pass
    finally:
        tmp_path.chmod(0o755)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    folder = tmp_path / "run"

    def write():
        with new_folder(folder) as draft:
            (draft / "half").write_text("x")
            raise OSError(28, "No space left on device")

    text = f"cannot write {folder}: No space left on device; choose another place"
    with pytest.raises(CheckpointError, match=message(text)):
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
    with pytest.raises(CheckpointError, match=message(text)):
        write_text(path, "new")
    assert contents(tmp_path) == {"file.txt": "old"}


def test_write_text_to_a_folder(tmp_path):
    with pytest.raises(CheckpointError, match=f"^{re.escape(f'cannot write {tmp_path}: ')}.+; choose another place$"):
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

    monkeypatch.setattr(checkpoint.shutil, "rmtree", watch)
    with new_folder(folder, force=True) as draft:
        (draft / "config.json").write_text("new")
    assert seen[0] == {"config.json": "new"}


def test_missing_weights_and_a_file_for_a_folder(tmp_path):
    config = {"format": 2, "model": "gcn", "settings": {}, "seed": 0, "num_features": 3, "num_classes": 2}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    for place, missing in ((tmp_path, "weights.safetensors"), (file, "config.json")):
        text = f"{place} is no run folder: {missing} is missing"
        with pytest.raises(CheckpointError, match=f"^{re.escape(text)}$"):
            load_model(place)


# A run on another graph


def check_features(run_folder, ours, theirs):
    """Check a graph whose features have the names `theirs`, or that many without names, against a run of `ours`."""
    edit_config(run_folder, feature_names=None if isinstance(ours, int) else list(ours))
    count = theirs if isinstance(theirs, int) else len(theirs)
    names = None if isinstance(theirs, int) else tuple(theirs)
    other = Graph.from_edges([], np.ones((2, count)), feature_names=names, name="mine")
    load_run(run_folder).check_features(other)


NAMES = [f"f{i}" for i in range(40)]


@pytest.mark.parametrize(
    ("ours", "theirs"), [(40, 40), (NAMES, 40), (40, NAMES), (NAMES, NAMES)], ids=["none", "run", "graph", "both"]
)
def test_features_that_fit(run_folder, ours, theirs):
    check_features(run_folder, ours, theirs)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (40, 38, "it lacks column 38, column 39"),
        (40, 44, "it adds column 40, column 41, column 42 and 1 more"),
        (NAMES, 38, "it lacks 'f38', 'f39'"),
        (40, [*NAMES, "x\n", "y"], "it adds 'x\\n', 'y'"),
        (NAMES, ["new", *NAMES[5:], "old"], "it lacks 'f0', 'f1', 'f2' and 2 more and adds 'new', 'old'"),
        (["f1", *NAMES[1:]], NAMES[1:], "it lacks 'f1'"),
    ],
    ids=["fewer", "more", "named fewer", "named more", "others", "twice"],
)
def test_features_that_differ_are_named(run_folder, ours, theirs, said):
    text = f"'mine' has other features than the run was trained on: {said}; give it the same columns"
    with pytest.raises(GraphError, match=message(text)):
        check_features(run_folder, ours, theirs)


def test_features_in_another_order(run_folder):
    text = (
        "'mine' has the run's features in another order: column 1 is 'f2', in the run it was 'f1'; "
        "put them in that order"
    )
    with pytest.raises(GraphError, match=message(text)):
        check_features(run_folder, NAMES, ["f0", "f2", "f1", *NAMES[3:]])


@pytest.mark.parametrize(
    ("ours", "theirs", "labels", "expected"),
    [
        (None, None, [0, 2, 3, -1], [0, 2, -1, -1]),
        (None, ["c", "b", "a", "d"], [0, 2, 3, -1], [0, 2, -1, -1]),
        (["a", "b", "c"], ["c", "b", "a", "d"], [0, 2, 3, -1], [2, 0, -1, -1]),
        (["a", "b", "c"], ["z"], [-1, 0, -1, 0], [-1, -1, -1, -1]),
        (["a", "b", "c"], ["c", "a"], [-1, 0, -1, 1], [-1, 2, -1, 0]),
    ],
    ids=["numbers", "names on one side", "names", "no class known", "the last class is known"],
)
def test_labels_of_another_graph(run_folder, ours, theirs, labels, expected):
    edit_config(run_folder, class_names=ours)
    graph = Graph.from_edges([], np.ones((4, 40)), labels=labels, class_names=theirs)
    assert load_run(run_folder).read_labels(graph).tolist() == expected


def test_a_new_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "file"
    with files.new_file(path) as file:
        file.write(b"first")
        assert not path.exists()
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(RuntimeError), files.new_file(path) as file:  # noqa: PT012
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"first"
    full = f"cannot write {path}: No space left on device; choose another place"
    with pytest.raises(CheckpointError, match=message(full)), files.new_file(path):
        raise OSError(28, "No space left on device")
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_folder_is_no_file_to_write(tmp_path):
    text = f"cannot write {tmp_path}: it is a folder; choose another place"
    with pytest.raises(CheckpointError, match=message(text)):
        files.check_writable(tmp_path)
