"""From what people have in hand to predictions, scores and reasons: five lines of Python, or three commands.

Every number is computed again here, in NumPy and with scikit-learn, from the tables and the weights. Only which
neighbours a node draws is taken from the model.
"""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import metrics
from sklearn.utils import class_weight

import nfcgcn
from nfcgcn.graph import Split
from nfcgcn.inference.checkpoint import load_run

pytestmark = pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
QUICK = "random_state=0, epochs=60, select=False, hidden_channels=8, filters=6, kernel_size=3, stride=2"


def spread(parameters):
    return {name: tensor.detach().double().numpy() for name, tensor in parameters}


def scores_by_hand(model, adjacency, x, table):
    """The class scores of NFC-GCN with two layers, as the paper's equations have them."""
    weights, config = spread(model.named_parameters()), model.config
    maps = x[table]  # [N, n, D]
    width = config.kernel_size
    starts = range(0, x.shape[1] - width + 1, config.stride)
    windows = np.stack([maps[:, :, s : s + width] for s in starts], axis=-1)
    if (x.shape[1] - width) % config.stride:
        raise AssertionError("choose windows that cover all columns")
    h = np.einsum("nskw,fsk->nfw", windows, weights["nfc.weight"]).reshape(len(x), -1)
    a = adjacency + np.eye(len(x))
    scale = a.sum(axis=1) ** -0.5
    a = scale[:, None] * a * scale
    return a @ np.maximum(a @ h @ weights["layers.0.weight"], 0) @ weights["layers.1.weight"]


def softmax(scores):
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class ByHand:
    """A model's numbers, computed again from an adjacency and features that the test made itself."""

    def __init__(self, model, graph, adjacency, x):
        self.model, self.graph, self.adjacency = model, graph, np.asarray(adjacency)
        assert model.config.feature_scale in ("given", "row-norm")
        size = np.linalg.norm(x, axis=1, keepdims=True)
        self.x = x if model.config.feature_scale == "given" else x / np.where(size, size, 1)
        self.table = model.nfc.table(model.scale(graph.x), graph.edges).numpy()
        for node, slots in enumerate(self.table):
            assert slots[0] == node
            assert set(slots[1:]) <= {node, *np.flatnonzero(self.adjacency[node])}
        self.scores = scores_by_hand(model, self.adjacency, self.x, self.table)
        self.probabilities = softmax(self.scores / model.temperature)

    def check_reasons(self, node, target, contributions):
        """A contribution is value times slope, and the slopes come from the scores by hand; all add up to the score."""
        largest = sorted(contributions.items(), key=lambda item: -abs(item[1]))[:30]
        assert len(largest) > 5
        for (j, d), added in largest:
            step, slope = 1e-5, 0.0
            for sign in (1, -1):
                moved = self.x.copy()
                moved[j, d] += sign * step
                slope += sign * scores_by_hand(self.model, self.adjacency, moved, self.table)[node, target] / (2 * step)
            assert added == pytest.approx(self.x[j, d] * slope, rel=1e-3, abs=1e-5)
        assert sum(contributions.values()) == pytest.approx(self.scores[node, target], rel=1e-4, abs=1e-4)


