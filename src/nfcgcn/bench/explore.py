"""What the page of `nfcgcn explore` costs in a real browser: the first picture, nodes, changes, panning, memory."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nfcgcn.errors import ConfigError
from nfcgcn.evaluation import environment
from nfcgcn.explore import Explorer, Server, Subject
from nfcgcn.graph import Graph
from nfcgcn.inference.checkpoint import SavedRun
from nfcgcn.inference.explanation import explain
from nfcgcn.inference.prediction import predict_proba

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "google-chrome", "chromium-browser")
LOADS = 3
HUBS = 5
"""Nodes with the most neighbours, which are asked about in addition to those drawn at random."""
CLICKS = 50
CHANGES = ("Set feature", "Remove edge", "Draw other neighbours")
OF_SOFTWARE = "GPU stall due to ReadPixels"
"""A remark of Chromium's on drawing without a graphics card; it is no error of the page."""

FIRST_PICTURE = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("#picture canvas.sigma-mouse")) return;
  observer.disconnect();
  const answered = () => performance.getEntriesByType("navigation")[0].responseStart;
  requestAnimationFrame(() => requestAnimationFrame(() => { window.firstPicture = performance.now() - answered(); }));
}).observe(document, { childList: true, subtree: true });
window.nextFrame = () => new Promise(requestAnimationFrame);
window.settled = async (isThere) => {
  while (!isThere() || document.querySelector("[aria-busy]")) await nextFrame();
};
"""
"""Notes when two frames have passed since the picture was drawn: then it is on the screen."""

WAIT = "async () => { while (!window.firstPicture) await nextFrame(); return window.firstPicture; }"

RENDERER = """() => {
  const gl = document.createElement("canvas").getContext("webgl2");
  return gl.getParameter(gl.getExtension("WEBGL_debug_renderer_info").UNMASKED_RENDERER_WEBGL);
}"""

NODE = """async (name) => {
  const input = document.getElementById("search");
  input.value = name;
  input.dispatchEvent(new Event("input"));
  const options = [...document.querySelectorAll("#found [role=option]")];
  for (let step = options.findIndex((option) => option.textContent === name); step > 0; step--)
    input.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" }));
  const start = performance.now();
  input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
  await settled(() => document.querySelector("#view-node h2")?.textContent === `Node ${name}`);
  await nextFrame();
  const ms = performance.now() - start;
  const texts = (table) => [...document.querySelectorAll(`#view-node [aria-label="${table}"] tbody tr`)].map(
    (row) => [...row.children].map((cell) => cell.firstChild?.textContent ?? ""));
  return { ms, probabilities: texts("Class probabilities"), reasons: texts("Largest contributions") };
}"""
"""Chooses a node by its name and waits until all about it, its reasons too, is on the screen."""

WHAT_IF = """async ([kind, feature]) => {
  document.getElementById("tab-what-if").click();
  await settled(() => true);
  const button = [...document.querySelectorAll("#view-what-if button")].find((b) => b.textContent === kind);
  if (!button) return null;
  if (kind === "Set feature") {
    button.form.querySelector("input[type=text]").value = feature;
    button.form.querySelector("input[type=number]").value = 1;
  }
  const start = performance.now();
  button.click();
  await settled(() => true);
  await nextFrame();
  return performance.now() - start;
}"""
"""Makes a change in the view "What if" and waits until the new probabilities are on the screen."""

PAN = """async (seconds) => {
  document.getElementById("zoom-all").click();
  const layer = document.querySelector("#picture canvas.sigma-mouse");
  const box = layer.getBoundingClientRect();
  for (let rest = 0; rest < 30; rest++) await nextFrame();
  const send = (place, type, by) => place.dispatchEvent(new MouseEvent(type, {
    bubbles: true, clientX: box.x + box.width / 2 + by, clientY: box.y + box.height / 2 + by / 2 }));
  send(layer, "mousedown", 0);
  const [start, gaps] = [performance.now(), []];
  let before = start, by = 0, step = 3;
  while (performance.now() - start < 1000 * seconds) {
    by += step;
    if (Math.abs(by) > box.width / 4) step = -step;
    send(layer, "mousemove", by);
    await nextFrame();
    gaps.push(performance.now() - before);
    before = performance.now();
  }
  send(document, "mouseup", by);
  return gaps;
}"""
"""Drags the picture to and fro, by one step per frame; returns the milliseconds between frames."""


def bench_explore(
    saved: SavedRun,
    graph: Graph,
    *,
    num_nodes: int = 20,
    seconds: float = 3.0,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return what the page of a run costs: milliseconds of each answer and of each frame, and MiB.

    Every time is taken inside the page, from the key or click to the frame that shows the answer. The probabilities
    and the largest contribution of each node that is asked about are compared with those of `predict` and `explain`.
    """
    if find_spec("playwright") is None:
        raise ConfigError("`bench explore` needs playwright; `pip install playwright`")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise ConfigError(f"`bench explore` needs a browser; none of {', '.join(BROWSERS)} is on PATH")
    from playwright.sync_api import sync_playwright

    say("preparing")
    start = time.perf_counter()
    explorer = Explorer(Subject(graph, saved), folder=saved.folder)
    explorer.prepare()
    result = {"graph": graph.name, "model": saved.model_name, "nodes": graph.num_nodes, "edges": graph.num_edges}
    result["prepare_s"] = time.perf_counter() - start
    with sync_playwright() as started, _served(explorer) as link:
        browser = started.chromium.launch(executable_path=path)
        result["browser"] = f"Chromium {browser.version}"
        result |= _measure(browser, link, explorer, num_nodes=num_nodes, seconds=seconds, say=say)
        browser.close()
    return {**result, **environment(torch.device("cpu"))}


