"""HTML from the package's templates: fill them in, embed pictures, write numbers for people."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from nfcgcn.errors import counted
from nfcgcn.training.scores import SCORES


def fill(template: str, **values: Any) -> str:
    """Fill in one of the package's templates; all values are escaped."""
    return str(_templates().get_template(template).render(**values))


@cache
def _templates() -> Any:
    """Return the package's templates, each of which is compiled once per process."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("nfcgcn.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=percent, duration=duration, setting=_setting, count=_count, counted=counted, interval=_interval
    )
    return environment


def image(svg: str) -> dict[str, Any]:
    """Return what an `<img>` needs; with the size in pixels, the page does not move while it loads."""
    width, height = svg.partition('viewBox="0 0 ')[2].partition('"')[0].split()
    return {
        "source": "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode(),
        "width": round(float(width) * 4 / 3),
        "height": round(float(height) * 4 / 3),
    }


def percent(value: float | None) -> str:
    """Write a share from 0 to 1 in percent, without the sign; "n/a" if there is none."""
    return "n/a" if value is None or not math.isfinite(value) else f"{100 * value:.1f}"


def write_score(name: str, summary: Mapping[str, Any] | None) -> str:
    """Write a score of the test nodes, the mean over the seeds: "81.2 %" or "0.473"; "n/a" if there is none."""
    if summary is None:
        return "n/a"
    return f"{percent(summary['mean'])} %" if SCORES[name].is_share else f"{summary['mean']:.3f}"


def _interval(accuracy: Mapping[str, Any]) -> str | None:
    ends = accuracy["ci95"]
    return None if ends is None else f"{percent(ends[0])} to {percent(ends[1])}"


def _count(value: int) -> str:
    return f"{value:,}"


def duration(seconds: float) -> str:
    """Write a duration for people: "59.9 s", "1 min 00 s", "2 h 03 min"."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _setting(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value)) or "none"
    return str(value)
