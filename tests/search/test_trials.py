"""The trials of a search and their file, without any training."""

import json
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from nfcgcn.search import trials as study
from nfcgcn.search.journal import MOST_BYTES, NAME, TuningError
from nfcgcn.search.trials import Search, Trial, Trials

RANGES = {"dropout": FloatDistribution(0, 1), "order": CategoricalDistribution(("random", "similarity"))}
START = {"dropout": 0.5, "order": "random"}
SEARCH = Search("gcn", "abc", [0, 1], {**START, "patience": None}, {"dropout": "0 to 1", "order": "two"})
RESULTS = [
    Trial({}, [0.25, 0.5], 1.5, "complete"),
    Trial({}, [0.125], 0.5, "pruned"),
    Trial({}, [], 0.25, "failed", "training diverged"),
]


@pytest.fixture(autouse=True)
def quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def open_trials(path, search=SEARCH):
    return Trials(search, RANGES, path)


def write(path, results=RESULTS):
    """Keep these results, and return them with the settings that were suggested."""
    with open_trials(path) as trials:
        for result in results:
            trial = trials.begin(100)
            for step in range(len(result.accuracies)):
                trial.report(result.accuracies[step], step)
            trials.finish(trial, result)
        return trials.finished()


def optunas_view(path):
    storage = JournalStorage(JournalFileBackend(str(path)))
    return optuna.load_study(study_name=NAME, storage=storage).trials


def refusal(path, search=SEARCH):
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(TuningError) as error:
        open_trials(path, search)
    assert before is None or path.read_bytes() == before  # a file that is refused is left as it was
    message = str(error.value)
    assert "\n" not in message
    return message


def test_trials_come_back_as_they_were(tmp_path):
    path = tmp_path / "deep" / "study.jsonl"
    kept = write(path)
    assert [replace(trial, params={}, is_start=False) for trial in kept] == RESULTS
    assert [trial.is_start for trial in kept] == [True, False, False]
    assert kept[0].params == START
    before = path.read_bytes()
    with open_trials(path) as trials:
        assert trials.finished() == kept
        assert trials.begin(3) is None
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["study.jsonl"]


def test_memory_suggests_what_a_file_does(tmp_path):
    assert write(None) == write(tmp_path / "study.jsonl")


def test_accuracy_is_the_mean():
    assert RESULTS[0].accuracy == 0.375


def test_optuna_reads_the_file_too(tmp_path):
    kept = write(tmp_path / "study.jsonl")
    seen = optunas_view(tmp_path / "study.jsonl")
    assert [t.params for t in seen] == [t.params for t in kept]
    assert [t.state.name for t in seen] == ["COMPLETE", "PRUNED", "FAIL"]
    assert [t.value for t in seen] == [0.375, 0.125, None]


def test_a_trial_whose_process_is_gone_does_not_count_and_is_tried_again(tmp_path):
    path = tmp_path / "study.jsonl"
    for _ in range(2):
        with open_trials(path) as gone:  # closed within the trial, as the system does for a killed process
            assert gone.begin(1).params == START
    kept = write(path, RESULTS[:1])
    assert kept[0].params == START
    with open_trials(path) as gone:
        second = gone.begin(2).params
    with open_trials(path) as trials:
        again = trials.begin(2)
        assert again.params == second
        trials.finish(again, RESULTS[0])
        assert trials.begin(2) is None
        assert len(trials.finished()) == 2
    assert [t.state.name for t in optunas_view(path)] == ["FAIL", "FAIL", "COMPLETE", "FAIL", "COMPLETE"]


def test_two_at_once_share_a_study(tmp_path):
    path = tmp_path / "study.jsonl"
    with open_trials(path) as ours, open_trials(path) as theirs:
        first, second = theirs.begin(3), ours.begin(3)
        assert first.params == START
        assert second.params != START
        assert (first.number, second.number) == (0, 1)
        third = ours.begin(3)
        assert third.params not in (START, second.params)
        assert theirs.begin(3) is None  # all three are under way
        assert ours.finished() == []
        ours.give_up(third)
        fourth = theirs.begin(3)
        assert fourth.params == third.params
        for trials, trial in ((ours, second), (theirs, first), (theirs, fourth)):
            trials.finish(trial, RESULTS[0])
        assert ours.begin(3) is None
        assert [t.params for t in ours.finished()] == [START, second.params, third.params]
        assert ours.finished() == theirs.finished()


