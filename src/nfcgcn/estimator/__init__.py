"""Models and training as scikit-learn estimators, in which each row is a node."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from nfcgcn.config.registry import MODELS, SUGGESTED, make_config
from nfcgcn.config.selection import select
from nfcgcn.data.splits import hold_out
from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.estimator.reading import (
    as_edges,
    graph_of_frames,
    is_frame,
    missing,
    plain,
    read_labels,
    read_nodes,
    refuse_told_labels,
    warn_of_numbers,
    with_labels,
    with_missing,
    with_same_features,
    without_labels,
)
from nfcgcn.graph import Graph, Ints, Split
from nfcgcn.method.model import NFCGCNConfig
from nfcgcn.randomness import generator
from nfcgcn.settings import settings_of
from nfcgcn.training import Tracker, TrainingConfig, choose_device, fit

OWN: dict[str, Any] = {
    "model": "nfc-gcn",
    "preset": None,
    "settings": None,
    "select": True,
    "validation_fraction": 0.1,
    "random_state": None,
    "device": "auto",
}
"""The parameters that are not settings of a model or its training, with their defaults."""


def _signature() -> inspect.Signature:
    """Return the constructor's signature: `graph`, OWN, and each setting of NFC-GCN and of training."""
    given = (*MODELS["nfc-gcn"].fixed, "backend")  # decided by the model's name and by the hardware
    settings = {**settings_of(NFCGCNConfig), **settings_of(TrainingConfig)}
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            inspect.Parameter("graph", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None),
            *(inspect.Parameter(name, keyword, default=default) for name, default in OWN.items()),
            *(
                inspect.Parameter(name, keyword, default=None, annotation=s.type | None)
                for name, s in settings.items()
                if name not in given
            ),
        ]
    )


_SIGNATURE = _signature()


class NodeEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The common part of `NFCClassifier` and `NFCEmbedder`: parameters, training, and how X names nodes.

    With ``graph``, a :class:`Graph` or a PyTorch Geometric ``Data``, X lists nodes of that graph by number or by name,
    ``[n]`` or ``[n, 1]``. Whole numbers count the nodes from 0; names are text. A column of a data frame that is called
    as the column of ids was holds names, also if they are numbers. The folds of a cross-validation
    share the graph and its features, and each fold sees only the labels of its own nodes. Labels that the graph itself
    carries are never learnt.

    Without ``graph``, X ``[N, D]`` holds the features, dense, sparse or as a data frame, one row per node. Edges are
    passed to every call as ``edge_index`` (``[2, E]``, row numbers, any direction); without them no two nodes are
    connected. If ``edge_index`` is a data frame with the columns ``source`` and ``target``, X must be a frame with ids;
    both are read as :func:`nfcgcn.from_frames` does, and the column that ``y`` was taken from is no feature.

    A missing label in ``y`` (NaN, None, pandas' NA, or -1 if ``y`` is ``graph.labels``) marks a node without a label.

    Args:
        graph: the graph whose nodes X names, or None.
        model: a name from ``nfcgcn models``.
        preset: a preset's name, or a file that ``nfcgcn tune`` wrote.
        settings: further settings by name, for models with other settings than those below.
        select: choose settings that are not given here on the held-out nodes first, among a few candidates, unless a
            preset is given; takes at most three times as long as one fit. False: take the suggested ones.
        validation_fraction: share of the labelled nodes that is held out to choose the best epoch, drawn from each
            class in proportion. For 0, or if no node can be spared, the best epoch is chosen on the training nodes.
        random_state: a whole number is the seed of the run, as in ``nfcgcn train --seed``.
        device: "auto", "cpu" or "cuda".

    All other parameters are settings of the model and of training, see ``nfcgcn settings``. None keeps the default;
    the text "none" turns off a setting that can be off (``patience``). NFC-GCN has no bias: centre features that all
    have the same sign.

    Attributes after ``fit``: ``classes_``, ``n_features_in_`` (1 with ``graph``), ``model_``, ``config_``,
    ``selection_`` (how settings were chosen, or None), ``history_`` (figures of every epoch), ``best_epoch_``,
    ``graph_``, None without ``graph``, and ``encoding_`` (how frames were read, or None).
    """

    encoding_: Mapping[str, Any] | None

    def __init__(self, graph: Any = None, **parameters: Any) -> None:
        bound = _SIGNATURE.bind(self, graph, **parameters)
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:
            setattr(self, name, value)

    __init__.__signature__ = _SIGNATURE  # type: ignore[attr-defined]

    def fit(self, X: Any, y: Any, edge_index: Any = None, *, track: Tracker | None = None) -> NodeEstimator:  # noqa: N803
        """Learn the classes `y` of the nodes X; ``track`` hears of every epoch, see :class:`nfcgcn.Tracker`."""
        if not 0 <= self.validation_fraction < 1:
            raise ConfigError(f"`validation_fraction` must be at least 0 and below 1, got {self.validation_fraction}")
        device, seed = choose_device(self.device), _seed(self.random_state)
        self.graph_ = None if self.graph is None else without_labels(self.graph)
        if self.graph_ is not None:
            refuse_told_labels(y, self.graph_)
        graph, rows = self._read_rows(X, edge_index, y=y, reset=True)
        y = with_missing(y, rows, self.graph)
        self.classes_, nodes, labels = read_labels(y, rows, type(self).__name__)
        graph = with_labels(graph, nodes, labels, self.classes_)
        own = {"graph", *OWN}
        settings = {name: v for name, v in self.get_params(deep=False).items() if name not in own and v is not None}
        settings = {**(self.settings or {}), **settings}
        self.config_ = make_config(self.model, graph=graph, preset=self.preset, settings=settings)
        held = hold_out(labels, self.validation_fraction, generator(seed, "split"))
        split = Split(nodes[~held], nodes[held], nodes[:0])
        self.selection_ = None
        if self.select and held.any() and self.config_.preset == SUGGESTED:
            self.selection_ = select(graph, self.config_, seed=seed, split=split, held=settings, device=device)
            self.config_ = self.selection_.config
        run_model = self.config_.build(graph, seed)
        run = fit(
            run_model,
            graph,
            split,
            self.config_.training,
            seed=seed,
            device=device,
            choose_by="val" if held.any() else "train",
            track=track,
        )
        if run.interrupted:  # so that a search over many fits ends, too
            raise KeyboardInterrupt
        self.model_ = run_model.to("cpu")
        self.history_, self.best_epoch_ = run.history, run.best["epoch"]
        with torch.no_grad():
            small = torch.zeros(1, graph.num_features), torch.zeros(2, 0, dtype=torch.int64)
            own_graph = self.model_.grows or not self.model_.reads_features
            output = self.model_.embed(*((graph.x, graph.edge_index) if own_graph else small))
        self._n_features_out = output.shape[1]
        return self

    def transform(self, X: Any, edge_index: Any = None, graph: Any = None) -> Any:  # noqa: N803
        """Return the representation of the nodes X that the model's last layer reads."""
        return self._apply("embed", X, edge_index, graph)

    def fit_transform(self, X: Any, y: Any = None, edge_index: Any = None) -> Any:  # noqa: N803
        """Fit, then return the representation of the same nodes."""
        return self.fit(X, y, edge_index).transform(X, edge_index)

    def _read_rows(
        self,
        X: Any,  # noqa: N803
        edge_index: Any,
        graph: Any = None,
        *,
        y: Any = None,
        reset: bool,
    ) -> tuple[Graph, Ints]:
        """Return the graph of X, and the node of each row; `graph` stands in for the one of `fit`."""
        if graph is not None and self.graph_ is None:
            raise GraphError("`graph` is for an estimator that was fitted with one; give X and `edge_index` instead")
        if self.graph_ is None and (is_frame(edge_index) if reset else self.encoding_ is not None):
            made = graph_of_frames(X, edge_index, y, None if reset else self.encoding_)
            if reset:
                self.encoding_, self.n_features_in_ = made.encoding, len(list(X.columns))
            return made, np.arange(made.num_nodes)
        if reset:
            self.encoding_ = None
        if self.graph_ is None:
            try:
                features = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=reset)
            except ValueError as error:
                if not hasattr(X, "columns") or "could not convert" not in str(error):
                    raise
                remedy = "NFCClassifier(nfcgcn.from_frames(nodes, edges)) reads text, dates and edges"
                raise GraphError(f"X must hold numbers, {error}; {remedy}") from error
            if not sp.issparse(features) and not features.flags.writeable:
                features = features.copy()  # torch warns about arrays that are not writeable
            return Graph.from_edges(as_edges(edge_index), features), np.arange(features.shape[0])
        if edge_index is not None:
            raise GraphError("`edge_index` cannot be used with `graph`, which has its own edges; leave one of them out")
        if reset:
            self.n_features_in_ = 1
        chosen = self.graph_ if graph is None else with_same_features(without_labels(graph), self.graph_)
        nodes = read_nodes(X, chosen)
        if reset:
            warn_of_numbers(X, chosen)
        return chosen, nodes

    @torch.no_grad()
    def _apply(self, method: str, X: Any, edge_index: Any, graph: Any) -> Any:  # noqa: N803
        check_is_fitted(self)
        graph, rows = self._read_rows(X, edge_index, graph, reset=False)
        device = choose_device(self.device)
        try:
            model = self.model_.to(device)
            result: Tensor = getattr(model, method)(graph.x.to(device), model.edges_of(graph).to(device)).cpu()
        finally:
            self.model_.to("cpu")  # so that a machine without a GPU can unpickle it
        return _to_numpy(result)[rows]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class NFCClassifier(ClassifierMixin, NodeEstimator):  # type: ignore[misc]
    """Classify nodes with NFC-GCN, or any model of the package, as a scikit-learn classifier.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> known = np.arange(0, 200, 2)
    >>> classifier = NFCClassifier(graph, settings={"epochs": 2}, select=False, random_state=0)
    >>> classifier.fit(known, graph.labels[known]).predict_proba([1, 3, 5]).shape
    (3, 7)
    """

    __doc__ += (NodeEstimator.__doc__ or "").partition("\n")[2]

    def predict_proba(self, X: Any, edge_index: Any = None, graph: Any = None) -> npt.NDArray[np.float64]:  # noqa: N803
        """Return the probability of each of ``classes_`` for the nodes X, ``[n, classes]``.

        X names nodes of `graph`, if it is given: any graph with the features of the one of ``fit``, with new nodes or
        edges for example. Nodes that these do not reach keep their probabilities to the bit.
        """
        scores = self._apply("forward", X, edge_index, graph).astype(np.float64)
        probabilities: npt.NDArray[np.float64] = softmax(scores / self.model_.temperature, axis=1)
        return probabilities

    def predict(self, X: Any, edge_index: Any = None, graph: Any = None) -> Any:  # noqa: N803
        """Return the class of each of the nodes X, which are nodes of `graph` if it is given."""
        most_probable = self.predict_proba(X, edge_index, graph).argmax(1)
        return self.classes_[most_probable]

    def score(self, X: Any, y: Any, sample_weight: Any = None, edge_index: Any = None) -> float:  # noqa: N803
        """Return the accuracy over those of the nodes X that have a label."""
        predicted = self.predict(X, edge_index)
        y = column_or_1d(y if self.graph_ is None else with_missing(y, read_nodes(X, self.graph_), self.graph))
        known = ~missing(y)
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(plain(y[known]), predicted[known], sample_weight=weight))


class NFCEmbedder(NodeEstimator):
    """Turn nodes into the representations that NFC-GCN learns for their classes, as a scikit-learn transformer.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> known = np.arange(0, 200, 2)
    >>> embedder = NFCEmbedder(graph, settings={"epochs": 2, "hidden_channels": 8}, select=False, random_state=0)
    >>> embedder.fit(known, graph.labels[known]).transform([1, 3, 5]).shape
    (3, 8)
    """

    __doc__ += (NodeEstimator.__doc__ or "").partition("\n")[2]


def _seed(random_state: Any) -> int:
    state = check_random_state(random_state)
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(state.randint(2**31 - 1))


def _to_numpy(h: Tensor) -> sp.csr_array | npt.NDArray[np.float32]:
    if h.layout == torch.strided:
        return h.numpy()
    return sp.csr_array((h.values().numpy(), h.col_indices().numpy(), h.crow_indices().numpy()), shape=tuple(h.shape))
