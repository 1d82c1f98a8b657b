"""Which nodes are for training, validation and testing: one pure function per split.

The fixed splits belong to the Planetoid datasets; the random ones fit any graph and take a generator.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from nfcgcn.errors import ConfigError, GraphError, option, unknown
from nfcgcn.graph import Graph, Ints, Split
from nfcgcn.randomness import generator

Rule = Literal["fastgcn", "planetoid", "per-class", "ratio", "given"]
RULES: tuple[str, ...] = get_args(Rule)
RANDOM: tuple[Rule, ...] = ("per-class", "ratio")
"""Rules by which every seed has other validation nodes."""
NUM_VAL = 500


def fastgcn(graph: Graph) -> Split:
    """Split as FastGCN does: test on the published test nodes, validate on the last 500 others, train on the rest.

    Sizes 1208/500/1000 (Cora), 1812/500/1000 (CiteSeer), 18217/500/1000 (PubMed).
    """
    # Paper: it prints 1827 training nodes for CiteSeer, which includes the 15 nodes without features and label.
    pool, test = _published(graph, "fastgcn")
    return Split(pool[:-NUM_VAL], pool[-NUM_VAL:], test, name="fastgcn")


def fewer_labels(graph: Graph, split: Split, rng: np.random.Generator, *, labels_per_class: int) -> Split:
    """Keep this many training nodes per class, drawn at random; validation and test nodes stay the same.

    Of a class with fewer training nodes, all are kept. From the same state of the generator, the nodes of a smaller
    number are among those of a larger one.
    """
    order = rng.permutation(len(split.train))
    labels = graph.labels[split.train[order]]
    kept = [order[labels == label][:labels_per_class] for label in np.unique(labels)]
    return replace(split, train=split.train[np.sort(np.concatenate(kept))])


def planetoid(graph: Graph) -> Split:
    """Split as Planetoid does: train on the first 20 nodes per class, validate on the next 500, test on the given."""
    pool, test = _published(graph, "planetoid")
    first = 20 * graph.num_classes
    return Split(pool[:first], pool[first : first + NUM_VAL], test, name="planetoid")


def per_class(
    graph: Graph, rng: np.random.Generator, *, train_per_class: int = 20, num_val: int = NUM_VAL, num_test: int = 1000
) -> Split:
    """Draw a fixed number of training nodes per class, then validation and test nodes from all the others.

    Of a class with fewer nodes, half are for training. If too few others are left, they are divided in proportion.
    """
    order = rng.permutation(_labelled(graph))
    labels = graph.labels[order]
    in_train = np.zeros(len(order), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        in_train[members[: min(train_per_class, (len(members) + 1) // 2)]] = True
    rest = order[~in_train]
    num_val = min(num_val, round(len(rest) * num_val / (num_val + num_test)))
    return Split(order[in_train], rest[:num_val], rest[num_val : num_val + num_test], name="per-class")


def ratio(graph: Graph, rng: np.random.Generator, *, train_ratio: float = 0.6, val_ratio: float = 0.2) -> Split:
    """Draw the given shares of each class for training and validation; the rest is for testing."""
    if train_ratio + val_ratio >= 1:
        raise ConfigError(
            f"`train_ratio` and `val_ratio` must leave nodes to test on, got {train_ratio} + {val_ratio}; lower one"
        )
    order = rng.permutation(_labelled(graph))
    labels = graph.labels[order]
    # The position of a node within its class, from 0 to 1, decides its part: every class is divided alike.
    by_class = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = np.empty(len(order))
    sorted_labels = labels[by_class]
    place[by_class] = (np.arange(len(order)) - starts[sorted_labels] + 0.5) / counts[sorted_labels]
    train, val = place < train_ratio, place < train_ratio + val_ratio
    return Split(order[train], order[val & ~train], order[~val], name="ratio")


def redraw(graph: Graph, split: Split, rng: np.random.Generator) -> Split:
    """Draw training and validation nodes again from those of `split`, as many of each class; the test nodes stay."""
    order = rng.permutation(np.concatenate([split.train, split.val]))
    labels, wanted = graph.labels[order], np.bincount(graph.labels[split.train])
    in_train = np.zeros(len(order), bool)
    for label, count in enumerate(wanted):
        in_train[np.flatnonzero(labels == label)[:count]] = True
    return replace(split, train=order[in_train], val=order[~in_train])


def hold_out(labels: Ints, fraction: float, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Mark a share of `labels` to hold out, drawn from each class in proportion; at least one of each class stays."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    spare = np.delete(order, np.unique(labels[order], return_index=True)[1])
    count = min(len(spare), int(fraction * len(labels) + 0.5))
    held = np.zeros(len(labels), bool)
    held[spare[((np.arange(count) + 0.5) * len(spare) / max(count, 1)).astype(int)]] = True
    return held


def given(graph: Graph) -> Split:
    """Return the split that the graph came with."""
    if graph.given is None:
        raise ConfigError(
            f"'{graph.name}' came without a split; use 'per-class' or 'ratio', or add a column `split` to its nodes"
        )
    return graph.given


def make_split(
    graph: Graph,
    name: str,
    *,
    seed: int = 0,
    labels_per_class: int | None = None,
    train_per_class: int = 20,
    num_val: int = NUM_VAL,
    num_test: int = 1000,
    train_ratio: float = 0.6,
    val_ratio: float = 0.2,
) -> Split:
    """Return the split of this name; each uses only the settings that it needs.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("digits")
    >>> make_split(graph, "per-class", train_per_class=10, num_val=100, num_test=200)
    Split('per-class', train=100, val=100, test=200)
    """
    rng = generator(seed, "split")
    if name == "fastgcn":
        split = fastgcn(graph)
        if labels_per_class is None:
            return split
        return fewer_labels(graph, split, rng, labels_per_class=labels_per_class)
    if name == "planetoid":
        return planetoid(graph)
    if name == "per-class":
        return per_class(graph, rng, train_per_class=train_per_class, num_val=num_val, num_test=num_test)
    if name == "ratio":
        return ratio(graph, rng, train_ratio=train_ratio, val_ratio=val_ratio)
    if name == "given":
        return given(graph)
    raise ConfigError(unknown("split", name, get_args(Rule)))


def _labelled(graph: Graph) -> Ints:
    nodes = np.flatnonzero(graph.labels >= 0)
    if not len(nodes):
        unnamed = graph.encoding is not None and graph.encoding.get("label") is None
        remedy = f"; name the column with the classes with {option('label')}" if unnamed else ""
        raise GraphError(f"no node of '{graph.name}' has a label; there is nothing to learn from{remedy}")
    return nodes


def _published(graph: Graph, name: str) -> tuple[Ints, Ints]:
    """Return the labelled nodes before the published test nodes, and those test nodes."""
    if graph.test_nodes is None:
        raise ConfigError(
            f"split '{name}' is defined for cora, citeseer and pubmed only, not for '{graph.name}'; "
            "use 'per-class' or 'ratio'"
        )
    labelled = _labelled(graph)
    return labelled[labelled < graph.test_nodes.min()], graph.test_nodes
