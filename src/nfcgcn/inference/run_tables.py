"""The files that a run's graph was read from: where they are, and a checksum by which a changed one is recognised."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nfcgcn.data.formats import find_tables
from nfcgcn.data.store.layout import is_store, meta_of
from nfcgcn.errors import DatasetError
from nfcgcn.files import is_folder, open_regular, reading

BLOCK = 2**20


def remember_tables(nodes: Path, edges: Path | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return paths and checksums of the files of a graph, and the `options` that they were read with.

    For `nodes` see :func:`files_of`.
    """
    paths = files_of(nodes, edges)
    files = {name: {"path": str(path.resolve()), "sha256": _sha256(path)} for name, path in paths.items()}
    return {**files, "options": dict(options)}


def files_of(nodes: Path, edges: Path | None) -> dict[str, Path]:
    """Return the files of nodes and of edges.

    `nodes` is a table, a folder with tables, a file that holds the whole graph, or a store, whose `meta.json` has the
    checksums of all its files.
    """
    if is_store(nodes):
        return {"nodes": meta_of(nodes)}
    if is_folder(nodes):
        nodes, edges = find_tables(nodes)
    return {"nodes": nodes} if edges is None else {"nodes": nodes, "edges": edges}


def remembered_paths(memory: Mapping[str, Any]) -> tuple[Path, Path | None]:
    """Return the files of nodes and of edges, if both are what they were."""
    for name in ("nodes", "edges"):
        if name in memory:
            path = Path(memory[name]["path"])
            if not path.exists():
                raise DatasetError(f"{path}, which the run was trained on, is gone; give it with --nodes and --edges")
            if _sha256(path) != memory[name]["sha256"]:
                raise DatasetError(
                    f"{path} is not as it was when the run was trained: its sha256 differs; "
                    "put the old file back, train again, or give the tables with --nodes and --edges"
                )
    return Path(memory["nodes"]["path"]), Path(memory["edges"]["path"]) if "edges" in memory else None


def is_memory(value: Any) -> bool:
    """Say whether a value from JSON is one that :func:`remember_tables` returns."""
    if not isinstance(value, dict) or not {"nodes", "options"} <= set(value) <= {"nodes", "edges", "options"}:
        return False
    files = [value[name] for name in ("nodes", "edges") if name in value]
    if not all(isinstance(file, dict) and set(file) == {"path", "sha256"} for file in files):
        return False
    texts = [text for file in files for text in file.values()]
    if not isinstance(value["options"], dict):
        return False
    options = value["options"].values()
    texts += [text for option in options for text in (option if isinstance(option, list) else [option])]
    return all(isinstance(text, bool) or (isinstance(text, str) and "\0" not in text) for text in texts)


def _sha256(path: Path) -> str:
    checksum = hashlib.sha256()
    with reading(path), open_regular(path, sys.maxsize) as file:
        while block := file.read(BLOCK):
            checksum.update(block)
    return checksum.hexdigest()
