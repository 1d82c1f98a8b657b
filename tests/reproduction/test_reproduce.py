"""Series of runs: only missing runs are done, by several processes, and a kill loses no finished run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from nfcgcn import load
from nfcgcn.cli import console
from nfcgcn.errors import ConfigError
from nfcgcn.reproduction import (
    EXPERIMENTS,
    Outcome,
    estimate,
    load_experiment,
    plan,
    read_ledger,
    remaining,
)
from nfcgcn.reproduction import (
    run as run_tasks,
)
from nfcgcn.reproduction.experiment import Setup, entries, read_experiment
from nfcgcn.reproduction.ledger import FILE
from nfcgcn.reproduction.measurement import degrees, describe_machine, measure, reach
from nfcgcn.reproduction.schedule import unfinished
from nfcgcn.training import Run
from nfcgcn.training.processes import delayed

CPU = torch.device("cpu")
FAULTS = """
import resource
import torch
from nfcgcn.kernels.threads import settle_in

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

plain = faults()
settle_in()
faults()
print(plain, faults())
"""
TEXT = """
title = "Two models"
about = "On a bundled dataset."
datasets = ["digits"]
settings = {epochs = 3, num_val = 100}

[axis]
setting = "hidden_channels"
label = "units"
values = [4, 8]

[[rows]]
label = "NFC-GCN"
paper = {digits = [90.5]}

[[rows]]
label = "GCN"
model = "gcn"
per_dataset = {digits = {dropout = 0.25}}
"""
SERIES = f"""
import sys
from pathlib import Path
import torch
from nfcgcn.reproduction import Progress, plan, run
from nfcgcn.reproduction.experiment import read_experiment

class StopAfterThree(Progress):
    runs = 0

    def finished(self, record, seconds):
        self.runs += 1
        if self.runs == 3:
            print("three runs are finished", flush=True)
            sys.stdin.read()  # until the test kills this process

if __name__ == "__main__":
    tasks = plan([read_experiment("two", {TEXT!r})], 2, torch.device("cpu"))
    progress = StopAfterThree() if sys.argv[3:] else None
    print(run(tasks, Path(sys.argv[1]), device=torch.device("cpu"), jobs=int(sys.argv[2]), progress=progress))
"""
INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
runpy.run_module("nfcgcn", run_name="__main__", alter_sys=True)
"""
"""`python -m nfcgcn`, but Ctrl-C interrupts it even if whoever started the tests ignores SIGINT."""
HANGS = 600
"""Seconds after which a test that waits for other processes gives up; no machine needs that long."""


def test_an_experiment_is_expanded_row_by_row():
    experiment = read_experiment("two", TEXT)
    expanded = [
        (e.row, e.x, e.paper, e.setup.values["hidden_channels"], e.setup.values["dropout"]) for e in entries(experiment)
    ]
    assert expanded == [
        ("NFC-GCN", 4, 90.5, 4, 0.5),
        ("NFC-GCN", 8, None, 8, 0.5),
        ("GCN", 4, None, 4, 0.25),
        ("GCN", 8, None, 8, 0.25),
    ]  # fmt: skip
    assert all(e.setup.values["epochs"] == 3 for e in entries(experiment))
    assert entries(experiment)[0].setup.config().values == entries(experiment)[0].setup.values


def test_setups_differ_if_any_setting_does_and_only_then():
    one = Setup("train", "cora", "gcn", {"a": 1, "b": 2})
    assert one.id == Setup("train", "cora", "gcn", {"b": 2, "a": 1}).id
    others = [
        Setup("cost", "cora", "gcn", {"a": 1, "b": 2}),
        Setup("train", "pubmed", "gcn", {"a": 1, "b": 2}),
        Setup("train", "cora", "gat", {"a": 1, "b": 2}),
        Setup("train", "cora", "gcn", {"a": 1, "b": 2.5}),
    ]
    assert len({one.id, *(other.id for other in others)}) == 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("epochs = 3", "epoch = 3"), "unknown setting 'epoch'; did you mean 'epochs'?"),
        (('"digits"', '"digit"'), "unknown dataset 'digit'; did you mean 'digits'?"),
        (('model = "gcn"', 'model = "gnc"'), "unknown model 'gnc'; did you mean 'gnn' or 'gcn'?"),
        (('label = "GCN"', 'label = "NFC-GCN"'), "two rows have the same label"),
        (('title = "Two models"', ""), "missing 1 required positional argument: 'title'"),
        (('title = "Two models"', 'kind = "tain"\ntitle = ""'), "unknown kind 'tain'; did you mean 'train'?"),
        (("[[rows]]", "[[row]]"), "'rows' is missing"),
        (("values = [4, 8]", "values = [4"), "Unclosed array"),
    ],
)
def test_an_invalid_experiment_is_refused(change, reason):
    with pytest.raises(ConfigError, match="experiment 'two': ") as caught:
        read_experiment("two", TEXT.replace(*change))
    assert reason in str(caught.value)


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(ConfigError, match="unknown experiment 'acuracy'; did you mean 'accuracy'"):
        load_experiment("acuracy")


