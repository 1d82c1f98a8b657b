"""One definition of each model: whatever is scored, saved, exported or explained is what the model's own forward says.

The cases come from the declared settings: every pair of values of two settings stands together in at least one case, so
that a setting added tomorrow is covered without editing this file. A route is one way to get scores out of a model.
"""

from __future__ import annotations

import copy
import math
from dataclasses import fields, replace
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
import torch

from nfcgcn import NFCGCN, embed, explain, explain_classes, export, predict, predict_proba, sample_neighbours
from nfcgcn.baselines.sampled import SampledClassifier
from nfcgcn.config.registry import MODELS, make_config
from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.estimator import NFCClassifier
from nfcgcn.evaluation import describe, repeat
from nfcgcn.graph import Graph
from nfcgcn.inference.checkpoint import load_run, save_run
from nfcgcn.inference.export import EXPORTABLE
from nfcgcn.inference.pieces import compute
from nfcgcn.inference.reach import reach
from nfcgcn.method.acceleration import plain_formulas
from nfcgcn.method.additions import ADDITIONS
from nfcgcn.method.hops import LayeredClassifier
from nfcgcn.settings import settings_of
from nfcgcn.training.batches import NodeReader, needs_all

N, D, CLASSES = 60, 23, 3
FORMS = ("dense", "sparse", "weighted")
VALUES = {
    "hidden_channels": (5,),
    "num_layers": (0, 1, 2, 3),
    "kernel_size": (4, 7),
    "stride": (2, 5),
    "filters": (3,),
    "bandwidth": (1, 3, 6),
    "kernel_width": (1, 3),
    "samples": (20,),
    "heads": (2,),
    "k": (3,),
    "num_walks": (2,),
    "walk_length": (5,),
    "window": (2,),
    "passes": (2,),
    "max_degree": (2, 40),
    "order": (1, 3),
    "contraction": (0.5,),
    "steps": (1, 2),
    "conv_layers": (1, 2),
    "pretraining": (2,),
    "contexts": (30,),
}
"""Small sizes; a setting that is not named here takes all of its choices, or its default and another number."""
ROUNDING = {"rtol": 1e-4, "atol": 1e-5}


def values_of(name, s):
    """The values that a declared setting is tried at."""
    if name in VALUES:
        known = [v for v in VALUES[name] if s.bounds["at least"] is None or v >= s.bounds["at least"]]
        return tuple(known)
    if s.choices:
        return s.choices
    assert s.type in (int, float), f"`{name}` has a type that no case can be made for; name its values in VALUES"
    return (s.default, s.default / 2 or 0.5) if s.type is float else (s.default, s.default + 1)


def covering(options):
    """Choose combinations such that every pair of values of two settings stands in one of them."""
    names = list(options)
    wanted = {((a, va), (b, vb)) for a, b in combinations(names, 2) for va, vb in product(options[a], options[b])}
    rows = []
    while wanted:
        (first, second), *_ = sorted(wanted, key=repr)
        row = dict([first, second])
        for name in names:
            if name not in row:
                gains = {
                    value: sum(
                        tuple(sorted([(name, value), known], key=lambda p: names.index(p[0]))) in wanted
                        for known in row.items()
                    )
                    for value in options[name]
                }
                row[name] = max(gains, key=gains.get)
        rows.append({name: row[name] for name in names})
        wanted -= {tuple((n, row[n]) for n in pair) for pair in combinations(names, 2)}
    return rows


def forms_of(model):
    """The graphs that a model takes."""
    return [form for form in FORMS if form != "weighted" or MODELS[model].model.takes_weights]


@cache
def cases_of(model):
    """The settings of a model, in covering combinations that it accepts."""
    entry = MODELS[model]
    declared = {n: s for n, s in settings_of(entry.config).items() if n not in ("backend", *entry.fixed)}
    options = {name: values_of(name, s) for name, s in declared.items()} | {"form": forms_of(model)}
    cases = []
    for row in covering(options):
        if row.get("num_layers") == 0:
            row["classifier"] = "none"
        if entry.fixed.get("conv") == "2d":
            row["kernel_width"] = min(row["kernel_width"], row["bandwidth"])
        cases.append(row)
    return cases