def test_many_that_begin_at_the_same_moment(tmp_path):
    """Threads open the file once each, as processes do; trials without training are begun all the time."""
    path = tmp_path / "study.jsonl"
    together = threading.Barrier(4)

    def work(_):
        with open_trials(path) as trials:
            together.wait()
            while (trial := trials.begin(20)) is not None:
                trials.finish(trial, RESULTS[0])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    with open_trials(path) as trials:
        finished = trials.finished()
    assert len(finished) == 20
    assert [t.is_start for t in finished] == [True] + 19 * [False]
    assert len({(t.params["dropout"], t.params["order"]) for t in finished}) == 20


def test_the_one_that_is_left_takes_over_from_a_killed_one(tmp_path):
    path = tmp_path / "study.jsonl"
    with open_trials(path) as ours:
        with open_trials(path) as killed:
            assert killed.begin(3).params == START
            lost = killed.begin(3).params
            ours.finish(ours.begin(3), RESULTS[0])
            assert ours.begin(3) is None
            assert not ours.finished()[0].is_start
        for params in (START, lost):
            trial = ours.begin(3)
            assert trial.params == params
            ours.finish(trial, RESULTS[0])
        assert [t.is_start for t in ours.finished()] == [True, False, False]


def test_a_trial_that_finished_is_not_given_up(tmp_path):
    with open_trials(tmp_path / "study.jsonl") as trials:
        trial = trials.begin(1)
        trials.finish(trial, RESULTS[0])
        trials.give_up(trial)
        assert [t.state for t in trials.finished()] == ["complete"]


def test_a_lock_left_by_a_killed_process_holds_nobody_up(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "GRACE_SECONDS", 1e9)  # nobody would live to see the end of it
    path = tmp_path / "study.jsonl"
    kept = write(path)
    assert JournalFileOpenLock(str(path)).acquire()
    assert JournalFileOpenLock(f"{path}.begin").acquire()
    with open_trials(path) as trials:
        trials.finish(trials.begin(4), RESULTS[0])
        assert trials.finished()[:3] == kept
    assert [p.name for p in tmp_path.iterdir()] == ["study.jsonl"]


def test_a_lock_left_while_others_run_holds_them_up_for_a_while(tmp_path, monkeypatch):
    assert study.GRACE_SECONDS <= 30
    monkeypatch.setattr(study, "GRACE_SECONDS", 3)
    path = tmp_path / "study.jsonl"
    with open_trials(path) as trials, open_trials(path):
        assert JournalFileOpenLock(str(path)).acquire()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        start = time.monotonic()
        trials.finish(trials.begin(1), RESULTS[0])
        assert time.monotonic() - start >= 3
    assert [p.name for p in tmp_path.iterdir()] == ["study.jsonl"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "gat"),
        ("graph", "abd"),
        ("seeds", [0, 1, 2]),
        ("settings", {**SEARCH.settings, "patience": 3}),
        ("searched", {**SEARCH.searched, "dropout": "0 to 2"}),
    ],
)
def test_another_search_is_refused(name, value, tmp_path):
    path = tmp_path / "study.jsonl"
    write(path)
    other = replace(SEARCH, **{name: value})
    text = f"{path} holds a study with another `{name}`; choose another file with --study, or delete it"
    assert refusal(path, other) == text
    with open_trials(path):  # also where the file is in use
        assert refusal(path, other) == text


def with_result(**changes):
    """Return what changes the result of the first trial in a journal."""

    def change(records):
        kept = next(r["user_attr"] for r in records if "result" in r.get("user_attr", ()))
        kept["result"].update(changes)

    return change


def with_record(**wanted):
    """Return what changes the first record that has all of these keys."""

    def change(records):
        next(r for r in records if wanted.keys() <= r.keys()).update(wanted)

    return change


