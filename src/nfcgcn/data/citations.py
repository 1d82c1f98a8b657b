r"""Generated citation graphs of any size: communities, a few papers with many citations, one bag of words per paper.

Edges follow a degree-corrected block model (Karrer and Newman, 2011): a paper with weight :math:`\theta_i` is an end of
an edge with probability proportional to :math:`\theta_i`, and a given share of the edges stays inside a class. Words
follow Zipf's law; each class prefers its own part of the vocabulary, its topic.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.data.options import check_integer, check_number
from nfcgcn.graph import Graph, Ints
from nfcgcn.memory import check_memory
from nfcgcn.randomness import generator

Floats = npt.NDArray[np.float64]

TAIL = 2.0
"""Weights have density proportional to weight^-(TAIL + 1), so degrees fall off with exponent 3."""
TOPIC_SHARE = 0.3
"""The share of a paper's words that are drawn from its class's topic rather than from the whole vocabulary."""
FILL = 0.25
"""At most this share of all possible pairs may be edges, so that drawing pairs until enough differ stays fast."""
BLOCK = 2**20
"""Words or edges drawn at a time; limits the memory."""


def generate(
    *,
    nodes: int = 10_000,
    seed: int = 0,
    classes: int = 7,
    features: int = 1000,
    words: int = 20,
    degree: float = 4.0,
    homophily: float = 0.8,
) -> Graph:
    """Draw a graph with ``nodes * degree / 2`` edges; the share ``homophily`` of them joins nodes of the same class.

    All classes have the same size. A node has about ``words`` different words out of ``features``, as ones in a sparse
    matrix. Time and memory grow with nodes and edges; the same options give the same graph.
    """
    drawn = draw(
        nodes=nodes, seed=seed, classes=classes, features=features, words=words, degree=degree, homophily=homophily
    )
    keys = drawn.edges
    edges = np.stack([keys // nodes, keys % nodes])
    counts, columns = zip(*drawn.words, strict=True)
    indices, starts = np.concatenate(columns), np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    bags = sp.csr_array((np.ones(len(indices), np.float32), indices, starts), shape=(nodes, features))
    return Graph.from_edges(edges, bags, labels=drawn.labels, name="citations", class_names=drawn.class_names)


class Drawn(NamedTuple):
    """A drawn graph before it is put together."""

    labels: Ints
    edges: Ints
    """Each edge once, as ``low * nodes + high``, sorted."""
    words: Iterator[tuple[Ints, npt.NDArray[np.int32]]]
    """Some nodes at a time: how many words each has, and all these words, sorted for each node."""
    num_features: int
    class_names: list[str]


def draw(
    *,
    nodes: int,
    seed: int,
    classes: int,
    features: int,
    words: int,
    degree: float,
    homophily: float,
    in_pieces: bool = False,
) -> Drawn:
    """Check the options of :func:`generate` and draw; words are drawn as they are asked for.

    With ``in_pieces`` less memory must be there, as nobody will hold all words.
    """
    nodes = check_integer("nodes", nodes, low=2)
    seed = check_integer("seed", seed, low=0)
    classes = check_integer("classes", classes, low=2, high=nodes)
    features = check_integer("features", features, low=classes)
    words = check_integer("words", words, low=1, high=max(1, features // 2))
    homophily = check_number("homophily", homophily, low=0, high=1)
    degree = check_number("degree", degree, low=0, high=_highest_degree(nodes, classes, homophily))
    _check_memory(in_pieces=in_pieces, nodes=nodes, features=features, words=words, degree=degree)

    rng = generator(seed, "data")
    labels = rng.permutation(np.arange(nodes, dtype=np.int64) % classes)
    edges = _draw_edges(labels, num_edges=round(nodes * degree / 2), homophily=homophily, rng=rng)
    drawn = _draw_words(labels, vocabulary=features, words=words, rng=rng)
    return Drawn(labels, edges, drawn, features, [f"class {c}" for c in range(classes)])


def _check_memory(*, in_pieces: bool, **options: float) -> None:
    """Refuse a graph for which there is not enough memory, and name the option that lies furthest above its default."""
    nodes, edges = options["nodes"], options["nodes"] * options["degree"] / 2
    # Measured with a million nodes: 90 bytes per node, 125 per edge while edges are drawn, 20 per word, 60 per feature.
    needed = 90 * nodes + max(120 * edges, 40 * edges + 16 * nodes * options["words"]) + 60 * options["features"]
    if in_pieces:
        needed = 60 * nodes + 40 * edges + 60 * options["features"]
    usual = inspect.signature(generate).parameters
    name = max(options, key=lambda option: options[option] / usual[option].default)
    check_memory(needed, f"`{name}` {options[name]:g}", "lower it")


def _highest_degree(nodes: int, classes: int, homophily: float) -> float:
    size, larger = divmod(nodes, classes)
    inside = ((classes - larger) * size * (size - 1) + larger * (size + 1) * size) / nodes
    outside = nodes - 1 - inside
    limits = [FILL * inside / homophily] if homophily > 0 else []
    limits += [FILL * outside / (1 - homophily)] if homophily < 1 else []
    return min(limits)


class _Ends:
    """Draws the ends of edges by weight, inside a class or outside it."""

    def __init__(self, labels: Ints, rng: np.random.Generator) -> None:
        n = len(labels)
        self.labels = labels
        self.rng = rng
        # Without a limit, one node of a million could be an end of most edges, and most of them would be duplicates.
        weights = np.minimum((1 - rng.random(n)) ** (-1 / TAIL), np.sqrt(n))
        self.nodes = np.argsort(labels, kind="stable")
        self.sums = np.cumsum(weights[self.nodes])
        last = np.cumsum(np.bincount(labels)) - 1
        self.stop = self.sums[last]
        self.start = np.concatenate([[0.0], self.stop[:-1]])

    def at(self, positions: Floats) -> Ints:
        """Return the node at each position from 0 to 1 when all weights are laid end to end, class after class."""
        return self._node(positions * self.sums[-1])

    def partners(self, ends: Ints, inside: npt.NDArray[np.bool_]) -> Ints:
        start, stop = self.start[self.labels[ends]], self.stop[self.labels[ends]]
        draws = self.rng.random(len(ends))
        within = start + draws * (stop - start)
        beyond = draws * (self.sums[-1] - (stop - start))
        beyond += np.where(beyond >= start, stop - start, 0.0)
        return self._node(np.where(inside, within, beyond))

    def _node(self, sums: Floats) -> Ints:
        places = np.searchsorted(self.sums, sums, side="right")
        return np.asarray(self.nodes[np.minimum(places, len(self.nodes) - 1)])


def _draw_edges(labels: Ints, *, num_edges: int, homophily: float, rng: np.random.Generator) -> Ints:
    n = len(labels)
    ends = _Ends(labels, rng)
    num_inside = round(num_edges * homophily)
    # First ends come at even steps along the weights: every node gets its share to within one, so few are isolated.
    offset = rng.random()
    inside = rng.permutation(num_edges) < num_inside
    pieces = [np.zeros(0, np.int64)]
    for begin in range(0, num_edges, BLOCK):
        some = inside[begin : begin + BLOCK]
        first = ends.at((np.arange(begin, begin + len(some)) + offset) / max(1, num_edges))
        pieces.append(_new_pairs(first, ends.partners(first, some), labels, some, n))
    kept = np.concatenate(pieces)
    pieces.clear()
    kept = _distinct(kept)
    for _ in range(1000):
        kept.sort()
        num_same = sum(
            int((labels[piece // n] == labels[piece % n]).sum())
            for piece in (kept[begin : begin + BLOCK] for begin in range(0, len(kept), BLOCK))
        )
        missing = {True: num_inside - num_same, False: num_edges - num_inside - (len(kept) - num_same)}
        if not any(missing.values()):
            break
        more = []
        for kind, number in missing.items():
            first = ends.at(rng.random(number + number // 4 + 8 if number else 0))
            inside = np.full(len(first), kind)
            drawn = _new_pairs(first, ends.partners(first, inside), labels, inside, n)
            more.append(rng.permutation(drawn[~_contains(kept, drawn)])[:number])
        kept = np.concatenate([kept, *more])
    return kept


def _new_pairs(first: Ints, second: Ints, labels: Ints, inside: npt.NDArray[np.bool_], n: int) -> Ints:
    """Return each pair once as ``low * n + high``, without loops and without pairs that rounding misplaced."""
    good = (first != second) & ((labels[first] == labels[second]) == inside)
    low, high = np.minimum(first, second)[good], np.maximum(first, second)[good]
    return _distinct(low * n + high)


def _distinct(keys: Ints) -> Ints:
    # Since NumPy 2.3, np.unique hashes integers; that took many times as long as sorting nearly sorted keys.
    keys.sort()
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return np.asarray(keys[first])


def _contains(ordered: Ints, keys: Ints) -> npt.NDArray[np.bool_]:
    places = np.searchsorted(ordered, keys)
    inside = places < len(ordered)
    inside[inside] = ordered[places[inside]] == keys[inside]
    return inside


def _draw_words(
    labels: Ints, *, vocabulary: int, words: int, rng: np.random.Generator
) -> Iterator[tuple[Ints, npt.NDArray[np.int32]]]:
    num_classes = int(labels.max()) + 1
    frequency = 1 / np.arange(1.0, vocabulary + 1)
    # Words are given to the topics in turn, by rank, so that no topic has all the frequent ones.
    by_topic = np.argsort(np.arange(vocabulary) % num_classes, kind="stable")
    sums = np.cumsum(frequency[by_topic])
    last = np.cumsum(np.bincount(np.arange(vocabulary) % num_classes)) - 1
    stop = sums[last]
    start = np.concatenate([[0.0], stop[:-1]])
    draws = _draws_for(words, frequency, start, stop)

    step = max(1, int(BLOCK / draws))
    for begin in range(0, len(labels), step):
        block = labels[begin : begin + step]
        rows = np.repeat(np.arange(len(block)), np.maximum(rng.poisson(draws, len(block)), 1))
        topic = block[rows]
        on_topic = rng.random(len(rows)) < TOPIC_SHARE
        position = rng.random(len(rows))
        position *= np.where(on_topic, stop[topic] - start[topic], sums[-1])
        position += np.where(on_topic, start[topic], 0.0)
        drawn = by_topic[np.minimum(np.searchsorted(sums, position, side="right"), vocabulary - 1)]
        keys = _distinct(rows * vocabulary + drawn)
        yield np.bincount(keys // vocabulary, minlength=len(block)), (keys % vocabulary).astype(np.int32)


def _draws_for(words: int, frequency: Floats, start: Floats, stop: Floats) -> float:
    """Return how many words to draw so that, on average over classes, ``words`` of them differ."""
    num_classes = len(start)
    general = (1 - TOPIC_SHARE) * frequency / frequency.sum()
    special = TOPIC_SHARE * frequency / (stop - start)[np.arange(len(frequency)) % num_classes]

    def different(draws: float) -> float:
        # With a Poisson number of draws, a word of probability p is missed with probability exp(-draws * p).
        off_topic = -np.expm1(-draws * general)
        on_topic = -np.expm1(-draws * (general + special))
        return float(((num_classes - 1) * off_topic + on_topic).sum()) / num_classes

    low, high = 0.0, float(words)
    while different(high) < words:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if different(middle) < words else (low, middle)
    return high