def _measure(
    browser: Browser, link: str, explorer: Explorer, *, num_nodes: int, seconds: float, say: Callable[[str], None]
) -> dict[str, Any]:
    errors: list[str] = []
    say("first picture")
    first = []
    for _ in range(LOADS):
        page = _open(browser, link, errors)
        first.append(page.evaluate(WAIT))
    say("panning")
    frames = page.evaluate(PAN, seconds)
    result = {
        "first_picture_ms": first,
        "pan": {
            "frames_per_s": 1000 * len(frames) / sum(frames),
            "median_ms": median(frames),
            "slowest_ms": max(frames),
        },
        "renderer": page.evaluate(RENDERER),
    }
    say("nodes and changes")
    degrees = explorer.subject.degrees
    others = np.random.default_rng(0).choice(len(degrees), min(num_nodes, len(degrees)), replace=False)
    asked = {"hubs": np.argsort(-degrees, kind="stable")[:HUBS].tolist(), "nodes": others.tolist()}
    result |= _ask(page, explorer, asked)
    say("clicks")
    _click(page)
    return {**result, **_memory(browser, page), "console_errors": errors}


@contextmanager
def _served(explorer: Explorer) -> Iterator[str]:
    with Server(explorer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.link
        finally:
            server.shutdown()
            thread.join()


def _open(browser: Browser, link: str, errors: list[str]) -> Page:
    """Open the page in place of the one before; what goes wrong on it is added to `errors`."""
    for context in browser.contexts:
        context.close()
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.add_init_script(FIRST_PICTURE)
    page.on(
        "console",
        lambda m: errors.append(m.text) if m.type in ("error", "warning") and OF_SOFTWARE not in m.text else None,
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(link)
    return page


def _ask(page: Page, explorer: Explorer, asked: dict[str, list[int]]) -> dict[str, Any]:
    """Return the times of nodes and of changes to them, and the nodes unlike what `predict` and `explain` say."""
    subject = explorer.subject
    assert subject.run is not None  # noqa: S101
    expected = predict_proba(subject.run.model, subject.graph).probabilities
    node_ms: dict[str, list[float]] = {kind: [] for kind in asked}
    change_ms: dict[str, list[float]] = {}
    wrong = []
    for kind, nodes in asked.items():
        for node in nodes:
            shown = page.evaluate(NODE, subject.name(node))
            node_ms[kind].append(shown["ms"])
            reasons = explain(subject.run.model, subject.graph, node).top(1)
            probabilities = {name: text for name, text, *_ in shown["probabilities"]}
            pairs = zip(subject.classes, expected[node], strict=True)
            is_right = all(probabilities[c] == _percent(p) for c, p in pairs)
            if reasons:
                added = float(shown["reasons"][0][-1])
                is_right &= abs(added - reasons[0].contribution) <= 1e-3 * abs(reasons[0].contribution)
            if not is_right:
                wrong.append(subject.name(node))
            for change in CHANGES:
                ms = page.evaluate(WHAT_IF, [change, subject.feature(node % subject.graph.num_features)])
                if ms is not None:
                    change_ms.setdefault(change.lower(), []).append(ms)
            page.evaluate("document.getElementById('tab-node').click()")
    return {"node_ms": node_ms, "what_if_ms": change_ms, "nodes_unlike_predict_or_explain": wrong}


def _percent(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else ">99.9%" if 0.9995 <= share < 1 else f"{100 * share:.1f}%"


def _click(page: Page) -> None:
    """Click on random places of the picture, and make a change after each."""
    rng = random.Random(0)
    box = page.locator("#picture").bounding_box()
    assert box is not None  # noqa: S101
    for turn in range(CLICKS):
        page.mouse.click(box["x"] + rng.random() * box["width"], box["y"] + rng.random() * box["height"])
        page.evaluate(WHAT_IF, [CHANGES[turn % len(CHANGES)], str(turn)])


def _memory(browser: Browser, page: Page) -> dict[str, Any]:
    """Return the memory of the page's scripts and, where the system tells, of its process and of all of the browser."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = [(process["type"], _resident_mib(int(process["id"]))) for process in processes]
    return {
        "heap_mib": metrics["JSHeapUsedSize"] / 2**20,
        "page_mib": max((size for kind, size in sizes if kind == "renderer"), default=0.0),
        "browser_mib": sum(size for _, size in sizes),
    }


def _resident_mib(process: int) -> float:
    """Return the memory of a process, with its share of what it has in common with others; 0 where nobody tells."""
    path = Path(f"/proc/{process}/smaps_rollup")
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
