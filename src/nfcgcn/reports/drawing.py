"""What all figures share: colours that colour-blind people can distinguish, fonts, and how to write SVG."""

from __future__ import annotations

import io
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, distinct under common forms of colour blindness; black is last, as rings are dark too.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
INK, MUTED, PALE = "#1a1f27", "#5b6472", "#d5dae1"

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
    buffer = io.StringIO()
    metadata = {"Date": None, "Creator": None}
    figure.savefig(buffer, format="svg", dpi=150, bbox_inches="tight", pad_inches=pad, metadata=metadata)
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