def test_the_epoch_that_reaches_the_end():
    def run_with(*accuracies):
        history = tuple({"epoch": i, "val_accuracy": a} for i, a in enumerate(accuracies, start=1))
        return Run(history, history[-1], {}, 1.0)

    assert reach(run_with(0.5, 0.791, 0.793, 0.7, 0.8)) == 3
    assert reach(run_with(0.9, 0.8)) == 1
    assert reach(run_with(*[0.5] * 199, 1.0, *[0.1] * 200)) == 200  # what comes after epoch 200 does not count


def test_degrees_with_and_without_the_node(four_nodes):
    assert degrees(four_nodes) == {
        "without_self": {"highest": 3, "lowest": 1, "mean": 2, "median": 2},
        "with_self": {"highest": 4, "lowest": 2, "mean": 3, "median": 3},
        "isolated": 0,
    }


def test_the_plan_shares_setups_and_goes_seed_by_seed():
    experiment = read_experiment("two", TEXT)
    tasks = plan([experiment, experiment], 2, CPU)
    assert [task.seeds for task in tasks] == [(0,)] * 4 + [(1,)] * 4
    assert len({task.setup.id for task in tasks}) == 4
    on_gpu = plan([experiment], 2, torch.device("cuda"))
    assert sorted((task.setup.model, task.seeds) for task in on_gpu) == [
        *[("gcn", (0,)), ("gcn", (0,)), ("gcn", (1,)), ("gcn", (1,))],
        *[("nfc-gcn", (0, 1))] * 2,
    ]


def start(folder, *options, jobs):
    command = [sys.executable, "-W", "ignore", folder.parent / "series.py", folder, str(jobs), *options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "series.py").write_text(SERIES)
    return tmp_path / "results"


def keys(folder):
    return Counter((r["setup"], r["seed"]) for r in read_ledger(folder))


@pytest.mark.thorough  # `search/test_compare.py` kills a series that uses the same ledger and schedule
def test_a_killed_series_continues_where_it_was(folder):
    file = folder / FILE
    series = start(folder, "stop after three", jobs=1)
    assert series.stdout.readline() == "three runs are finished\n"
    series.kill()
    series.communicate()
    kept = file.read_bytes()
    assert len(kept.splitlines()) == 3
    experiment = read_experiment("two", TEXT)
    tasks = plan([experiment], 2, CPU)
    assert run_tasks(tasks, folder, device=CPU, jobs=1) == Outcome(5, ())
    assert file.read_bytes().startswith(kept)
    assert len(keys(folder)) == 8
    assert set(keys(folder).values()) == {1}

    assert remaining(tasks, folder, CPU) == []
    assert run_tasks(tasks, folder, device=CPU, jobs=2) == Outcome(0, ())
    assert unfinished(tasks, read_ledger(folder), {**describe_machine(CPU), "torch": "2.11.0"}) == tasks

    # The results are those of a single run in another process and with all threads.
    graph = load("digits")
    stored = {(r["setup"], r["seed"]): r for r in read_ledger(folder)}
    for entry in entries(experiment):
        (alone,) = measure(entry.setup, graph, [1], device=CPU)
        record = stored[entry.setup.id, 1]
        assert record["where"] == describe_machine(CPU)
        assert record["hardware"].endswith(", 1 thread")
        for name in ("test_accuracy", "val_accuracy", "best_epoch", "parameters", "config", "reach99"):
            assert record[name] == alone[name], name
        assert "history" not in record


@pytest.mark.thorough  # what it rests on, claims of several processes, is tested with the ledger
def test_two_series_in_one_folder_share_the_work(folder):
    both = [start(folder, jobs=1), start(folder, jobs=1)]
    assert sum(eval(series.communicate()[0], {"Outcome": Outcome}).done for series in both) == 8
    assert len(keys(folder)) == 8
    assert set(keys(folder).values()) == {1}


def test_a_setup_that_fails_is_reported_and_the_others_are_run(tmp_path):
    text = TEXT.replace("values = [4, 8]", "values = [8]") + '\n[[rows]]\nlabel = "diverges"\nmodel = "gcn"\n'
    text += "settings = {learning_rate = 1e30}\n"
    tasks = plan([read_experiment("two", text)], 1, CPU)
    outcome = run_tasks(tasks, tmp_path, device=CPU, jobs=1)
    assert outcome.done == 2
    (line,) = outcome.failed
    assert line.startswith("gcn on digits: training diverged in epoch")
    assert len(read_ledger(tmp_path)) == 2


