"""Pages and figures from results; nothing is trained here.

`render` makes the page of a run, `render_links` and `render_recommendation` those of their tasks, `render_comparison`
that of a comparison of models, `render_search` that of a search for settings. `node_reasons` and `class_reasons` turn
explanations into a table, a picture, a page and a CSV file. The rest is what other pages are made of: templates
(`fill`, `image`) and numbers as text.
"""

from __future__ import annotations

from nfcgcn.reports.comparison_page import render as render_comparison
from nfcgcn.reports.explanation_page import Reasons, class_reasons, node_reasons, write_cell
from nfcgcn.reports.html import duration, fill, image, write_score
from nfcgcn.reports.links_page import LinksPage, render_links
from nfcgcn.reports.recommendation_page import render_recommendation
from nfcgcn.reports.run_page import EXPLORED, Page, render
from nfcgcn.reports.search_page import TITLE as SEARCH_TITLE
from nfcgcn.reports.search_page import ScoresOnTest, SearchedSetting, SearchPage, ShownTrial, points, render_search

__all__ = [
    "EXPLORED",
    "SEARCH_TITLE",
    "LinksPage",
    "Page",
    "Reasons",
    "ScoresOnTest",
    "SearchPage",
    "SearchedSetting",
    "ShownTrial",
    "class_reasons",
    "duration",
    "fill",
    "image",
    "node_reasons",
    "points",
    "render",
    "render_comparison",
    "render_links",
    "render_recommendation",
    "render_search",
    "write_cell",
    "write_score",
]