def groups(num_nodes, shares, seed=0, signal=1.5):
    """Groups of nodes, features that show the group, and edges that mostly stay inside it: a dense matrix."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(len(shares), num_nodes, p=shares)
    x = rng.uniform(0.1, 1, (num_nodes, 5)) + signal * (kind[:, None] == np.arange(5) % len(shares))
    near = rng.random((num_nodes, num_nodes)) < np.where(kind[:, None] == kind, 0.12, 0.02)
    adjacency = np.triu(near, 1).astype(float)
    return kind, x.round(3), adjacency + adjacency.T


def frames():
    kind, x, adjacency = groups(60, [0.5, 0.5])
    plan = pd.Series(np.array(["basic", "pro"])[kind], dtype=object)
    plan[50:] = None
    people = pd.DataFrame({"id": [f"p{i}" for i in range(60)], **{f"x{d}": x[:, d] for d in range(4)}, "plan": plan})
    people.insert(1, "town", np.where(x[:, 4] > 1, "Ulm", "Bern"))
    caller, callee = np.nonzero(np.triu(adjacency))
    calls = pd.DataFrame({"caller": people.id[caller].to_numpy(), "callee": people.id[callee].to_numpy()})
    towns = pd.get_dummies(people.town)[["Bern", "Ulm"]].to_numpy(float)
    return {"people": people, "calls": calls}, adjacency, np.hstack([towns, x[:, :4]]), people.plan[:50].to_numpy()


def club():
    g = nx.karate_club_graph()
    return {"g": g}, nx.to_numpy_array(g), None, np.array([g.nodes[i]["club"] for i in g], object)


def spectral_by_definition(x, adjacency):
    """Return `x`, if it holds the first eigenvectors after the very first; those of equal eigenvalues may turn."""
    n, count = x.shape
    scale = adjacency.sum(axis=1) ** -0.5
    s = scale[:, None] * adjacency * scale
    np.testing.assert_allclose(x.T @ x / n, np.eye(count), atol=1e-5)
    np.testing.assert_allclose(s @ x, x * np.linalg.eigvalsh(s)[::-1][1 : count + 1], atol=1e-5)
    assert (x[np.abs(x).argmax(axis=0), np.arange(count)] > 0).all()
    return x.astype(float)


def matrix():
    kind, x, adjacency = groups(50, [0.4, 0.3, 0.3], seed=1)
    y = np.array(["a", "b", "c"], object)[kind]
    y[::7] = None
    return {"A": sp.csr_array(np.triu(adjacency)), "X": x, "y": y}, adjacency, x, y[[i % 7 > 0 for i in range(50)]]


def edges_alone():
    kind, _, adjacency = groups(60, [0.5, 0.5], seed=2)
    numbers = adjacency.sum(axis=1)
    own = np.log1p(numbers)
    columns = [own]
    for how in (np.min, np.max, np.mean, np.std):
        columns.append([how(own[row > 0]) if row.any() else 0 for row in adjacency])
    return {"A": sp.csr_array(adjacency), "y": kind}, adjacency, np.stack(columns, axis=1), kind


POINTS = {
    "two data frames": (
        frames,
        """graph = nfcgcn.from_frames(people, calls, label="plan", source="caller", target="callee")
classifier = nfcgcn.NFCClassifier(graph, random_state=0).fit(people.id, people.plan)
probabilities = classifier.predict_proba(people.id)
score = classifier.score(people.id, people.plan)
reasons = nfcgcn.explain(classifier.model_, graph, "p55")""",
    ),
    "a NetworkX graph": (
        club,
        """graph = nfcgcn.from_networkx(g, label="club", weight="weight")
classifier = nfcgcn.NFCClassifier(graph, random_state=0).fit(range(34), graph.labels)
probabilities = classifier.predict_proba(range(34))
score = classifier.score(range(34), graph.labels)
reasons = nfcgcn.explain(classifier.model_, graph, "16")""",
    ),
    "a SciPy matrix": (
        matrix,
        """graph = nfcgcn.Graph.from_scipy(A, X, y)
classifier = nfcgcn.NFCClassifier(graph, random_state=0).fit(range(50), y)
probabilities = classifier.predict_proba(range(50))
score = classifier.score(range(50), y)
reasons = nfcgcn.explain(classifier.model_, graph, 8)""",
    ),
    "a graph without features": (
        edges_alone,
        """graph = nfcgcn.Graph.from_scipy(A, nfcgcn.structural_features(A, "degree"), y)
