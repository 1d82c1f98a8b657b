"""Several processes that train one model: the same losses, and one clear line when something is wrong."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from datetime import timedelta
from multiprocessing import get_context

import numpy as np
import pytest
import torch

from nfcgcn import NFCGCN, TrainingConfig, fit, make_split, open_store, write_store
from nfcgcn.errors import ConfigError, SilentError
from nfcgcn.inference import pieces
from nfcgcn.training import fit_together, ranks, unfinished
from nfcgcn.training.unfinished import ResumeError, Unfinished
from random_graphs import random_graph

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
CPU = torch.device("cpu")


def together(work, count=2, *, heard=2, timeout=120):
    """Call ``work(number)`` in as many ranks; return results, errors or exit codes of the first few."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = get_context("fork")

    def live(pipe, number):
        os.environ |= {"RANK": str(number), "WORLD_SIZE": str(count), "MASTER_PORT": str(port)}
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        try:
            with ranks.joined(CPU):
                pipe.send(work(number))
        except BaseException as error:
            pipe.send(error if isinstance(error, Exception) else traceback.format_exc())
        pipe.close()
        os._exit(0)

    pipes, started = [], []
    for number in range(count):
        ours, theirs = context.Pipe(duplex=False)
        started.append(context.Process(target=live, args=(theirs, number)))
        started[-1].start()
        theirs.close()
        pipes.append(ours)
    results = []
    for pipe, process in list(zip(pipes, started, strict=True))[:heard]:
        try:
            results.append(pipe.recv() if pipe.poll(timeout) else "too late")
        except EOFError:
            process.join()
            results.append(process.exitcode)
    for process in started:
        process.kill()
        process.join()
    return results


def make(**settings):
    small = {"filters": 3, "bandwidth": 4, "kernel_size": 8, "stride": 4}
    model = NFCGCN(40, 5, 2, 3, **{**small, **settings}, seed=4)
    torch.manual_seed(5)
    model.reset_parameters()
    return model


def train(graph, model, **settings):
    options = {name: settings.pop(name) for name in ("keep", "on_epoch") if name in settings}
    config = TrainingConfig(**{"epochs": 4, "fan_out": "4", "batch_size": 16, **settings})
    run = fit(model, graph, make_split(graph, "ratio"), config, **options)
    return [epoch["train_loss"] for epoch in run.history], run.best, {k: v.numpy() for k, v in run.state.items()}


@pytest.fixture(scope="module")
def graph():
    graph = random_graph(90, sparse=True, degree=12)
    train(graph, make(), epochs=1)  # loads the kernels, which the processes then share
    return graph


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_two_ranks_with_half_the_batch_are_one_with_the_whole(graph, dropout):
    """One batch per epoch, so that each epoch's loss is that of a step; masks belong to the parts of a batch."""
    settings = {"batch_size": 64, "epochs": 20, "class_weight": "balanced", "calibrate": "temperature"}
    model = {"dropout": dropout, "map_dropout": dropout}
    one = train(graph, make(**model), **settings, batch_parts=2 if dropout else 1)
    first, second = together(lambda _: train(graph, make(**model), **settings))
    assert len(one[0]) == 20
    np.testing.assert_allclose(first[0], one[0], rtol=0, atol=1e-5)
    assert first[:2] == second[:2]
    for name, weights in first[2].items():
        np.testing.assert_array_equal(weights, second[2][name])
        np.testing.assert_allclose(weights, one[2][name], rtol=0, atol=1e-4)


def test_ranks_share_the_rows_of_a_store(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "ROWS", 16)
    write_store(graph, tmp_path / "store")
    stored, model = open_store(tmp_path / "store"), make()
    alone, computed = pieces.compute(model, stored), []
    hop = pieces._matrix
    monkeypatch.setattr(pieces, "_matrix", lambda *given: computed.append(len(given[-1])) or hop(*given))

    def work(_):
        return pieces.compute(model, stored), sum(computed)

    for scores, rows in together(work):
        np.testing.assert_allclose(scores, alone, rtol=1e-6)
        assert 80 <= rows <= 100  # of 2 x 90


