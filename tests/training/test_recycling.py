"""Memory that serves one batch after the other is never that of a batch in use."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nfcgcn import NFCGCN
from nfcgcn.training import recycling
from nfcgcn.training.batches import NodeReader
from nfcgcn.training.recycling import Recycler
from random_graphs import random_graph


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(recycling, "SMALL", 64)


def place(array):
    return array.ctypes.data


def test_memory_comes_back_when_nobody_uses_it():
    recycler = Recycler()
    one, two = recycler.empty(100, np.int64), recycler.empty(100, np.int64)
    assert place(one) != place(two)
    free = place(one)
    del one
    assert place(recycler.empty(90, np.int64)) == free
    assert place(recycler.empty(90, np.float64)) != free  # kinds are not mixed: one batch needs each at once
    assert place(recycler.empty(112, np.int64)) == free  # an eighth more than was asked for


@pytest.mark.parametrize(
    "use", [lambda a: a[10:], lambda a: a[::2][3:], torch.from_numpy], ids=["slice", "slices", "tensor"]
)
def test_whatever_is_made_of_an_array_uses_its_memory(use):
    recycler = Recycler()
    array = recycler.empty(100, np.int64)
    array[:] = 7
    used = use(array)
    del array
    recycler.empty(100, np.int64)[:] = 8
    assert (used == 7).all()


def test_memory_that_is_too_small_is_replaced():
    recycler = Recycler()
    recycler.empty(100, np.int64)
    recycler.empty(1000, np.int64)
    (idle,) = recycler._idle.values()
    assert [len(memory) for memory in idle] == [9000]


def test_batches_in_use_stay_as_they_are():
    graph = random_graph(90, sparse=True, degree=12)
    reader = NodeReader(NFCGCN(40, 5, 2, 3, filters=3, bandwidth=4, kernel_size=8, stride=4), graph)
    pieces = np.array_split(np.arange(90), 6)

    def dense(batch):
        return batch.x.to_dense().numpy()

    alone = [dense(reader.batch(nodes, [3, 3], 1)) for nodes in pieces]
    batches = [reader.batch(nodes, [3, 3], 1) for nodes in pieces]
    del batches[1]
    batches.insert(1, reader.batch(pieces[1], [3, 3], 1))
    for one, other in zip(alone, map(dense, batches), strict=True):
        np.testing.assert_array_equal(one, other)