classifier = nfcgcn.NFCClassifier(graph, random_state=0).fit(range(60), y)
probabilities = classifier.predict_proba(range(60))
score = classifier.score(range(60), y)
reasons = nfcgcn.explain(classifier.model_, graph, 3)""",
    ),
}


@pytest.mark.parametrize("point", POINTS)
def test_five_lines_of_python(point):
    make, lines = POINTS[point]
    given, adjacency, x, known = make()
    assert len(lines.splitlines()) <= 5
    odd = x is not None and x.shape[1] % 2
    quick = QUICK if odd else QUICK.replace("kernel_size=3", "kernel_size=2")
    names = {"nfcgcn": nfcgcn, **given}
    exec(lines.replace("random_state=0", quick), names)
    graph, classifier, reasons = names["graph"], names["classifier"], names["reasons"]
    features = graph.features.toarray() if graph.is_sparse else graph.features
    x = spectral_by_definition(features, adjacency) if x is None else x
    np.testing.assert_allclose(features, x, atol=2e-5)
    np.testing.assert_allclose(graph.adjacency.toarray(), adjacency, rtol=1e-6)
    by_hand = ByHand(classifier.model_, graph, adjacency, x)
    np.testing.assert_allclose(names["probabilities"], by_hand.probabilities, atol=1e-5)
    labels = graph.labels
    assert names["score"] > 0.8 or point == "a graph without features"  # where degrees say nothing of the label
    assert names["score"] == pytest.approx(
        metrics.accuracy_score(labels[labels >= 0], by_hand.scores.argmax(axis=1)[labels >= 0])
    )
    if known.dtype == object:
        assert list(graph.class_names) == sorted(set(known))
        assert [graph.class_names[label] for label in labels[labels >= 0]] == known.tolist()
    else:
        assert labels[labels >= 0].tolist() == known.tolist()
    assert classifier.classes_.tolist() in (sorted(set(known)), list(range(graph.num_classes)))
    np.testing.assert_allclose(reasons.probabilities, by_hand.probabilities[reasons.node], atol=1e-5)
    target = int(by_hand.scores[reasons.node].argmax())
    assert reasons.target == reasons.predicted == target
    assert reasons.score == pytest.approx(by_hand.scores[reasons.node, target], rel=1e-4)
    assert [r.value for r in reasons.top()] == pytest.approx([x[r.node, r.feature] for r in reasons.top()], abs=2e-5)
    contributions = {(r.node, r.feature): r.contribution for r in reasons.top()}
    by_hand.check_reasons(reasons.node, target, contributions)


TABLES = (
    "--nodes accounts.csv --edges payments.csv --label status --source payer --target payee --weight amount "
    "--unknown-edges drop"
)
COMMANDS = f"""nfcgcn train {TABLES} --set class_weight=balanced --monitor macro-f1 --out run
nfcgcn predict run --out predictions.csv
nfcgcn explain run --node a3 --out why.csv"""


def write_tables():
    """Tables with a rare class and dirty edges: a loop, a repetition, ids that no row has."""
    kind, x, adjacency = groups(120, [0.6, 0.25, 0.15], seed=3, signal=0.2)
    status = np.array(["fine", "late", "lost"], object)[kind]
    status[::10] = None
    ids = [f"a{i}" for i in range(120)]
    pd.DataFrame({"id": ids, **{f"x{d}": x[:, d] for d in range(5)}, "status": status}).to_csv(
        "accounts.csv", index=False
    )
    amounts = np.random.default_rng(4).uniform(0.5, 2, adjacency.shape).round(2) * np.triu(adjacency)
    rows = [(ids[i], ids[j], amounts[i, j]) for i, j in zip(*np.nonzero(amounts), strict=True)]
    first = np.argwhere(amounts)[0]
    dirty = [("a1", "a1", 3), ("a2", "nobody", 1), ("stranger", "nobody", 1), (*(ids[i] for i in first), 0.75)]
    pd.DataFrame([*rows, *dirty], columns=["payer", "payee", "amount"]).to_csv("payments.csv", index=False)
    amounts[tuple(first)] += 0.75  # weights of an edge that is there twice add up
    return status, x, amounts + amounts.T


def test_three_commands(run):
    status, x, adjacency = write_tables()
    lines = COMMANDS.splitlines()
    assert len(lines) <= 3
    quick = "--no-select --set epochs=40 --set hidden_channels=8 --set kernel_size=3 --set stride=2"
    for line in lines:
        _, command, *arguments = shlex.split(line)
        code, _, err = run(command, *arguments, *(shlex.split(quick) if command == "train" else ()))
        assert code == 0, err
        assert "left out 1 loop, 1 repeated or reversed edge, 2 edges to unknown ids" in " ".join(err.split())
    saved = load_run(Path("run"))
    graph = nfcgcn.load("accounts.csv", edges="payments.csv", encoding=saved.encoding)
    by_hand = ByHand(saved.model, graph, adjacency, x)
    rows = list(csv.DictReader(Path("predictions.csv").read_text().splitlines()))
    classes = [name.removeprefix("p_") for name in rows[0] if name.startswith("p_")]
    probabilities = np.array([[float(row[f"p_{c}"]) for c in classes] for row in rows])
    np.testing.assert_allclose(probabilities, by_hand.probabilities, atol=2e-5)
    predicted = np.array(classes)[by_hand.scores.argmax(axis=1)]
    ordered = np.sort(by_hand.probabilities, axis=1)
    assert [row["label"] for row in rows] == predicted.tolist()
    assert [float(row["confidence"]) for row in rows] == pytest.approx(ordered[:, -1], abs=2e-5)
    assert [float(row["margin"]) for row in rows] == pytest.approx(ordered[:, -1] - ordered[:, -2], abs=2e-5)
    assert [row["true_label"] or None for row in rows] == status.tolist()
    parts = np.array([row["split"] for row in rows])
    rivals = {"nfc-gcn": by_hand.probabilities, "mlp": perceptron_by_hand(graph, x, parts)}
    check_scores(status, rivals, classes, parts)
    check_choice(status, by_hand.scores, classes, parts)
    place = {name: i for i, name in enumerate(graph.node_names)}
    contributions = {
        (place[row["node"]], int(row["feature"][1:])): float(row["contribution"])
        for row in csv.DictReader(Path("why.csv").read_text().splitlines())
    }
    by_hand.check_reasons(3, int(by_hand.scores[3].argmax()), contributions)


def perceptron_by_hand(graph, x, parts):
    """The probabilities of the report's perceptron, trained again as the run was: two linear layers with biases."""
    settings = {"epochs": 40, "monitor": "macro-f1", "class_weight": "balanced"}
    config = nfcgcn.make_config("mlp", graph=graph, settings=settings)
    split = Split(*(np.flatnonzero(parts == part) for part in ("train", "val", "test")))
    (trained,) = nfcgcn.repeat(graph, config, [0], splits=[split])
    weights = spread(trained.model.named_parameters())
    assert config.model.feature_scale == "row-norm"
    h = x / np.linalg.norm(x, axis=1, keepdims=True)
    h = np.maximum(h @ weights["layers.0.weight"].T + weights["layers.0.bias"], 0)
    return softmax(h @ weights["layers.1.weight"].T + weights["layers.1.bias"])


