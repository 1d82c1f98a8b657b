"""The page of a run: what it shows, that it loads nothing, and how a browser shows it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import CHROMIUM, look, tables_fit
from nfcgcn.reports.html import _setting, duration
from nfcgcn.reports.plane import plane
from nfcgcn.reports.run_page import Page, render
from nfcgcn.training.scores import SCORES

HOSTILE = "<script>alert('x')</script>"
SELECTION: dict[str, Any] = {
    "seed": 0,
    "reason": "higher validation accuracy",
    "caution": "",
    "candidates": [
        {
            "changes": {"dropout": 0.8, "map_dropout": 0.8, "weight_decay": 0.005, "kernel_size": 13, "stride": 8},
            "reason": "drawn neighbours add noise where a node has many; more dropout keeps a model from learning few "
            "labels by heart; smaller windows tell more features apart",
            "val_accuracy": 0.8,
            "draws": 3,
            "epochs": 400,
            "outcome": "chosen",
            "note": "",
        }
    ],
}


def make_page(*, num_seeds: int = 3, class_names: tuple[str, ...] = ("cat", "dog", "owl"), **changes: Any) -> Page:
    rng = np.random.default_rng(0)
    num_classes = len(class_names)
    labels = np.arange(30) % num_classes
    predictions = labels.copy()
    predictions[:5] = (labels[:5] + 1) % num_classes
    matrix = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(matrix, (labels, predictions), 1)
    runs = [0.81234, 0.8, 0.79][:num_seeds]
    summary = {
        "dataset": "toy graph",
        "model": "nfcgcn",
        "preset": "paper",
        "split": "planetoid",
        "seeds": list(range(7, 7 + num_seeds)),
        "test_accuracy": {
            "mean": float(np.mean(runs)),
            "std": 0.01117 if num_seeds > 1 else None,
            "ci95": (0.773, 0.829) if num_seeds > 1 else None,
            "runs": runs,
        },
        "val_accuracy": {"mean": 0.7654, "runs": [0.7654, 0.7777, 0.7531][:num_seeds]},
        "epochs": [3, 4, 2][:num_seeds],
        "seconds": 83.4,
        "device": "cpu",
        "hardware": "a quick machine",
        "versions": {"torch": "9.8.7", "numpy": "6.5.4"},
        "config": {"bandwidth": 8, "dropout": 0.25, "normalise": True, "dtype": None, "monitor": "accuracy"},
        "commit": "0123abc",
        "interrupted": False,
        "graph": {"nodes": 2708, "edges": 5278, "features": 1433, "classes": num_classes, "sparse": True},
        "split_sizes": {"train": 140, "val": 500, "test": 1000},
    }
    history = [
        {
            "epoch": e,
            "train_loss": 1 / e,
            "train_accuracy": 1 - 0.5 / e,
            "val_loss": 1.2 / e,
            "val_accuracy": 0.8 - 0.5 / e,
        }
        for e in range(1, 6)
    ]
    return Page(
        summary={**summary, **changes},
        histories=[history] * num_seeds,
        confusion=matrix,
        class_names=class_names,
        per_class=[{"name": n, "precision": 0.5, "recall": 0.25, "f1": 1 / 3, "support": 10} for n in class_names],
        shown_seed=7,
        embedding=rng.normal(size=(30, 8)) + 4 * labels[:, None],
        labels=labels,
        predictions=predictions,
    )


class Reader(HTMLParser):
    """Collect the tags, their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_page_says_what_was_measured() -> None:
    text = Reader(render(make_page())).text
    for fact in (
        "nfcgcn on toy graph",
        "80.1 ± 1.1 %",
        "Mean test accuracy ± standard deviation over 3 seeds; 95% interval of the mean 77.3 to 82.9%.",
        "For each seed, the test nodes are scored once, at the epoch with the highest validation accuracy.",
        "2,708 nodes 5,278 edges, 1,433 features (sparse), 3 classes",
        "140 train, 500 validation, 1,000 test",
        "1 min 23 s",
        "7 (shown) 81.2 76.5 3 8 80.0 77.8 4 9 79.0 75.3 2",
        "cat 50.0 25.0 33.3 10",
        "bandwidth 8 dropout 0.25 normalise yes dtype none",
        "a quick machine",
        "torch 9.8.7",
        "0123abc",
        "30 of 1,000 test nodes",
        "The command was not recorded",
    ):
        assert fact in text, fact
    assert "Interrupted" not in text


def test_one_seed_has_no_deviation() -> None:
    text = Reader(render(make_page(num_seeds=1, commit=None))).text
    assert "81.2 %" in text
    assert "±" not in text
    assert "95%" not in text
    assert "Test accuracy of one seed" in text
    assert "The test nodes are scored once" in text
    assert "not recorded" in text


