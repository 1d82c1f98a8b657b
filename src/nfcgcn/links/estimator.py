"""Link prediction as a scikit-learn estimator, in which each row is a pair of nodes."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Graph, Ints
from nfcgcn.links.prediction import check_pairs, encode, predict_pairs, suggest_links
from nfcgcn.links.scores import auc
from nfcgcn.links.splits import EdgeSplit
from nfcgcn.links.training import fit_links
from nfcgcn.training import choose_device


class LinkPredictor(BaseEstimator):  # type: ignore[misc]
    """Predict links between the nodes of a graph, with any model of the package as the encoder.

    Args:
        model: a name from ``nfcgcn models``, or "gae" or "vgae".
        settings: settings by name, see ``nfcgcn links settings``.
        dataset: take the preset for this dataset.
        random_state: a whole number is the seed of the run, as in ``nfcgcn links train --seed``.
        device: "auto", "cpu" or "cuda".

    Attributes after ``fit``: ``run_`` (with the model, the split and every epoch), ``graph_`` and ``classes_``.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> predictor = LinkPredictor("gcn", settings={"epochs": 3}, random_state=0).fit(graph)
    >>> predictor.predict_proba([[0, 1], [0, 2]]).shape
    (2, 2)
    >>> others, probabilities = predictor.suggest(0, top=3)
    >>> len(others), graph.adjacency[[0]][:, others].nnz  # none is a neighbour already
    (3, 0)
    """

    def __init__(
        self,
        model: str = "nfc-gcn",
        *,
        settings: Any = None,
        dataset: str | None = None,
        random_state: Any = None,
        device: str = "auto",
    ) -> None:
        self.model, self.settings, self.dataset = model, settings, dataset
        self.random_state, self.device = random_state, device

    def fit(self, graph: Graph, y: None = None, *, split: EdgeSplit | None = None) -> LinkPredictor:
        """Learn the edges of a graph; see :func:`nfcgcn.fit_links`."""
        if y is not None:
            raise ConfigError("LinkPredictor takes no y: it learns from the edges of the graph")
        if not isinstance(graph, Graph):
            raise GraphError(f"LinkPredictor.fit takes an nfcgcn.Graph, got {type(graph).__name__}")
        state = check_random_state(self.random_state)
        fixed = isinstance(self.random_state, numbers.Integral)
        seed = int(self.random_state) if fixed else int(state.randint(2**31 - 1))
        self.run_ = fit_links(
            graph,
            self.model,
            dataset=self.dataset,
            settings=self.settings,
            split=split,
            seed=seed,
            device=choose_device(self.device),
        )
        if self.run_.interrupted:  # so that a search over many fits ends, too
            raise KeyboardInterrupt
        self.graph_, self.classes_ = graph, np.array([0, 1])
        return self

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:  # noqa: N803
        """Return the probabilities of no edge and of an edge, ``[n, 2]``, for pairs of nodes X, ``[n, 2]``.

        The model reads all edges of the graph but those among X. The probabilities are those of a mix in which half of
        the pairs have an edge.
        """
        check_is_fitted(self)
        edge = predict_pairs(
            self.run_.model, self.graph_, self._read_rows(X), read=self._read, device=choose_device(self.device)
        )
        self.run_.model.cpu()
        return np.stack([1 - edge, edge], axis=1)

    def predict(self, X: Any) -> Ints:  # noqa: N803
        """Return 1 for each pair of nodes that probably has an edge, else 0."""
        return (self.predict_proba(X)[:, 1] > 0.5).astype(np.int64)

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return the area under the ROC curve for pairs of nodes X, of which y says whether they have an edge."""
        truth, edge = np.asarray(y).astype(bool), self.predict_proba(X)[:, 1]
        if truth.shape != edge.shape or truth.all() or not truth.any():
            raise GraphError("y must say for each pair whether it has an edge, and there must be pairs of both kinds")
        return auc(edge[truth], edge[~truth])

    def suggest(self, node: int | str, *, top: int = 10) -> tuple[Ints, npt.NDArray[np.float64]]:
        """Return the most probable missing links of a node, numbers of other nodes, and their probabilities."""
        check_is_fitted(self)
        device = choose_device(self.device)
        nodes = self._numbers(np.asarray([node]))
        if nodes.dtype.kind not in "iu" or not 0 <= nodes[0] < self.graph_.num_nodes:
            raise GraphError(f"node {node} is outside 0 to {self.graph_.num_nodes - 1}")
        vectors = encode(self.run_.model, self.graph_, self._read, device=device)
        (suggested,) = suggest_links(self.run_.model, vectors, self.graph_, nodes, top=top)
        self.run_.model.cpu()
        return suggested.others, suggested.probabilities

    @property
    def _read(self) -> Ints | None:
        """What the model reads: all edges, unless it knows no other edges than those of its training."""
        return None if self.run_.setup.reads_features else self.run_.read

    def _read_rows(self, X: Any) -> Ints:  # noqa: N803
        """Return pairs of node numbers ``[2, n]`` from rows of numbers or names ``[n, 2]``."""
        rows = np.asarray(X.detach().cpu() if hasattr(X, "detach") else X)
        if rows.ndim != 2 or rows.shape[1] != 2 or not len(rows):
            raise GraphError(f"X must have one row per pair and two columns, got shape {list(rows.shape)}")
        return check_pairs(self._numbers(rows).T, self.graph_)

    def _numbers(self, nodes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the numbers of nodes that are given by number or by name."""
        if nodes.dtype.kind not in "OUS":
            return nodes
        number = {name: i for i, name in enumerate(self.graph_.node_names or ())}
        strange = [name for name in nodes.ravel().tolist() if name not in number]
        if strange:
            raise GraphError(f"'{strange[0]}' is not a node of '{self.graph_.name}'")
        return np.array([number[name] for name in nodes.ravel().tolist()], np.int64).reshape(nodes.shape)
