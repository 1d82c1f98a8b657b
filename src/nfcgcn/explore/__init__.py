"""Look inside a graph and a model: a page on this machine, or in one file, that answers questions.

`Explorer` answers them as plain values; `serve` puts a page in front of it, `write_page` writes the page with the
answers in it, `to_gexf` the graph for other programs. Nothing is trained, and no answer changes the run.
"""

from __future__ import annotations

from nfcgcn.explore.answers import Explorer
from nfcgcn.explore.gexf import to_gexf
from nfcgcn.explore.page import make_page, page_file
from nfcgcn.explore.server import Server
from nfcgcn.explore.subject import Subject

__all__ = ["Explorer", "Server", "Subject", "make_page", "page_file", "to_gexf"]
