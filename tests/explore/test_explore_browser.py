"""The page in a real browser: every view, wide and narrow, by keyboard alone, and as a screen reader gets it."""

from __future__ import annotations

import json
import random
import re
import threading
from contextlib import contextmanager
from io import BytesIO
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from small_run import HOSTILE

from browser import CHROMIUM
from nfcgcn.explore import Explorer, Server, Subject, page, page_file, scene
from nfcgcn.graph import Graph

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="neither chromium nor google-chrome is on PATH"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect
expect.set_options(timeout=60_000)  # a busy machine takes its time
OF_SOFTWARE = "GPU stall due to ReadPixels"
"""A remark of Chromium's on drawing without a graphics card."""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


class Opened:
    """A page, and what went wrong on it."""

    def __init__(self, browser, link, width=1400, scheme="light", script=""):
        height = 900 if width > 600 else 844
        self.page = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.errors = []
        self.page.on("console", self.note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))
        self.page.add_init_script(script)
        self.page.goto(link)
        expect(self.page.locator("#picture canvas").first).to_be_attached()

    def note(self, message):
        if message.type in ("error", "warning") and OF_SOFTWARE not in message.text:
            self.errors.append(message.text)

    def role(self, role, name=None, **options):
        return self.page.get_by_role(role, name=name, **options)

    def choose(self, name):
        self.page.fill("#search", name)
        self.role("option", name, exact=True).click()
        expect(self.role("heading", f"Node {name}", exact=True)).to_be_visible()
        self.settle()

    def settle(self):
        self.page.wait_for_selector("[aria-busy]", state="detached")

    def tab(self, name):
        self.role("tab", name).click()
        expect(self.role("tabpanel", name)).to_be_visible()
        self.settle()

    @property
    def width(self):
        return self.page.evaluate("document.documentElement.scrollWidth")

    def rows(self, name):
        """The cells of a table, row by row."""
        rows = self.role("group", name, exact=True).locator("tbody tr")
        return [[" ".join(t.split()) for t in row.locator("th, td").all_inner_texts()] for row in rows.all()]


@pytest.fixture
def opened(browser, server):
    """Opens the page; nothing may go wrong on it."""
    pages = []

    def open_page(width=1400, scheme="light", link=None):
        pages.append(Opened(browser, link or server.link, width, scheme))
        return pages[-1]

    yield open_page
    for one in pages:
        one.page.close()
        assert one.errors == []


def percent(share):
    return "<0.1%" if 0 < share < 0.0005 else ">99.9%" if 0.9995 <= share < 1 else f"{100 * share:.1f}%"


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_every_view(opened, explorer, width, scheme):
    shown = opened(width, scheme)
    ground = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(245, 246, 248)" if scheme == "light" else "rgb(17, 20, 25)")
    shown.choose("node 4")
    answer = explorer.answer({"ask": "node", "node": 4})
    listed = {row[0].removesuffix(" label"): row[1:] for row in shown.rows("Class probabilities")}
    for c, name in enumerate(explorer.subject.classes):
        spread = f"{percent(answer['mean'][c])} ± {100 * answer['spread'][c]:.1f}"
        assert listed[name] == [percent(answer["probabilities"][c]), spread]
    why = explorer.answer({"ask": "why", "node": 4, "target": answer["predicted"]})
    assert len(shown.rows("Largest contributions")) == min(len(why["reasons"]), 40)
    links = shown.role("group", "Largest contributions", exact=True).get_by_role(
        "button", name=re.compile(r"^node \d+$")
    )
    assert links.count()
    assert set(links.evaluate_all("links => links.map(link => link.getClientRects().length)")) == {
        1
    }  # names on one line
    added = float(shown.rows("Largest contributions")[0][-1])
    assert added == pytest.approx(why["reasons"][0]["contribution"], rel=1e-3)
    other = 1 - answer["predicted"]
    shown.role("combobox", "Why, or why not,", exact=True).select_option(str(other))
    expect(shown.page.get_by_text("What speaks for class")).to_be_visible()
    assert shown.role("group", "Feature map, scrolls sideways").locator("tbody tr").count() == 3
    window = next(w for w in answer["map"]["windows"] if w["first"] > 0 and w["last"] < 11)
    where = f"Mark the window of filter {window['filter']} at features {window['first']} to {window['last']} "
    shown.role("button", where).first.click()
    first, last = window["slots"]
    inside = [f for f in answer["map"]["features"] if window["first"] <= f["feature"] <= window["last"]]
    assert shown.page.locator("#view-node td.marked").count() == (last - first + 1) * len(inside) > 0
    for view in ("What if", "Filters", "Mistakes"):
        shown.tab(view)
        assert shown.width <= width
    expect(shown.page.get_by_text("Rows are labels, columns predictions; press a number")).to_be_visible()
    cell = max(explorer.answer({"ask": "mistakes", "part": "test"})["cells"], key=len)
    true, predicted = (explorer.subject.classes[int(part)] for part in cell.split("-"))
    ids = explorer.answer({"ask": "mistakes", "part": "test"})["cells"][cell]
    shown.role("button", f"{len(ids)} of class {true} predicted as {predicted}", exact=True).click()
    assert len(shown.rows(f"{true} predicted as {predicted}")) == len(ids)
    expect(shown.page.locator("#note")).to_have_text(f"{len(ids)} of 40 nodes shown. ")
    shown.role("button", "Compare").click()
    shown.settle()
    separate = explorer.answer({"ask": "separate", "one": 0, "other": 1})["features"]
    assert [row[0] for row in shown.rows("What tells two classes apart")] == [f["name"] for f in separate]


