"""Pages and figures from results; nothing is trained here.

`render` makes the page of a run. `node_reasons` and `class_reasons` turn explanations into a table, a picture, a page
and a CSV file. The rest is what other pages are made of: templates (`fill`, `image`) and numbers as text.
"""

from __future__ import annotations

from nfcgcn.reports.explanation_page import Reasons, class_reasons, find_node, node_reasons, write_cell
from nfcgcn.reports.html import counted, duration, fill, image
from nfcgcn.reports.run_page import Page, render

__all__ = [
    "Page",
    "Reasons",
    "class_reasons",
    "counted",
    "duration",
    "fill",
    "find_node",
    "image",
    "node_reasons",
    "render",
    "write_cell",
]
