"""What all figures share: colours that colour-blind people can distinguish, fonts, and how to write SVG."""

from __future__ import annotations

import io
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, distinct under common forms of colour blindness; black is last, as rings are dark too.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MOST_COLOURS = 64
"""Beyond so many, colours come again."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
INK, MUTED, PALE = "#1a1f27", "#5b6472", "#d5dae1"

# Björn Ottosson's matrices of Oklab.
_TO_CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_OKLAB = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)

# matplotlib measures text in DejaVu Sans. Verdana is as wide, the fonts after it are narrower: no text is cut off.
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial"],
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "nfcgcn",
    "text.parse_math": False,  # a class may be called `$\alpha$`
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": PALE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "xtick.color": PALE,
    "ytick.color": PALE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
}


def colour_of(number: int) -> str:
    """Return a colour of its own for each of the first 64 classes: the palette, then what is most unlike all before."""
    return _colours()[number % MOST_COLOURS]


@cache
def _colours() -> tuple[str, ...]:
    levels = np.linspace(0, 1, 9)
    candidates = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(-1, 3)
    seen = perceived(candidates)
    visible = (seen[:, 0] > 0.35) & (seen[:, 0] < 0.9)  # on white, and not nearly black
    candidates, seen = candidates[visible], seen[visible]
    chosen = np.array([[int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)] for code in PALETTE])
    nearest = np.linalg.norm(seen[:, None] - perceived(chosen)[None], axis=2).min(axis=1)
    for _ in range(MOST_COLOURS - len(PALETTE)):
        best = int(nearest.argmax())
        chosen = np.vstack([chosen, candidates[best]])
        nearest = np.minimum(nearest, np.linalg.norm(seen - seen[best], axis=1))
    return (*PALETTE, *("#" + "".join(f"{round(255 * part):02X}" for part in c) for c in chosen[len(PALETTE) :]))


def perceived(rgb: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return sRGB colours ``[C, 3]`` from 0 to 1 in Oklab, whose distances are near those that people see."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(linear @ np.array(_TO_CONES).T)
    return np.asarray(cones @ np.array(_TO_OKLAB).T)


@contextmanager
def canvas() -> Iterator[Figure]:
    """Yield an empty figure in our style, whatever style the user has set."""
    import matplotlib
    import matplotlib.style
    from matplotlib.figure import Figure

    with warnings.catch_warnings(), matplotlib.style.context("default"), matplotlib.rc_context(_STYLE):
        # The browser that shows the text has fonts for more scripts than the font that matplotlib measures with.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield Figure()


def svg(figure: Figure, pad: float = 0.12) -> str:
    """Write a figure as SVG: the same figure gives the same bytes, and text stays text."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.dpi = 72  # as SVG measures
    # `bbox_inches="tight"` would draw everything once more to find the same box.
    box = figure.get_tightbbox().padded(pad)
    figure.savefig(buffer, format="svg", dpi=150, bbox_inches=box, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def short(name: str, length: int) -> str:
    """Shorten a long name in its middle, since names often differ at the start or the end."""
    # XML forbids control characters, and lone surrogates cannot be encoded.
    name = " ".join("".join(letter if letter.isprintable() else " " for letter in str(name)).split())
    if len(name) <= length:
        return name
    head = length // 2
    return name[:head] + "…" + name[len(name) - (length - 1 - head) :]


def is_wide(letter: str) -> bool:
    """Return whether a letter is as wide as it is high."""
    return unicodedata.east_asian_width(letter) in "WF"
