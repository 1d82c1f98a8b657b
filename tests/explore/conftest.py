"""A run on a small graph with hostile names, and an explorer of it, made once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from small_run import train

from nfcgcn.data import load
from nfcgcn.explore import Explorer, Server, Subject
from nfcgcn.inference.checkpoint import load_run


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("explore"), "--set", "num_val=8", "--set", "num_test=10")


@pytest.fixture(scope="session")
def explorer(run_folder: Path) -> Explorer:
    return Explorer(Subject(load(run_folder.parent / "small.npz"), load_run(run_folder), draws=4))


@pytest.fixture(scope="module")
def server(explorer):
    explorer.prepare()
    with Server(explorer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
