"""What `nfcgcn predict` writes: one row per node, as CSV or Parquet, a block of nodes at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn import files
from nfcgcn.cli.console import warn_of_formulas
from nfcgcn.data.store.names import take_names
from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph, Ints
from nfcgcn.inference.checkpoint import SavedRun
from nfcgcn.inference.run_split import Parts
from nfcgcn.training.scores import Doubles

BLOCK = 2**16
"""Nodes that are written at a time."""
Block = tuple[Doubles, Doubles | None]
"""Class probabilities of some nodes, and the uncertainty of each node, if it is wanted."""


def check_kind(path: Path, kinds: Sequence[str] = (".csv", ".parquet")) -> None:
    """Refuse the name of a file of another kind, and that of a Parquet file if the package for it is missing."""
    if path.suffix not in kinds:
        raise ConfigError(f"`--out` must end in {', '.join(kinds[:-1])} or {kinds[-1]}, got '{path.name}'")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ConfigError("Parquet files need pyarrow: pip install 'nfcgcn[parquet]', or write another kind of file")


def write_predictions(path: Path, run: SavedRun, graph: Graph, shown: Ints, block: Callable[[Ints], Block]) -> Ints:
    """Write the predictions of the nodes `shown`, and return their classes."""
    parts = Parts(graph, run.split)
    classes: list[Ints] = []

    def blocks() -> Iterator[dict[str, Any]]:
        for at in range(0, max(1, len(shown)), BLOCK):
            nodes = shown[at : at + BLOCK]
            probabilities, uncertainty = block(nodes)
            classes.append(np.asarray(probabilities.argmax(1), np.int64))
            yield _columns(run, graph, parts, nodes, probabilities, uncertainty)

    (_write_parquet if path.suffix == ".parquet" else _write_csv)(path, blocks())
    return np.concatenate(classes)


def _columns(
    run: SavedRun, graph: Graph, parts: Parts, nodes: Ints, probabilities: Doubles, uncertainty: Doubles | None
) -> dict[str, Any]:
    names = [run.class_name(c) for c in range(run.num_classes)]
    highest = np.sort(np.pad(probabilities, ((0, 0), (1, 0))), axis=1)[:, -2:]  # of a single class the second is 0
    labels = np.asarray(graph.labels[nodes])
    return {
        "id": ids_of(graph, nodes),
        "label": [names[c] for c in probabilities.argmax(1).tolist()],
        "confidence": highest[:, 1],
        "margin": highest[:, 1] - highest[:, 0],
        "true_label": ["" if label < 0 else graph.class_name(label) for label in labels.tolist()],
        "split": parts.of(nodes),
        **{f"p_{name}": probabilities[:, c] for c, name in enumerate(names)},
        **({} if uncertainty is None else {"uncertainty": uncertainty}),
    }


def ids_of(graph: Graph, nodes: Ints) -> list[Any]:
    """Return the ids of some nodes: their names, or their numbers if they have none."""
    names = graph.node_names
    return nodes.tolist() if names is None else take_names(names, nodes)


def _write_csv(path: Path, blocks: Iterator[dict[str, Any]]) -> None:
    risky: list[str] = []
    with files.new_file(path) as file:
        for number, columns in enumerate(blocks):
            text = io.StringIO()
            rows = csv.writer(text, lineterminator="\n")
            if not number:
                rows.writerow(columns)
            cells = [
                [f"{value:.6g}" for value in column.tolist()] if isinstance(column, np.ndarray) else map(str, column)
                for column in columns.values()
            ]
            rows.writerows(zip(*cells, strict=True))
            file.write(text.getvalue().encode("utf-8", "surrogateescape"))
            for name in ("id", "label", "true_label"):
                risky += [cell for cell in map(str, columns[name]) if cell[:1] in tuple("=+-@\t\r")]
    warn_of_formulas(risky)


def _write_parquet(path: Path, blocks: Iterator[dict[str, Any]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    writer: Any = None
    with files.new_file(path) as file:
        try:
            for columns in blocks:
                table = pa.table(
                    {
                        name: pa.array(c, pa.float32()) if isinstance(c, np.ndarray) else pa.array(c, _kind(c))
                        for name, c in columns.items()
                    }
                )
                writer = writer or parquet.ParquetWriter(file, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()


def _kind(column: list[Any]) -> Any:
    import pyarrow as pa

    return pa.int64() if column and isinstance(column[0], int) else pa.string()
