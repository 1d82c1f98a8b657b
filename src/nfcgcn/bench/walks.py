"""What random walks and skip-gram cost, beside gensim's word2vec on the same walks."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from nfcgcn.evaluation import environment
from nfcgcn.graph import Graph
from nfcgcn.kernels.skip_gram import EVERY, Source, learn_vectors, window_pairs
from nfcgcn.kernels.threads import one_pool

GENSIM_MISSING = "gensim is not installed (`pip install gensim`)"


def bench_walks(
    graph: Graph,
    *,
    num_walks: int = 80,
    walk_length: int = 40,
    width: int = 128,
    window: int = 10,
    threads: int = 2,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return the seconds of the walks, of our skip-gram with its walks, and of gensim's on the same walks.

    ``*_s`` are seconds on the clock, ``*_cpu_s`` those of all cores together, which other programs change less.
    gensim gets one pass over the walks, five negative nodes and `threads` workers. Its time is None where it is not
    installed. Kernels are compiled before the clock starts.
    """
    torch.set_num_threads(threads)
    starts, neighbours = (part.astype(np.int64) for part in (graph.adjacency.indptr, graph.adjacency.indices))
    pairs = window_pairs(walk_length, window, segment=walk_length, negatives=5)

    def source(walks: int) -> Source:
        return Source(starts, neighbours, walk_length, walks, (EVERY, EVERY, EVERY))

    with one_pool():
        say("compiling")
        learn_vectors(source(1), pairs, width=width, step=0.025, seed=0)
        say("walks")
        alone, walks = _timed(lambda: [chunk for chunk, _ in source(num_walks).sequences(0)])
        say("skip-gram, with its walks")
        ours, _ = _timed(lambda: learn_vectors(source(num_walks), pairs, width=width, step=0.025, seed=0))
    theirs = None
    if find_spec("gensim") is not None:
        say("gensim's word2vec")
        theirs = _time_gensim(walks, width, window, threads)
    return {
        "graph": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "num_walks": num_walks,
        "walk_length": walk_length,
        "hidden_channels": width,
        "window": window,
        "threads": threads,
        **_seconds("walks", alone),
        **_seconds("ours", ours),
        **_seconds("gensim", theirs),
        **environment(torch.device("cpu")),
    }


def _timed(work: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Return the seconds on the clock and those of all cores that some work takes, and its result."""
    start, cpu = time.perf_counter(), time.process_time()
    result = work()
    return (time.perf_counter() - start, time.process_time() - cpu), result


def _seconds(name: str, times: tuple[float, float] | None) -> dict[str, float | None]:
    clock, cpu = times or (None, None)
    return {f"{name}_s": clock, f"{name}_cpu_s": cpu}


def _time_gensim(walks: list[Any], width: int, window: int, threads: int) -> tuple[float, float]:
    from gensim.models import Word2Vec

    sentences = [list(map(str, walk)) for chunk in walks for walk in chunk.tolist()]
    seconds, _ = _timed(
        lambda: Word2Vec(
            sentences, vector_size=width, window=window, min_count=0, sg=1, hs=0, negative=5, epochs=1, workers=threads
        )
    )
    return seconds