def test_what_if(opened, explorer):
    shown = opened()
    shown.choose("node 4")
    shown.tab("What if")
    shown.role("combobox", "Feature", exact=True).fill("word 3")
    shown.role("spinbutton", "Value").fill("2.5")
    shown.role("button", "Set feature").click()
    shown.page.get_by_label("Another node, by name").fill("node 39")
    shown.role("button", "Add edge").click()
    removed = shown.role("combobox", "Neighbour", exact=True).input_value()
    shown.role("button", "Remove edge").click()
    shown.role("button", "Draw other neighbours").click()
    expect(shown.role("button", "Undo: other neighbours drawn for every node, draw 1")).to_be_visible()
    shown.settle()
    expect(shown.page.locator("#view-what-if .chips button").first).to_be_visible()  # other nodes that change class
    asked = {"features": {"3": 2.5}, "add": [39], "remove": [int(removed)], "draw": 1}
    answer = explorer.answer({"ask": "what if", "node": 4, **asked})
    rows = {row[0]: row[1:3] for row in shown.rows("Probabilities before and after")}
    for c, name in enumerate(explorer.subject.classes):
        assert rows[name] == [percent(answer["before"][c]), percent(answer["after"][c])]
    for undo in shown.role("button", re.compile("^Undo: ")).all()[::-1]:
        undo.click()
    shown.settle()
    assert all(row[3] == "0.0" for row in shown.rows("Probabilities before and after"))
    shown.page.get_by_label("Another node, by name").fill("nobody")
    shown.role("button", "Add edge").click()
    expect(shown.page.get_by_text('There is no node "nobody".').first).to_be_visible()


def test_the_picture(opened):
    shown = opened()
    note = shown.page.locator("#note")
    shown.role("combobox", "Colour", exact=True).select_option("error")
    shown.role("button", re.compile("^right")).click()
    expect(note).to_contain_text("of 40 nodes shown")
    assert shown.role("button", re.compile("^right")).get_attribute("aria-pressed") == "false"
    shown.role("button", re.compile("^right")).click()
    expect(note).to_have_text("")
    for way in ("class", "prediction", "confidence", "part", "degree"):
        shown.role("combobox", "Colour", exact=True).select_option(way)
        assert shown.page.locator("#legend button").count() >= 1
    shown.role("combobox", "Positions", exact=True).select_option("structure")
    for show, text in (("test", "10 of 40"), ("found", "0 of 40")):
        shown.role("combobox", "Show", exact=True).select_option(show)
        expect(note).to_contain_text(f"{text} nodes shown")
    shown.page.fill("#search", "node 1")
    expect(note).to_contain_text("11 of 40 nodes shown")
    for button in ("Zoom in", "Zoom out", "Show all"):
        shown.role("button", button).click()
    shown.choose("node 4")
    assert any(shown.page.evaluate(MARKED) or shown.page.wait_for_timeout(100) for _ in range(50))
    shown.tab("Mistakes")
    shown.page.locator("#view-mistakes .matrix button").first.click()
    # All is in sight again, not that node alone.
    assert any(not shown.page.evaluate(MARKED) or shown.page.wait_for_timeout(100) for _ in range(50))


