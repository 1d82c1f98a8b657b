"""What all tests share: where the published files lie, small graphs, and the number of threads."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# OpenMP's threads spin while they wait; where others work on the same cores that made the suite ten times slower. It is
# read when torch is loaded, and changes no number.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# The suite runs in several processes, one thread each: threads of one that wait for each other would wait for the other
# processes too. Tests that are about threads set their number.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# So that bits can be compared for up to four threads on any machine; read when torch and Numba are loaded.
os.environ.setdefault("NUMBA_NUM_THREADS", str(max(4, os.cpu_count() or 1)))
os.environ.setdefault("MKL_DYNAMIC", "FALSE")
# Where there is no GPU, Triton's interpreter checks the logic of its kernels; read when they are first imported.
if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest
import torch
from hypothesis import settings

import pictures
from nfcgcn.graph import Graph
from random_graphs import random_graph

torch.set_num_threads(1)  # whatever OMP_NUM_THREADS says, which the processes that tests start follow
EVERYTHING = os.environ.get("NFCGCN_TESTS") == "all"
"""Whether tests that by default take a part of their cases take all of them."""
settings.register_profile(
    "suite", deadline=None, derandomize=True, database=None, max_examples=60 if EVERYTHING else 30
)
settings.load_profile("suite")

DATA = os.environ.get("NFCGCN_DATA")
PLANETOID = Path(DATA).resolve() / "planetoid" if DATA else None


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c() -> Iterator[None]:
    """Let Ctrl-C be heard, here and in processes that tests start: a shell starts background work with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _why_no_data() -> str | None:
    if PLANETOID is None:
        return "NFCGCN_DATA is not set to the folder that holds planetoid/"
    return None if PLANETOID.is_dir() else "NFCGCN_DATA is set to a folder that holds no planetoid/"


# Files that take long are begun first, so that both processes of `make test` end together. The first compiles all of
# Numba's kernels, once; the second needs none of them meanwhile.
FIRST = (
    "contract", "gpu", "kills", "page", "paper_figures", "any_input", "trials", "ledger", "one_truth", "reproduce",
    "side_by_side", "processes", "tuning", "bits", "estimator", "start", "fuzz", "compare", "examples", "cli", "step",
    "keeping", "hostile", "bad_tables", "run_page", "tune_command", "selection", "compile",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    names = {f"test_{name}": rank for rank, name in enumerate(FIRST)}
    items.sort(key=lambda item: names.get(item.path.stem, len(FIRST)))
    why = _why_no_data()
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device"))
        if item.get_closest_marker("thorough") and not EVERYTHING and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="takes long; set NFCGCN_TESTS=all"))
        if why and item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def everything() -> bool:
    """Whether to take all cases, however long it takes: ``NFCGCN_TESTS=all make test``."""
    return EVERYTHING


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
def full_disk() -> Iterator[Callable[[int], None]]:
    """Lets no file grow beyond so many bytes, until the test ends."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def four_nodes() -> Graph:
    r"""A triangle 0, 1, 2 and a tail 2 - 3, two classes."""
    features = np.array([[1, 0, 2, 0, 1], [0, 1, 0, 1, 0], [1, 1, 0, 0, 2], [0, 0, 3, 1, 0]], np.float32)
    return Graph.from_edges([[0, 0, 1, 2], [1, 2, 2, 3]], features, labels=[0, 1, 0, 1], name="four nodes")


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., Graph]:
    return random_graph


@pytest.fixture(scope="session")
def sparse_graph() -> Graph:
    return random_graph(sparse=True)


@pytest.fixture(scope="session")
def dense_graph() -> Graph:
    return random_graph(sparse=False)


@pytest.fixture
def run(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in an empty folder; return exit code, stdout and stderr.

    The page of a run has empty pictures, unless the test is marked `pictures`.
    """
    from nfcgcn.cli import console
    from nfcgcn.kernels.cpu import compiler

    monkeypatch.chdir(tmp_path)
    if not request.node.get_closest_marker("pictures"):
        pictures.leave_out(monkeypatch.setattr)
    for module, seconds in ((console, "SECONDS_PER_LINE"), (compiler, "AFTER")):
        monkeypatch.setattr(module, seconds, 1e6)  # what is printed after a while must not depend on the machine

    def call(*arguments: object) -> tuple[int, str, str]:
        from nfcgcn import cli

        monkeypatch.setattr(sys, "argv", ["nfcgcn", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call
