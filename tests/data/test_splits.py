import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfcgcn.data import load, splits
from nfcgcn.data.splits import make_split
from nfcgcn.errors import ConfigError, GraphError, NFCWarning
from nfcgcn.graph import Graph, Split


def message(text):
    return f"^{re.escape(text)}$"


def labelled(labels):
    return Graph.from_edges([], np.ones((len(labels), 1)), labels=labels)


def parts(split):
    return split.train, split.val, split.test


def assert_same(a, b):
    for one, other in zip(parts(a), parts(b), strict=True):
        np.testing.assert_array_equal(one, other)


FASTGCN = {"cora": (1208, 500, 1000), "citeseer": (1812, 500, 1000), "pubmed": (18217, 500, 1000)}
PLANETOID = {"cora": (140, 500, 1000), "citeseer": (120, 500, 1000), "pubmed": (60, 500, 1000)}


@pytest.mark.data
@pytest.mark.parametrize("name", FASTGCN)
def test_published_splits_on_the_published_files(name, planetoid_dir):
    graph = load(name, data_dir=planetoid_dir)
    fast, slow = make_split(graph, "fastgcn"), make_split(graph, "planetoid")
    assert tuple(map(len, parts(fast))) == FASTGCN[name]
    assert tuple(map(len, parts(slow))) == PLANETOID[name]
    assert np.bincount(graph.labels[slow.train]).tolist() == [20] * graph.num_classes
    np.testing.assert_array_equal(fast.test, slow.test)
    published = np.loadtxt(planetoid_dir / f"ind.{name}.test.index", dtype=np.int64)
    np.testing.assert_array_equal(np.sort(fast.test), np.sort(published))
    for part in (*parts(fast), *parts(slow)):
        assert (graph.labels[part] >= 0).all()
    # FastGCN's validation nodes are the last before the test nodes; Planetoid's follow its training nodes.
    assert fast.train.max() < fast.val.min() <= fast.val.max() < fast.test.min()
    np.testing.assert_array_equal(slow.val, np.arange(len(slow.train), len(slow.train) + 500))


def test_published_splits_skip_nodes_without_label():
    labels = np.arange(700) % 2
    labels[[3, 650]] = -1
    graph = replace(labelled(labels), test_nodes=np.arange(690, 700))
    fast = splits.fastgcn(graph)
    assert tuple(map(len, parts(fast))) == (690 - 2 - 500, 500, 10)
    slow = splits.planetoid(graph)
    assert slow.train.tolist() == [n for n in range(41) if n != 3]
    assert slow.val[0] == 41
    assert len(slow.val) == 500


def test_fewer_labels_of_fastgcn_s_training_nodes():
    labels = np.array([0, 0, 1, 2] * 175)
    labels[:4] = 3  # a class with fewer nodes than asked for
    graph = replace(labelled(labels), test_nodes=np.arange(690, 700))
    whole = make_split(graph, "fastgcn", seed=7)
    drawn = {n: make_split(graph, "fastgcn", seed=7, labels_per_class=n) for n in (1, 5, 20, 1000)}
    for number, split in drawn.items():
        assert split.name == "fastgcn"
        np.testing.assert_array_equal(split.val, whole.val)
        np.testing.assert_array_equal(split.test, whole.test)
        counts = np.bincount(labels[split.train])
        assert counts.tolist() == np.minimum(number, np.bincount(labels[whole.train])).tolist()
    assert set(drawn[1].train) < set(drawn[5].train) < set(drawn[20].train) < set(whole.train)
    np.testing.assert_array_equal(drawn[1000].train, whole.train)
    assert_same(drawn[5], make_split(graph, "fastgcn", seed=7, labels_per_class=5))
    seen = {n for seed in range(200) for n in make_split(graph, "fastgcn", seed=seed, labels_per_class=5).train}
    assert seen == set(whole.train)


@pytest.mark.parametrize("rule", ["fastgcn", "planetoid"])
def test_published_splits_need_published_test_nodes(rule, four_nodes):
    text = (
        f"split '{rule}' is defined for cora, citeseer and pubmed only, not for 'four nodes'; "
        "use 'per-class' or 'ratio'"
    )
    with pytest.raises(ConfigError, match=message(text)):
        make_split(four_nodes, rule)


some_labels = st.lists(st.integers(-1, 4), min_size=1, max_size=150).filter(lambda labels: max(labels) >= 0)


