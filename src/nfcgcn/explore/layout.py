"""Where nodes stand in the picture: joined nodes near each other, all others apart.

One method for both pictures: the structure joins nodes by the graph's edges, the learned one joins each node with those
whose representations are nearest.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import scipy.sparse as sp

from nfcgcn import files
from nfcgcn.errors import NFCError
from nfcgcn.explore.subject import Subject
from nfcgcn.inference.prediction import embed
from nfcgcn.randomness import generator

Array = npt.NDArray[Any]
ROUNDS, FEWER_ROUNDS = 250, 100
"""The fewer are for more than `MANY_NODES`."""
MANY_NODES = 5_000
OTHERS = 6
"""Nodes that each node is pushed away from in a round."""
FARTHEST = 4.0
"""Longest step along an axis."""
NEAREST = 10
"""Nodes that the learned picture joins each node with."""
CHUNK = 512
"""Nodes whose distances to all others are held in memory at a time."""
MOST_COLUMNS = 24
"""A wider representation is projected before the nearest are looked for."""
CACHE = "layout.safetensors"
MOST_BYTES = 64 * 2**20


def positions(subject: Subject, folder: Path | None = None) -> dict[str, Array]:
    """Return ``[N, 2]`` positions by "structure" and, with a run, by "learned"; `folder` keeps them for next time."""
    key = _key(subject)
    kept = None if folder is None else _read(folder / CACHE, key, subject.graph.num_nodes)
    if kept is not None:
        return kept
    layouts = {"structure": arrange(subject.graph.adjacency)}
    if subject.run is not None:
        layouts["learned"] = arrange(_nearest(_representation(subject)))
    if folder is not None:
        with suppress(NFCError):  # in a folder that cannot be written to, they are computed again next time
            files.write_bytes(files.in_folder(folder, CACHE), safetensors.numpy.save({**layouts, "key": key}))
    return layouts


def arrange(links: sp.csr_array) -> Array:
    """Arrange the nodes of a symmetric graph ``[N, N]`` in the plane, within -1 and 1, ``[N, 2]``.

    Neighbours pull with a force that fades with the distance, nodes picked at random push, and a weak pull to the
    centre keeps separate parts in sight (the forces of UMAP: McInnes, Healy and Melville, 2018). Cost: some hundred
    passes over the edges. Nothing but the graph decides the result.
    """
    count = links.shape[0]
    if not count:
        return np.zeros((0, 2), np.float32)
    random = generator(0, "picture")
    points = _start(links, random).astype(np.float32)
    rounds = ROUNDS if count <= MANY_NODES else FEWER_ROUNDS
    degrees = np.diff(links.indptr)
    rows = np.repeat(np.arange(count), degrees)
    share = (1 / np.maximum(degrees, 1)).astype(np.float32)[rows]
    pull = sp.csr_array((share, links.indices, links.indptr), shape=links.shape)
    for step in range(rounds):
        rate = np.float32(1 - step / rounds)
        gaps = points[rows] - points[links.indices]
        pull.data = share / (1 + (gaps**2).sum(1))
        move = 2 * (pull @ points - points * np.asarray(pull.sum(axis=1))[:, None])
        for shift in random.integers(1, max(count, 2), OTHERS):
            gap = points - np.roll(points, shift, axis=0)
            square = (gap**2).sum(1)
            move += np.clip(gap * (2 / ((0.01 + square) * (1 + square)))[:, None], -FARTHEST, FARTHEST)
        points = (points + rate * np.clip(move, -FARTHEST, FARTHEST)) * (1 - 0.01 * rate)
    return _gather(points)


def _gather(points: Array) -> Array:
    """Centre the points and draw in the few that are far out, so that the others have room, within -1 and 1."""
    points = points - np.median(points, axis=0)
    radius = np.sqrt((points**2).sum(axis=1, keepdims=True))
    usual = float(np.quantile(radius, 0.9)) or 1.0
    beyond = np.maximum(radius / usual - 1, 0)
    wanted = np.minimum(radius, usual) + usual * 0.4 * (1 - np.exp(-beyond))
    return np.asarray(points * wanted / np.maximum(radius, 1e-12) / (1.4 * usual), np.float32)


def _start(links: sp.csr_array, random: np.random.Generator) -> Array:
    """Return a smooth placement: the slowest motions of the graph, by a few steps of the power method."""
    count = links.shape[0]
    points = random.normal(size=(count, 2))
    degrees = np.diff(links.indptr)[:, None]
    for _ in range(30):
        points = (links @ points + points) / (degrees + 1)
        points -= points.mean(axis=0)
        points, _ = np.linalg.qr(points) if count > 2 else (points, None)
    spread = points.std(axis=0)
    return points / np.where(spread > 0, spread, 1) * 5 + random.normal(size=(count, 2)) * 0.1


def _representation(subject: Subject) -> Array:
    assert subject.run is not None  # noqa: S101
    vectors: Array
    try:
        vectors = embed(subject.run.model, subject.graph, "last")
    except NFCError:  # too large
        vectors = embed(subject.run.model, subject.graph, "scores")
    vectors = np.nan_to_num(vectors, posinf=0.0, neginf=0.0)
    if vectors.shape[1] > MOST_COLUMNS:
        vectors = vectors @ generator(0, "picture").normal(size=(vectors.shape[1], MOST_COLUMNS))
    return np.asarray(vectors, np.float64)


def _nearest(vectors: Array) -> sp.csr_array:
    """Join each vector with the nearest ones, in both directions."""
    count, vectors = len(vectors), vectors.astype(np.float32)
    neighbours = min(NEAREST, count - 1)
    if neighbours < 1:
        return sp.csr_array((count, count))
    nearest, squares = np.empty((count, neighbours), np.int64), (vectors**2).sum(axis=1)
    for start in range(0, count, CHUNK):
        part = np.arange(start, min(start + CHUNK, count))
        gaps = squares - 2 * vectors[part] @ vectors.T
        gaps[np.arange(len(part)), part] = np.inf  # of the vector itself
        nearest[part] = np.argpartition(gaps, neighbours - 1, axis=1)[:, :neighbours]
    rows = np.repeat(np.arange(count), neighbours)
    links = sp.csr_array((np.ones(len(rows)), (rows, nearest.ravel())), shape=(count, count))
    links = sp.csr_array(links + links.T)
    links.data[:] = 1.0
    return links


def _key(subject: Subject) -> Array:
    """Return what the positions depend on, in short."""
    digest = hashlib.sha256(b"1")  # the version of the method
    graph = subject.graph
    for part in (graph.adjacency.indptr, graph.adjacency.indices, graph.features):
        dense = part if isinstance(part, np.ndarray) else part.data
        digest.update(np.ascontiguousarray(dense).tobytes())
    if subject.run is not None:
        for _, tensor in sorted(subject.run.model.state_dict().items()):
            digest.update(tensor.cpu().numpy().tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def _read(path: Path, key: Array, num_nodes: int) -> dict[str, Array] | None:
    """Return stored positions, if they are those of this graph and model; a damaged file counts as none."""
    try:
        layouts = safetensors.numpy.load(files.read_regular(path, MOST_BYTES))
    except Exception:
        return None
    if not np.array_equal(layouts.pop("key", np.zeros(0)), key):
        return None
    fits = all(a.shape == (num_nodes, 2) and np.isfinite(a).all() for a in layouts.values())
    return layouts if fits and "structure" in layouts else None
