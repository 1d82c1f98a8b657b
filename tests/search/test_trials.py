import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfcgcn.search.trials import MOST_BYTES, Search, Trial, TuningError, read_study, write_study

SEARCH = Search("gcn", "abc", [0, 1], {"dropout": 0.5, "patience": None}, {"dropout": "0 to 1"})
TRIALS = [
    Trial({"dropout": 0.1}, [0.25, 0.5], 1.5, "complete"),
    Trial({"dropout": 0.3}, [0.125], 0.5, "pruned"),
    Trial({"dropout": 1 / 3}, [], 0.25, "failed", "training diverged"),
]


def test_a_study_comes_back_as_it_was(tmp_path):
    path = tmp_path / "deep" / "study.json"
    assert read_study(path, SEARCH) == []
    write_study(path, SEARCH, TRIALS)
    assert read_study(path, SEARCH) == TRIALS
    assert [p.name for p in path.parent.iterdir()] == ["study.json"]


def test_accuracy_is_the_mean():
    assert TRIALS[0].accuracy == 0.375


@pytest.mark.parametrize(
    ("name", "value"),
    [("model", "gat"), ("graph", "abd"), ("seeds", [0, 1, 2]), ("settings", {}), ("searched", {"dropout": "0 to 2"})],
)
def test_another_search_is_refused(name, value, tmp_path):
    path = tmp_path / "study.json"
    write_study(path, SEARCH, TRIALS)
    text = f"{path} is a study with another `{name}`; choose another file with --study, or delete it"
    with pytest.raises(TuningError, match=f"^{re.escape(text)}$"):
        read_study(path, replace(SEARCH, **{name: value}))


def written(**changes):
    return {"format": 1, "search": asdict(SEARCH), "trials": [asdict(t) for t in TRIALS], **changes}


def trial(**changes):
    return written(trials=[{**asdict(TRIALS[0]), **changes}])


DAMAGED = {
    "no json": ("{", None),
    "no study": ("[]", None),
    "nothing": ("", None),
    "deep": ("[" * 100_000, None),
    "no trials": ('{"format": 1}', "'search'"),
    "later format": (written(format=2), "it has format 2, this version of nfcgcn writes 1"),
    "other settings": (trial(params={"dropout": 0.5, "x": 1}), "a trial has other settings than those searched"),
    "no settings": (trial(params=3), "a trial has other settings than those searched"),
    "state": (trial(state="won"), "a trial has an unknown state"),
    "note": (trial(note=3), "a trial has an unknown state"),
    "text": (trial(accuracies=["0.5", 0.5]), "a trial has a figure that is none"),
    "nan": (trial(seconds=float("nan")), "a trial has a figure that is none"),
    "negative": (trial(seconds=-1.0), "a trial has a figure that is none"),
    "too few": (trial(accuracies=[0.5]), "a trial has 1 figures for 2 seeds"),
    "none pruned": (trial(accuracies=[], state="pruned"), "a trial has 0 figures for 2 seeds"),
    "too many": (trial(accuracies=[0.5] * 3), "a trial has 3 figures for 2 seeds"),
    "unknown field": (trial(pickle="x"), None),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_study_is_refused(case, tmp_path):
    content, reason = DAMAGED[case]
    path = tmp_path / "study.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    start = f"{path} is damaged or no study of `nfcgcn tune`: "
    end = "; choose another file with --study"
    with pytest.raises(TuningError) as error:
        read_study(path, SEARCH)
    said = str(error.value)
    assert said.startswith(start)
    assert said.endswith(end)
    assert "\n" not in said
    if reason:
        assert said == start + reason + end


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "study.json"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    text = f"{path} is too large for a study; choose another file with --study"
    with pytest.raises(TuningError, match=f"^{re.escape(text)}$"):
        read_study(path, SEARCH)


def test_a_folder_is_no_study(tmp_path):
    text = f"cannot read {tmp_path}: Is a directory; choose another file with --study"
    with pytest.raises(TuningError, match=f"^{re.escape(text)}$"):
        read_study(tmp_path, SEARCH)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(where=st.sampled_from(["format", "search", "trials", "params", "accuracies", "seconds", "state"]), what=JSON)
def test_any_study_is_read_or_refused(where, what, tmp_path_factory):
    path = Path(tmp_path_factory.getbasetemp()) / "any.json"
    path.write_text(json.dumps(written(**{where: what}) if where in written() else trial(**{where: what})))
    try:
        trials = read_study(path, SEARCH)
    except TuningError:
        return
    assert all(isinstance(t, Trial) for t in trials)