def test_few_nodes_are_drawn_larger_and_counted_in_the_legend(opened, many):
    shown = opened(link=many.link)
    shown.role("combobox", "Show", exact=True).select_option("found")
    shown.page.fill("#search", "1099")
    expect(shown.page.locator("#note")).to_contain_text("1 of 1,100 nodes shown")
    shown.page.keyboard.press("Escape")
    entry = shown.page.locator("#legend button")
    assert entry.locator("small").all_inner_texts() == ["1"]
    colour = entry.locator("i").evaluate("dot => getComputedStyle(dot).backgroundColor")
    wanted = np.array([int(part) for part in re.findall(r"\d+", colour)])
    usual = np.pi * (1.6 + 0.8 * many.explorer.subject.degrees[1099] ** 0.5) ** 2  # pixels, if all nodes are shown
    area = 0
    for _ in range(50):
        image = Image.open(BytesIO(shown.page.locator("#picture").screenshot())).convert("RGB")
        area = (abs(np.asarray(image, int) - wanted).sum(axis=2) < 30).sum()
        if 3 * usual < area < 5 * usual:
            return
    raise AssertionError(f"{area} pixels, usually {usual}")


def test_colours_of_classes_are_seen_on_a_dark_page(browser):
    graph = Graph.from_edges([[0], [1]], np.eye(12), labels=np.arange(12))
    with served(Explorer(Subject(graph))) as server:
        shown = Opened(browser, server.link, scheme="dark")
        dots = shown.page.locator("#legend i")
        colours = dots.evaluate_all("dots => dots.map(dot => getComputedStyle(dot).backgroundColor)")
        assert len(colours) == 12
        for colour in colours:
            red, green, blue = (int(part) for part in re.findall(r"\d+", colour))
            assert 0.2126 * red + 0.7152 * green + 0.0722 * blue > 90, colour
        assert shown.errors == []
        shown.page.close()


@pytest.mark.filterwarnings("ignore:columns of the frame")  # ages are standardised
def test_cells_of_the_table_stand_beside_values(browser):
    nodes = pd.DataFrame({"id": ["a", "b", "c"], "age": [20.0, 30.0, 70.0], "town": ["Ulm", "Bonn", "Ulm"]})
    graph = Graph.from_frames(nodes, pd.DataFrame({"source": ["a"], "target": ["b"]}))
    with served(Explorer(Subject(graph))) as server:
        shown = Opened(browser, server.link)
        shown.choose("a")
        assert [row[:2] for row in shown.rows("Features")] == [["town=Ulm", "Ulm"], ["age", "20"]]
        assert shown.errors == []
        shown.page.close()


def test_a_filter_of_the_list_comes_into_sight(opened):
    shown = opened(400)
    shown.tab("Filters")
    last = shown.role("group", "All filters", exact=True).get_by_role("button").last
    last.click()
    expect(shown.role("heading", f"{last.inner_text().capitalize()}: weights")).to_be_in_viewport()
    shown.role("group", "Nodes that excite it most").get_by_role("button").last.click()
    expect(shown.role("tab", "Node", selected=True)).to_be_in_viewport()


MARKED = """() => {
  const layer = document.querySelector("#picture canvas.sigma-marks");
  const [x, y] = [layer.width / 2 - 20, layer.height / 2 - 20];
  const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  copy.drawImage(layer, -x, -y);
  return copy.getImageData(0, 0, 40, 40).data.some(part => part > 0);
}"""
"""Whether something is marked in the middle of the picture, where a node goes that was searched for."""


