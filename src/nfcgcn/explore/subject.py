"""What is explored: a graph and, if there is one, a run with what its model says about every node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from nfcgcn.config.registry import make_config
from nfcgcn.data.formats.cells import TableCells
from nfcgcn.errors import NFCError
from nfcgcn.graph import Graph, Ints, Split
from nfcgcn.inference.checkpoint import SavedRun, load_outcome
from nfcgcn.inference.explanation import Explainer
from nfcgcn.inference.prediction import Prediction, predict_proba
from nfcgcn.method.model import NFCGCN
from nfcgcn.reports.explanation_page import feature_name, node_name, write_cell

Doubles = npt.NDArray[np.float64]
PARTS = ("training", "validation", "test", "no part")
"""Of the split; a node has the number of its part."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A graph, and a run to ask about it."""

    graph: Graph
    run: SavedRun | None = None
    draws: int = 10
    """Draws of neighbours over which the spread of a probability is taken."""

    @cached_property
    def classes(self) -> list[str]:
        """The names of the classes, as the run numbers them."""
        count = self.graph.num_classes if self.run is None else self.run.num_classes
        name = self.graph.class_name if self.run is None else self.run.class_name
        return [name(number) for number in range(count)]

    @cached_property
    def labels(self) -> Ints:
        """The label of each node, ``[N]``; -1 for none, and for a class that the run does not know."""
        return self.graph.labels if self.run is None else self.run.read_labels(self.graph)

    @cached_property
    def probabilities(self) -> Doubles | None:
        """What `predict` says: class probabilities of the draw that evaluation uses, ``[N, C]``."""
        return None if self.run is None else predict_proba(self.run.model, self.graph).probabilities

    @cached_property
    def over_draws(self) -> Prediction | None:
        """What `predict --draws` says: the mean and the deviation over draws."""
        return None if self.run is None else predict_proba(self.run.model, self.graph, draws=self.draws)

    @cached_property
    def predicted(self) -> Ints | None:
        """The most probable class of each node, ``[N]``."""
        return None if self.probabilities is None else np.asarray(self.probabilities.argmax(1), np.int64)

    @cached_property
    def confidence(self) -> Doubles | None:
        """The probability of that class, ``[N]``."""
        return None if self.probabilities is None else np.asarray(self.probabilities.max(1))

    @cached_property
    def degrees(self) -> Ints:
        """Neighbours of each node, ``[N]``."""
        return np.asarray(np.diff(self.graph.adjacency.indptr), np.int64)

    @cached_property
    def parts(self) -> Ints:
        """The part of the split that each node is in, ``[N]``."""
        parts = np.full(self.graph.num_nodes, PARTS.index("no part"))
        split = self.graph.given if self.run is None else self._split_of_run()
        if split is not None:
            for number, nodes in enumerate((split.train, split.val, split.test)):
                parts[nodes] = number
        return parts

    def _split_of_run(self) -> Split | None:
        """Make the split of the run again; None if this is not the graph that it was trained on."""
        assert self.run is not None  # noqa: S101
        try:
            stored = load_outcome(self.run.folder).scored.labels
            config = make_config(self.run.model_name, settings=self.run.settings)
            split = config.split.make(self.graph, self.run.seed)
        except (NFCError, IndexError):
            return None
        return split if np.array_equal(self.labels[split.test], stored) else None

    @property
    def convolved(self) -> NFCGCN | None:
        """The model, if it has feature maps."""
        return self.run.model if self.run is not None and isinstance(self.run.model, NFCGCN) else None

    @cached_property
    def explainer(self) -> Explainer:
        """What answers why."""
        assert self.run is not None  # noqa: S101
        return Explainer(self.run.model, self.graph)

    @cached_property
    def own_table(self) -> Ints:
        """The neighbours that the model draws for the graph as it is, ``[N, n]``."""
        return self.table(self.graph)

    def table(self, graph: Graph, *, draw: int = 0) -> Ints:
        """Return the neighbours that the model draws for `graph`, ``[N, n]``."""
        model = self.convolved
        assert model is not None  # noqa: S101
        before = model.nfc.draw
        try:
            model.nfc.draw = before + draw
            with torch.no_grad():
                table: Ints = model.nfc.table(model.scale(graph.x), graph.edges).numpy()
        finally:
            model.nfc.draw = before
        return table

    def name(self, node: int) -> str:
        """Return the name of a node, or its number."""
        return node_name(self.graph, node)

    def feature(self, number: int) -> str:
        """Return the name of a feature, or its number."""
        return feature_name(self.graph, number)

    @cached_property
    def table_cells(self) -> TableCells | None:
        """What stands behind features in the user's table; None for a graph that was not read from tables."""
        return None if self.graph.encoding is None else TableCells(self.graph.encoding)

    def value(self, number: int, value: float) -> dict[str, Any]:
        """Return the value of a feature as the model gets it, and for a graph from tables what the table holds."""
        cells = self.table_cells
        return {"value": value, **({} if cells is None else {"cell": write_cell(cells.cell(number, value))})}

    def class_name(self, number: int) -> str | None:
        """Return the name of a class; None for the label -1."""
        return self.classes[number] if number >= 0 else None

    def row(self, node: int) -> Any:
        """Return the features of a node, as they are in the graph, dense ``[D]``."""
        row = self.graph.features[[node]]
        return (row if isinstance(row, np.ndarray) else row.toarray())[0]

    def brief(self, node: int) -> dict[str, Any]:
        """Say in short what a node is, for a list."""
        return {
            "node": int(node),
            "name": self.name(node),
            "label": int(self.labels[node]),
            "predicted": None if self.predicted is None else int(self.predicted[node]),
            "confidence": None if self.confidence is None else float(self.confidence[node]),
        }