def check_scores(status, probabilities, classes, parts):
    """The scores of the run are scikit-learn's on the test nodes, those of the two simple models too."""
    result = json.loads(Path("run/result.json").read_text())
    test, train = parts == "test", parts == "train"
    true = np.array([classes.index(s) for s in status[test]])
    shares = np.array([(status[train] == c).mean() for c in classes])
    rivals = {name: p[test] for name, p in probabilities.items()}
    rivals["majority class"] = np.tile(shares, (len(true), 1))
    found = {"nfc-gcn": result["test_scores"], **result["baselines"]}
    assert found.keys() == rivals.keys()
    assert len({round(score["mean"], 3) for score in found["nfc-gcn"].values()}) == 6  # none stands in for another
    for name, p in rivals.items():
        guess = p.argmax(axis=1)
        present = np.unique(true)
        expected = {
            "accuracy": metrics.accuracy_score(true, guess),
            "macro-f1": metrics.f1_score(true, guess, average="macro", labels=range(len(classes)), zero_division=0),
            "balanced-accuracy": np.mean([(guess[true == c] == c).mean() for c in present]),
            "roc-auc": np.mean([metrics.roc_auc_score(true == c, p[:, c]) for c in present]),
            "log-loss": -np.mean(np.log(p[np.arange(len(true)), true])),
            "calibration-error": calibration_error(p, guess == true),
        }
        for score, value in expected.items():
            assert found[name][score]["mean"] == pytest.approx(value, abs=1e-4), (name, score)


def check_choice(status, scores, classes, parts):
    """The figures of the best epoch are those of its state: loss with balanced weights, macro-F1 the highest of all."""
    epochs = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    best = epochs[json.loads(Path("run/result.json").read_text())["epochs"][0] - 1]
    val = parts == "val"
    number = np.array([classes.index(s) if s else -1 for s in status])
    true, p = number[val], softmax(scores[val])
    weights = class_weight.compute_class_weight("balanced", classes=np.arange(len(classes)), y=number[parts == "train"])
    assert best["val_loss"] == pytest.approx(
        metrics.log_loss(true, p, labels=range(len(classes)), sample_weight=weights[true]), rel=1e-4
    )
    assert best["val_score"] == pytest.approx(metrics.f1_score(true, p.argmax(axis=1), average="macro"))
    assert best["val_score"] == max(epoch["val_score"] for epoch in epochs)


def calibration_error(p, right, bins=15):
    sure = p.max(axis=1)
    which = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    return sum(abs((right[which == b] - sure[which == b]).sum()) for b in np.unique(which)) / len(sure)
