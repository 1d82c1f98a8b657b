"""A run that was killed goes on from the place it had reached, and ends as if nothing had happened."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tracemalloc
from dataclasses import asdict

import pytest
import safetensors.torch
import torch

from nfcgcn import fit, make_config, repeat
from nfcgcn.cli.resumption import chosen_before
from nfcgcn.config.registry import MODELS
from nfcgcn.errors import NFCWarning
from nfcgcn.training import unfinished
from nfcgcn.training.unfinished import ResumeError, Unfinished
from random_graphs import random_graph


class Killed(BaseException):
    """Nobody catches it."""


@pytest.fixture(autouse=True)
def _at_every_epoch(monkeypatch):
    monkeypatch.setattr(unfinished, "SECONDS", 0.0)
    monkeypatch.setattr(unfinished, "SHARE", 1e9)


@pytest.fixture(scope="module")
def graph():
    return random_graph(60, sparse=True)


def make(name="nfc-gcn", **settings):
    small = {"bandwidth": 4, "filters": 8, "kernel_size": 10, "stride": 5} if name.startswith("nfc") else {}
    return make_config(name, settings={**small, "split": "ratio", "epochs": 5, **settings})


def train(graph, config, seed=0, **options):
    model = config.build(graph, seed)
    run = fit(model, graph, config.split.make(graph, seed), config.training, seed=seed, **options)
    return run, model


def killed_in(epoch, seed=0):
    def on_epoch(*heard):
        if heard[-1]["epoch"] == epoch and seed in (heard[0], 0):
            raise Killed

    return on_epoch


def resumed(folder, identity=None):
    series = Unfinished(folder, identity or {})
    assert series.resume()
    return series


def assert_same(one, other):
    assert one.history == other.history
    assert one.best == other.best
    assert one.state.keys() == other.state.keys()
    for name, tensor in one.state.items():
        assert torch.equal(tensor, other.state[name]), name


VARIANTS = {
    **{name: (name, {}) for name in MODELS},
    "planetoid-i": ("planetoid-i", {"pretraining": 2, "contexts": 30}),
    "batches": ("nfc-gcn", {"batch_size": 10}),
    "anew each epoch": ("nfc-gcn", {"resample": "epoch", "edge_dropout": 0.3, "own_features": "mlp"}),
    "patience": ("gcn", {"patience": 2, "epochs": 60}),
}


@pytest.mark.parametrize(("name", "settings"), VARIANTS.values(), ids=VARIANTS)
def test_a_run_goes_on_to_the_bit(graph, tmp_path, name, settings):
    config = make(name, **settings)
    whole, whole_model = train(graph, config)
    with pytest.raises(Killed):
        train(graph, config, on_epoch=killed_in(3), keep=Unfinished(tmp_path, {}))
    heard = []
    run, model = train(graph, config, on_epoch=heard.append, keep=resumed(tmp_path))
    assert heard == list(whole.history[2:])  # the place is that after epoch 2
    assert_same(run, whole)
    x, edges = graph.x, graph.edge_index
    assert torch.equal(model(x, edges), whole_model(x, edges))


@pytest.mark.parametrize("jobs", [1, 2])
def test_finished_seeds_are_not_trained_again(graph, tmp_path, jobs):
    config = make("gcn")
    whole = repeat(graph, config, range(3))
    with pytest.raises(Killed):
        repeat(graph, config, range(3), jobs=jobs, on_epoch=killed_in(4, seed=2), keep=Unfinished(tmp_path, {}))
    series = resumed(tmp_path)
    done = series.finished(range(3))
    assert {0} <= done.keys() <= {0, 1}
    heard = set()
    again = repeat(graph, config, range(3), jobs=jobs, on_epoch=lambda seed, _: heard.add(seed), keep=series)
    left = {0, 1, 2} - done.keys()
    assert left - ({2} if jobs > 1 else set()) <= heard <= left  # its process may have been at its last epoch
    for one, other in zip(again, whole, strict=True):
        assert_same(one.run, other.run)
        assert (one.seed, one.test_accuracy) == (other.seed, other.test_accuracy)
        assert (one.predictions == other.predictions).all()
    assert resumed(tmp_path).finished(range(3)).keys() == ({0, 1, 2} if len(done) < 2 else {0, 1})


def test_nothing_is_written_before_there_is_something_to_keep(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(unfinished, "SECONDS", 1000.0)
    train(graph, make("mlp"), keep=Unfinished(tmp_path / "kept", {}))
    assert not list(tmp_path.iterdir())
    assert not Unfinished(tmp_path / "kept", {}).resume()


def test_another_series_is_refused(graph, tmp_path):
    identity = {"graph": "g 1", **asdict(make("mlp").training), "version of torch": "2"}
    train(graph, make("mlp"), keep=Unfinished(tmp_path / "run" / "kept", identity))
    resumed(tmp_path / "run" / "kept", identity)
    both = "`graph` was g 1 and is now h 2, `version of torch` was 2 and is now 3"
    for change, words in (
        ({"epochs": 9}, "`epochs` was 5 and is now 9"),
        ({"graph": "h 2", "version of torch": "3"}, both),
    ):
        expected = (
            f"{tmp_path}/run cannot be resumed: {words}; continue it as it was started, or start anew with --force"
        )
        with pytest.raises(ResumeError, match=f"^{re.escape(expected)}$"):
            Unfinished(tmp_path / "run" / "kept", {**identity, **change}).resume()


@pytest.mark.parametrize("place", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("name", ["seed-0.state", "series.json"])
def test_damage_is_recognised(graph, tmp_path, name, place):
    config = make("mlp")
    train(graph, config, keep=Unfinished(tmp_path, {"a": "a" * 99}))
    path = tmp_path / name
    content = bytearray(path.read_bytes())
    if name == "seed-0.state":
        content[int(place * len(content))] ^= 64
    else:
        del content[int(place * len(content)) :]
    path.write_bytes(content)
    with pytest.raises(ResumeError, match=rf"^{re.escape(str(path))} is damaged .*; start anew with --force$"):
        train(graph, config, keep=resumed(tmp_path, {"a": "a" * 99}))


def rewrite(path, notes=None, **tensors):
    """Change what a file holds, with a checksum that fits; a value of None removes it."""
    _, text, weights = path.read_bytes().split(b"\n", 2)
    values = {k: v for k, v in {**json.loads(text), **(notes or {})}.items() if v is not None}
    state = {**safetensors.torch.load(weights), **tensors}
    content = json.dumps(values).encode() + b"\n" + safetensors.torch.save(state)
    path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


EPOCH = {"epoch": 1, "train_loss": 1.0, "train_accuracy": 0.5, "val_loss": 1.0, "val_accuracy": 0.5}
HOSTILE = {
    "steps that are no number": ({"steps": 10**400}, {}, "steps"),
    "steps below 0": ({"steps": -1}, {}, "steps"),
    "an epoch without a figure": ({"history": [{"epoch": 1}], "best": {"epoch": 1}}, {}, "figure"),
    "an unknown figure": ({"history": [{**EPOCH, "x": 1}], "best": {**EPOCH, "x": 1}}, {}, "figure"),
    "seconds beyond any": ({"seconds": 10**400}, {}, "figure"),
    "whole numbers": ({}, {"now.layers.0.bias": torch.ones(16, dtype=torch.int64)}, "finite"),
    "no numbers": ({}, {"best.layers.0.bias": torch.full((16,), float("nan"))}, "finite"),
    "moments of another shape": ({}, {"moments.0": torch.ones(1)}, "shape"),
    "a generator that is none": ({}, {"generator.cpu": torch.zeros(5, dtype=torch.uint8)}, "RNG"),
}


@pytest.mark.parametrize(("notes", "tensors", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_a_place_that_somebody_else_made_up(graph, tmp_path, notes, tensors, reason):
    config = make("mlp", hidden_channels=16)
    with pytest.raises(Killed):
        train(graph, config, on_epoch=killed_in(3), keep=Unfinished(tmp_path, {}))
    rewrite(tmp_path / "seed-0.state", notes, **tensors)
    with pytest.raises(ResumeError, match=f"is damaged .*{reason}.*; start anew with --force$"):
        train(graph, config, keep=resumed(tmp_path))


@pytest.mark.parametrize(
    ("notes", "tensors", "reason"),
    [
        ({"temperature": 1e-300}, {}, "temperature"),
        ({"temperature": None}, {}, "temperature"),
        ({}, {"best.layers.0.bias": torch.ones(7)}, "size mismatch"),
    ],
    ids=["temperature", "no temperature", "another shape"],
)
def test_a_finished_run_that_somebody_else_made_up(graph, tmp_path, notes, tensors, reason):
    config = make("mlp", hidden_channels=16)
    repeat(graph, config, range(2), keep=Unfinished(tmp_path, {}))
    rewrite(tmp_path / "seed-1.state", notes, **tensors)
    with pytest.raises(ResumeError, match=f"seed-1.state is damaged .*{reason}.*; start anew with --force$"):
        repeat(graph, config, range(2), keep=resumed(tmp_path))


@pytest.mark.parametrize("settings", [3, [1], {"epochs": "x"}, {"unknown": 1}], ids=repr)
def test_chosen_settings_that_are_none(tmp_path, settings):
    series = {"format": 1, "identity": {}, "notes": {"settings": settings}}
    (tmp_path / "series.json").write_text(json.dumps(series))
    with pytest.raises(ResumeError, match=r"series.json is damaged .*; start anew with --force$"):
        chosen_before(resumed(tmp_path), make("mlp"))


def test_only_what_is_ours_is_copied(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "series.json").write_text("{}")
    os.mkfifo(kept / "seed-1.state")
    (kept / "seed-2.state").symlink_to("/dev/zero")
    (kept / "other").symlink_to("/dev/zero")
    assert Unfinished(kept, {}).copy_to(tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["series.json"]


def test_a_full_disk_is_told_once_and_training_goes_on(graph, tmp_path, full_disk):
    full_disk(1000)
    with pytest.warns(NFCWarning, match=r"^no further progress is stored for --resume: cannot write ") as caught:
        run, _ = train(graph, make("mlp"), keep=Unfinished(tmp_path, {}))
    assert len(caught) == 1
    assert len(run.history) == 5


def test_keeping_a_run_copies_its_weights_twice_at_most(tmp_path):
    weights = torch.zeros(2**22)
    tracemalloc.start()
    try:
        Unfinished(tmp_path, {}).write(0, {}, {"now.weight": weights})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2.5 * weights.nbytes  # safetensors takes two copies