def test_with_the_keyboard_alone(opened):
    shown = opened()
    press = shown.page.keyboard.press
    focused = "document.activeElement.id"

    def tab_to(name):
        for _ in range(40):
            press("Tab")
            if shown.page.evaluate(focused) == name:
                return
        raise AssertionError(f"no way to {name}")

    tab_to("search")
    shown.page.keyboard.type("node 1")
    expect(shown.role("option").first).to_be_visible()
    press("ArrowDown")
    active = shown.page.locator("#search").get_attribute("aria-activedescendant")
    name = shown.page.locator(f"#{active}").inner_text()
    assert shown.page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    press("Enter")
    expect(shown.role("heading", f"Node {name}", exact=True)).to_be_visible()
    tab_to("picture")
    for key in ("ArrowLeft", "ArrowUp", "+", "-", "0"):
        press(key)
    tab_to("tab-node")
    for view in ("What if", "Filters", "Mistakes"):
        press("ArrowRight")
        expect(shown.role("tab", view, selected=True)).to_be_focused()
    press("ArrowRight")
    expect(shown.role("tab", "Node", selected=True)).to_be_focused()
    press("ArrowRight")
    expect(shown.role("tab", "What if", selected=True)).to_be_focused()
    press("Tab")
    expect(shown.role("tabpanel", "What if")).to_be_focused()
    press("Tab")
    shown.page.keyboard.type("word 3")
    press("Enter")
    expect(shown.role("button", "Undo: word 3 = 1")).to_be_visible()


def test_what_a_screen_reader_gets(opened):
    shown = opened()
    shown.choose("node 4")
    tree = shown.page.locator("body").aria_snapshot()
    for part in (
        'combobox "Find a node"',
        'combobox "Colour"',
        'group "Zoom"',
        'button "Zoom in"',
        'group "Legend; press an entry to hide its nodes"',
        'tablist "Questions"',
        'tab "Node" [selected]',
        'tabpanel "Node"',
        'heading "Node node 4" [level=2]',
        'group "Class probabilities"',
        "status: Node node 4 chosen",
    ):
        assert part in tree, part
    nameless = [line for line in tree.splitlines() if re.fullmatch(r"\s*- (button|combobox|textbox|link|tab)", line)]
    assert nameless == []


def test_a_link_opens_a_node_with_a_hostile_name_as_text(opened, server):
    shown = opened(link=f"{server.link}#node={quote(HOSTILE)}")
    expect(shown.role("heading", f"Node {HOSTILE}", exact=True)).to_be_visible()
    for view in ("What if", "Filters", "Mistakes", "Node"):
        shown.tab(view)
    assert shown.page.locator("script").count() == 4
    assert HOSTILE in shown.page.locator("#view-node").inner_text()


PRESS = """([which, value]) => {
  const isSeen = (part) => part.checkVisibility() && !part.disabled;
  const parts = [...document.querySelectorAll("main button, main select")].filter(isSeen);
  const part = parts[Math.floor(which * parts.length)];
  if (part.tagName !== "SELECT") return part.click();
  part.selectedIndex = Math.floor(value * part.options.length);
  part.dispatchEvent(new Event("change"));
}"""
"""Presses one of the buttons that are seen, or takes another entry of a list."""


def test_fifty_random_clicks_and_what_ifs(opened):
    shown = opened()
    rng = random.Random(0)
    box = shown.page.locator("#picture").bounding_box()
    shown.choose("node 4")
    for turn in range(50):
        if turn % 10 == 0:
            shown.page.evaluate("document.getElementById('tab-what-if').click()")
        if turn % 2:
            shown.page.mouse.click(box["x"] + rng.random() * box["width"], box["y"] + rng.random() * box["height"])
        else:
            shown.page.evaluate(PRESS, [rng.random(), rng.random()])
    shown.settle()


def test_a_file_without_a_server(opened, explorer, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "MOST_NODES_IN_A_FILE", 2)
    (tmp_path / "page.html").write_text(page_file(explorer, first=4), encoding="utf-8")
    shown = opened(link=(tmp_path / "page.html").as_uri())
    expect(shown.role("heading", "Node node 4")).to_be_visible()
    shown.settle()
    assert shown.rows("Largest contributions")
    assert shown.role("tab", "What if").count() == 0
    for view in ("Filters", "Mistakes"):
        shown.tab(view)
        assert shown.page.get_by_role("note").count() == 0
    full = json.loads(shown.page.locator("#data").text_content())["full"]
    other = next(i for i in range(1, 40) if i not in full)
    shown.choose(f"node {other}")
    expect(shown.page.get_by_text("This file has full answers for 2 nodes")).to_be_visible()


