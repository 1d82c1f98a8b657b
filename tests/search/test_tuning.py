import itertools
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from nfcgcn.config.registry import make_config
from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Split
from nfcgcn.search import attempts, tuning
from nfcgcn.search.journal import TuningError
from nfcgcn.search.preset_file import check_preset_path, write_preset
from nfcgcn.search.ranges import with_params
from nfcgcn.search.tuning import seed_splits, tune
from nfcgcn.training import fit, loop

QUICK = {"epochs": 3, "split": "given"}
START = {"hidden_channels": 16, "weight_decay": 1e-4, "feature_scale": "given"}
"""Where the search begins with GCN."""
NODES = np.arange(300)
SPLIT = Split(NODES[:60], NODES[60:160], NODES[160:])


@pytest.fixture(scope="module")
def graph(make_graph):
    return replace(make_graph(sparse=True), given=SPLIT)


def search(graph, model="gcn", settings=QUICK, **options):
    config = make_config(model, graph=graph, settings={**settings, **(START if model == "gcn" else {})})
    return tune(graph, config, **{"trials": 4, "seeds": (0, 1), "held": settings, **options})


def figures(tuned):
    """All of a search but how long it took."""
    return [(t.params, t.accuracies, t.state) for t in tuned.trials], tuned.config


def test_the_search_begins_with_the_defaults_and_never_ends_below(graph):
    tuned = search(graph, trials=12)
    assert len(tuned.trials) == 12
    first = tuned.trials[0]
    assert {name: tuned.default.values[name] for name in first.params} == first.params
    assert tuned.default == make_config("gcn", graph=graph, settings={**QUICK, **START})
    assert tuned.best.accuracy == max(t.accuracy for t in tuned.trials if t.state == "complete") > first.accuracy
    assert tuned.config.values["epochs"] == 3  # held
    assert tuned.seconds == sum(t.seconds for t in tuned.trials) > 0
    assert not tuned.interrupted


def test_a_trial_is_the_mean_of_the_best_validation_accuracies(graph):
    tuned = search(graph, trials=1, seeds=(4, 5))
    wanted = []
    for seed in (4, 5):
        model = tuned.default.build(graph, seed)
        run = fit(model, graph, SPLIT, tuned.default.training, seed=seed)
        wanted.append(run.best["val_accuracy"])
    assert tuned.best.accuracies == wanted
    assert tuned.best.accuracy == sum(wanted) / 2


def test_test_labels_never_matter(graph, tmp_path):
    labels = graph.labels.copy()
    labels[160:] = np.random.default_rng(0).permutation(labels[160:])
    permuted = replace(graph, labels=labels)
    labels = graph.labels.copy()
    labels[160:] = -1
    gone = replace(graph, labels=labels, given=replace(SPLIT, test=NODES[:0]))
    wanted = figures(search(graph, study=tmp_path / "study.jsonl"))
    assert figures(search(permuted)) == wanted
    assert figures(search(gone)) == wanted
    # A study goes on for the same graph with other test labels: it never knew them.
    assert figures(search(permuted, study=tmp_path / "study.jsonl")) == wanted
    labels = graph.labels.copy()
    labels[60:160] = np.random.default_rng(0).permutation(labels[60:160])
    assert figures(search(replace(graph, labels=labels))) != wanted


def test_the_seed_decides_the_search(graph):
    assert figures(search(graph)) == figures(search(graph))
    assert [t.params for t in search(graph, seeds=(7,)).trials[1:]] != [t.params for t in search(graph).trials[1:]]


def test_a_search_that_goes_on_is_the_search_that_never_stopped(graph, tmp_path):
    """Fifteen trials, so that suggestions come from what was found and some trials are given up."""
    study = tmp_path / "study.jsonl"
    wanted = search(graph, trials=15)
    assert {t.state for t in wanted.trials} == {"complete", "pruned"}
    for trials in (1, 7, 7, 12, 15):
        tuned = search(graph, trials=trials, study=study)
        assert len(tuned.trials) == trials
    assert figures(tuned) == figures(wanted)
    assert [p.name for p in tmp_path.iterdir()] == ["study.jsonl"]


