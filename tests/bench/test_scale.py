"""`nfcgcn bench scale`, on a graph so small that nothing is measured but that it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nfcgcn.bench.scale import bench_scale, write_citations
from nfcgcn.errors import NFCError


def test_a_tiny_one(run):
    code, printed, errors = run(
        "bench", "scale", "--nodes", "400", "--batch-size", "32", "--batches", "2", "--layers", "1", "--json", "r.json"
    )
    assert code == 0, errors
    assert "two processes / one, seconds" in printed
    result = json.loads(Path("r.json").read_text())
    (figures,) = result["stores"]
    assert figures["nodes"] == 400
    assert figures["loss difference"] < 1e-5
    assert figures["store"]["loss"] == figures["memory"]["loss"]
    assert 0 < figures["store"]["own_mib"] <= figures["store"]["resident_mib"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--fan-out", "0"], "`fan_out` must be none or a whole number of neighbours from 1 up"),
        (["--nodes", "5"], "`--nodes` must be whole numbers from 100 up, as in 100000,1000000, got '5'"),
    ],
)
def test_bad_options(run, arguments, line):
    code, _, errors = run("bench", "scale", *arguments)
    assert code == 2
    assert errors.startswith(f"error: {line}")


def test_what_a_measured_process_says_is_passed_on(tmp_path):
    store = write_citations(tmp_path, 200)
    with pytest.raises(NFCError, match=r"^`fan_out` 1,2,3 is for 3 graph convolutions, and the model has 2"):
        bench_scale([store], fan_out="1,2,3", num_batches=1, batch_size=8)
