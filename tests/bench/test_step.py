"""The benchmark: it times nothing that is wrong, and says what it promises."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from nfcgcn import cli
from nfcgcn.bench import step as benchmark
from nfcgcn.bench.step import STEPPING
from nfcgcn.kernels import contract, why


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch, threads):
    monkeypatch.setattr(benchmark, "REPEATS", 1)
    monkeypatch.setattr(benchmark, "WARM_UP", 0)
    benchmark.check_contract.cache_clear()
    yield
    benchmark.check_contract.cache_clear()


@pytest.mark.data
def test_a_step_is_timed_beside_the_others(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(contract, "cases", lambda: [contract.Case("plain")])
    file = tmp_path / "bench.json"
    monkeypatch.setattr(sys, "argv", ["nfcgcn", "bench", "step", "--dataset", "cora", "--json", str(file)])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert not leaving.value.code
    result = json.loads(file.read_text())
    figures = ("plain_ms", "ours_ms", "ours_eval_ms", "pyg_gcn_ms", "pyg_gat_ms", "plain_mib", "ours_mib")
    assert all(result[key] > 0 for key in figures)
    assert result["config"]["hidden_channels"] == 16
    assert result["plain_mib"] > 5 * result["ours_mib"]  # loose: the kernels need a fiftieth of the memory
    assert "cora none 1d" in capsys.readouterr().out


@pytest.mark.data
def test_every_model_is_timed_beside_pyg(monkeypatch, tmp_path, capsys):
    file = tmp_path / "bench.json"
    monkeypatch.setattr(sys, "argv", ["nfcgcn", "bench", "models", "--dataset", "cora", "--json", str(file)])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert not leaving.value.code
    steps = json.loads(file.read_text())["step_ms"]
    assert list(steps) == [*STEPPING, "PyG's GCN, dense input", "PyG's GCN, sparse input"]
    assert all(ms > 0 for ms in steps.values())
    printed = capsys.readouterr().out
    row = next(line.split() for line in printed.splitlines() if line.split()[:1] == ["gcn"])
    theirs = min(ms for name, ms in steps.items() if name.startswith("PyG"))
    assert row == ["gcn", f"{steps['gcn']:.2f}", "1.00", f"{steps['gcn'] / theirs:.2f}"]


@pytest.mark.data
def test_a_broken_kernel_is_not_timed(monkeypatch, capsys):
    monkeypatch.setattr(contract, "violation", lambda *_: "value is off by 1")
    monkeypatch.setattr(sys, "argv", ["nfcgcn", "bench", "step", "--dataset", "cora"])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(
        "error: the CPU kernel breaks its contract, so nothing is timed: plain, none, dropout 0, sparse"
    )


@pytest.mark.data
def test_plain_pytorch_is_the_same_model(planetoid_dir):
    """What we are compared with computes what we compute: same weights, same table, same scores."""
    config = benchmark.step_config("cora", "tanh", "1d")
    graph = benchmark.load("cora")
    plain, ours = benchmark.plain_nfc_gcn(graph, config).eval(), config.build(graph, 0).eval()
    assert (why(plain.nfc, graph.x), why(ours.nfc, graph.x)) == ("reference: `backend` says so", "cpu")
    with torch.no_grad():
        expected = plain(graph.x.to_dense(), graph.edge_index)
        torch.testing.assert_close(ours(graph.x, graph.edge_index), expected, rtol=1e-4, atol=1e-5)