LONGER = {**QUICK, "epochs": 40}
"""Runs are compared after epochs 10 and 20, and at their end."""


def accuracy_by(history):
    """The accuracy of the best of these epochs, the one with the lowest loss."""
    return min(history, key=lambda epoch: (epoch["val_loss"], -epoch["val_accuracy"]))["val_accuracy"]


def expected_end(trial, curves, earlier, best):
    """How a trial should end by the rules, from its full training: its accuracies and where it was stopped."""
    first, accuracies = curves[0], []
    for epoch, worst in ((10, 0.25), (20, 0.5)):
        others = [c[0][epoch - 1] for t, c in earlier if epoch == 10 or t.note != "after epoch 10 of 40"]
        if earlier and len(others) >= 5 and first[epoch - 1] < np.quantile(others, worst):
            return [first[epoch - 1]], f"after epoch {epoch} of 40"
    others = [c[0][-1] for t, c in earlier if "epoch" not in t.note]
    for count, curve in enumerate(curves, 1):
        accuracies.append(curve[-1])
        behind = len(others) >= 5 and curve[-1] < np.median(others)
        if count > 1:
            behind = sum(accuracies) < sum(best.accuracies[:count])
        if earlier and behind and count < len(curves):
            return accuracies, f"after run {count} of {len(curves)}"
    return accuracies, ""


def test_a_trial_that_is_clearly_behind_is_stopped(graph):
    seeds = (0, 1)
    tuned = search(graph, settings=LONGER, trials=9, seeds=seeds)
    assert tuned.default.training.monitor == "loss"
    earlier, best = [], tuned.start
    for trial in tuned.trials:
        config = with_params(tuned.default, trial.params)
        runs = [fit(config.build(graph, s), graph, SPLIT, config.training, seed=s) for s in seeds]
        curves = [[accuracy_by(run.history[:count]) for count in range(1, 41)] for run in runs]
        assert (trial.accuracies, trial.note) == expected_end(trial, curves, earlier, best), len(earlier)
        assert trial.state == ("pruned" if trial.note else "complete")
        earlier.append((trial, curves))
        if trial.state == "complete" and trial.accuracy > best.accuracy:
            best = trial
    assert tuned.best == best
    assert {note.split()[1] for note in (t.note for t in tuned.trials) if note} == {"epoch", "run"}


def test_what_is_found_does_not_depend_on_the_number_of_processes(graph):
    wanted = search(graph, settings=LONGER, trials=7, seeds=(0, 1, 2))
    assert any("epoch" in t.note for t in wanted.trials)
    assert figures(search(graph, settings=LONGER, trials=7, seeds=(0, 1, 2), jobs=2)) == figures(wanted)


def test_a_seed_that_fails_ends_a_trial_in_the_same_way_with_any_number_of_processes(graph, monkeypatch):
    check = loop.check_finite

    def diverge(epoch, config, seed):
        check({**epoch, "val_loss": float("nan")} if (seed, epoch["epoch"]) == (2, 15) else epoch, config, seed)

    monkeypatch.setattr(loop, "check_finite", diverge)
    for jobs in (1, 2, 3):
        with pytest.raises(TuningError, match=r"^every trial failed; .*training diverged in epoch 15 with seed 2: "):
            search(graph, settings=LONGER, trials=1, seeds=(0, 1, 2), jobs=jobs)


def test_the_starting_settings_are_never_stopped(graph, tmp_path):
    """Others finish while the first trial, whose settings are bad, has just begun."""
    study, others = tmp_path / "study.jsonl", []
    bad = {**LONGER, **START, "dropout": 0.9, "hidden_channels": 1}
    config = make_config("gcn", graph=graph, settings=bad)

    def search_too(*_):
        if not others:
            others.append(0)
            others[0] = tune(graph, config, trials=9, seeds=(0, 1), held=LONGER, study=study)

    tuned = tune(graph, config, trials=9, seeds=(0, 1), held=LONGER, study=study, on_epoch=search_too)
    assert len(others[0].trials) == 8
    assert others[0].start is None
    assert tuned.start.accuracies[0] < np.median([t.accuracies[0] for t in others[0].trials])
    assert tuned.start.state == "complete"
    assert len(tuned.start.accuracies) == 2


