import hashlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nfcgcn import load_model
from nfcgcn.config.registry import MODELS, make_config
from nfcgcn.errors import GraphError, NFCError
from nfcgcn.evaluation import describe, repeat
from nfcgcn.graph import Graph
from nfcgcn.inference.checkpoint import CheckpointError, load_run, save_run
from nfcgcn.inference.prediction import predict
from nfcgcn.method.additions import ADDITIONS


def message(text):
    return f"^{re.escape(text)}$"


def trained(graph, model, **settings):
    if model.startswith("nfc-gcn"):
        settings = {"kernel_size": 10, "stride": 5, "filters": 4, **settings}
    if model == "planetoid-i":
        settings = {"pretraining": 2, "contexts": 30, **settings}
    config = make_config(model, settings={"split": "ratio", "epochs": 3, **settings})
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
    ("model", "settings"),
    [
        *[pytest.param(model, {}, id=model) for model in MODELS],
        pytest.param("nfc-gcn", {"num_layers": 0, "activation": "tanh", "slot_order": "similarity"}, id="no layers"),
        pytest.param("nfc-gcn", {"resample": "epoch", "patience": 2, "bandwidth": 3}, id="resampled"),
        pytest.param("nfc-gcn", {"representation_dropout": 0.5, "classifier": "linear"}, id="literal"),
        pytest.param("nfc-gcn", {"own_features": "mlp", "edge_dropout": 0.3, "self_weight": 2.0}, id="additions"),
        pytest.param("gcn", {"feature_scale": "row-sum"}, id="divided by sums"),
    ],
)
def test_a_loaded_model_is_the_saved_one(model, settings, sparse_graph, tmp_path):
    result, repeats = trained(sparse_graph, model, **settings)
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
    for name in ("representation_dropout", "classifier", "labels_per_class", *ADDITIONS):
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
        "format": 4, "model": "gcn", "settings": result["config"], "seed": 6, "num_features": 40, "num_classes": 3,
        "feature_names": None, "class_names": None, "dataset": sparse_graph.name, "dataset_options": None,
        "encoding": None,
        "temperature": 1.0,
        "tables": None,
        "weighted": False,
        "sha256": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in run_folder.iterdir()
            if path.name != "config.json"
        },
    }  # fmt: skip
    assert json.loads((run_folder / "result.json").read_text()) == json.loads(json.dumps(result))
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"seed": r.seed, **epoch} for r in repeats for epoch in r.run.history]
    assert (run_folder / "metrics.jsonl").read_text().endswith("}\n")
    for name, tensor in load_file(run_folder / "weights.safetensors").items():
        assert torch.equal(tensor, repeats[1].run.state[name])


def damaged(folder):
    return f"^{re.escape(f'{folder} is damaged or was not written by nfcgcn: ')}.+"


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "delete"}))