@given(some_labels, st.integers(1, 30), st.integers(1, 40), st.integers(1, 40), st.integers(0, 99))
def test_per_class_counts(labels, train_per_class, num_val, num_test, seed):
    graph = labelled(labels)
    split = splits.per_class(
        graph, np.random.default_rng(seed), train_per_class=train_per_class, num_val=num_val, num_test=num_test
    )
    used = np.concatenate(parts(split))
    assert len(set(used.tolist())) == len(used)
    assert (graph.labels[used] >= 0).all()
    sizes = np.bincount(graph.labels[graph.labels >= 0])
    in_train = np.bincount(graph.labels[split.train], minlength=len(sizes))
    assert in_train.tolist() == [min(train_per_class, -(-size // 2)) for size in sizes.tolist()]
    rest = sizes.sum() - in_train.sum()
    if rest >= num_val + num_test:
        assert (len(split.val), len(split.test)) == (num_val, num_test)
    else:
        assert len(split.val) + len(split.test) == rest
        assert abs(len(split.val) - rest * num_val / (num_val + num_test)) <= 0.5


@given(some_labels, st.floats(0.05, 0.6), st.floats(0.05, 0.35), st.integers(0, 99))
def test_ratio_counts(labels, train_ratio, val_ratio, seed):
    graph = labelled(labels)
    split = splits.ratio(graph, np.random.default_rng(seed), train_ratio=train_ratio, val_ratio=val_ratio)
    used = np.concatenate(parts(split))
    np.testing.assert_array_equal(np.sort(used), np.flatnonzero(graph.labels >= 0))
    sizes = np.bincount(graph.labels[graph.labels >= 0])
    for part, upto in ((split.train, train_ratio), (np.r_[split.train, split.val], train_ratio + val_ratio)):
        counts = np.bincount(graph.labels[part], minlength=len(sizes))
        assert (np.abs(counts - upto * sizes) <= 0.5 + 1e-9).all()


@pytest.mark.parametrize("rule", ["per-class", "ratio"])
def test_drawn_splits_follow_their_seed(rule, sparse_graph):
    first, second, other = (make_split(sparse_graph, rule, seed=seed) for seed in (5, 5, 6))
    assert_same(first, second)
    assert not np.array_equal(first.train, other.train)
    assert first.name == rule


def test_nodes_that_are_drawn_again_keep_the_numbers_per_class(sparse_graph):
    first = make_split(sparse_graph, "per-class", seed=5)
    again, other = (splits.redraw(sparse_graph, first, np.random.default_rng(seed)) for seed in (1, 2))
    assert again.test is first.test
    assert again.name == first.name
    for part in ("train", "val"):
        counts = [np.bincount(sparse_graph.labels[getattr(split, part)]).tolist() for split in (first, again, other)]
        assert counts[0] == counts[1] == counts[2]
    pools = [np.sort(np.concatenate([split.train, split.val])).tolist() for split in (first, again, other)]
    assert pools[0] == pools[1] == pools[2]
    assert len({tuple(np.sort(split.val)) for split in (first, again, other)}) == 3


@pytest.mark.parametrize("rule", ["per-class", "ratio"])
def test_every_node_gets_its_chance(rule):
    graph = labelled([0] * 10 + [1] * 10)
    seen = [set(), set(), set()]
    for seed in range(60):
        split = make_split(graph, rule, seed=seed, train_per_class=3, num_val=4, num_test=4)
        for nodes, part in zip(seen, parts(split), strict=True):
            nodes.update(part.tolist())
    assert seen == [set(range(20))] * 3


def test_settings_reach_their_rule(sparse_graph):
    per_class = make_split(sparse_graph, "per-class", train_per_class=7, num_val=11, num_test=13)
    assert tuple(map(len, parts(per_class))) == (21, 11, 13)
    ratio = make_split(sparse_graph, "ratio", train_ratio=0.1, val_ratio=0.3)
    assert [round(len(part) / 300, 1) for part in parts(ratio)] == [0.1, 0.3, 0.6]


def test_ratios_must_leave_test_nodes(four_nodes):
    text = "`train_ratio` and `val_ratio` must leave nodes to test on, got 0.7 + 0.3; lower one"
    with pytest.raises(ConfigError, match=message(text)):
        make_split(four_nodes, "ratio", train_ratio=0.7, val_ratio=0.3)


def test_unknown_rule(four_nodes):
    with pytest.raises(ConfigError, match=message("unknown split 'perclass'; did you mean 'per-class'?")):
        make_split(four_nodes, "perclass")
    text = "unknown split 'xyz'; choose from fastgcn, given, per-class, planetoid, ratio"
    with pytest.raises(ConfigError, match=message(text)):
        make_split(four_nodes, "xyz")


@pytest.mark.parametrize("rule", ["per-class", "ratio"])
def test_no_labelled_node(rule):
    with pytest.raises(GraphError, match=message("no node of 'graph' has a label; there is nothing to learn from")):
        make_split(labelled([-1, -1]), rule)


def test_too_few_nodes_show_when_the_split_is_checked():
    one, lonely = labelled([0]), labelled([0] * 20 + [1])
    text = "the split 'ratio' has no labelled val node to choose the best epoch by; label nodes or change the split"
    with pytest.raises(GraphError, match=message(text)):
        make_split(one, "ratio").check(one)
    with pytest.warns(NFCWarning, match="^no training node has class '1'; the model can never predict it$"):
        make_split(lonely, "ratio", train_ratio=0.3, val_ratio=0.3).check(lonely)


def test_given_is_what_the_graph_came_with(four_nodes):
    split = Split(np.array([0]), np.array([1]), np.array([2]))
    assert make_split(replace(four_nodes, given=split), "given") is split
    text = "'four nodes' came without a split; use 'per-class' or 'ratio', or add a column `split` to its nodes"
    with pytest.raises(ConfigError, match=message(text)):
        make_split(four_nodes, "given")


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=120).map(np.array),
    fraction=st.floats(0, 0.999),
    seed=st.integers(0, 99),
)
def test_hold_out_takes_its_share_of_each_class(labels, fraction, seed):
    held = splits.hold_out(labels, fraction, np.random.default_rng(seed))
    counts = np.bincount(labels)
    spare = len(labels) - np.count_nonzero(counts)
    wanted = min(spare, int(fraction * len(labels) + 0.5))
    assert held.sum() == wanted
    assert (np.bincount(labels[~held], minlength=len(counts))[counts > 0] >= 1).all()
    # Of those that each class can spare, each gives the same share, but for rounding.
    given_away = np.bincount(labels[held], minlength=len(counts))
    assert (np.abs(given_away - wanted * np.maximum(counts - 1, 0) / max(spare, 1)) <= 1).all()


def test_hold_out_follows_its_generator():
    labels = np.arange(100) % 3
    one, two, other = (splits.hold_out(labels, 0.2, np.random.default_rng(seed)).tolist() for seed in (0, 0, 1))
    assert one == two != other
