import copy
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nfcgcn import GCN, NFCGCN, fit
from nfcgcn.baselines import GAT, GAT5, GCN5, LGCN, MLP, SAGE, FastGCN, JKNet
from nfcgcn.data.splits import make_split
from nfcgcn.errors import ConfigError, GraphError, NFCError, NFCWarning
from nfcgcn.graph import Split
from nfcgcn.method import model as models
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.randomness import torch_randomness
from nfcgcn.training import Stopping, TrainingConfig


def message(text):
    return f"^{re.escape(text)}$"


SMALL = {"bandwidth": 4, "filters": 8, "kernel_size": 10, "stride": 5}
MODELS = {
    "1d tanh": lambda seed: NFCGCN(40, 8, 2, 3, activation="tanh", seed=seed, **SMALL),
    "2d": lambda seed: NFCGCN(40, 8, 2, 3, conv="2d", seed=seed, **SMALL),
    "no graph convolution": lambda seed: NFCGCN(40, 8, 0, 3, seed=seed, **SMALL),
    "anew each epoch": lambda seed: NFCGCN(40, 8, 1, 3, resample="epoch", seed=seed, **SMALL),
    "gcn": lambda seed: GCN(40, 16, 2, 3),
    "mlp": lambda seed: MLP(40, 16, 2, 3),
    "gat": lambda seed: GAT(40, 8, 2, 3, heads=4, dropout=0.3, attention_dropout=0.3),
    "sage-mean": lambda seed: SAGE(40, 16, 2, 3, num_neighbours=4, num_further=2),
    "jknet concat": lambda seed: JKNet(40, 16, 3, 3),
    "jknet lstm": lambda seed: JKNet(40, 16, 3, 3, mode="lstm"),
    "fastgcn": lambda seed: FastGCN(40, 16, 3, samples=100),
    "lgcn": lambda seed: LGCN(40, 16, 1, 3, dropout=0.2),
    "gcn-5": lambda seed: GCN5(40, 3, dropout=0.1, seed=seed),
    "gat-5": lambda seed: GAT5(40, 3, dropout=0.1, seed=seed),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def build(make, seed=0):
    with torch_randomness(seed, "weights"):
        return make(seed)


def train(graph, make=MODELS["1d tanh"], *, seed=0, split=None, on_epoch=None, **config):
    model = build(make, seed)
    split = split or make_split(graph, "ratio", seed=seed)
    run = fit(model, graph, split, TrainingConfig(**{"epochs": 6, **config}), seed=seed, on_epoch=on_epoch)
    return model, run


def assert_same_state(a, b):
    assert list(a) == list(b)
    for name in a:
        assert torch.equal(a[name], b[name]), name


def states_differ(a, b):
    return any(not torch.equal(a[name], b[name]) for name in a)


@every_model
def test_loss_falls_and_classes_are_learnt(make, sparse_graph):
    _, run = train(sparse_graph, make, epochs=60)
    assert len(run.history) == 60
    assert [e["epoch"] for e in run.history] == list(range(1, 61))
    assert run.history[-1]["train_loss"] < 0.7 * run.history[0]["train_loss"]
    assert run.best["val_accuracy"] > 0.6  # a third by chance
    assert run.seconds > 0
    assert not run.interrupted


@pytest.mark.parametrize("monitor", ["accuracy", "loss"])
def test_the_best_state_is_restored(monitor, sparse_graph):
    model = build(MODELS["gcn"])
    seen = []

    def record(epoch):
        seen.append((epoch, {k: v.clone() for k, v in model.state_dict().items()}))

    config = TrainingConfig(epochs=40, learning_rate=0.1, monitor=monitor)
    run = fit(model, sparse_graph, make_split(sparse_graph, "ratio"), config, on_epoch=record)
    assert run.history == tuple(epoch for epoch, _ in seen)
    if monitor == "accuracy":
        expected = max(run.history, key=lambda e: (e["val_accuracy"], -e["val_loss"]))
    else:
        expected = min(run.history, key=lambda e: e["val_loss"])
    assert run.best == expected
    assert run.best["epoch"] < 40  # otherwise the last state would do as well
    assert_same_state(run.state, seen[run.best["epoch"] - 1][1])
    assert_same_state(run.state, model.state_dict())
    assert not model.training


def test_the_best_state_does_not_alias_the_model(sparse_graph):
    model, run = train(sparse_graph)
    kept = {k: v.clone() for k, v in run.state.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert_same_state(run.state, kept)


def test_history_is_what_the_model_says(sparse_graph):
    split = make_split(sparse_graph, "ratio")
    model, run = train(sparse_graph, split=split, epochs=5)
    with torch.no_grad():
        scores = model(sparse_graph.x, sparse_graph.edge_index)[split.val]
    y = sparse_graph.y[split.val]
    assert run.best["val_loss"] == F.cross_entropy(scores, y).item()
    assert run.best["val_accuracy"] == (scores.argmax(1) == y).double().mean().item()


def epoch(number, accuracy, loss):
    return {"epoch": number, "train_loss": 0.0, "train_accuracy": 0.0, "val_loss": loss, "val_accuracy": accuracy}


@pytest.mark.parametrize(
    ("monitor", "better", "worse"),
    [
        pytest.param("accuracy", (0.8, 9.0), (0.7, 0.1), id="accuracy first"),
        pytest.param("accuracy", (0.8, 0.4), (0.8, 0.5), id="equal accuracy: lower loss"),
        pytest.param("loss", (0.1, 0.4), (0.9, 0.5), id="loss first"),
        pytest.param("loss", (0.9, 0.4), (0.8, 0.4), id="equal loss: higher accuracy"),
    ],
)
def test_merit(monitor, better, worse):
    rule = Stopping(monitor)
    assert rule.merit(epoch(1, *better)) > rule.merit(epoch(2, *worse))


def test_merit_of_equals_is_equal():
    assert Stopping().merit(epoch(1, 0.5, 0.5)) == Stopping().merit(epoch(2, 0.5, 0.5))


@pytest.mark.parametrize(
    ("patience", "now", "best", "gives_up"),
    [(None, 1000, 1, False), (3, 4, 1, True), (3, 3, 1, False), (1, 2, 2, False), (1, 3, 2, True)],
)
def test_patience(patience, now, best, gives_up):
    assert Stopping(patience=patience).gives_up(now, best) is gives_up


def test_training_stops_when_patience_ends(sparse_graph):
    _, run = train(sparse_graph, MODELS["gcn"], epochs=200, learning_rate=0.1, patience=4)
    assert len(run.history) < 200
    assert len(run.history) == run.best["epoch"] + 4


def test_of_equal_epochs_the_first_is_the_best(sparse_graph):
    # A step too small to change a weight leaves all epochs equal.
    _, run = train(sparse_graph, MODELS["gcn"], epochs=4, learning_rate=1e-30)
    assert run.history[0]["val_loss"] == run.history[-1]["val_loss"]
    assert run.best["epoch"] == 1


@every_model
def test_test_labels_have_no_influence(make, sparse_graph):
    split = make_split(sparse_graph, "ratio")
    labels = sparse_graph.labels.copy()
    labels[split.test] = (labels[split.test] + 1) % 3
    _, run = train(sparse_graph, make, split=split)
    _, scrambled = train(replace(sparse_graph, labels=labels), make, split=split)
    assert run.history == scrambled.history
    assert_same_state(run.state, scrambled.state)


@every_model
def test_other_seeds_give_other_runs(make, sparse_graph):
    split = make_split(sparse_graph, "ratio")
    _, one = train(sparse_graph, make, seed=1, split=split)
    _, two = train(sparse_graph, make, seed=2, split=split)
    assert states_differ(one.state, two.state)


def test_the_training_seed_alone_changes_dropout(sparse_graph):
    split = make_split(sparse_graph, "ratio")
    model = build(MODELS["1d tanh"])
    runs = [fit(copy.deepcopy(model), sparse_graph, split, TrainingConfig(epochs=2), seed=s) for s in (0, 1)]
    assert states_differ(runs[0].state, runs[1].state)


def test_more_epochs_begin_with_the_same_ones(sparse_graph):
    _, short = train(sparse_graph, epochs=3)
    _, long = train(sparse_graph, epochs=6)
    assert long.history[:3] == short.history


def test_the_callers_generators_are_left_alone(sparse_graph):
    split, model = make_split(sparse_graph, "ratio"), build(MODELS["anew each epoch"])
    numpy_before, torch_before = np.random.get_state(), torch.get_rng_state()
    fit(model, sparse_graph, split, TrainingConfig(epochs=2))
    assert torch.equal(torch.get_rng_state(), torch_before)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before[1])


@pytest.mark.parametrize(
    ("make", "decayed"),
    [
        pytest.param(lambda: NFCGCN(40, 8, 2, 3, map_dropout=0.0, dropout=0.0, **SMALL), "layers.0.weight", id="K=2"),
        pytest.param(lambda: NFCGCN(40, 8, 1, 3, map_dropout=0.0, **SMALL), "layers.0.weight", id="K=1"),
        pytest.param(lambda: NFCGCN(40, 8, 0, 3, map_dropout=0.0, **SMALL), "classifier.weight", id="K=0"),
        pytest.param(lambda: GCN(40, 8, 2, 3, dropout=0.0), "layers.0.weight", id="gcn"),
    ],
)
def test_one_step_of_adam_by_hand(make, decayed, sparse_graph):
    torch.manual_seed(0)
    model, split = make(), make_split(sparse_graph, "ratio")
    twin = copy.deepcopy(model)
    scores = twin(sparse_graph.x, sparse_graph.edge_index)[split.train]
    F.cross_entropy(scores, sparse_graph.y[split.train]).backward()
    rate, decay = 0.03, 0.5
    run = fit(model, sparse_graph, split, TrainingConfig(epochs=1, learning_rate=rate, weight_decay=decay))
    for name, parameter in twin.named_parameters():
        gradient = parameter.grad + (decay * parameter.detach() if name == decayed else 0)
        # Adam's first step is the gradient over its own size.
        expected = parameter.detach() - rate * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(run.state[name], expected, rtol=1e-4, atol=1e-6)


class Recorder(GCN):
    """Notes the nodes of every step."""

    def __init__(self):
        super().__init__(40, 8, 2, 3, dropout=0.0)
        self.steps = []

    def score_nodes(self, x, edge_index, nodes):
        if self.training:
            self.steps.append(nodes.tolist())
        return super().score_nodes(x, edge_index, nodes)


def test_an_epoch_shares_the_training_nodes_out(sparse_graph):
    split = make_split(sparse_graph, "ratio")
    orders = []
    for seed in (0, 0, 1):
        model = build(lambda _: Recorder())
        fit(model, sparse_graph, split, TrainingConfig(epochs=2, batch_size=50), seed=seed)
        assert list(map(len, model.steps)) == [50, 50, 50, len(split.train) - 150] * 2
        orders.append([[n for step in epoch for n in step] for epoch in (model.steps[:4], model.steps[4:])])
        assert all(sorted(order) == sorted(split.train) for order in orders[-1])
        assert orders[-1][0] != orders[-1][1]
    assert orders[0] == orders[1] != orders[2]


def test_all_nodes_at_once_draw_nothing(sparse_graph):
    model, drawn = build(lambda _: Recorder()), []
    config = TrainingConfig(epochs=2)
    split = make_split(sparse_graph, "ratio")
    fit(model, sparse_graph, split, config, on_epoch=lambda _: drawn.append(torch.get_rng_state()))
    assert torch.equal(*drawn)
    assert model.steps == [split.train.tolist()] * 2


def test_steps_in_batches_by_hand(sparse_graph):
    config = TrainingConfig(epochs=1, learning_rate=0.03, weight_decay=0.0, batch_size=100)
    model = build(lambda _: Recorder())
    twin = copy.deepcopy(model)
    run = fit(model, sparse_graph, make_split(sparse_graph, "ratio"), config)
    optimizer = torch.optim.Adam(twin.parameters(), lr=0.03)
    losses, hits = 0.0, 0.0
    for nodes in model.steps:
        optimizer.zero_grad()
        scores, y = twin(sparse_graph.x, sparse_graph.edge_index)[nodes], sparse_graph.y[nodes]
        loss = F.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        losses += loss.item() * len(nodes)
        hits += (scores.argmax(1) == y).sum().item()
    count = sum(map(len, model.steps))
    assert run.best["train_loss"] == pytest.approx(losses / count)
    assert run.best["train_accuracy"] == pytest.approx(hits / count)
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(run.state[name], parameter.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "num_layers", "batch_size"),
    [
        ({}, 2, None),
        ({}, 0, 2),
        ({"activation": "tanh"}, 1, 2),
        ({"conv": "2d", "activation": "relu"}, 2, 2),
        ({"resample": "epoch"}, 1, None),
        ({"map_dropout": 0.0}, 2, 2),
    ],
    ids=str,
)
def test_nodes_out_of_sight_change_no_bit_of_a_run(options, num_layers, batch_size, sparse_graph, monkeypatch):
    split, runs = Split(train=np.array([5, 250, 17, 80]), val=np.array([1, 99]), test=np.array([2])), []
    for _ in range(2):
        make = lambda seed: NFCGCN(40, 8, num_layers, 3, seed=seed, **options, **SMALL)  # noqa: E731
        runs.append(train(sparse_graph, make, split=split, epochs=4, batch_size=batch_size)[1])
        monkeypatch.setattr(NFCGCN, "score_nodes", NodeClassifier.score_nodes)
    assert runs[0].history == runs[1].history
    assert_same_state(runs[0].state, runs[1].state)


