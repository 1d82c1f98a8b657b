"""NFC-GCNs side by side, and training them so: on a device, or through Triton's interpreter, which is slow."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from nfcgcn.config.registry import make_config
from nfcgcn.data import load
from nfcgcn.errors import ConfigError, NFCError
from nfcgcn.evaluation import repeat
from nfcgcn.graph import Graph, Split
from nfcgcn.kernels import choice, dispatch
from nfcgcn.kernels.reference import masks as masks_reference
from nfcgcn.method.model import NFCGCN
from nfcgcn.method.node_feature_conv import NodeFeatureConv
from nfcgcn.method.operations import propagate
from nfcgcn.training import TrainingConfig, cuda_graph, fit, fit_together
from nfcgcn.training.loop import fit_in_steps
from nfcgcn.training.side_by_side import SideBySide, refusal

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZES = {"bandwidth": 3, "filters": 2, "kernel_size": 4, "stride": 2}


@pytest.fixture
def graph():
    rng = np.random.default_rng(0)
    labels = np.arange(12) % 2
    features = (rng.random((12, 8)) < 0.3 + 0.4 * labels[:, None] * (np.arange(8) < 4)).astype(np.float32)
    from scipy.sparse import csr_array

    return Graph.from_edges(rng.integers(0, 12, (2, 20)), csr_array(features), labels=labels)


SPLIT = Split(np.arange(6), np.arange(6, 10), np.arange(10, 12))


def models(count, *, num_layers=2, **options):
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        made.append(NFCGCN(8, 3, num_layers, 2, seed=seed, **{**SIZES, **options}).to(DEVICE))
    return made


@pytest.mark.parametrize(("num_layers", "activation"), [(0, "none"), (1, "none"), (2, "tanh")])
def test_models_side_by_side_score_as_they_do_alone(graph, num_layers, activation):
    made = models(2, num_layers=num_layers, activation=activation)
    x, edge_index = graph.x.to(DEVICE), graph.edge_index.to(DEVICE)
    net = SideBySide(made, x, edge_index, "float32").eval()
    found = net(torch.zeros(2, 2, dtype=torch.int64, device=DEVICE))
    expected = torch.stack([m.eval()(x, edge_index) for m in made])
    torch.testing.assert_close(found, expected)


def test_training_side_by_side_drops_what_a_model_alone_would(graph):
    (model,) = models(1)
    x, edge_index = graph.x.to(DEVICE), graph.edge_index.to(DEVICE)
    net = SideBySide([model], x, edge_index, "float32").train()
    torch.manual_seed(4)
    seeds = net.draw_seeds(0)
    assert len(seeds) == 2
    found = net(torch.tensor(seeds, device=DEVICE)[:, None])[0]
    torch.manual_seed(4)
    model.train()
    h = torch.relu(propagate(model.read(x, edge_index), edge_index))
    mask = masks_reference.mask(*h.shape, dropout=0.5, seed=seeds[1], dtype=h.dtype).to(DEVICE)
    torch.testing.assert_close(found, model.layers[1](h * mask, edge_index))


def trainer_of(made, graph, config):
    net = SideBySide(made, graph.x.to(DEVICE), graph.edge_index.to(DEVICE), "float32")
    return cuda_graph.Trainer(net, graph, [(SPLIT.train, SPLIT.val)] * len(made), config, range(len(made)), DEVICE)


@pytest.mark.parametrize(
    ("resample", "activation"), [("once", "none"), pytest.param("epoch", "tanh", marks=pytest.mark.thorough)]
)
def test_epochs_on_the_device_are_those_of_the_loop(graph, resample, activation):
    # Dropout at a rate of one half comes out alike on every device; the sums are rounded otherwise.
    # Two epochs show that neighbours are drawn anew; a third, that one who gave up is left alone.
    config = TrainingConfig(epochs=3 if resample == "once" else 2, learning_rate=0.7, patience=1)
    options = {"resample": resample, "activation": activation}
    trainer = trainer_of(models(2, **options), graph, config)
    record = cuda_graph.Record(trainer, None)
    for _ in range(config.epochs):
        trainer.run_epoch()
    record.read(config.epochs)
    for seed, model in enumerate(models(2, **options)):
        parts, cpu = (SPLIT.train, SPLIT.val), torch.device("cpu")
        run = fit_in_steps(model.cpu(), graph, parts, config, seed=seed, device=cpu, on_epoch=None)
        history = record.histories[seed]
        assert len(history) == len(run.history)
        if resample == "once":
            assert len(history) == (3, 2)[seed]  # the second gives up, and would be best in its third
        for found, expected in zip(history, run.history, strict=True):
            assert found == pytest.approx(expected, rel=1e-4)
        assert int(trainer.best_epoch[seed]) == run.best["epoch"] == record.best[seed]["epoch"]
        for name, value in trainer.net.states(trainer.best_params)[seed].items():
            torch.testing.assert_close(value, run.state[name], rtol=1e-3, atol=1e-5)


@pytest.mark.thorough
def test_who_gave_up_keeps_its_best_state(graph):
    config = TrainingConfig(epochs=3, learning_rate=1e-9, patience=1)
    trainer = trainer_of(models(1), graph, config)
    trainer.run_epoch()
    trainer.best.fill_(2.0)  # nothing can be better
    before = [p.clone() for p in trainer.best_params]
    trainer.run_epoch()
    assert trainer.stopped.tolist() == [True]
    trainer.best.fill_(-2.0)
    trainer.run_epoch()
    assert trainer.best_epoch.tolist() == [1]
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.best_params, strict=True))


def test_what_is_not_stacked(graph):
    x = graph.x.to(DEVICE)
    made = models(2)
    if DEVICE.type == "cpu":
        assert refusal(made, x) == "the tensors are on cpu"
    assert refusal([made[0], torch.nn.Linear(1, 1)], x) == "only NFC-GCN models can be stacked"
    assert refusal([made[0], *models(1, stride=3)], x) == "the models differ in shape"
    dropping = models(1, representation_dropout=0.5)
    assert refusal(dropping, x) == "dropout on the convolution's output needs all of it in memory"
    assert refusal([made[0], *dropping], x) == "the models differ in shape"
    assert refusal(models(1, classifier="linear"), x) == "a classifier follows the graph convolutions"
    assert refusal(models(1, edge_dropout=0.3), x) == "`edge_dropout` is 0.3"
    assert refusal(models(1, own_features="mlp"), x) == "`own_features` is mlp"
    assert refusal(models(1, self_weight=2.0), x) == "`self_weight` is 2.0"
    assert refusal(models(1, backend="reference"), x) == "`backend` is reference"


def test_precision_is_for_gpus(graph):
    message = "^`precision` must be float32 on the CPU, got tf32$"
    with pytest.raises(ConfigError, match=message):
        fit(models(1)[0].cpu(), graph, SPLIT, TrainingConfig(precision="tf32"))


def test_together_on_the_cpu_is_one_after_the_other(graph):
    config = TrainingConfig(epochs=3)
    told = []
    made = [m.cpu() for m in models(2)]
    runs = fit_together(
        made, graph, [SPLIT] * 2, config, seeds=[3, 4], on_epoch=lambda run, epoch: told.append((run, epoch["epoch"]))
    )
    assert told == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]
    alone = fit(models(2)[1].cpu(), graph, SPLIT, config, seed=4)
    assert runs[1].history == alone.history


@pytest.fixture(scope="module")
def digits():
    from scipy.sparse import csr_array

    graph = load("digits")
    return replace(graph, features=csr_array(graph.features))


@pytest.mark.gpu
class TestOnADevice:
    config = make_config("nfc-gcn", dataset="digits", settings={"epochs": 60})

    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"activation": "tanh"},
            {"num_layers": 0},
            {"resample": "epoch"},
            {"resample": "epoch", "activation": "tanh"},
        ],
        ids=str,
    )
    def test_runs_together_are_to_the_bit_what_they_are_alone(self, digits, settings):
        config = make_config("nfc-gcn", dataset="digits", settings={"epochs": 30, **settings})
        together = repeat(digits, config, [0, 1, 2], device="cuda")
        alone = repeat(digits, config, [1], device="cuda")[0]
        assert together[1].run.history == alone.run.history
        for name, value in alone.run.state.items():
            assert torch.equal(together[1].run.state[name], value)
        assert together[1].predictions.tolist() == alone.predictions.tolist()

    def test_accuracy_is_the_cpu_s(self, digits):
        on = [
            np.mean([r.test_accuracy for r in repeat(digits, self.config, [0, 1, 2], device=d)])
            for d in ("cpu", "cuda")
        ]
        assert abs(on[0] - on[1]) < 0.01

    def test_neighbours_drawn_for_every_epoch_stay_inside_the_graph(self, digits, caplog):
        # Dense features too, which need no lists. Masks and neighbours are the CPU's; sums are rounded otherwise.
        settings = {"epochs": 4, "resample": "epoch"}
        for graph, slot_order in ((digits, "random"), (digits, "similarity"), (load("digits"), "similarity")):
            config = make_config("nfc-gcn", dataset="digits", settings=settings | {"slot_order": slot_order})
            with caplog.at_level(logging.DEBUG, "nfcgcn"):
                (found,) = repeat(graph, config, [3], device="cuda")
            (expected,) = repeat(graph, config, [3])
            for ours, theirs in zip(found.run.history, expected.run.history, strict=True):
                assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-3)
        assert "no CUDA graph" not in caplog.text

    def test_no_slow_import_is_needed(self):
        code = (
            "import sys, nfcgcn; graph = nfcgcn.load('digits'); "
            "config = nfcgcn.make_config('nfc-gcn', dataset='digits', settings={'epochs': 2}); "
            "split = nfcgcn.make_split(graph, 'per-class', seed=0); "
            "nfcgcn.fit(config.build(graph, seed=0), graph, split, config.training, device='cuda'); "
            "print('sympy' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"

    @pytest.mark.parametrize("slot_order", ["random", "similarity"])
    def test_tables_are_the_cpu_s(self, digits, slot_order):
        layer = NodeFeatureConv(64, bandwidth=9, seed=3, slot_order=slot_order)
        on_cpu = layer.table(digits.x, digits.edge_index)
        assert torch.equal(layer.table(digits.x.cuda(), digits.edge_index.cuda()).cpu(), on_cpu)

    @pytest.mark.parametrize("precision", ["tf32", "bf16"])
    def test_lower_precisions_learn_as_well(self, digits, precision):
        lower = make_config("nfc-gcn", dataset="digits", settings={"epochs": 60, "precision": precision})
        full, found = (
            np.mean([r.test_accuracy for r in repeat(digits, c, [0, 1, 2], device="cuda")])
            for c in (self.config, lower)
        )
        assert abs(full - found) < 0.01

    def test_early_stopping_is_exact(self, digits):
        settings = {"epochs": 200, "patience": 5, "learning_rate": 0.05}
        config = make_config("nfc-gcn", dataset="digits", settings=settings)
        run = repeat(digits, config, [0], device="cuda")[0].run
        assert len(run.history) == run.best["epoch"] + 5
        assert run.best["val_accuracy"] == max(e["val_accuracy"] for e in run.history)

    @pytest.mark.parametrize(
        ("name", "settings", "reason"),
        [
            (
                "nfc-gcn",
                {"representation_dropout": 0.5, "classifier": "linear"},
                "no CUDA graph: dropout on the convolution's output needs all of it in memory",
            ),
            ("sage-mean", {}, "no CUDA graph: the model samples nodes for every step"),
            ("nfc-gcn", {"batch_size": 50}, "no CUDA graph: the training nodes are taken in batches"),
        ],
        ids=["literal", "sage", "batches"],
    )
    def test_without_a_graph_it_says_why(self, digits, caplog, name, settings, reason):
        config = make_config(
            name,
            settings={"epochs": 3, "kernel_size": 16, "stride": 8, **settings}
            if name == "nfc-gcn"
            else {"epochs": 3, **settings},
        )
        with caplog.at_level(logging.DEBUG, "nfcgcn"):
            assert len(repeat(digits, config, [0], device="cuda")[0].run.history) == 3
        assert reason in caplog.text

    def test_without_triton_it_trains_all_the_same(self, digits, caplog, monkeypatch):
        for module in (cuda_graph, choice, dispatch):
            monkeypatch.setattr(module, "triton_refusal", lambda: "Triton is not installed")
        config = make_config("nfc-gcn", dataset="digits", settings={"epochs": 3})
        with caplog.at_level(logging.DEBUG, "nfcgcn"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the reference's slowness is told
            assert len(repeat(digits, config, [0], device="cuda")[0].run.history) == 3
        assert "no CUDA graph: Triton is not installed" in caplog.text

    def test_a_parameter_without_part_is_let_be(self, digits, caplog):
        config = make_config("gcn", settings={"epochs": 3})
        model = config.build(digits, 0)
        model.register_parameter("idle", torch.nn.Parameter(torch.ones(2)))
        with caplog.at_level(logging.DEBUG, "nfcgcn"):
            run = fit(model, digits, config.split.make(digits, 0), config.training, device="cuda")
        assert "no CUDA graph: the scores do not depend on one of the parameters" in caplog.text
        assert len(run.history) == 3
        assert run.state["idle"].tolist() == [1, 1]

    @pytest.mark.parametrize("name", ["gcn", "gat", "mlp", "jknet"])
    def test_other_models_train_as_graphs_too(self, digits, caplog, name):
        with caplog.at_level(logging.DEBUG, "nfcgcn"):
            made = repeat(digits, make_config(name, settings={"epochs": 60}), [0], device="cuda")[0]
        assert "no CUDA graph" not in caplog.text
        assert made.test_accuracy > 0.8

    def test_a_diverging_run_is_told(self, digits):
        config = make_config("nfc-gcn", dataset="digits", settings={"learning_rate": 1e30})
        with pytest.raises(NFCError, match="training diverged in epoch"):
            repeat(digits, config, [0], device="cuda")
