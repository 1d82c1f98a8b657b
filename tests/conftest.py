"""What all tests share: where the published files lie, small graphs, and the number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

# OpenMP's threads spin while they wait; where others work on the same cores that made the suite ten times slower. It is
# read when torch is loaded, and changes no number.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Where there is no GPU, Triton's interpreter checks the logic of its kernels; read when they are first imported.
if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import settings

from nfcgcn.graph import Graph

settings.register_profile("suite", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("suite")

DATA = os.environ.get("NFCGCN_DATA")
PLANETOID = Path(DATA).resolve() / "planetoid" if DATA else None


def _why_no_data() -> str | None:
    if PLANETOID is None:
        return "NFCGCN_DATA is not set to the folder that holds planetoid/"
    return None if PLANETOID.is_dir() else "NFCGCN_DATA is set to a folder that holds no planetoid/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = _why_no_data()
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device"))
        if why and item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture
def planetoid_dir() -> Path:
    """The folder of the published files."""
    why = _why_no_data()
    if why or PLANETOID is None:
        pytest.skip(why or "")
    return PLANETOID


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of torch's threads; the old number comes back after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def four_nodes() -> Graph:
    r"""A triangle 0, 1, 2 and a tail 2 - 3, two classes."""
    features = np.array([[1, 0, 2, 0, 1], [0, 1, 0, 1, 0], [1, 1, 0, 0, 2], [0, 0, 3, 1, 0]], np.float32)
    return Graph.from_edges([[0, 0, 1, 2], [1, 2, 2, 3]], features, labels=[0, 1, 0, 1], name="four nodes")


def random_graph(
    num_nodes: int = 300, num_features: int = 40, *, num_classes: int = 3, degree: int = 6, sparse: bool, seed: int = 0
) -> Graph:
    """Classes that show in the features and, less so, in the edges; nobody is without an edge, everyone has a label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=num_nodes)
    labels[:num_classes] = np.arange(num_classes)
    source = np.repeat(np.arange(num_nodes), degree // 2)
    target = rng.integers(num_nodes, size=len(source))
    inside = rng.random(len(source)) < 0.5
    for label in range(num_classes):
        where = np.flatnonzero(inside & (labels[source] == label))
        target[where] = rng.choice(np.flatnonzero(labels == label), len(where))
    edges = np.concatenate([[source, target], [np.arange(num_nodes), np.roll(np.arange(num_nodes), 1)]], axis=1)
    topics = rng.random((num_classes, num_features)) < 0.3
    chance = np.where(topics[labels], 0.35, 0.12)
    x = ((rng.random((num_nodes, num_features)) < chance) * rng.uniform(0.5, 1.5, chance.shape)).astype(np.float32)
    features = sp.csr_array(x) if sparse else x
    return Graph.from_edges(edges, features, labels=labels, name="random sparse" if sparse else "random dense")


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., Graph]:
    return random_graph


@pytest.fixture(scope="session")
def sparse_graph() -> Graph:
    return random_graph(sparse=True)


@pytest.fixture(scope="session")
def dense_graph() -> Graph:
    return random_graph(sparse=False)
