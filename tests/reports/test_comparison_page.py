"""The page of a comparison in a browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from browser import CHROMIUM, look, tables_fit
from nfcgcn.reports import render_comparison

STORED = Path(__file__).parents[2] / "results" / "compare" / "seeds-40.json"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="neither chromium nor google-chrome is on PATH")
@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_shows_the_page(width: int, tmp_path: Path) -> None:
    values = json.loads(STORED.read_text())
    values["results"][-1]["model"] = "a model with a rather long name of its own"
    probe, _ = look(render_comparison(values).replace("<details>", "<details open>"), width, tmp_path)
    assert probe["errors"] == []
    assert tables_fit(probe)