@pytest.mark.parametrize("rule", ["ratio", "per-class", "given"])
def test_seeds_validate_on_other_nodes_unless_the_split_came_with_the_graph(graph, rule):
    config = make_config("gcn", graph=graph, settings={**QUICK, **START, "split": rule, "num_val": 50})
    tuned = tune(graph, config, trials=1, seeds=(3, 4, 5))
    first = config.split.make(graph, 3)
    splits = seed_splits(graph, config, first, (3, 4, 5))
    assert splits[3] is first
    assert (splits[4] is first) == (rule == "given")
    assert tuned.num_val == len(np.unique([split.val for split in splits.values()]))
    assert (tuned.num_val > len(first.val)) == (rule != "given")
    pool = np.sort(np.concatenate([first.train, first.val]))
    for split in splits.values():
        np.testing.assert_array_equal(np.sort(np.concatenate([split.train, split.val])), pool)
    wanted = []
    for seed, split in splits.items():
        wanted.append(fit(config.build(graph, seed), graph, split, config.training, seed=seed).best["val_accuracy"])
    assert tuned.best.accuracies == wanted


OTHER_PROCESS = """
import sys
import time
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
import test_tuning
from random_graphs import random_graph
graph = test_tuning.replace(random_graph(sparse=True), given=test_tuning.SPLIT)
study, trials, others = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
(study.parent / f"ready-{sys.argv[5]}").touch()
while len(list(study.parent.glob("ready-*"))) < others:
    time.sleep(0.001)
tuned = test_tuning.search(graph, settings=test_tuning.LONGER, trials=trials, study=study)
print(len(tuned.trials))
"""


def start_process(study, *, trials, others=1, number=0):
    """Search in a process of its own, which begins when all others are ready."""
    arguments = [str(Path(__file__).parent), str(study), str(trials), str(others), str(number)]
    return subprocess.Popen([sys.executable, "-c", OTHER_PROCESS, *arguments], stdout=subprocess.PIPE, text=True)


def kept_trials(study):
    """The trials of a file as Optuna sees them."""
    storage = JournalStorage(JournalFileBackend(str(study)))
    return optuna.load_study(study_name="nfcgcn tune", storage=storage).trials


def test_killed_within_a_trial_and_started_again(graph, tmp_path):
    study = tmp_path / "study.jsonl"
    process = start_process(study, trials=1000)
    try:
        while not (study.exists() and study.read_text().count('"op_code":4') >= 3):  # the third trial has begun
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    states = [t.state.name for t in kept_trials(study)]
    assert states[-1] == "RUNNING"
    tuned = search(graph, settings=LONGER, trials=len(states) + 1, study=study)
    assert figures(tuned) == figures(search(graph, settings=LONGER, trials=len(states) + 1))
    assert [t.state.name for t in kept_trials(study)] == [*states[:-1], "FAIL", "COMPLETE", "COMPLETE"]
    assert not (tmp_path / "study.jsonl.lock").exists()


@pytest.mark.thorough
def test_two_processes_share_a_study(graph, tmp_path):
    study = tmp_path / "study.jsonl"
    processes = [start_process(study, trials=6, others=2, number=i) for i in range(2)]
    reports = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert max(int(report) for report in reports) == 6  # the one that ends last sees all
    finished = [t for t in kept_trials(study) if "result" in t.user_attrs]
    assert len(finished) == 6
    assert len({t.number for t in finished}) == 6
    assert len({tuple(sorted(t.params.items())) for t in finished}) == 6
    assert not any(t.state.name in ("RUNNING", "WAITING") for t in kept_trials(study))
    workers = {json.loads(line)["worker_id"] for line in study.read_text().splitlines() if '"result":' in line}
    assert len(workers) == 2
    again = search(graph, settings=LONGER, trials=6, study=study)
    assert len(again.trials) == 6
    assert again.start.params == {name: again.default.values[name] for name in again.start.params}
    assert [t.is_start for t in again.trials] == [True] + 5 * [False]


