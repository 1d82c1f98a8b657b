"""`nfcgcn bench scale`, on a graph so small that nothing is measured but that it runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nfcgcn
from nfcgcn.bench.scale import bench_scale, write_citations
from nfcgcn.errors import NFCError


def test_a_tiny_one(run):
    sizes = ["--nodes", "400", "--batch-size", "32", "--batches", "2", "--layers", "1"]
    packing = ["--pack", "--memory", "300MB", "--keep", "kept", "--inference"]
    code, printed, errors = run("bench", "scale", *sizes, *packing, "--json", "r.json")
    assert code == 0, errors
    assert "two processes / one, a core each" in printed
    assert "packing, CPU seconds" in printed
    result = json.loads(Path("r.json").read_text())
    (figures,) = result["stores"]
    assert figures["nodes"] == 400
    assert figures["loss difference"] < 1e-5
    assert len(figures["one process"]["losses"]) == 2
    assert figures["store"]["loss"] == figures["memory"]["loss"] == figures["cold"]["loss"]
    assert figures["store"]["loss"] == pytest.approx(np.mean(figures["store"]["losses"]))
    assert 0 < figures["store"]["own_mib"] <= figures["store"]["resident_mib"]
    assert figures["pack"]["memory"] == 3 * 10**8
    kept = nfcgcn.open_store("kept/citations-400")
    drawn = nfcgcn.load("citations", nodes=400, degree=10.0)
    np.testing.assert_array_equal(kept.adjacency.indices, drawn.adjacency.indices)
    words = [int(name.removeprefix("words: w")) for name in kept.feature_names]
    np.testing.assert_array_equal(kept.features.toarray(), drawn.features.toarray()[:, words])
    assert [kept.class_names[c] for c in kept.labels] == [drawn.class_names[c] for c in drawn.labels]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--fan-out", "0"], "`fan_out` must be none or a whole number of neighbours from 1 up"),
        (["store", "--pack"], "--pack and --keep are for generated graphs; leave out either STORE or these options"),
        (["--pack", "--memory", "much"], "--memory takes a size such as 2GB, got 'much'"),
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