def test_when_a_rank_is_killed_the_others_say_so(graph):
    def work(number):
        def on_epoch(epoch):
            if number == 1 and epoch["epoch"] == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        return train(graph, make(), epochs=100_000, on_epoch=on_epoch)

    lost, killed = together(work)
    assert killed == -signal.SIGKILL
    assert str(lost) == (
        "rank 0 has lost the connection to another process of this training, which has ended or was killed; "
        "the same command with --resume goes on from the last checkpoint"
    )
    assert isinstance(lost, ranks.LostRankError)


def test_a_rank_that_never_comes_is_named(monkeypatch):
    monkeypatch.setattr(ranks, "ARRIVAL", timedelta(seconds=1))
    joined = ranks.joined

    def late(device):
        if os.environ["RANK"] == "1":
            os._exit(2)
        return joined(device)

    monkeypatch.setattr(ranks, "joined", late)
    (lost,) = together(lambda _: None, heard=1)
    assert isinstance(lost, ranks.LostRankError)
    assert str(lost) == "rank 1 has not come within 1 s; the output of its process says why"


def test_when_a_rank_falls_silent_the_others_stop(monkeypatch, capfd):
    monkeypatch.setattr(ranks, "BEAT", 0.1)
    monkeypatch.setattr(ranks, "SILENCE", 1.0)

    def work(number):
        if number == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(100)

    assert together(work, heard=1) == [2]
    assert capfd.readouterr().err.startswith(
        "error: rank 1 has not been heard of for 1 s; the same command with --resume"
    )


def test_a_rank_with_another_store_is_named():
    first, second = together(lambda number: ranks.current().agree("graph", f"store {number}"))
    assert isinstance(first, ConfigError)
    assert str(first) == (
        "rank 1 has another graph than rank 0: store 1 instead of store 0; give every process the same"
    )
    assert isinstance(second, SilentError)
    assert together(lambda _: ranks.current().agree("graph", "the same")) == [None, None]


def test_ranks_go_on_from_what_rank_0_has_kept(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(unfinished, "SECONDS", 0.0)
    monkeypatch.setattr(unfinished, "SHARE", 1e9)
    whole = train(graph, make(), batch_parts=2)

    def begin(number):
        def on_epoch(epoch):
            if epoch["epoch"] == 3:
                os.kill(os.getpid(), signal.SIGKILL)

        return train(graph, make(), on_epoch=on_epoch, keep=Unfinished(tmp_path / str(number), {"fan_out": "4"}))

    assert together(begin) == [-signal.SIGKILL] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["0"]  # rank 1 has no such disk

    def go_on(number, **identity):
        series = Unfinished(tmp_path / str(number), {"fan_out": "4", **identity})
        assert series.resume()
        return train(graph, make(), keep=series)

    first, second = together(go_on)
    np.testing.assert_allclose(first[0], whole[0], rtol=0, atol=1e-5)
    assert first[:2] == second[:2]
    for name, weights in first[2].items():
        np.testing.assert_allclose(weights, whole[2][name], rtol=0, atol=1e-5)
    refused, silent = together(lambda number: go_on(number, fan_out="5"))
    assert isinstance(refused, ResumeError)
    assert "`fan_out` was 4 and is now 5" in str(refused)
    assert isinstance(silent, SilentError)


def test_several_seeds_are_kept_one_after_the_other(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(unfinished, "SECONDS", 0.0)
    config, split = TrainingConfig(epochs=2, fan_out="4", batch_size=16), make_split(graph, "ratio")

    def work(number):
        keep = Unfinished(tmp_path / str(number), {})
        runs = fit_together([make(), make()], graph, [split, split], config, seeds=[0, 1], jobs=2, keep=keep)
        return [run.history for run in runs], list(keep.finished([0, 1, 2]))

    first, second = together(work)
    assert first == second
    assert first[1] == [0, 1]


def test_parts_are_at_least_as_many_as_processes(graph):
    error, silent = together(lambda _: train(graph, make(), batch_parts=1))
    assert str(error) == "`batch_parts` must be at least the number of processes, 2, got 1"
    assert isinstance(silent, SilentError)


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with ranks.joined(CPU) as alone:
        assert (alone.number, alone.count, alone.is_first) == (0, 1, True)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ConfigError, match=r"^the variable WORLD_SIZE must be a whole number, got 'many'"):
        ranks.wanted()