def test_an_interval_may_be_given_by_its_ends() -> None:
    accuracy = {"mean": 0.8, "std": 0.01, "ci95": [0.779, 0.821], "runs": [0.79, 0.81]}
    assert "95% interval of the mean 77.9 to 82.1%" in Reader(render(make_page(test_accuracy=accuracy))).text


@pytest.mark.parametrize(
    ("monitor", "chosen", "other"),
    [
        ("accuracy", "highest validation accuracy", "lowest validation loss"),
        ("loss", "lowest validation loss", "highest validation accuracy"),
    ],
)
def test_the_page_says_how_the_epoch_was_chosen(monitor: str, chosen: str, other: str) -> None:
    source = render(make_page(config={"monitor": monitor}))
    text = Reader(source).text
    assert f"scored once, at the epoch with the {chosen}." in text
    assert f"those of the epoch with the {chosen}, chosen separately for each seed." in text
    assert f"Test nodes of seed 7, the seed with the {chosen}." in text
    assert f"median best epoch 3 ({chosen})" in source  # the description of the curves
    assert source.count(chosen) == 4
    assert other not in source
    assert "best validation" not in source


def test_a_run_chosen_by_loss_says_so(run: Any) -> None:
    settings = ("--set", "monitor=loss", "--set", "epochs=2", "--set", "hidden_channels=4")
    code, out, err = run("train", "digits", "--model", "gcn", *settings, "--seeds", "2", "--out", "folder")
    assert code == 0, err
    page = Path("folder/report.html").read_text(encoding="utf-8")
    assert "at the epoch with the lowest validation loss (validation accuracy " in out
    assert page.count("lowest validation loss") == 4
    for source in (out, page):
        assert "highest validation accuracy" not in source
        assert "best validation" not in source


def test_an_interrupted_run_says_so() -> None:
    page = make_page(interrupted=True, seeds=[7, 8, 9, 10, 11])
    assert "Interrupted. The run was stopped before its end" in Reader(render(page)).text
    assert "with 3 of 5 seeds" in Reader(render(page)).text


def test_the_command_is_given_as_it_was() -> None:
    source = render(make_page(command="nfcgcn train 'a & b' --seeds 3"))
    assert "nfcgcn train &#39;a &amp; b&#39; --seeds 3</code>" in source


def test_scores_of_a_class_without_nodes() -> None:
    page = make_page()
    empty = {"name": "owl", "precision": float("nan"), "recall": None, "f1": 0.0, "support": 0}
    assert "owl n/a n/a 0.0 0" in Reader(render(replace(page, per_class=[*page.per_class[:2], empty]))).text


def test_hostile_names_are_text() -> None:
    page = make_page(class_names=(HOSTILE, '" onload="x', "{{ 7 * 7 }}"), dataset=HOSTILE, command=HOSTILE)
    reader = Reader(render(page))
    assert not {"script", "iframe", "object"} & {tag for tag, _ in reader.tags}
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert reader.text.count(HOSTILE) >= 4
    assert "{{ 7 * 7 }}" in reader.text


def test_the_page_loads_nothing() -> None:
    source = render(make_page())
    assert "http://" not in source
    assert "https://" not in source
    assert "@import" not in source
    assert "url(" not in source
    for _, attributes in Reader(source).tags:
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "data:").startswith("data:")


def test_figures_are_described() -> None:
    images = [attributes for tag, attributes in Reader(render(make_page())).tags if tag == "img"]
    assert [image["alt"] for image in images] == [
        "Loss and accuracy over the epochs, training and validation, 3 seeds; "
        "median best epoch 3 (highest validation accuracy), with validation accuracy 76.5% at the best epoch.",
        "Confusion matrix of 3 classes: 25 of 30 test nodes are predicted correctly; "
        "the most frequent error is cat taken for dog, 2 times.",
        "Hidden representation of 30 test nodes in a plane, coloured by 3 true classes; "
        "5 with a wrong prediction have a ring.",
    ]
    assert all((image["src"] or "").startswith("data:image/svg+xml;base64,") for image in images)


