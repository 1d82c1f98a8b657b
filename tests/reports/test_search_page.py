"""The page of a search: what it shows, that it loads nothing, and how a browser shows it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from browser import CHROMIUM, look, tables_fit
from nfcgcn.reports.search_figures import against_setting
from nfcgcn.reports.search_page import ScoresOnTest, SearchedSetting, SearchPage, ShownTrial, points, render_search

HOSTILE = "<script>alert('x')</script>"
TRIALS = [ShownTrial([0.8, 0.81], True), ShownTrial([0.4], False), ShownTrial([0.83, 0.85], True)]
SETTINGS = [
    SearchedSetting("dropout", "dropout on inputs", 0.5, 0.31, "0 to 0.9", [0.5, 0.1, 0.31], importance=0.25),
    SearchedSetting("learning_rate", "step", 0.01, 0.02, "0.001 to 0.1", [0.01, 0.001, 0.02], log=True, importance=0.7),
    SearchedSetting(
        "order", "of slots", "random", "random", "random, similarity", ["random", "similarity", "random"],
        ("random", "similarity"), importance=0.05,
    ),
]  # fmt: skip
SCORES = ScoresOnTest([0.8125, 0.8135], [0.8, 0.81], (0.008, -0.002, 0.018))


def make_page(**changes: Any) -> SearchPage:
    page = SearchPage(
        graph="toy graph", model="gcn", split="ratio", num_seeds=2, num_val=100, trials=TRIALS, num_failed=1,
        seconds=83.4, before=0.805, found=0.84, settings=SETTINGS, test=SCORES, interrupted=False,
        preset="toy-gcn.toml", command="nfcgcn tune toy",
    )  # fmt: skip
    return replace(page, **changes)


class Reader(HTMLParser):
    """Collect the tags and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_page_says_what_was_found() -> None:
    text = Reader(render_search(make_page())).text
    for fact in (
        "nfcgcn tune: gcn on toy graph",
        "Settings of gcn for toy graph · split ratio",
        "81.3 % before 80.5%",
        "over 2 seeds that the search did not use. Difference +0.8 points, 95% interval \u22120.2 to +1.8: "
        "the difference may be chance. The test nodes were scored once, after the search.",
        "84.0% before 80.5%; mean over 2 seeds; 100 validation nodes alone leave ±7.2 points to chance",
        "4 2 complete, 1 stopped early, 1 failed",
        "1 min 23 s",
        "learning_rate 0.01 0.02 70.0 0.001 to 0.1 dropout 0.5 0.31 25.0 0 to 0.9 order random random 5.0 random, ",
        "differ by 1.1 points (standard deviation)",
        "nfcgcn train GRAPH --model gcn --preset toy-gcn.toml",
        "nfcgcn tune toy",
    ):
        assert fact in text, fact
    assert "Interrupted" not in text


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        (replace(SCORES, difference=(0.02, 0.001, 0.039)), "to +3.9: the search was worth it."),
        (replace(SCORES, difference=(-0.02, -0.039, -0.001)), "the former settings are better on test nodes."),
        (
            ScoresOnTest([0.8], [0.9], None),
            "Difference \u221210.0 points with one seed, which may be chance.",
        ),
        (ScoresOnTest([0.8], [], None), "could not be scored: training with them failed."),
    ],
)
def test_the_page_says_whether_it_was_worth_it(scores: ScoresOnTest, verdict: str) -> None:
    assert verdict in Reader(render_search(make_page(test=scores))).text


def test_points_have_a_sign_unless_they_are_none() -> None:
    assert [points(value) for value in (0.0123, -0.0123, 0.0, -0.0001)] == ["+1.2", "\u22121.2", "0.0", "0.0"]


def test_what_is_not_known_is_not_shown() -> None:
    settings = [replace(setting, importance=None) for setting in SETTINGS]
    page = make_page(test=None, before=None, settings=settings, interrupted=True, trials=TRIALS[2:], command=None)
    page = replace(page, settings=[replace(setting, values=setting.values[2:]) for setting in settings])
    text = Reader(render_search(page)).text
    assert "The test nodes were not scored." in text
    assert "1 trial cannot show how much each setting mattered." in text
    assert "Interrupted." in text
    assert "Importance" not in text
    assert "before 8" not in text
    assert "go on with the search" not in text
    assert Reader(render_search(replace(page, settings=[]))).tags.count("img") == 1


def test_the_page_has_no_scripts_and_escapes_all_text() -> None:
    settings = [replace(SETTINGS[2], name=HOSTILE, meaning=HOSTILE, searched=HOSTILE)]
    page = make_page(graph=HOSTILE, preset=HOSTILE, command=HOSTILE, split=HOSTILE, settings=settings)
    html = render_search(page)
    assert "<script" not in html
    assert Reader(html).text.count(HOSTILE) >= 7
    assert render_search(page) == html
    assert "http" not in html.replace("http-equiv", "")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="neither chromium nor google-chrome is on PATH")
@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_shows_the_page(width: int, tmp_path: Path) -> None:
    many = [replace(SETTINGS[number % 3], name=f"setting_number_{number}") for number in range(14)]
    page = make_page(graph=HOSTILE, settings=many, command="nfcgcn tune " + "x" * 200)
    probe, _ = look(render_search(page), width, tmp_path)
    assert probe["errors"] == []
    assert len(probe["images"]) == 15
    for natural_width, natural_height, shown_width, shown_height in probe["images"]:
        assert min(natural_width, natural_height, shown_height) > 100
        assert shown_width / shown_height == pytest.approx(natural_width / natural_height, rel=0.02)
    assert tables_fit(probe)
    assert HOSTILE in probe["text"]


@pytest.mark.parametrize("log", [True, False])
def test_a_setting_whose_values_are_all_the_same_is_drawn(log):
    drawn = against_setting([0.01] * 3, [0.7, 0.8, 0.75], [True] * 3, log=log, before=0.01, found=0.01)
    assert "</svg>" in drawn
