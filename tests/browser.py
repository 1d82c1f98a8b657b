"""A page in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

PROBE = """<script>
const errors = [];
window.onerror = message => errors.push(String(message));
document.addEventListener("securitypolicyviolation", event => errors.push(event.violatedDirective));
window.addEventListener("load", async () => {
  const images = [];
  for (const image of document.images) {
    try { await image.decode(); } catch (error) { errors.push(String(error)); }
    const box = image.getBoundingClientRect();
    images.push([image.naturalWidth, image.naturalHeight, box.width, box.height]);
  }
  const page = document.documentElement;
  const tables = [...document.querySelectorAll("table")].map(table => {
    const box = table.parentElement;
    return [box.getAttribute("aria-label") || "", box.scrollWidth, box.clientWidth, getComputedStyle(box).overflowX];
  });
  const heights = [...document.querySelectorAll("tr")].map(row => row.offsetHeight);
  const sizes = {inner: window.innerWidth, scroll: page.scrollWidth, tallest_row: Math.max(0, ...heights)};
  parent.postMessage({errors, images, tables, ...sizes, text: page.innerText}, "*");
});
</script>"""

# Headless Chromium has a least window width of about 500 pixels; a frame has none.
FRAME = """<!doctype html><pre id="probe"></pre><script>
window.addEventListener("message", event => {{
  document.getElementById("probe").textContent = JSON.stringify(event.data);
}});
</script><iframe src="page.html" style="width: {width}px; height: 844px; border: 0"></iframe>"""


def tables_fit(probe: Any) -> bool:
    """Return whether the page never scrolls sideways and tables do so only in their own boxes on a narrow screen."""
    if probe["scroll"] > probe["inner"] or not probe["tables"]:
        return False
    if probe["inner"] < 1200:
        return all(overflow == "auto" for *_, overflow in probe["tables"])
    return all(wide <= room for _, wide, room, _ in probe["tables"])


def look(page: str, width: int, folder: Path) -> tuple[Any, str]:
    """Open a page in a frame of that width; return what a script inside found, and the browser's log."""
    source = page.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
    (folder / "page.html").write_text(source.replace("<head>", "<head>" + PROBE))
    (folder / "frame.html").write_text(FRAME.format(width=width))
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-sync"
    done = subprocess.run(
        [
            str(CHROMIUM),
            *(f"--{flag}" for flag in flags.split()),
            "--disable-component-update",
            "--enable-logging=stderr",
            f"--user-data-dir={folder / 'profile'}",
            "--window-size=1300,900",
            "--virtual-time-budget=5000",
            "--dump-dom",
            (folder / "frame.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = re.search(r'<pre id="probe">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-500:] + done.stderr[-500:]
    return json.loads(html.unescape(found.group(1))), done.stderr
