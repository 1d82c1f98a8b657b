"""`nfcgcn bench explore` measures a real page in a real browser."""

import json
from pathlib import Path

import pytest

from browser import CHROMIUM
from nfcgcn.bench import explore as benchmark


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="neither chromium nor google-chrome is on PATH")
def test_it_measures_a_page(run, run_folder, monkeypatch):
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    monkeypatch.setattr(benchmark, "LOADS", 1)
    monkeypatch.setattr(benchmark, "HUBS", 1)
    monkeypatch.setattr(benchmark, "CLICKS", 3)
    command = ("bench", "explore", run_folder, run_folder.parent / "small.npz", "--sample", 2)
    code, out, err = run(*command, "--seconds", 0.1, "--json", "b.json")
    assert (code, err) == (0, "")
    found = json.loads(Path("b.json").read_text(encoding="utf-8"))
    assert (found["nodes"], found["console_errors"], found["nodes_unlike_predict_or_explain"]) == (40, [], [])
    assert [len(times) for times in (found["first_picture_ms"], *found["node_ms"].values())] == [1, 1, 2]
    tried = {change: len(times) for change, times in found["what_if_ms"].items()}
    assert tried == {"set feature": 3, "remove edge": 2, "draw other neighbours": 3}  # one node has no edge
    assert found["pan"]["frames_per_s"] > 0
    assert 0 < found["heap_mib"] < found["page_mib"] < found["browser_mib"]
    assert "errors on the console: 0; nodes unlike predict or explain: 0" in out


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("find_spec", lambda _: None, "needs playwright; `pip install playwright`"),
        ("BROWSERS", ("no-such-browser",), "needs a browser; none of no-such-browser is on PATH"),
    ],
)
def test_what_is_missing_is_said(run, run_folder, monkeypatch, name, value, message):
    monkeypatch.setattr(benchmark, name, value)
    code, _, err = run("bench", "explore", run_folder, run_folder.parent / "small.npz")
    assert (code, err) == (2, f"error: `bench explore` {message}\n")