@pytest.fixture
def part(explorer, monkeypatch):
    """An explorer that draws the neighbourhood of a node alone."""
    monkeypatch.setattr(scene, "MOST_NODES", 30)
    monkeypatch.setattr(scene, "MOST_AROUND", 8)
    return Explorer(explorer.subject)


def test_a_file_with_a_part_of_the_graph(opened, part, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "MOST_NODES_IN_A_FILE", 1)
    (tmp_path / "page.html").write_text(page_file(part, first=4), encoding="utf-8")
    shown = opened(link=(tmp_path / "page.html").as_uri())
    shown.choose("node 4")
    shown.page.fill("#search", "node 39")
    expect(shown.page.get_by_text("no node in the picture has such a name").first).to_be_visible()
    shown.page.keyboard.press("Escape")
    shown.tab("Mistakes")
    drawn = part.answer({"ask": "scene", "node": 4})["names"]
    far = next(row[0] for row in shown.rows("Most confident mistakes") if row[0] not in drawn)
    shown.role("button", far, exact=True).click()
    expect(shown.page.locator("#note")).to_contain_text("This file has full answers for 1 nodes")


def test_a_server_that_has_ended(browser, part):
    with served(part) as server:
        shown = Opened(browser, server.link)
        shown.choose("node 4")
        shown.tab("What if")
        shown.page.route("**/ask", lambda route: route.abort())
        shown.page.get_by_label("Another node, by name").fill("node 39")
        shown.role("button", "Add edge").click()
        expect(shown.page.locator("#view-what-if .note")).to_contain_text("The server does not answer")
        shown.page.fill("#search", "node 39")
        expect(shown.page.locator("#found")).to_contain_text("The server does not answer")
        shown.page.close()
    assert {error.split(":")[0] for error in shown.errors} == {"Failed to load resource"}  # Chromium's own line


A_CARD = """{
  const ask = WebGL2RenderingContext.prototype.getParameter;
  WebGL2RenderingContext.prototype.getParameter = function (what) {
    return what === 0x9246 ? "A card" : ask.call(this, what); // UNMASKED_RENDERER_WEBGL
  };
}"""
"""Makes the browser say that it draws with a graphics card."""


WATCH = """(layer) => {
  window.shifts = [];
  const note = () => layer.style.transform && window.shifts.push(layer.style.transform);
  new MutationObserver(note).observe(layer, { attributeFilter: ["style"] });
}"""
"""Notes how far a layer is shifted."""


@pytest.mark.parametrize("script", ["", A_CARD], ids=["without a graphics card", "with one"])
def test_a_graph_before_training_with_many_nodes(browser, many, script):
    shown = Opened(browser, many.link, script=script)
    shown.choose("4")
    assert shown.role("tab").all_inner_texts() == ["Node"]
    layer, box = shown.page.locator("#picture canvas.sigma-nodes"), shown.page.locator("#picture").bounding_box()
    layer.evaluate(WATCH)
    shown.page.mouse.move(box["x"] + 30, box["y"] + 30)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 60, box["y"] + 50)
    shown.page.mouse.move(box["x"] + 80, box["y"] + 60)
    shown.page.mouse.up()
    # While it is dragged, a large picture is shifted if drawing is slow; then it is drawn anew.
    expect(layer).not_to_have_attribute("style", re.compile("translate"))
    shifts = shown.page.evaluate("window.shifts")
    assert bool(shifts) == (script == "")
    # To the right, as the hand; on a busy machine it is drawn in between and may still swing back.
    assert not shifts or max(float(re.match(r"translate\((\S+)px", shift)[1]) for shift in shifts) > 0
    assert shown.errors == []
    shown.page.close()


@pytest.fixture(scope="module")
def many(make_graph):
    """A page of more nodes than are drawn for every move where drawing is slow."""
    with served(Explorer(Subject(make_graph(1100, 12, sparse=False)))) as server:
        yield server


@contextmanager
def served(explorer):
    with Server(explorer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
