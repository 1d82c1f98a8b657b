"""Seeds in processes of their own: the same results as one after the other, also when something goes wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nfcgcn import load, make_config, repeat
from nfcgcn.baselines import DeepWalk
from nfcgcn.errors import NFCError
from nfcgcn.evaluation import UnfinishedError
from nfcgcn.training import DivergedError, processes
from nfcgcn.training.values import DiedError


@pytest.fixture(autouse=True)
def _forks(request):
    if not request.node.get_closest_marker("gpu") and not processes.can_fork():
        pytest.skip("no forks: not Linux, or there is a GPU")


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def config(**settings):
    return make_config("nfc-gcn", dataset="digits", settings={"epochs": 6} | settings)


@pytest.mark.parametrize("settings", [{}, {"patience": 2, "monitor": "loss"}, {"resample": "epoch"}], ids=str)
def test_as_one_after_the_other(digits, settings):
    alone = repeat(digits, config(**settings), range(5))
    told = []
    together = repeat(digits, config(**settings), range(5), jobs=2, on_epoch=lambda seed, e: told.append((seed, e)))
    for one, other in zip(alone, together, strict=True):
        assert one.seed == other.seed
        assert one.run.history == other.run.history
        assert one.run.best == other.run.best
        assert one.test_accuracy == other.test_accuracy
        assert (one.predictions == other.predictions).all()
        for name, tensor in one.model.state_dict().items():
            assert torch.equal(tensor, other.model.state_dict()[name]), name
            assert torch.equal(tensor, other.run.state[name]), name
        assert not other.model.training
        assert [e for seed, e in told if seed == one.seed] == list(one.run.history)


def test_vectors_are_made_once_per_seed(digits, monkeypatch, tmp_path):
    def counted(*arguments):
        with (tmp_path / "made").open("a") as file:  # a process of its own would write here, too
            file.write("x")
        return make(*arguments)

    make = DeepWalk.vectors
    monkeypatch.setattr(DeepWalk, "vectors", counted)
    few = {"epochs": 2, "num_walks": 1, "hidden_channels": 4}
    repeat(digits, make_config("deepwalk", graph=digits, settings=few), range(3), jobs=2)
    assert (tmp_path / "made").read_text() == "xxx"


def test_the_time_of_all_runs_is_the_time_that_passed(digits):
    start = time.perf_counter()
    runs = repeat(digits, config(), range(4), jobs=2)
    assert sum(r.run.seconds for r in runs) <= time.perf_counter() - start


class BreakError(Exception):
    pass


def test_an_error_in_a_callback_ends_all(digits):
    def on_epoch(seed, epoch):
        raise BreakError

    with pytest.raises(BreakError):
        repeat(digits, config(epochs=5000), range(3), jobs=2, on_epoch=on_epoch)
    assert not [p for p in processes.get_context("fork").active_children() if p.is_alive()]


def work_of(outcomes):
    """Return what a process does: for each number a run that is returned, an error that is raised, or a death."""

    def work(number, tell):
        outcome = outcomes[number]
        if callable(outcome):
            outcome = outcome()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return work


def run(value):
    return processes.Run(({"epoch": value},), {"epoch": value}, {"w": torch.tensor([value])}, 1.0)


def later(value, seconds=0.5):
    def wait():
        time.sleep(seconds)
        return run(value)

    return wait


def call(outcomes, jobs=2):
    names = [f"seed {n}" for n in range(len(outcomes))]
    return processes.in_processes(work_of(outcomes), len(outcomes), jobs=jobs, threads=1, names=names, on_epoch=None)


def test_results_come_in_order():
    found = call([later(0), run(1), later(2, 0.2), run(3)], jobs=3)
    assert [r.best["epoch"] for r in found] == [0, 1, 2, 3]
    assert [int(r.state["w"]) for r in found] == [0, 1, 2, 3]


def test_runs_before_one_that_diverges_are_finished():
    with pytest.raises(DivergedError, match="in epoch 3") as caught:
        call([later(0), run(1), DivergedError("in epoch 3"), later(3, 60)], jobs=4)
    assert [r.best["epoch"] for r in caught.value.finished] == [0, 1]


def test_the_first_of_two_errors_is_the_one():
    def late():
        time.sleep(0.5)
        return DivergedError("the first")

    with pytest.raises(DivergedError, match="the first"):
        call([late, DivergedError("the second"), run(2)], jobs=3)


def test_a_process_that_dies_is_named():
    with pytest.raises(DiedError, match=r"process of seed 1 died \(exit code -9\).*--jobs") as caught:
        call([later(0), lambda: os.kill(os.getpid(), signal.SIGKILL), run(2)])
    assert [r.best["epoch"] for r in caught.value.finished] == [0]


def test_an_error_that_cannot_be_sent_is_told():
    class OddError(Exception):
        def __reduce__(self):
            raise TypeError("no")

    with pytest.raises(NFCError, match="OddError: strange"):
        call([OddError("strange"), run(1)])


def test_ctrl_c_is_not_lost_when_every_run_has_ended_and_tears_no_result():
    """It comes while the runs, larger than a pipe holds, are being sent."""

    def work(number, tell):
        tell({"epoch": 1})
        return replace(run(number), state={"w": torch.full((10**6,), float(number))})

    def press(number, epoch):
        time.sleep(0.5)
        raise KeyboardInterrupt

    runs = processes.in_processes(work, 2, jobs=2, threads=1, names=["a", "b"], on_epoch=press)
    assert [r.interrupted for r in runs] == [False, True]
    assert [float(r.state["w"].sum()) for r in runs] == [0.0, 1e6]


def test_a_diverged_seed_leaves_those_before_it(digits, monkeypatch):
    from nfcgcn import training

    true = training.fit

    def fit(model, graph, split, config, *, seed, **options):
        if seed == 2:
            raise DivergedError("training diverged with seed 2")
        return true(model, graph, split, config, seed=seed, **options)

    monkeypatch.setattr(training, "fit", fit)
    with pytest.raises(UnfinishedError, match="seed 2") as caught:
        repeat(digits, config(), range(4), jobs=2)
    assert [r.seed for r in caught.value.repeats] == [0, 1]
    monkeypatch.undo()
    alone = repeat(digits, config(), range(2))
    assert [r.test_accuracy for r in caught.value.repeats] == [r.test_accuracy for r in alone]
    assert all((a.predictions == b.predictions).all() for a, b in zip(alone, caught.value.repeats, strict=True))


TRAIN = [sys.executable, "-m", "nfcgcn", "train", "digits", "--seeds", "4", "--jobs", "2", "--device", "cpu"]
TRAIN += ["--set", "epochs=100000", "--no-select", "--no-baselines"]


@pytest.fixture
def process(tmp_path):
    """A training with two processes of its own, the first of which has ended an epoch."""
    process = subprocess.Popen(
        [*TRAIN, "--out", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm", "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        shown = ""
        while "seed 0: loss" not in shown or len(children(process.pid)) < 2:  # the bar of a terminal
            shown += process.stderr.read(1)
            assert process.poll() is None, shown
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stderr.close()
        process.wait()


def children(pid):
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize(
    "to_all", [pytest.param(True, id="terminal"), pytest.param(False, id="kill", marks=pytest.mark.thorough)]
)
def test_ctrl_c_keeps_what_there_is(process, tmp_path, to_all):
    workers = children(process.pid)
    assert len(workers) == 2
    if to_all:  # as a terminal sends it
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "the best state so far was kept" in said
    assert "Traceback" not in said
    from nfcgcn import load_model

    assert load_model(tmp_path / "run") is not None
    assert not [w for w in workers if alive(w)]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_process_outlives_the_first(process, tmp_path):
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    while any(map(alive, workers)):
        time.sleep(0.1)
    assert not (tmp_path / "run" / "config.json").exists()  # what is unfinished may be there


def test_features_are_shared_not_copied():
    """A child that only reads a large array adds next to nothing of its own."""
    big = np.ones(30_000_000)

    def work(number, tell):
        assert big.sum() == len(big)
        with Path("/proc/self/smaps_rollup").open() as file:
            own = next(int(line.split()[1]) for line in file if line.startswith("Private_Dirty"))
        return run(own)

    (found,) = processes.in_processes(work, 1, jobs=1, threads=1, names=["seed 0"], on_epoch=None)
    assert found.best["epoch"] < 120_000  # kB; the array has 234,375


@pytest.mark.gpu
def test_where_there_is_a_gpu_seeds_share_this_process(digits):
    assert not processes.can_fork()
    torch.ones(1, device="cuda", requires_grad=True).sum().backward()
    assert len(repeat(digits, config(epochs=2), range(2), jobs=2)) == 2
