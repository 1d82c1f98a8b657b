"""Generated citation graphs as stores: the same graphs as in memory, with their words never all there at once."""

from __future__ import annotations

import inspect
import shutil
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nfcgcn.data import citations
from nfcgcn.data.packing.progress import Progress
from nfcgcn.data.store.arrays import row_blocks
from nfcgcn.data.store.layout import Meta
from nfcgcn.data.store.verification import note
from nfcgcn.data.store.writing import StoreWriter, index_type
from nfcgcn.errors import WriteError
from nfcgcn.files import new_folder
from nfcgcn.graph import Ints
from nfcgcn.memory import in_words


def pack_citations(
    folder: str | PathLike[str], *, force: bool = False, progress: Progress | None = None, **options: Any
) -> Meta:
    """Draw a citation graph and write it as a store; ``options`` are those of :func:`nfcgcn.data.citations.generate`.

    The graph is that of ``nfcgcn.load("citations", ...)``. Memory: about 60 bytes per node and 40 per edge.
    """
    place, progress = Path(folder), progress or Progress()
    usual = {name: parameter.default for name, parameter in inspect.signature(citations.generate).parameters.items()}
    with new_folder(place, force=force, kind="store") as draft, StoreWriter(draft) as writer:
        progress.show("drawing edges", 0, 0)
        drawn = citations.draw(**{**usual, **options}, in_pieces=True)
        nodes, edges = len(drawn.labels), len(drawn.edges)
        needed = 12 * nodes + 8 * edges + 8 * nodes * int({**usual, **options}["words"])
        if needed > shutil.disk_usage(draft).free:
            raise WriteError(
                f"{place} would need about {in_words(needed)} of disk, which are not free; choose another place"
            )
        _write_edges(writer, drawn.edges, nodes, progress)
        with writer.array("labels.npy", "<i8") as labels:
            labels.add(drawn.labels)
        _write_words(writer, drawn, progress)
        progress.show("computing checksums", 0, 0)
        meta = writer.finish(
            name="citations",
            nodes=nodes,
            edges=edges,
            features=drawn.num_features,
            classes=len(drawn.class_names),
            class_names=drawn.class_names,
        )
    note(place, meta)
    return meta


def _write_edges(writer: StoreWriter, keys: Ints, nodes: int, progress: Progress) -> None:
    """Write both directions of edges that are sorted by ``low * nodes + high``."""
    later = np.empty(len(keys), np.int32)
    counts = np.zeros(nodes, np.int64)
    for at in range(0, len(keys), citations.BLOCK):
        piece = keys[at : at + citations.BLOCK]
        later[at : at + len(piece)] = piece % nodes
        low = piece // nodes
        counts[low[0] : low[-1] + 1] += np.bincount(low - low[0])
    starts = np.concatenate([[0], np.cumsum(counts)])
    above = sp.csr_array((np.ones(len(later), np.int8), later, starts), shape=(nodes, nodes))
    below = above.tocsc()
    # A node's neighbours with smaller numbers come first, those with larger ones follow: both are sorted already.
    with writer.array("edges_indices.npy", index_type(2 * len(keys), nodes)) as indices:
        degrees = counts + np.diff(below.indptr)
        ends = np.concatenate([[0], np.cumsum(degrees)])
        for first, stop in row_blocks(ends):
            out = np.empty(ends[stop] - ends[first], np.int32)
            for matrix, skipped in ((below, 0), (above, np.diff(below.indptr[first : stop + 1]))):
                begins = matrix.indptr[first : stop + 1].astype(np.int64)
                shift = np.repeat(ends[first:stop] - ends[first] + skipped - begins[:-1], np.diff(begins))
                out[np.arange(begins[0], begins[-1]) + shift] = matrix.indices[begins[0] : begins[-1]]
            indices.add(out)
            progress.show("writing edges", stop, nodes)
    writer.starts("edges", degrees, nodes)


def _write_words(writer: StoreWriter, drawn: citations.Drawn, progress: Progress) -> None:
    indices, values = writer.open("features_indices.npy", "<i4"), writer.open("features_values.npy", "<f4")
    counts, done = [], 0
    for per_node, words in drawn.words:
        indices.add(words)
        values.add(np.ones(len(words), np.float32))
        counts.append(per_node.astype(np.int32))
        done += len(per_node)
        progress.show("writing words", done, len(drawn.labels))
    writer.close(indices)
    writer.close(values)
    writer.starts("features", np.concatenate(counts), drawn.num_features)