@pytest.mark.parametrize("format_found", [5, 2, "4", True, []], ids=repr)
def test_formats_of_other_versions(run_folder, format_found):
    edit_config(run_folder, format=format_found)
    text = (
        f"{run_folder} has format {format_found!r}; this version of nfcgcn reads formats 3 and 4 and draws neighbours "
        "differently from older versions, so train again"
    )
    with pytest.raises(CheckpointError, match=message(text)):
        load_model(run_folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "delete"}, "`format` is missing"),
        ({"model": "delete"}, "`model` is missing"),
        ({"model": ["gcn"]}, "`model` must be text, got ['gcn']"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0, got -1"),
        ({"seed": 2**80}, f"`seed` must be a whole number of at least 0, got {2**80}"),
        ({"num_classes": True}, "`num_classes` must be a whole number up to 100,000, got True"),
        ({"temperature": 1e-300}, "`temperature` must be a number from 0.01 to 100, got 1e-300"),
        ({"settings": [1]}, "`settings` must be a table of settings, got [1]"),
        ({"settings": {"epochs": {}}}, "`settings` must be a table of settings, got {'epochs': {}}"),
        ({"feature_names": "f" * 40}, f"`feature_names` must be a list of names, or null, got '{'f' * 39}"),
        ({"feature_names": ["f"]}, "`feature_names` must hold 40 names, got 1"),
        ({"class_names": ["a", "b", 3]}, "`class_names` must be a list of names, or null, got ['a', 'b', 3]"),
        ({"class_names": ["a", "b"]}, "`class_names` must hold 3 names, got 2"),
        ({"dataset": None}, "`dataset` must be text, got None"),
        (
            {"dataset_options": {"nodes": "x"}},
            "`dataset_options` must be a table of numbers, or null, got {'nodes': 'x'}",
        ),
        ({"encoding": "x"}, "`encoding` must be a table, or null, got 'x'"),
        ({"sha256": None}, "`sha256` must be a table of checksums, got None"),
        ({"sha256": {}}, "weights.safetensors is not the file that was written; its sha256 differs"),
        (
            {"num_features": 10**9},
            "'layers.0.weight' in weights.safetensors must be F32 [1000000000, 16], got F32 [40, 16]",
        ),
        ({"settings": {"num_layers": 1000}}, "weights.safetensors holds 2 tensors, too few for 1000 layers"),
        ({"model": "gnc"}, "unknown model 'gnc'; did you mean 'gnn' or 'gcn'?"),
        ({"settings": {"epoch": 3}}, "unknown setting 'epoch'; did you mean 'epochs'?"),
        ({"settings": {"epochs": "x"}}, "`epochs` must be a whole number, got 'x'"),
        ({"num_features": "many"}, "`num_features` must be a whole number of at least 0, got 'many'"),
        ({"num_classes": 0}, "`out_channels` must be at least 1, got 0"),
    ],
    ids=str,
)
def test_damaged_configs(run_folder, changes, reason):
    edit_config(run_folder, **changes)
    with pytest.raises(
        CheckpointError, match=message(f"{run_folder} is damaged or was not written by nfcgcn: {reason}")
    ):
        load_model(run_folder)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", '"x"', "\x00"], ids=repr)
def test_a_config_that_is_no_json_of_ours(run_folder, text):
    (run_folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=damaged(run_folder)):
        load_model(run_folder)


@pytest.mark.parametrize("keep", [0, 4, 100, -4], ids=["empty", "length", "header", "cut"])
def test_cut_weights(run_folder, keep):
    weights = run_folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=damaged(run_folder)):
        load_model(run_folder)


@pytest.mark.parametrize(
    "state",
    [{"other": torch.ones(1)}, {"layers.0.weight": torch.ones(2, 2), "layers.1.weight": torch.ones(2, 2)}],
    ids=["names", "shapes"],
)
def test_weights_of_another_model(run_folder, state):
    save_file(state, run_folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match=damaged(run_folder)):
        load_model(run_folder)


def rewrite(folder, change):
    """Write other weights, with their right checksum."""
    path = folder / "weights.safetensors"
    state = load_file(path)
    change(state)
    save_file(state, path)
    edit_config(folder, sha256={path.name: hashlib.sha256(path.read_bytes()).hexdigest()})


def test_a_flipped_bit_in_the_weights(run_folder):
    path = run_folder / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    reason = "weights.safetensors is not the file that was written; its sha256 differs"
    with pytest.raises(CheckpointError, match=f"{re.escape(reason)}$"):
        load_model(run_folder)
    edit_config(run_folder, format=3, sha256="delete")  # which had no checksums
    load_model(run_folder)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(run_folder, number):
    rewrite(run_folder, lambda state: state["layers.1.weight"][0].fill_(number))
    reason = "'layers.1.weight' in weights.safetensors holds a number that is not finite"
    with pytest.raises(CheckpointError, match=f"{re.escape(reason)}$"):
        load_model(run_folder)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64, torch.float64, torch.float16, torch.bool], ids=str)
