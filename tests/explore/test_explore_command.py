"""`nfcgcn explore`: files, the server's beginning and end, links between pages, and errors in one line."""

from __future__ import annotations

import re
import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from nfcgcn.explore import Server, page


@pytest.fixture
def own_run(run_folder, tmp_path):
    """A copy of the run, to write into."""
    return shutil.copytree(run_folder, tmp_path / "own run")


def test_a_page_beside_the_report_is_linked(run, own_run, run_folder, monkeypatch):
    monkeypatch.setattr(page, "MOST_NODES_IN_A_FILE", 3)
    graph = run_folder.parent / "small.npz"
    assert "explore.html" not in (own_run / "report.html").read_text()
    code, out, err = run("explore", own_run, graph, "--draws", "2", "--out", own_run / "explore.html")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"written: {own_run / 'explore.html'}"
    assert 'href="explore.html#view=mistakes"' in (own_run / "report.html").read_text()
    assert (own_run / "layout.safetensors").exists()
    code, _, err = run("explain", own_run, graph, "--node", "node 4", "--out", "why.html")
    assert (code, err) == (0, "")
    assert 'href="own%20run/explore.html#node=node%204"' in Path("why.html").read_text()


def test_a_graph_for_gephi(run, run_folder):
    code, out, err = run("explore", run_folder.parent / "small.npz", "--out", "graph.gexf")
    assert (code, out, err) == (0, "written: graph.gexf\n", "")
    assert Path("graph.gexf").read_text().count("<node ") == 40


def test_the_server_ends_with_ctrl_c(run, run_folder, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupt)
    code, out, err = run("explore", run_folder, run_folder.parent / "small.npz", "--node", "node 4", "--no-browser")
    assert (code, err) == (0, "")
    first, *_, last = out.splitlines()
    assert re.fullmatch(r"open http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", first)
    assert last == "ended"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a RUN, or a GRAPH to look at before training"),
        (["digits", "--out", "x.png"], "--out must end in .html or .gexf, got 'x.png'"),
        (["no-such-graph"], "no-such-graph"),
    ],
)
def test_errors_in_one_line(run, arguments, message):
    code, _, err = run("explore", *arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_an_unknown_node(run, run_folder):
    code, _, err = run("explore", run_folder, run_folder.parent / "small.npz", "--node", "nod 4")
    assert (code, err.split(";")[0]) == (2, "error: unknown node 'nod 4'")


def test_the_licences_of_others_come_along():
    vendor = files("nfcgcn.explore").joinpath("static/vendor")
    for name in ("sigma", "graphology", "graphology-utils", "events"):
        assert "Permission is hereby granted" in vendor.joinpath(f"{name}.LICENSE.txt").read_text(encoding="utf-8")