def test_all_trials_are_under_way_elsewhere(graph, tmp_path):
    """A search within an epoch of the same search stands for another process: it opens the file anew."""
    study, messages = tmp_path / "study.jsonl", []

    def search_too(*_):
        with pytest.raises(TuningError) as error:
            search(graph, trials=1, study=study)
        messages.append(str(error.value))

    search(graph, trials=1, seeds=(0, 1), study=study, on_epoch=search_too)
    assert set(messages) == {
        "other processes are running all the trials allowed, and none has finished; wait for them, or allow more trials"
    }


def test_the_best_of_others_while_the_starting_settings_are_under_way(graph, tmp_path):
    study, results = tmp_path / "study.jsonl", []

    def search_too(done, *_):
        if not results:
            results.append(search(graph, trials=3, study=study))

    tuned = search(graph, trials=3, study=study, on_epoch=search_too)
    assert [t.is_start for t in tuned.trials] == [True, False, False]
    assert results[0].trials == tuned.trials[1:]
    assert results[0].start is None
    assert (results[0].elsewhere, tuned.elsewhere) == (1, 0)
    write_preset(tmp_path / "found.toml", results[0], graph="g")
    assert "(with the starting settings: not yet known); " in (tmp_path / "found.toml").read_text()


def test_the_time_is_kept_to(graph, tmp_path, monkeypatch):
    settings, study = {**QUICK, "epochs": 20}, tmp_path / "study.jsonl"
    clock = SimpleNamespace(perf_counter=itertools.count(step=0.01).__next__)  # every look at it takes 0.01 seconds
    for module in (tuning, attempts):
        monkeypatch.setattr(module, "time", clock)
    tuned = search(graph, settings=settings, trials=None, seconds=2, study=study)
    assert 0 <= tuned.seconds - tuned.trials[-1].seconds < 2  # no trial begins when the time is over
    # The time is that of the whole search: there is nothing left but to say what was found.
    again = search(graph, settings=settings, trials=None, seconds=tuned.seconds, study=study)
    assert figures(again) == figures(tuned)


def test_too_little_time_for_anything(graph):
    text = "0.06 seconds were not enough for one trial; allow more, or use fewer `epochs` or seeds"
    with pytest.raises(TuningError, match=f"^{re.escape(text)}$"):
        search(graph, settings={**QUICK, "epochs": 5000}, seconds=0.06)


def interrupt_after(epochs):
    left = iter(range(epochs, 0, -1))
    return lambda *_: next(left) == 1 and signal.raise_signal(signal.SIGINT)


def test_ctrl_c_keeps_the_best_so_far(graph, tmp_path):
    study = tmp_path / "study.jsonl"
    settings = {**QUICK, "epochs": 30}
    one = search(graph, settings=settings, trials=1, study=study)
    tuned = search(graph, settings=settings, trials=10_000, study=study, on_epoch=interrupt_after(50))
    assert tuned.interrupted
    assert tuned.best.accuracy >= one.best.accuracy
    done = len(tuned.trials)
    assert study.read_text().count('"result":') == done
    assert not any(t.state.name == "RUNNING" for t in kept_trials(study))
    assert figures(search(graph, settings=settings, trials=done, study=study))[0] == figures(tuned)[0]


def test_ctrl_c_before_the_first_trial_ended(graph):
    with pytest.raises(KeyboardInterrupt):
        search(graph, settings={**QUICK, "epochs": 1_000_000}, on_epoch=interrupt_after(3))