def test_weights_of_another_type(run_folder, kind):
    rewrite(run_folder, lambda state: state.update({n: t.to(kind) for n, t in state.items()}))
    reason = "'layers.0.weight' in weights.safetensors must be F32 [40, 16], got "
    with pytest.raises(CheckpointError, match=re.escape(reason)):
        load_model(run_folder)


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop", "sparse"])
def test_what_is_no_file_is_refused_at_once(run_folder, name, kind):
    path = run_folder / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        with path.open("wb") as file:
            file.truncate(2**40)
    with pytest.raises(CheckpointError, match=re.escape(str(run_folder))):
        load_model(run_folder)


def test_a_header_that_asks_for_memory(run_folder):
    path = run_folder / "weights.safetensors"
    content = path.read_bytes()
    for claimed in (2**63, 2**34, len(content)):
        path.write_bytes(claimed.to_bytes(8, "little") + content[8:])
        with pytest.raises(CheckpointError, match=r"weights.safetensors is cut short$"):
            load_model(run_folder)


@pytest.mark.parametrize("text", ["NaN", "1e999", "-Infinity"])
def test_numbers_of_a_config_are_finite(run_folder, text):
    path = run_folder / "config.json"
    path.write_text(path.read_text().replace('"seed": 6', f'"seed": {text}'))
    with pytest.raises(CheckpointError, match=f"{text} is not a finite number$"):
        load_model(run_folder)


def test_no_mutation_of_a_run_ends_in_a_foreign_error(run_folder):
    rng = np.random.default_rng(0)
    originals = {path: path.read_bytes() for path in run_folder.iterdir()}
    other = {"config.json": 0, "weights.safetensors": 0}
    for _ in range(150):
        path = run_folder / ("config.json" if rng.random() < 0.7 else "weights.safetensors")
        content = bytearray(originals[path])
        for _ in range(rng.integers(1, 4)):
            place = int(rng.integers(len(content)))
            action = rng.integers(4)
            if action == 0:
                content[place] = int(rng.integers(256))
            elif action == 1:
                del content[place : place + int(rng.integers(1, 30))]
            elif action == 2:
                content[place:place] = bytes(rng.choice(list(b'0123456789eE-{}[]",:ntf'), 3).tolist())
            else:
                del content[place:]
            if not content:
                break
        path.write_bytes(content)
        try:
            load_run(run_folder)
        except CheckpointError as error:
            assert "\n" not in str(error)  # noqa: PT017
            other[path.name] += 1
        path.write_bytes(originals[path])
    assert other["weights.safetensors"] > 40  # each of them


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
    with pytest.raises(CheckpointError, match=message(f"{folder} is not a run folder: config.json is missing")):
        load_model(folder)


def test_checkpoint_errors_are_ours():
    assert issubclass(CheckpointError, NFCError)


def test_missing_weights_and_a_file_for_a_folder(tmp_path):
    config = {"format": 3, "model": "gcn", "settings": {}, "seed": 0, "num_features": 3, "num_classes": 2}
    config |= dict.fromkeys(("feature_names", "class_names", "dataset_options", "encoding"), None)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**config, "dataset": "x"}))
    for place, missing in ((tmp_path, "weights.safetensors"), (file, "config.json")):
        text = f"{place} is not a run folder: {missing} is missing"
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
    ("ours", "theirs", "differences"),
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
def test_features_that_differ_are_named(run_folder, ours, theirs, differences):
    text = f"'mine' does not have the same features as the training graph: {differences}; give it the same columns"
    with pytest.raises(GraphError, match=message(text)):
        check_features(run_folder, ours, theirs)


def test_features_in_another_order(run_folder):
    text = (
        "'mine' has the features of the training graph in another order: column 1 is 'f2', in training it was 'f1'; "
        "put the columns in the order of training"
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