def test_what_nodes_see_is_found_once_per_run(sparse_graph, monkeypatch):
    found, real = [], models.neighbourhood
    monkeypatch.setattr(models, "neighbourhood", lambda *how: found.append(real(*how)) or found[-1])
    train(sparse_graph, epochs=5)
    assert len(found) == 10
    assert (
        len({id(nodes) for nodes in found}) == 2
    )  # those that training nodes see, and those that validation nodes see


@every_model
def test_validation_leaves_nothing_to_chance(make, sparse_graph):
    split = make_split(sparse_graph, "ratio")
    model, run = train(sparse_graph, make, split=split, epochs=1)
    with torch.no_grad():
        scores = model(sparse_graph.x, sparse_graph.edge_index)[split.val]
    assert run.best["val_loss"] == F.cross_entropy(scores, sparse_graph.y[split.val]).item()


def test_divergence_is_said(sparse_graph):
    text = "training diverged in epoch 1 with seed 0: the loss is not finite; lower `learning_rate`, now 1e+30"
    with pytest.raises(NFCError, match=message(text)):
        train(sparse_graph, MODELS["gcn"], learning_rate=1e30)


def test_an_interrupt_keeps_the_best_so_far(sparse_graph):
    _, whole = train(sparse_graph, epochs=10)

    def interrupt(epoch):
        if epoch["epoch"] == 4:
            raise KeyboardInterrupt

    model, run = train(sparse_graph, epochs=10, on_epoch=interrupt)
    assert run.interrupted
    assert run.history == whole.history[:4]
    assert run.best == max(run.history, key=lambda e: (e["val_accuracy"], -e["val_loss"]))
    assert_same_state(run.state, model.state_dict())
    assert not model.training