NO_RECORD = "line 1 is not an Optuna record"
OTHER = "it holds another study, or none"
NO_NUMBER = "a trial has an accuracy or a time that is not a number of at least 0"
DAMAGED = {
    "no json": ("{\n", None),
    "one line without an end": ("{}", OTHER),
    "a list": ("[]\n", NO_RECORD),
    "no record": ('{"format": 1}\n', NO_RECORD),
    "no study": ('{"op_code": 2}\n', OTHER),
    "blank lines": ("\n\n", None),
    "deep": ("[" * 100_000 + "\n", None),
    "not text": ("\udcff\n", None),
    "another program's": (with_record(study_name="mine"), OTHER),
    "unknown operation": (with_record(op_code=99), None),
    "truth as operation": (with_record(op_code=True), NO_RECORD),
    "no direction": (with_record(directions=[7]), None),
    "no range": (with_record(distribution="{}"), None),
    "another range": (
        with_record(distribution='{"name": "FloatDistribution", "attributes": {"low": 0.0, "high": 9.0}}'),
        "a trial has other settings or ranges than this search",
    ),
    "outside its range": (with_record(param_name="dropout", param_value_internal=1.5), None),
    "no such choice": (with_record(param_name="order", param_value_internal=7), None),
    "other settings": (with_record(param_name="x"), "a trial has other settings or ranges than this search"),
    "state": (with_result(state="won"), "won"),
    "other state": (with_result(state="failed"), "a trial has an unknown state"),
    "note": (with_result(note=3), "a trial has an unknown state"),
    "text": (with_result(accuracies=["0.5", 0.5]), NO_NUMBER),
    "nan": (with_result(seconds=float("nan")), NO_NUMBER),
    "negative": (with_result(seconds=-1.0), NO_NUMBER),
    "too few": (with_result(accuracies=[0.5]), "a trial has 1 accuracies for 2 seeds"),
    "too many": (with_result(accuracies=[0.5] * 3), "a trial has 3 accuracies for 2 seeds"),
    "unknown field": (with_result(pickle="x"), None),
    "no result": (lambda records: records.remove(next(r for r in records if "result" in r.get("user_attr", ()))), None),
    "no search": (with_record(user_attr={"model": "gcn"}, study_id=0), "search"),
}


def change_journal(path, change):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_study_is_refused(case, tmp_path):
    content, reason = DAMAGED[case]
    path = tmp_path / "study.jsonl"
    if isinstance(content, str):
        path.write_text(content, errors="surrogateescape")
    else:
        write(path)
        change_journal(path, content)
    start, end = f"{path} is damaged or not a study of `nfcgcn tune`: ", "; choose another file with --study"
    message = refusal(path)
    assert message.startswith(start)
    assert message.endswith(end)
    assert reason is None or message.removeprefix(start).removesuffix(end).strip("'") == reason


def test_a_file_damaged_during_the_search(tmp_path):
    path = tmp_path / "study.jsonl"
    with open_trials(path) as trials:
        trial = trials.begin(1)
        with path.open("a") as file:
            file.write("junk\n")
        with pytest.raises(TuningError, match=r" is damaged or not a study of `nfcgcn tune`: "):
            trials.finish(trial, RESULTS[0])


def test_another_study_of_optuna_is_left_alone(tmp_path):
    path = tmp_path / "mine.jsonl"
    theirs = optuna.create_study(storage=JournalStorage(JournalFileBackend(str(path))), study_name="mine")
    theirs.ask(RANGES)
    assert refusal(path) == (
        f"{path} is damaged or not a study of `nfcgcn tune`: {OTHER}; choose another file with --study"
    )


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "study.jsonl"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(TuningError) as error:
        open_trials(path)
    assert str(error.value) == f"{path} is too large for a study; choose another file with --study"


def test_what_is_no_ordinary_file(tmp_path):
    assert refusal(tmp_path) == f"cannot use {tmp_path}: Is a directory; choose another file with --study"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refusal(pipe) == f"{pipe} is not a regular file; choose another file with --study"
    below = tmp_path / "file" / "study.jsonl"
    below.parent.write_text("")
    assert re.match(rf"cannot use {below}: .*; choose another file with --study$", refusal(below))


def test_an_empty_file_is_a_study_killed_at_its_beginning(tmp_path):
    path = tmp_path / "study.jsonl"
    path.touch()
    assert write(path) == write(tmp_path / "other.jsonl")


def test_a_line_cut_off_by_a_kill_anywhere(tmp_path):
    """Whatever part of the file was written, the search goes on with the trials that are whole, to the same end."""
    whole = tmp_path / "whole.jsonl"
    kept = write(whole)
    content = whole.read_bytes()
    first = content.index(b"\n") + 1
    path = tmp_path / "study.jsonl"
    for size in range(first, len(content), 97):
        path.write_bytes(content[:size])
        with open_trials(path) as trials:
            begun = trials.finished()
            assert begun == kept[: len(begun)]
            for result in RESULTS[len(begun) :]:
                trials.finish(trials.begin(3), result)
            assert [t.params for t in trials.finished()] == [t.params for t in kept], size


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    path = Path(tmp_path_factory.mktemp("journal")) / "study.jsonl"
    write(path)
    return [json.loads(line) for line in path.read_text().splitlines()]


@given(data=st.data())
def test_any_journal_is_read_or_refused(data, journal, tmp_path_factory):
    records = [dict(record) for record in journal]
    record = data.draw(st.sampled_from(records))
    record[data.draw(st.sampled_from([*record, "values", "state"]))] = data.draw(JSON)
    path = Path(tmp_path_factory.getbasetemp()) / "any.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    with suppress(TuningError), open_trials(path) as trials:
        assert all(isinstance(trial, Trial) for trial in trials.finished())