def test_costs_are_measured_last_and_alone(tmp_path):
    text = TEXT.replace('about = "On a bundled dataset."', 'about = ""\nkind = "cost"\nshow = "cost"')
    tasks = plan([read_experiment("two", TEXT), read_experiment("cost", text)], 2, CPU)
    assert [task.alone for task in tasks] == [False] * 8 + [True] * 4
    alone = [task for task in tasks if task.alone and task.setup.model == "gcn"][:1]
    assert alone[0].seeds == (0,)
    assert run_tasks(alone, tmp_path, device=CPU, jobs=2).done == 1
    (record,) = read_ledger(tmp_path)
    assert record["seconds_per_epoch"] > 0
    assert 0 <= record["peak_mib"] < 1000
    assert record["parameters"] == 64 * 4 + 4 * 10


@cache
def smallest(name):
    """The shortest run of an experiment, as declared but for the number of epochs."""
    task = min(plan([load_experiment(name)], 1, CPU), key=lambda task: estimate(task, CPU))
    if task.setup.kind != "train":
        return task
    values = {**task.setup.values, "epochs": min(10, task.setup.values["epochs"])}
    return replace(task, setup=replace(task.setup, values=values))


@pytest.fixture(scope="module")
def smallest_runs(tmp_path_factory):
    """One run of each experiment."""
    folder = tmp_path_factory.mktemp("smallest")
    tasks = list({task.setup.id: task for task in map(smallest, EXPERIMENTS)}.values())
    assert run_tasks(tasks, folder, device=CPU, jobs=1) == Outcome(len(tasks), ())
    return {record["setup"]: record for record in read_ledger(folder)}


@pytest.mark.data
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_smallest_run_of_every_experiment(name, smallest_runs):
    task = smallest(name)
    record = smallest_runs[task.setup.id]
    assert record["kind"] == load_experiment(name).kind
    if record["kind"] == "train":
        assert record["test_accuracy"] > 0.4  # a class by chance: at most a third
        assert ("history" in record) == task.history
    if name == "curves":
        assert len(record["history"]["val_loss"]) == min(200, record["epochs_run"])
    if name == "degrees":
        assert record["degrees"]["without_self"]["highest"] in (168, 99, 171)


@pytest.mark.data
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_ctrl_c_ends_all_processes_and_keeps_finished_runs(tmp_path):
    options = ["reproduce", "no-gcn", "--device", "cpu", "--jobs", "2", "--out", tmp_path]
    command = [sys.executable, "-W", "ignore", "-c", INTERRUPTIBLE, *options]
    series = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        while len(processes := started_by(series.pid)) < 2:
            assert series.poll() is None, series.stderr.read()
            time.sleep(0.01)
        assert all(blocks(process, signal.SIGINT) for process in processes)
        os.killpg(series.pid, signal.SIGINT)
        message = series.communicate(timeout=HANGS)[1]
    finally:
        series.kill()
    assert message == (
        f"interrupted; finished runs are stored in {tmp_path}, and the same command continues from there\n"
    )
    assert series.returncode == 130
    deadline = time.monotonic() + HANGS
    while exists(series.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert {record["kind"] for record in read_ledger(tmp_path)} <= {"train"}  # all lines are complete


def test_ctrl_c_waits_until_a_process_is_started():
    """Also if another thread than the main one receives the signal."""
    delivered, finished = threading.Event(), False

    def interrupt():
        signal.raise_signal(signal.SIGINT)
        delivered.set()

    def start_and_wait():
        nonlocal finished
        with delayed(signal.SIGINT):
            # Threads inherit the mask: unblock Ctrl-C while this one starts, as it was when others started.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            thread = threading.Thread(target=interrupt)
            thread.start()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            delivered.wait()
            thread.join()
            finished = True

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start_and_wait()
    finally:
        signal.signal(signal.SIGINT, before)
    assert finished


def started_by(process):
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def blocks(process, number):
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return (int(status["SigBlk"], 16) | int(status["SigIgn"], 16)) >> (number - 1) & 1


def exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.data
def test_the_command_lists_estimates_and_runs(run, monkeypatch):
    monkeypatch.setattr(console, "SECONDS_PER_LINE", 0.0)
    code, out, err = run("reproduce", "--list")
    assert code == 0, err
    assert all(name in out for name in EXPERIMENTS)
    code, out, err = run("reproduce", "degrees", "--dry-run", "--device", "cpu")
    assert code == 0, err
    assert "3 runs, roughly 0 minutes on cpu" in out
    assert not Path("runs").exists()
    code, out, err = run("reproduce", "degrees", "--device", "cpu", "--jobs", "1")
    assert code == 0, err
    assert len(read_ledger(Path("runs/reproduction"))) == 3
    assert re.search(r"^\d:\d\d 0 of 3 runs; under way: degrees on cora$", err, re.M)
    assert re.search(r"^\d:\d\d 3 of 3 runs; degrees on \w+, seed 0$", err, re.M)
    code, out, err = run("reproduce", "degrees", "--dry-run", "--device", "cpu")
    assert "0 runs" in out
    code, out, err = run("reproduce", "degree")
    assert (code, err) == (2, "error: unknown experiment 'degree'; did you mean 'degrees'?\n")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library may be another")
def test_memory_that_is_kept_is_not_cleared_again():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    plain, kept = map(int, done.stdout.split())
    assert kept < plain / 10