def graph_of(form, num_nodes=N):
    """Features that are not of unit length, some rows empty; isolated nodes, a hub, and nodes without a label."""
    rng = np.random.default_rng(5)
    shape, third = (num_nodes, D), num_nodes // 3
    features = rng.random(shape, np.float32) * (rng.random(shape) < 0.4) * rng.integers(1, 9, (num_nodes, 1))
    features[7] = 0
    some, hub = rng.integers(0, num_nodes - 3, (2, 7 * num_nodes // 6)), [np.zeros(third, int), np.arange(third) + 1]
    edges = np.concatenate([some, np.stack(hub)], axis=1)
    labels = rng.integers(0, CLASSES, num_nodes)
    labels[-4:] = -1
    if form == "sparse":
        from scipy.sparse import csr_array

        features = csr_array(features)
    weights = rng.random(edges.shape[1]) + 0.1 if form == "weighted" else None
    return Graph.from_edges(edges, features.astype(np.float32), labels=labels, weights=weights, name=form)


GRAPHS = {form: graph_of(form) for form in FORMS}
SMALL_GRAPHS = {form: graph_of(form, 12) for form in FORMS}


def made(model, case, graphs=GRAPHS):
    settings = {name: value for name, value in case.items() if name != "form"}
    config = make_config(model, settings={**settings, "epochs": 2, "split": "ratio"})
    graph = graphs[case["form"]]
    net = config.build(graph, seed=3)
    with torch.no_grad():  # biases start at 0, where a route that forgets them would go unseen
        for name, parameter in net.named_parameters():
            if "bias" in name or "shift" in name:
                parameter.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    return net.eval(), graph, config


def scores_of(net, graph):
    with torch.no_grad():
        return net(graph.x, net.edges_of(graph))


def same(found, expected):
    torch.testing.assert_close(torch.as_tensor(found).double(), torch.as_tensor(expected).double(), **ROUNDING)


def by_the_formulas(net, graph, config, tmp_path):
    exact = copy.deepcopy(net).double()
    with plain_formulas(), torch.no_grad():
        dense = graph.x.double() if graph.x.layout == torch.strided else graph.x.to_dense().double()
        expected = exact(dense, net.edges_of(graph))
    same(scores_of(net, graph), expected)


def scaled_beforehand(net, graph, config, tmp_path):
    """A model that scales features says what one that does not says of features that NumPy has scaled."""
    x = graph.x.to_dense().numpy().astype(np.float64)
    sizes = {"given": np.ones(N), "row-sum": x.sum(1), "row-norm": np.sqrt((x**2).sum(1))}[net.config.feature_scale]
    x = (x / np.where(sizes == 0, 1, sizes)[:, None]).astype(np.float32)
    plain = copy.deepcopy(net)
    plain.config = replace(net.config, feature_scale="given")
    same(scores_of(net, graph), scores_of(plain, replace(graph, features=x)))


def some_nodes(net, graph, config, tmp_path):
    nodes = torch.tensor([0, 7, 31, N - 1])
    with torch.no_grad():
        same(net.score_nodes(graph.x, net.edges_of(graph), nodes), scores_of(net, graph)[nodes])


def prediction(net, graph, config, tmp_path):
    scores = scores_of(net, graph)
    same(predict_proba(net, graph).probabilities, scores.double().softmax(1))
    assert predict(net, graph).tolist() == scores.argmax(1).tolist()
    same(embed(net, graph, "scores"), scores)


def several_draws(net, graph, config, tmp_path):
    draws = []
    for draw in range(3):
        if isinstance(net, NFCGCN):
            c = net.config
            scaled = replace(graph, features=net.scale(graph.x).to_dense().numpy())
            how = {"slot_order": c.slot_order, "neighbour_draw": c.neighbour_draw}
            table = sample_neighbours(scaled, bandwidth=c.bandwidth, seed=3, draw=draw, **how)
            with torch.no_grad():
                scores = net(graph.x, graph.edges, torch.from_numpy(table))
        else:
            other = copy.deepcopy(net)
            other.draw = draw
            scores = scores_of(other, graph)
        draws.append(scores.double().softmax(1))
    found = predict_proba(net, graph, draws=3)
    same(found.probabilities, torch.stack(draws).mean(0))
    sampled = isinstance(net, NFCGCN | SampledClassifier)
    assert found.draws == (3 if sampled else 1)
    if sampled:
        same(found.spread, torch.stack(draws).std(0))


def last_layer(net, graph, config, tmp_path):
    """The representation is what the last layer reads."""
    layer = getattr(net, "classifier", None) or getattr(net, "output", None) or net.layers[-1]
    read = []
    if isinstance(net, NFCGCN) and len(net.stack) and len(net.layers) <= (net.config.classifier == "none"):
        net.stack[-1].register_forward_hook(lambda *arguments: read.append(arguments[2]))
        scores_of(net, graph)
    elif isinstance(net, NFCGCN) and len(net.layers) <= (net.config.classifier == "none"):
        read = [net.nfc(net.scale(graph.x), graph.edges)]
    elif isinstance(net, SampledClassifier):
        same(layer(torch.from_numpy(embed(net, graph))), scores_of(net, graph))
        return
    else:
        handle = layer.register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
        scores_of(net, graph)
        handle.remove()
    expected = read[-1].to_dense() if read[-1].layout == torch.sparse_csr else read[-1]
    same(embed(net, graph), expected.detach())


def saved_and_loaded(net, graph, config, tmp_path):
    (run,) = repeat(graph, config, [3])
    result = describe(graph, config, [run], device=torch.device("cpu"))
    save_run(tmp_path, graph, result, {3: run.run}, 3)
    loaded = load_run(tmp_path)
    assert torch.equal(scores_of(loaded.model, graph), scores_of(run.model, graph))
    assert loaded.model.config == run.model.config


def estimator(net, graph, config, tmp_path):
    known = np.flatnonzero(graph.labels >= 0)
    settings = {f.name: getattr(config.model, f.name) for f in fields(config.model)}
    fitted = NFCClassifier(graph, model=config.name, settings={**settings, "epochs": 2}, random_state=3)
    fitted.fit(known, graph.labels[known])
    assert fitted.model_.config == net.config
    same(fitted.predict_proba(known), scores_of(fitted.model_, graph).double().softmax(1)[known])


def exported(net, graph, config, tmp_path):
    program = export(net, tmp_path / "net.pt2")
    x = graph.x if graph.x.layout == torch.strided else graph.x.to_dense()
    with torch.no_grad():
        same(program.module()(x, graph.edge_index), scores_of(net, graph))


def adds_up_to(change, method):
    # With kinks on the way an integral ends short of its tolerance, which a warning says; a wrong model is far off.
    return pytest.approx(change, rel=1e-4, abs=1e-5) if method == "exact" else pytest.approx(change, rel=1e-2, abs=1e-3)


def explanation(net, graph, config, tmp_path):
    scores = scores_of(net, graph).double()
    for node in (0, 7, 31) if (config.name, "explanation") not in SLOWEST else (31,):
        found = explain(net, graph, node)
        assert found.predicted == found.target == int(scores[node].argmax())
        same(found.score, scores[node].max())
        change = found.score - found.baseline
        assert found.contributions.sum() == adds_up_to(change, found.method)
        assert found.error == pytest.approx(change - found.contributions.sum(), abs=1e-9)
        with torch.no_grad():
            empty = net(torch.zeros(N, D), net.edges_of(graph))[node, found.target]
        same(found.baseline, empty)
    mean = {c: scores[scores.argmax(1) == c, c].mean() for c in range(CLASSES) if (scores.argmax(1) == c).any()}
    for found in explain_classes(net, graph):
        assert (found.target in mean) == bool(found.num_nodes)
        if found.num_nodes:
            same(found.score, mean[found.target])
            assert found.contributions.sum() == adds_up_to(found.score - found.baseline, found.method)


def appended_node(net, graph, config, tmp_path):
    """A node far away, and an edge between nodes far away, change no bit elsewhere."""
    longer = graph.extend(np.ones((1, D), np.float32), np.zeros((2, 0), int))
    assert torch.equal(scores_of(net, longer)[:N], scores_of(net, graph))
    if isinstance(net, NFCGCN):
        one, other = (sample_neighbours(g, bandwidth=4, seed=3) for g in (graph, longer))
        assert (one == other[:N]).all()
        assert (other[N] == N).all()


def side_by_side(net, graph, config, tmp_path):
    pytest.importorskip("triton", reason="Triton is not installed")
    from nfcgcn.training.side_by_side import SideBySide, refusal

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert refusal([net], graph.x.to(device)) in (None, "the tensors are on cpu")
    other = config.build(graph, seed=4).eval()
    nets = [copy.deepcopy(net).to(device), copy.deepcopy(other).to(device)]
    together = SideBySide(nets, graph.x.to(device), graph.edge_index.to(device), "float32").eval()
    with torch.no_grad():
        found = together(torch.zeros(0, 2, dtype=torch.int64, device=device)).cpu()
    for one, alone in zip(found, (net, other), strict=True):
        same(one, scores_of(alone, graph))


def without_sorted_slots(net):
    """Sorted slots, preferred neighbours and stacks need the whole graph: refused where a part of it is read."""
    if isinstance(net, NFCGCN):
        net = copy.deepcopy(net)
        if needs_all(net):
            with pytest.raises(ConfigError, match=f"^`{needs_all(net)}` must be "):
                NodeReader(net, GRAPHS["dense"])
        if len(net.stack):
            return None
        net.config = net.nfc.config = replace(net.config, slot_order="random", neighbour_draw="uniform")
    return net


def mini_batch(net, graph, config, tmp_path):
    net, nodes = without_sorted_slots(net), np.array([N - 1, 0, 7, 31])
    if net is None:
        return
    batch = NodeReader(net, graph).batch(nodes, [None] * net.num_hops)
    with torch.no_grad():
        same(net(batch.x, batch.hops)[: len(nodes)], scores_of(net, graph)[nodes])


def layer_by_layer(net, graph, config, tmp_path):
    net = without_sorted_slots(net)
    if net is None:
        return
    same(compute(net, graph), scores_of(net, graph))
    same(compute(net, graph, layer="last"), embed(net, graph))


ROUTES = {
    "formulas": by_the_formulas,
    "scaled beforehand": scaled_beforehand,
    "some nodes": some_nodes,
    "prediction": prediction,
    "several draws": several_draws,
    "representation": last_layer,
    "explanation": explanation,
    "saved and loaded": saved_and_loaded,
    "estimator": estimator,
    "an appended node": appended_node,
    "exported": exported,
    "side by side": side_by_side,
    "a mini-batch": mini_batch,
    "layer by layer": layer_by_layer,
}
WITH_FEATURES = [m for m in MODELS if MODELS[m].model.reads_features]
APPLIES = {
    "scaled beforehand": lambda model: model in WITH_FEATURES,
    "explanation": lambda model: model in WITH_FEATURES,
    "exported": lambda model: issubclass(MODELS[model].model, EXPORTABLE),
    "side by side": lambda model: MODELS[model].model is NFCGCN,
    "a mini-batch": lambda model: issubclass(MODELS[model].model, LayeredClassifier),
    "layer by layer": lambda model: issubclass(MODELS[model].model, LayeredClassifier),
    "an appended node": lambda model: (
        # The first normalises over all nodes at hand, the second knows its own graph alone.
        model in WITH_FEATURES and model not in ("lgcn", "planetoid-t")
    ),
}
ONLY = {"side by side": {"representation_dropout": 0.0, "classifier": "none", **ADDITIONS}}
"""Settings without which a route refuses a model."""
UNWEIGHTED = ("exported", "side by side")
"""Routes that take no weights of edges."""
EXPENSIVE = ("exported", "side by side", "explanation", "saved and loaded", "estimator")
"""Routes of which one case takes long: every value stands in one of the cases, but not every pair of values."""
SLOWEST = {(model, "explanation"): 1 for model in ("lgcn", "gnn", "gated-gnn", "fingerprint")}
"""How many cases are tried of a model whose integrals need all the points there are: sorted values, many kinks."""
SLOWEST |= {("nfc-gcn-2d", "exported"): 1}  # the same class as nfc-gcn, whose cases have 2D convolutions too
ON = {"side by side": SMALL_GRAPHS}
"""Graphs for routes that are slow per node, as Triton's interpreter is."""


def some_of(cases):
    """Choose cases in which every value of every setting stands at least once."""
    missing, chosen = {pair for case in cases for pair in case.items()}, []
    while missing:
        chosen.append(max(cases, key=lambda case: len(missing & set(case.items()))))
        missing -= set(chosen[-1].items())
    return chosen


def pairs():
    return [(m, r) for m, r in product(MODELS, ROUTES) if APPLIES.get(r, lambda _: True)(m)]


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
@pytest.mark.parametrize(("model", "route"), pairs(), ids=lambda v: v)
def test_every_route_gives_the_scores_of_the_model(model, route, tmp_path, everything):
    cases = cases_of(model)
    if route in EXPENSIVE and not everything:
        cases = some_of(cases)[: SLOWEST.get((model, route))]
    for number, case in enumerate(cases):
        if case["form"] == "weighted" and route in UNWEIGHTED:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            ROUTES[route](*made(model, case | ONLY.get(route, {}), ON.get(route, GRAPHS)), folder)
        except Exception as error:
            error.add_note(f"{model}, {route}, {case}")
            raise


@pytest.mark.parametrize("model", MODELS)
def test_the_cases_cover_every_pair_of_values(model):
    cases = cases_of(model)
    declared = settings_of(MODELS[model].config)
    for name, s in declared.items():
        if name in ("backend", *MODELS[model].fixed):
            continue
        tried = {case[name] for case in cases}
        assert tried >= set(s.choices) - {"linear"}, name
        assert len(tried) > 1 or name in VALUES, name
    if model in WITH_FEATURES:
        assert {(c["feature_scale"], c["form"]) for c in cases} == set(
            product(declared["feature_scale"].choices, forms_of(model))
        )


def test_features_are_not_of_unit_length():
    sums = GRAPHS["dense"].features.sum(1)
    assert sums.std() > 1
    assert math.isclose(sums[7], 0)


def test_reach_is_known_of_every_model_but_those_that_see_all():
    assert {m for m in WITH_FEATURES if reach(made(m, cases_of(m)[0])[0]) is None} == {"lgcn", "gnn"}


@pytest.mark.parametrize("model", [m for m in MODELS if m not in WITH_FEATURES])
def test_without_features_nothing_is_explained_and_no_other_graph_is_scored(model):
    net, graph, config = made(model, cases_of(model)[0])
    name = type(net).__name__
    for ask in (lambda: explain(net, graph, 0), lambda: explain_classes(net, graph)):
        with pytest.raises(ConfigError, match=f"^a {name} reads no features, so no feature explains its scores; "):
            ask()
    (run,) = repeat(graph, config, [3])
    bare = replace(graph, features=np.zeros((N, 0), np.float32), feature_names=None)
    assert torch.equal(scores_of(run.model, bare), scores_of(run.model, graph))
    (again,) = repeat(bare, config, [3])
    assert torch.equal(scores_of(again.model, graph), scores_of(run.model, graph))
    with pytest.raises(GraphError, match=f"^a {name} knows only the nodes and edges that it was trained on, "):
        predict(run.model, graph.extend(np.ones((1, D), np.float32), np.zeros((2, 0), int)))


@pytest.mark.parametrize("model", ["nfc-gcn", "gcn"])
def test_a_caller_without_gradients_gets_the_same(model):
    net, graph, _ = made(model, cases_of(model)[0])
    expected = explain(net, graph, 3)
    with torch.no_grad():
        export(net)
        actual = explain(net, graph, 3)
        assert len(explain_classes(net, graph)) == CLASSES
    assert (actual.contributions != expected.contributions).nnz == 0


@pytest.mark.parametrize(("model", "form"), [("nfc-gcn", "sparse"), ("gcn", "dense")])
def test_rows_of_any_magnitude_say_the_same_on_every_route(model, form, tmp_path):
    window = {"kernel_size": 4} if model == "nfc-gcn" else {}
    net, graph, config = made(model, {"feature_scale": "row-norm", "form": form, **window})
    sizes = np.choose(np.arange(N) % 3, [2.0**90, 2.0**-95, 1.0])[:, None]
    features = graph.features.multiply(sizes).tocsr() if graph.is_sparse else graph.features * sizes
    extreme = replace(graph, features=features.astype(np.float32))
    same(scores_of(net, extreme), scores_of(net, graph))
    for route in (exported, explanation):
        route(net, extreme, config, tmp_path)