def test_a_training_that_fails_is_no_end_of_the_search(graph, tmp_path):
    settings = {**QUICK, "learning_rate": 1e30}
    with pytest.raises(
        TuningError, match=r"^every trial failed; the last error: training diverged in epoch 1 with seed 0: "
    ):
        search(graph, settings=settings, study=tmp_path / "study.jsonl", trials=2)
    assert (tmp_path / "study.jsonl").read_text().count('"failed"') == 2
    assert (tmp_path / "study.jsonl").read_text().count('"note":"training diverged in epoch 1 with seed 0: ') == 2
    # Had the first one failed alone, the others would still be tried.
    study = tmp_path / "other.jsonl"
    search(graph, study=study, trials=1)
    lines = study.read_text().splitlines()
    result = '"result":{"state":"failed","accuracies":[],"seconds":0.5,"note":"training diverged"}'
    lines[-2] = re.sub(r'"result":{.*?}', result, lines[-2])
    lines[-1] = re.sub(r'"state":1,"values":\[.*?\]', '"state":3,"values":null', lines[-1])
    study.write_text("\n".join([*lines, ""]))
    tuned = search(graph, study=study, trials=3)
    assert [t.state for t in tuned.trials] == ["failed", "complete", "complete"]
    write_preset(tmp_path / "found.toml", tuned, graph="g")
    assert "(with the starting settings: none, because training failed); " in (tmp_path / "found.toml").read_text()


def test_what_cannot_work_is_said_before_the_search(graph):
    with pytest.raises(ConfigError, match=r"^`kernel_size` must be at most the number of features, 40, got 41; "):
        search(graph, "nfc-gcn", {**QUICK, "kernel_size": 41})
    with pytest.raises(GraphError, match=r"^the split 'given' has no labelled val node to choose the best epoch by"):
        search(replace(graph, given=replace(SPLIT, val=NODES[:0])))
    with pytest.raises(TuningError, match=r"^`seconds` must be above 0, got -1$"):
        search(graph, seconds=-1)
    with pytest.raises(TuningError, match=r"^`trials` must be at least 1, got 0$"):
        search(graph, trials=0)
    with pytest.raises(TuningError, match=r"^a search needs an end; give it `seconds` or `trials`$"):
        search(graph, trials=None)
    with pytest.raises(GraphError, match=r": there is nothing to tell apart$"):
        search(replace(graph, labels=np.zeros_like(graph.labels)))


def test_the_users_optuna_is_left_alone(graph, capsys):
    before = optuna.logging.get_verbosity()
    state = np.random.get_state()[1].tolist()
    search(graph, trials=2)
    assert optuna.logging.get_verbosity() == before
    assert np.random.get_state()[1].tolist() == state
    assert capsys.readouterr() == ("", "")


def test_a_preset_says_where_it_is_from_and_gives_the_settings_again(graph, tmp_path):
    tuned = search(graph, "nfc-gcn", QUICK, trials=3)
    path = tmp_path / "found.toml"
    write_preset(path, tuned, graph="a\nb.csv")
    first, second, *_ = path.read_text().splitlines()
    assert first == (
        r"# Found by `nfcgcn tune` for 'a\nb.csv', by accuracy on validation nodes; test nodes were not used."
    )
    assert second.startswith(
        f"# {100 * tuned.best.accuracy:.2f} % on validation (with the starting settings: "
        f"{100 * tuned.trials[0].accuracy:.2f} %); the best of 3 trials in 0."
    )
    again = make_config("nfc-gcn", preset=str(path))
    assert again == replace(tuned.config, preset=str(path))
    check_preset_path(path)  # one's own may be written over


def test_files_that_are_no_presets_are_kept(tmp_path):
    check_preset_path(tmp_path / "new.toml")
    mine = tmp_path / "pyproject.toml"
    mine.write_text("[project]\n")
    text = f"{mine} exists and was not written by `nfcgcn tune`; choose another file with --out"
    with pytest.raises(TuningError, match=f"^{re.escape(text)}$"):
        check_preset_path(mine)
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(TuningError, match=r"folder.toml exists and was not written by `nfcgcn tune`; "):
        check_preset_path(tmp_path / "folder.toml")
    text = f"a preset's name must end in .toml, got {tmp_path / 'p.json'}; choose another with --out"
    with pytest.raises(TuningError, match=f"^{re.escape(text)}$"):
        check_preset_path(tmp_path / "p.json")


def test_a_missing_optuna_is_said_before_any_work(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert run("tune", "no such graph") == (
        2, "", "error: `tune` needs Optuna, which is not installed; pip install 'nfcgcn[tune]'\n",
    )  # fmt: skip
