import os
from pathlib import Path

import pytest

DATA = os.environ.get("NFCGCN_DATA")


@pytest.fixture
def planetoid_dir() -> Path:
    """The folder of the published files."""
    if not DATA:
        pytest.skip("NFCGCN_DATA is not set to the folder that holds planetoid/")
    return Path(DATA).resolve() / "planetoid"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache, and no other place to find files in; what a download leaves in it lies under planetoid/."""
    monkeypatch.delenv("NFCGCN_DATA", raising=False)
    monkeypatch.setenv("NFCGCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache" / "planetoid"
