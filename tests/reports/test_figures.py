"""The figures: what they show, with which input they work, and that they are reproducible."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest

from nfcgcn.reports import figures
from nfcgcn.reports.drawing import MOST_COLOURS, colour_of, perceived

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()).strip() for node in ET.fromstring(svg.encode()).iter(f"{SVG}text")]


def history(num_epochs: int, *, shift: float = 0.0) -> list[dict[str, float]]:
    return [
        {
            "epoch": epoch,
            "train_loss": 2 / epoch + shift,
            "train_accuracy": 1 - 0.8 / epoch,
            "val_loss": 2 / epoch + 0.5 + shift,
            "val_accuracy": 0.8 - 0.6 / epoch,
        }
        for epoch in range(1, num_epochs + 1)
    ]


def clusters(num_points: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(num_points) % num_classes
    rng = np.random.default_rng(0)
    return rng.normal(size=(num_points, 2)) + 5 * np.stack([np.cos(labels), np.sin(labels)], axis=1), labels


def rings(svg: str) -> int:
    """Count the points drawn with a dark edge and no face."""
    uses = ET.fromstring(svg.encode()).iter(f"{SVG}use")
    return sum(f"stroke: {figures.INK}" in use.get("style", "") for use in uses)


def test_figures_leave_settings_alone() -> None:
    before = dict(matplotlib.rcParams)
    figures.curves([history(3)], [2])
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_figures_ignore_the_users_style() -> None:
    plain = figures.curves([history(3)], [2])
    with matplotlib.rc_context({"lines.linewidth": 9, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert figures.curves([history(3)], [2]) == plain


class TestCurves:
    def test_one_seed_names_its_lines_and_its_best_epoch(self) -> None:
        shown = texts(figures.curves([history(20)], [17]))
        assert shown.count("best epoch 17") == shown.count("training") == shown.count("validation") == 2
        assert {"Loss", "Accuracy"} <= set(shown)
        assert not any("band" in text for text in shown)

    def test_seeds_of_one_length_become_mean_and_band(self) -> None:
        shown = texts(figures.curves([history(20), history(20, shift=1)], [4, 9]))
        assert "line: mean of 2 seeds; band: lowest to highest" in shown
        assert shown.count("median best epoch 6.5") == 2

    def test_seeds_of_unequal_length_stop_where_fewer_than_half_train(self) -> None:
        svg = figures.curves([history(5), history(20), history(60)], [3, 11, 50])
        shown = texts(svg)
        assert "line: mean of 3 seeds, as long as at least half of them train; band: lowest to highest" in shown
        assert "median best epoch 11" in shown
        ticks = [int(text) for text in shown if text.isdigit()]
        assert 15 <= max(ticks) <= 20

    def test_mean_and_band_are_where_they_should_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from matplotlib.axes import Axes

        lines, bands = [], []
        plot, fill = Axes.plot, Axes.fill_between
        monkeypatch.setattr(Axes, "plot", lambda self, *a, **k: (lines.append(a), plot(self, *a, **k))[1])
        monkeypatch.setattr(Axes, "fill_between", lambda self, *a, **k: (bands.append(a), fill(self, *a, **k))[1])
        figures.curves([history(2), history(2, shift=1)], [2, 2])
        np.testing.assert_allclose(lines[0][0], [1, 2])
        np.testing.assert_allclose(lines[0][1], [2.5, 1.5])
        np.testing.assert_allclose(lines[1][1], [3.0, 2.0])
        np.testing.assert_allclose(bands[0][1:], [[2, 1], [3, 2]])
        assert lines[2][:2] == ([2.0], [2.0])

    def test_one_epoch_shows_as_points(self) -> None:
        svg = figures.curves([history(1)], [1])
        assert texts(svg).count("best epoch 1") == 2
        assert len(list(ET.fromstring(svg.encode()).iter(f"{SVG}use"))) > 4

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_losses_that_are_not_finite_are_left_out(self, bad: float) -> None:
        diverged = history(10)
        for record in diverged[4:]:
            record["train_loss"] = record["val_loss"] = bad
        svg = figures.curves([diverged, history(10)], [3, 4])
        assert texts(svg).count("validation") == 2
        assert not re.search(r"\b(nan|inf)\b", svg)
        assert texts(figures.curves([diverged], [3])).count("validation") == 2

    def test_no_finite_loss_is_said(self) -> None:
        records = [record | {"train_loss": float("nan"), "val_loss": float("nan")} for record in history(4)]
        shown = texts(figures.curves([records], [2]))
        assert shown.count("no finite value recorded") == 1
        assert shown.count("validation") == 1

    @pytest.mark.parametrize("histories", [[], [[]]], ids=["no seed", "no epoch"])
    def test_nothing_trained(self, histories: list[list[dict[str, float]]]) -> None:
        assert texts(figures.curves(histories, [])).count("no finite value recorded") == 2

    def test_close_line_ends_keep_their_labels_apart(self) -> None:
        records = [record | {"val_loss": record["train_loss"] + 1e-4} for record in history(9)]
        root = ET.fromstring(figures.curves([records], [9]).encode())
        heights = {}
        for node in root.iter(f"{SVG}text"):
            name = "".join(node.itertext()).strip()
            if name in {"training", "validation"}:
                height = node.get("y") or re.findall(r"translate\([\d.]+ ([\d.]+)\)", node.get("transform", ""))[0]
                heights.setdefault(name, []).append(float(height))
        assert abs(heights["training"][0] - heights["validation"][0]) > 10
        assert heights["training"][0] > heights["validation"][0], "the lower loss has the lower label"


class TestConfusion:
    def test_every_count_is_written_in_reading_order(self) -> None:
        shown = texts(figures.confusion(np.array([[50, 7], [0, 123]]), ["cat", "dog"]))
        assert [text for text in shown if text.isdigit()] == ["50", "7", "0", "123"]
        assert shown.count("cat") == shown.count("dog") == 2
        assert {"true class", "predicted class", "share of the true class"} <= set(shown)

    def test_colour_is_the_share_of_the_row(self) -> None:
        svg = figures.confusion(np.array([[1, 0], [500, 500]]), ["a", "b"])
        mesh = ET.fromstring(svg.encode()).find(f".//{SVG}g[@id='QuadMesh_1']")
        fills = [re.search(r"fill: (#\w+)", path.get("style", "")).group(1) for path in mesh.iter(f"{SVG}path")]
        assert fills == ["#08306b", "#f7fbff", fills[2], fills[2]]
        assert len(set(fills)) == 3

    def test_ten_classes(self) -> None:
        matrix = np.arange(100).reshape(10, 10) + 1000
        shown = texts(figures.confusion(matrix, [f"class {i}" for i in range(10)]))
        assert [int(text) for text in shown if text.isdigit()] == matrix.ravel().tolist()

    def test_forty_classes_keep_names_and_counts_but_no_zeros(self) -> None:
        shown = texts(figures.confusion(np.diag(np.arange(100, 140)), [f"k{i}" for i in range(40)]))
        assert [text for text in shown if text.isdigit()] == [str(i) for i in range(100, 140)]
        assert all(shown.count(f"k{i}") == 2 for i in range(40))

    @pytest.mark.parametrize("num_classes", [60, 200])
    def test_many_classes_show_no_counts(self, num_classes: int) -> None:
        svg = figures.confusion(np.full((num_classes, num_classes), 77), [f"k{i}" for i in range(num_classes)])
        assert "77" not in texts(svg)
        assert "k0" in texts(svg)
        assert ("k1" in texts(svg)) == (num_classes == 60)
        assert len(svg) < 400_000

    def test_a_count_too_long_for_its_cell_is_left_out(self) -> None:
        matrix = np.eye(40, dtype=np.int64)
        matrix[0, 0] = 10**9
        shown = texts(figures.confusion(matrix, [f"k{i}" for i in range(40)]))
        assert "1000000000" not in shown
        assert shown.count("1") == 39

    def test_an_empty_row_is_grey(self) -> None:
        svg = figures.confusion(np.array([[3, 1], [0, 0]]), ["a", "b"])
        assert "#e9ebee" in svg
        assert [text for text in texts(svg) if text.isdigit()] == ["3", "1", "0", "0"]

    def test_long_names_lose_their_middle(self) -> None:
        shown = texts(figures.confusion(np.eye(2), ["a" * 30 + "left", "a" * 30 + "right"]))
        assert {"aaaaaaaaaaa…aaaaaaleft", "aaaaaaaaaaa…aaaaaright"} <= set(shown)

    def test_hostile_names_stay_text(self) -> None:
        shown = texts(figures.confusion(np.eye(3), ["<script>&", "$\\frac{1}$", "bell\x07 \ud800\nend"]))
        assert {"<script>&", "$\\frac{1}$", "bell end"} <= set(shown)

    def test_names_in_another_script(self) -> None:
        assert "図書館" in texts(figures.confusion(np.eye(2), ["図書館", "مكتبة"]))


class TestRepresentation:
    def test_names_and_errors(self) -> None:
        points, labels = clusters(60, 3)
        predictions = labels.copy()
        predictions[:4] = (labels[:4] + 1) % 3
        svg = figures.representation(points, labels, predictions, ["red", "green", "blue"])
        assert {"red", "green", "blue"} <= set(texts(svg))
        assert "ring: predicted as another class (4 of 60 nodes)" in texts(svg)
        assert rings(svg) == 4

    def test_a_missing_class_has_no_name_and_shifts_no_colour(self) -> None:
        points, labels = clusters(60, 3)
        kept = labels != 1
        svg = figures.representation(points[kept], labels[kept], labels[kept], ["red", "green", "blue"])
        assert "green" not in texts(svg)
        assert f"fill: {figures.PALETTE[2].lower()}" in svg
        assert f"fill: {figures.PALETTE[1].lower()}" not in svg
        assert rings(svg) == 0

    def test_more_classes_than_colours_differ_by_marker(self) -> None:
        looks = [tuple(figures._look(label).values()) for label in range(64)]
        assert len(set(looks)) == 64
        assert len({marker for _, marker in looks[:8]}) == 1

    def test_every_class_has_a_colour_of_its_own(self) -> None:
        codes = [colour_of(label) for label in range(MOST_COLOURS)]
        assert codes[:8] == list(figures.PALETTE)
        seen = perceived(np.array([[int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)] for code in codes]))
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=2) + np.eye(len(seen))
        assert apart[:20, :20].min() > 0.15  # the palette's own colours are no further apart
        assert apart.min() > 0.08
        points, labels = clusters(120, 12)
        svg = figures.representation(points, labels, labels, [f"k{i}" for i in range(12)])
        assert all(f"fill: {code.lower()}" in svg for code in codes[:12] if code != "#000000")  # black is the default

    def test_many_points_become_an_image(self) -> None:
        points, labels = clusters(figures.MOST_VECTOR_POINTS + 1, 5)
        svg = figures.representation(points, labels, labels, list("abcde"))
        assert "<image" in svg
        assert len(svg) < 400_000
        points, labels = clusters(figures.MOST_VECTOR_POINTS, 5)
        assert "<image" not in figures.representation(points, labels, labels, list("abcde"))

    def test_names_of_the_largest_classes_only_where_there_are_very_many(self) -> None:
        points, labels = clusters(280, 80)  # the first 40 classes have one node more
        shown = texts(figures.representation(points, labels, labels, [f"k{i}" for i in range(80)]))
        assert sum(text.startswith("k") for text in shown) == 60
        assert {f"k{i}" for i in range(40)} <= set(shown)
        assert shown[-1].endswith("names: the 60 largest of 80 classes")

    @pytest.mark.parametrize("num_points", [0, 1, 2])
    def test_hardly_any_point(self, num_points: int) -> None:
        labels = np.zeros(num_points, np.int64)
        shown = texts(figures.representation(np.ones((num_points, 2)), labels, labels, ["only"]))
        assert ("only" in shown) == (num_points > 0)
        assert ("no nodes to show" in shown) == (num_points == 0)

    def test_labels_do_not_overlap(self) -> None:
        boxes = np.tile([0.15, 0.04], (12, 1))
        places = figures._spread(np.full((12, 2), 0.5) + 1e-3 * np.arange(24).reshape(12, 2), boxes)
        gaps = np.abs(places[:, None] - places[None])
        apart = (gaps >= boxes[0] - 1e-3).any(axis=2) | np.eye(12, dtype=bool)
        assert apart.all()


@pytest.mark.parametrize("figure", ["curves", "confusion", "representation"])
def test_same_input_same_bytes(figure: str) -> None:
    points, labels = clusters(40, 4)
    names = list("abcd")
    draw = {
        "curves": lambda: figures.curves([history(9), history(12)], [4, 5]),
        "confusion": lambda: figures.confusion(np.eye(4), names),
        "representation": lambda: figures.representation(points, labels, labels[::-1], names),
    }[figure]
    svg = draw()
    assert draw() == svg
    assert "dc:date" not in svg
