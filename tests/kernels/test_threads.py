"""How many threads work: what the machine grants, what the user wants, and a pool that waits for nobody."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nfcgcn.kernels import threads
from nfcgcn.kernels.cpu import pool
from nfcgcn.kernels.cpu.compiler import compiled, take

LARGE = 1e9
"""A cost for which all threads are invited."""


@compiled
def fill(turn, out, marks):
    task = take(turn)
    while task < len(out):
        out[task] += 1
        marks[task] = task * task
        task = take(turn)


@pytest.fixture
def four_threads(monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 4)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def groups(tmp_path, **files):
    """Write a tree of control groups; return it and the file that says where this process is."""
    root = tmp_path / "cgroup"
    for name, text in files.items():
        file = root / name.replace("__", "/").replace("DOT", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root, tmp_path / "membership"


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {}, math.inf),
        ("0::/\n", {"cpuDOTmax": "150000 100000\n"}, 1.5),
        ("0::/job\n", {"cpuDOTmax": "max 100000\n", "job__cpuDOTmax": "200000 100000\n"}, 2.0),
        ("0::/job/part\n", {"job__cpuDOTmax": "50000 100000\n", "job__part__cpuDOTmax": "400000 100000\n"}, 0.5),
        # As a container sees it: the path is the host's, its own limit is at the top.
        ("0::/kubepods/pod1\n", {"cpuDOTmax": "300000 100000\n"}, 3.0),
        (
            "3:cpu,cpuacct:/x\n0::/\n",
            {"cpu,cpuacct__x__cpuDOTcfs_quota_us": "250000\n", "cpu,cpuacct__x__cpuDOTcfs_period_us": "100000\n"},
            2.5,
        ),
        ("3:cpu:/\n", {"cpu__cpuDOTcfs_quota_us": "-1\n", "cpu__cpuDOTcfs_period_us": "100000\n"}, math.inf),
        ("3:memory:/\n", {"cpuDOTmax": "100000 100000\n"}, math.inf),
        ("0::/\n", {"cpuDOTmax": "nonsense\n"}, math.inf),
    ],
)
def test_the_quota_of_control_groups(tmp_path, membership, files, expected):
    root, member = groups(tmp_path, **files)
    member.write_text(membership)
    assert threads.quota(root, member) == expected


def test_no_control_groups(tmp_path):
    assert threads.quota(tmp_path, tmp_path / "none") == math.inf


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs an affinity mask")
def test_the_affinity_mask_counts():
    one = min(os.sched_getaffinity(0))
    code = (
        f"import os\nos.sched_setaffinity(0, {{{one}}})\nfrom nfcgcn.kernels import threads\nprint(threads.available())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


@pytest.mark.parametrize("granted", [0.4, 1.0, 1.5, 64.0])
def test_a_quota_is_rounded_up(monkeypatch, granted):
    monkeypatch.setattr(threads, "quota", lambda: granted)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert threads.available() == min(8, math.ceil(granted))


def test_torch_has_one_thread_inside_and_its_own_number_again_afterwards(four_threads):
    with threads.one_pool():
        assert torch.get_num_threads() == 1
        assert threads.allowed() == 4
        with threads.one_pool():
            assert threads.allowed() == 4
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 4
    with pytest.raises(ZeroDivisionError), threads.one_pool():
        _ = 1 / 0
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("cost", [0, LARGE])
def test_every_task_is_done_once(four_threads, cost):
    for size in (1, 5, 64, 1000):
        for _ in range(50):
            out, marks = np.zeros(size, np.int64), np.zeros(size, np.int64)
            pool.run(fill, cost, out, marks)
            assert (out == 1).all()
            assert (marks == np.arange(size) ** 2).all()


def test_a_short_loop_stays_on_the_calling_thread(four_threads, monkeypatch):
    monkeypatch.setattr(pool._pool, "run", lambda *_: pytest.fail("others were invited"))
    pool.run(fill, pool.SHARE, np.zeros(8, np.int64), np.zeros(8, np.int64))


def test_many_callers_at_once(four_threads):
    wrong = []

    def call():
        for _ in range(200):
            out, marks = np.zeros(64, np.int64), np.zeros(64, np.int64)
            pool.run(fill, LARGE, out, marks)
            if not (out == 1).all():
                wrong.append(out)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_nobody_waits_for_a_thread_that_has_not_begun(four_threads):
    mine = pool._Pool()
    began = threading.Event()

    def loop(turn, out):
        out[0] += 1
        began.set()

    mine._serve = lambda: None  # threads that never wake up
    out = np.zeros(1)
    assert mine.run(loop, 3, (out,))
    assert out[0] == 1


def test_the_caller_waits_for_a_thread_that_has_begun_and_then_does_without_for_a_while():
    mine, done = pool._Pool(), []
    mine._rest, joined = 1000.0, threading.Event()

    def loop(turn):
        if threading.current_thread() is threading.main_thread():
            turn[0] = 1
            assert joined.wait(20)
        else:
            joined.set()
            time.sleep(0.3)
            done.append(1)

    assert mine.run(loop, 1, ())
    assert done == [1]
    assert not mine.run(loop, 1, ())
    assert 0 < mine._alone_until - time.perf_counter() <= 1000


def test_a_loop_that_is_long_anyway_is_no_trouble(monkeypatch):
    mine, joined = pool._Pool(), threading.Event()
    clock = iter((0.0, 0.0, 10.0, 15.0))  # asked for the loop, began it, ended it, had waited for the other
    monkeypatch.setattr(pool, "time", SimpleNamespace(perf_counter=clock.__next__))

    def loop(turn):
        if threading.current_thread() is threading.main_thread():
            turn[0] = 1
            assert joined.wait(20)
            time.sleep(0.3)
        else:
            joined.set()
            time.sleep(0.4)

    assert mine.run(loop, 1, ())
    assert mine._alone_until == 0


def test_an_error_in_another_thread_reaches_the_caller():
    mine, joined = pool._Pool(), threading.Event()

    def loop(turn):
        if threading.current_thread() is threading.main_thread():
            turn[0] = 1
            assert joined.wait(20)
        else:
            joined.set()
            raise MemoryError("no room for a tile")

    with pytest.raises(MemoryError, match="no room for a tile"):
        mine.run(loop, 1, ())
    mine.run(lambda turn: None, 1, ())  # and the pool works on


def test_a_fork_has_a_pool_of_its_own(four_threads):
    out, marks = np.zeros(64, np.int64), np.zeros(64, np.int64)
    pool.run(fill, LARGE, out, marks)
    child = os.fork()
    if not child:
        for _ in range(20):
            out, marks = np.zeros(64, np.int64), np.zeros(64, np.int64)
            pool.run(fill, LARGE, out, marks)
        os._exit(0 if (out == 1).all() and pool._pool._count == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0


MASK = """
from nfcgcn.kernels.cpu import masks as cpu
cpu.mask(3, 4, dropout=0.5, seed=0, dtype=torch.float32)
"""
DRAW = """
from nfcgcn.kernels.cpu import neighbour_draw as cpu
cpu.draw_rows(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), size=1, seed=0)
"""


@pytest.mark.parametrize(
    "kernel", [pytest.param(MASK, id="mask"), pytest.param(DRAW, id="draw", marks=pytest.mark.thorough)]
)
def test_the_first_kernel_of_a_process_keeps_torch_at_its_number_of_threads(kernel):
    code = f"import torch\ntorch.set_num_threads(1)\n{kernel}\nprint(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]