def test_the_same_page_twice_is_the_same() -> None:
    assert render(make_page()) == render(make_page())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.9, "59.9 s"), (59.97, "1 min 00 s"), (3599.7, "1 h 00 min"), (7384, "2 h 03 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_settings() -> None:
    assert [_setting(v) for v in (True, False, None, 1, 0, 5e-4, [1, None], (), "a")] == [
        "yes", "no", "none", "1", "0", "0.0005", "1, none", "none", "a",
    ]  # fmt: skip


class TestPlane:
    def test_groups_stay_together(self) -> None:
        labels = np.arange(90) % 3
        vectors = np.random.default_rng(0).normal(size=(90, 10)) + 20 * np.eye(10)[labels]
        points = plane(vectors)
        assert points.shape == (90, 2)
        distances = np.linalg.norm(points[:, None] - points[None], axis=2) + 1e9 * np.eye(90)
        assert (labels[distances.argmin(axis=1)] == labels).all()

    def test_neighbours_stay_neighbours_as_with_scikit_learn(self) -> None:
        from sklearn.manifold import TSNE
        from sklearn.neighbors import NearestNeighbors

        rng = np.random.default_rng(0)
        vectors = 3 * rng.normal(size=(6, 12))[rng.integers(0, 6, 300)] + rng.normal(size=(300, 12))

        def neighbours(rows: np.ndarray) -> np.ndarray:
            return NearestNeighbors(n_neighbors=10).fit(rows).kneighbors(return_distance=False)

        wanted = neighbours(vectors)

        def kept(points: np.ndarray) -> float:
            return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(wanted, neighbours(points), strict=True)])

        theirs = TSNE(init="pca", random_state=0, n_jobs=1).fit_transform(vectors)
        assert kept(plane(vectors)) > 0.95 * kept(theirs)

    def test_repeats_whatever_the_threads(self) -> None:
        from threadpoolctl import threadpool_limits

        vectors = np.random.default_rng(1).normal(size=(60, 6))
        with threadpool_limits(limits=1):
            alone = plane(vectors)
        np.testing.assert_array_equal(plane(vectors), alone)

    @pytest.mark.parametrize("count", range(7))
    def test_few_nodes(self, count: int) -> None:
        points = plane(np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32))
        assert points.shape == (count, 2)
        assert np.isfinite(points).all()

    @pytest.mark.parametrize(
        "vectors",
        [
            np.ones((20, 5)),
            np.zeros((20, 5)),
            np.zeros((20, 0)),
            np.tile(np.arange(4.0), (40, 1)).T.reshape(-1, 1).repeat(3, axis=1),
            np.full((20, 3), np.nan),
            np.random.default_rng(0).normal(size=(20, 3)) * 1e300,
            np.arange(20.0)[:, None] * np.ones((1, 4)),
        ],
        ids=["constant", "zero", "no column", "four distinct", "nan", "huge", "line"],
    )
    def test_vectors_with_little_in_them(self, vectors: np.ndarray) -> None:
        points = plane(vectors)
        assert points.shape == (len(vectors), 2)
        assert np.isfinite(points).all()

    def test_one_column_is_laid_on_a_line(self) -> None:
        points = plane(np.arange(9.0)[:, None])
        np.testing.assert_allclose(np.abs(np.diff(points[:, 0])), 1 / 8)
        np.testing.assert_allclose(points[:, 1], 0)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="neither chromium nor google-chrome is on PATH")
@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_shows_the_page(width: int, tmp_path: Path) -> None:
    names = (HOSTILE, "a_long_name_without_a_single_space_in_it_" * 3, *(f"class {i}" for i in range(18)))
    page = make_page(class_names=names, command="nfcgcn train " + "x" * 200, hardware="y" * 120, selection=SELECTION)
    probe, _ = look(render(page), width, tmp_path)
    assert probe["errors"] == []
    assert len(probe["images"]) == 3
    for natural_width, natural_height, shown_width, shown_height in probe["images"]:
        assert min(natural_width, natural_height, shown_height) > 100
        assert shown_width / shown_height == pytest.approx(natural_width / natural_height, rel=0.02)
    assert probe["inner"] == width
    assert tables_fit(probe)
    assert HOSTILE in probe["text"]


@pytest.mark.parametrize(
    ("split", "num_seeds", "shared"), [("ratio", 3, True), ("ratio", 1, False), ("planetoid", 3, False)]
)
def test_it_says_if_the_choice_saw_test_nodes_of_other_seeds(split, num_seeds, shared):
    page = make_page(num_seeds=num_seeds)
    page = replace(page, summary={**page.summary, "split": split, "selection": SELECTION})
    assert ("test nodes of other seeds" in render(page)) == shared


@pytest.mark.parametrize(
    ("temperature", "text"),
    [(2.125, "Scores were divided by 2.12 (temperature"), (1.0, "fitted on validation nodes did not lower their log")],
)
def test_it_says_what_temperature_scaling_did(temperature, text):
    page = make_page(num_seeds=1, temperatures=[temperature], test_scores={key: {"mean": 0.5} for key in SCORES})
    page.summary["config"]["calibrate"] = "temperature"
    page = replace(page, reliability=(np.array([30]), np.array([0.8]), np.array([0.9])))
    assert text in Reader(render(page)).text


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="neither chromium nor google-chrome is on PATH")
def test_what_scores_say_is_readable_on_a_narrow_screen(tmp_path: Path) -> None:
    measured = {name: {"mean": 0.5, "std": None} for name in SCORES}
    page = make_page(num_seeds=1, test_scores=measured, baselines={"majority class": measured, "mlp": measured})
    probe, _ = look(render(page), 400, tmp_path)
    assert "how well probabilities sort each class" in probe["text"]
    assert tables_fit(probe)
    assert probe["tallest_row"] < 110  # four lines
