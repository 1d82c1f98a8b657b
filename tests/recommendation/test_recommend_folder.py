"""A recommender on the disk comes back as it was; damage is recognised."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from planted_tastes import planted_log

from nfcgcn import files
from nfcgcn.inference.run_folder import CheckpointError
from nfcgcn.recommendation.recommender import fit_recommender
from nfcgcn.recommendation.run_folder import is_recommender, load_reading, load_recommender, save_recommender

QUICK = {"channels": 4, "epochs": 2, "refit": "no", "check_every": 1}


@pytest.fixture
def folder(tmp_path):
    fitted = fit_recommender(planted_log(users=12, items=9), settings=QUICK)
    with files.new_folder(tmp_path / "run") as draft:
        save_recommender(draft, fitted, {"task": "recommend"}, {"user": "user", "at_least": 4.0})
    return tmp_path / "run", fitted


def test_it_comes_back_as_it_was(folder):
    path, fitted = folder
    again = load_recommender(path)
    assert is_recommender(path)
    assert again.settings == fitted.settings
    assert again.history == fitted.history
    assert again.log.users.names == fitted.log.users.names
    np.testing.assert_array_equal(again.log.times, fitted.log.times)
    for ours, stored in zip(fitted.vectors, again.vectors, strict=True):
        assert torch.equal(ours, stored)
    assert load_reading(path) == {"user": "user", "item": "item", "at_least": 4.0}


@pytest.mark.parametrize("name", ["weights.safetensors", "log.safetensors", "names.json", "metrics.jsonl"])
def test_a_changed_file_is_recognised(folder, name):
    path, _ = folder
    content = bytearray((path / name).read_bytes())
    content[-2] ^= 1
    (path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} is not the file that was written; its sha256 differs|damaged"):
        load_recommender(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "links"}, "holds no recommender; give a folder that `nfcgcn recommend train` wrote"),
        ({"format": 99}, "has format 99; this version reads format 1: train again"),
        ({"num_users": 99}, "holds fewer users or items than the 99 and 9 of training"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0"),
        ({"model": "lightgcn"}, "damaged"),
        ({"settings": {"channels": 10**9}}, "damaged"),
        ({"reading": 5}, "`reading` must be of type dict"),
    ],
)
def test_a_changed_config_is_refused_in_one_line(folder, change, message):
    path, _ = folder
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(CheckpointError, match=message) as caught:
        load_recommender(path)
    assert "\n" not in str(caught.value)


def test_an_encoding_of_other_features_is_refused(folder):
    path, _ = folder
    names = json.loads((path / "names.json").read_text())
    names["items"]["features"].append("kind = another")
    (path / "names.json").write_text(json.dumps(names))
    config = json.loads((path / "config.json").read_text())
    config["sha256"]["names.json"] = hashlib.sha256((path / "names.json").read_bytes()).hexdigest()
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="is for other features than those of the items"):
        load_recommender(path)