def test_an_interrupt_within_an_epoch_restores_the_best(sparse_graph):
    model = build(MODELS["gcn"])
    passes = []

    def interrupt(*_):
        passes.append(1)
        if len(passes) == 6:  # the validation of epoch 3, after the weights were changed
            raise KeyboardInterrupt

    model.register_forward_pre_hook(interrupt)
    run = fit(model, sparse_graph, make_split(sparse_graph, "ratio"), TrainingConfig(epochs=10))
    assert (run.interrupted, len(run.history)) == (True, 2)
    assert_same_state(run.state, model.state_dict())


def test_an_interrupt_before_the_first_epoch_ends_is_raised(sparse_graph):
    def interrupt(*_):
        raise KeyboardInterrupt

    model = build(MODELS["gcn"])
    model.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit(model, sparse_graph, make_split(sparse_graph, "ratio"))


def test_another_exception_goes_through(sparse_graph):
    def fail(epoch):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(sparse_graph, on_epoch=fail)


def ids(*nodes):
    return np.array(nodes, np.int64)


def test_a_split_is_checked_before_training(four_nodes):
    model = GCN(5, 2, 1, 2)
    text = "the split 'given' has no labelled train node to learn from; label nodes or change the split"
    with pytest.raises(GraphError, match=message(text)):
        fit(model, four_nodes, Split(ids(), ids(1), ids(2)))
    with pytest.warns(NFCWarning, match="^no training node has class '1'; the model can never predict it$"):
        fit(model, four_nodes, Split(ids(0), ids(1), ids(2)), TrainingConfig(epochs=1))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"epochs": 0}, "`epochs` must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "`learning_rate` must be above 0, got 0.0"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be above 0, got nan"),
        ({"learning_rate": float("inf")}, "`learning_rate` must be above 0, got inf"),
        ({"weight_decay": -0.1}, "`weight_decay` must be at least 0, got -0.1"),
        ({"weight_decay": float("nan")}, "`weight_decay` must be at least 0, got nan"),
        ({"patience": 0}, "`patience` must be at least 1 or none, got 0"),
        ({"batch_size": 0}, "`batch_size` must be at least 1 or none, got 0"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_settings(options, text):
    with pytest.raises(ConfigError, match=message(text)):
        TrainingConfig(**options)


def test_defaults():
    assert TrainingConfig() == TrainingConfig(200, 0.01, 1e-4, "accuracy", None, None)
    assert TrainingConfig(monitor="loss", patience=7).stopping == Stopping("loss", 7)


def test_training_nodes_may_choose_the_epoch_for_want_of_others(sparse_graph):
    nodes = np.arange(30)
    split = Split(nodes, nodes[:0], nodes[:0])
    text = "the split 'given' has no labelled val node to choose the best epoch by; label nodes or change the split"
    with pytest.raises(GraphError, match=f"^{re.escape(text)}$"):
        fit(GCN(40, 16, 2, 3), sparse_graph, split, TrainingConfig(epochs=1))
    model = GCN(40, 16, 2, 3)
    run = fit(model, sparse_graph, split, TrainingConfig(epochs=30), choose_by="train")
    with torch.no_grad():
        scores = model(sparse_graph.x, sparse_graph.edge_index)[:30]
    assert run.best["val_loss"] == pytest.approx(F.cross_entropy(scores, sparse_graph.y[:30]).item())
    assert run.best == max(run.history, key=lambda e: (e["val_accuracy"], -e["val_loss"]))
