"""Whether a store is whole: the sha256 of its files, and indices that stay inside their arrays.

Kernels trust indices. So everything is read once before it is trusted: a small store at each opening, a larger one at
its first. That it was is noted in the user's cache, with the times and sizes of the files then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn.data.store.arrays import BLOCK, Array, check_bytes, row_blocks
from nfcgcn.data.store.layout import META, PARTS, Meta, damaged
from nfcgcn.files import cache_folder, reading, write_text

NOTED_FROM = 2**28
"""A store of at least so many bytes is read as a whole once; a smaller one each time, which takes half a second."""
READ = 2**22


def check_files(folder: Path, meta: Meta) -> None:
    """Refuse a file whose sha256 is not that of `meta.json`."""
    with ThreadPoolExecutor(2) as pool:  # hashlib lets other threads run meanwhile
        for name, checksum in zip(meta.files, pool.map(sha256_of, (folder / name for name in meta.files)), strict=True):
            if checksum != meta.files[name].sha256:
                raise damaged(folder / name, "its sha256 is not that of meta.json")


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    checksum = hashlib.sha256()
    with reading(path), path.open("rb") as file:
        while block := file.read(READ):
            checksum.update(block)
    return checksum.hexdigest()


def check_arrays(folder: Path, meta: Meta, arrays: Mapping[str, Array]) -> None:
    """Refuse numbers that cannot be right, of any array; reads everything, a piece at a time."""
    _check_matrix(folder, "edges", arrays, meta.nodes, is_graph=True)
    if meta.sparse:
        _check_matrix(folder, "features", arrays, meta.features)
    values = "features_values.npy" if meta.sparse else "features.npy"
    for name, low in ((values, None), ("edges_weights.npy", 0.0)):
        flat = arrays[name].reshape(-1) if name in arrays else np.zeros(0)
        for at in range(0, len(flat), BLOCK):
            piece = flat[at : at + BLOCK]
            if not np.isfinite(piece).all() or (low is not None and not (piece > low).all()):
                raise damaged(folder / name, "a value is not finite" + (" or not above 0" if low is not None else ""))
    _check_between(folder / "labels.npy", arrays["labels.npy"], -1, meta.classes)
    lists = ["test_nodes.npy", *(f"split_{part}.npy" for part in PARTS)]
    for name in lists:
        if name in arrays:
            _check_between(folder / name, arrays[name], 0, meta.nodes)


def _check_matrix(
    folder: Path, name: str, arrays: Mapping[str, Array], columns: int, *, is_graph: bool = False
) -> None:
    """Check a CSR matrix: columns inside it, rising in each row; a graph has no loops."""
    starts, indices = arrays[f"{name}_indptr.npy"], arrays[f"{name}_indices.npy"]
    path = folder / f"{name}_indices.npy"
    check_starts(folder / f"{name}_indptr.npy", starts, len(indices))
    for first, stop in row_blocks(starts):
        begin, end = int(starts[first]), int(starts[stop])
        piece = indices[begin:end]
        _check_between(path, piece, 0, columns)
        rows = np.repeat(np.arange(first, stop), np.diff(starts[first : stop + 1]))
        if ((piece[1:] <= piece[:-1]) & (rows[1:] == rows[:-1])).any():
            raise damaged(path, "the numbers of a row do not rise")
        if is_graph and (piece == rows).any():
            raise damaged(path, "a node is its own neighbour")


def check_starts(path: Path, starts: Array, count: int) -> None:
    """Check the ``indptr`` of a CSR matrix with `count` entries."""
    if starts[0] != 0 or starts[-1] != count:
        raise damaged(path, f"it must rise from 0 to {count:,}")
    for at in range(0, len(starts) - 1, BLOCK):
        if (np.diff(starts[at : at + BLOCK + 1]) < 0).any():
            raise damaged(path, "its numbers fall")


def _check_between(path: Path, numbers: Array, low: int, stop: int) -> None:
    for at in range(0, len(numbers), BLOCK):
        piece = numbers[at : at + BLOCK]
        if piece.min() < low or piece.max() >= stop:
            raise damaged(path, f"its numbers must lie between {low} and {stop - 1:,}")


def is_noted(folder: Path, meta: Meta) -> bool:
    """Return whether this user has had the store checked as a whole, and no file was touched since."""
    note = _note(folder)
    try:
        return note is not None and note.read_text(encoding="ascii") == _state(folder, meta)
    except (OSError, ValueError):
        return False


def note(folder: Path, meta: Meta) -> None:
    """Note that the store is whole as it is now; where there is no cache, it will be checked again."""
    place = _note(folder)
    if meta.size >= NOTED_FROM and place is not None:
        with suppress(Exception):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_text(place, _state(folder, meta))


def _note(folder: Path) -> Path | None:
    cache = cache_folder()
    name = hashlib.sha256(str(folder.resolve()).encode(errors="surrogateescape")).hexdigest()[:32]
    return None if cache is None else cache / "stores" / name


def _state(folder: Path, meta: Meta) -> str:
    """Return a checksum of all by which a changed file is recognised without reading it."""
    stats: list[Any] = []
    for name in (META, *meta.files):
        stat = (folder / name).stat()
        stats.append((name, stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns))
    return hashlib.sha256(repr((stats, sha256_of(folder / META))).encode()).hexdigest()


def check_sizes(folder: Path, meta: Meta) -> None:
    """Refuse files that are missing, have another size, or belong to no store; nothing is read."""
    for name, file in meta.files.items():
        check_bytes(folder / name, file)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".npy", ".arrow") and path.name not in meta.files:
            raise damaged(path, "meta.json does not name it")
