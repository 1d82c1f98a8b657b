"""Which features of which neighbours decided: contributions that add up to the change in a class's score."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Graph, Ints, check_finite
from nfcgcn.inference.feature_path import Doubles, MapPath, prepare_path
from nfcgcn.inference.integration import Method, integrate
from nfcgcn.kernels.threads import one_pool
from nfcgcn.memory import enough_memory
from nfcgcn.method.classifier import NodeClassifier


class Contribution(NamedTuple):
    """What one feature of one node added to a score."""

    node: int
    feature: int
    value: float
    """Of the feature, in the graph."""
    contribution: float


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""What each feature of each node added to the score of one class at one node.

    .. math:: z(X) - z(0) = \sum_{j, d} \phi_{jd}, \qquad
        \phi_{jd} = x_{jd} \int_0^1 \frac{\partial z}{\partial x_{jd}}(\alpha X) \, d\alpha

    where :math:`z` is the score before the softmax, :math:`X` are the features as the model reads them, after scaling,
    and :math:`X = 0` is a graph without a feature (integrated gradients:
    Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", 2017). A feature that is 0 adds nothing.
    """

    graph: Graph
    node: int
    target: int
    """The class."""
    predicted: int
    """The class with the highest score."""
    score: float
    """Of the class `target`, before the softmax: the model's own."""
    baseline: float
    """The score if all features were 0: the bias of the last layer, or 0 without one."""
    contributions: sp.csr_array
    """``[N, D]``: summed over all places where a node's features enter."""
    slots: Ints | None
    """``[n]``: the nodes in the explained node's own map; None if the model has no maps."""
    own_map: sp.csr_array | None
    """``[n, D]``: the part that goes through the node's own map; the rest comes through the maps of other nodes."""
    hops: Ints
    """``[N]``: edges between each node and the one explained, or -1 if its features do not affect the score."""
    method: Method
    """"exact" if the gradient is the same all along the path from 0 to X, so that its product with X is the
    integral: this holds without an activation, and with ReLU as long as only the last layer has a bias."""
    error: float
    """``score - baseline`` minus the sum of the contributions, the model's own rounding included."""
    features: sp.csr_array
    """``[N, D]``: the values of the features."""
    probabilities: Doubles
    """``[C]``: those of :func:`nfcgcn.predict_proba`, after temperature scaling, if the model has it."""

    def top(self, count: int | None = None) -> list[Contribution]:
        """List the largest contributions of either sign, largest first; without a `count` all that are not 0."""
        cells = self.contributions.tocoo()
        sizes = np.abs(cells.data)
        least = np.partition(sizes, -count)[-count] if count and count < len(sizes) else 0.0
        places = np.flatnonzero((sizes >= least) & (sizes > 0))
        order = places[np.lexsort((cells.col[places], cells.row[places], -sizes[places]))][:count]
        if not len(order):
            return []
        rows, columns = cells.row[order], cells.col[order]
        parts = (rows, columns, self.features[rows, columns], cells.data[order])
        return [Contribution(*part) for part in zip(*(np.asarray(part).tolist() for part in parts), strict=True)]

    def _repr_html_(self) -> str:
        """Return a table of the largest contributions for notebooks."""
        nodes, features = self.graph.node_names, self.graph.feature_names
        head = "".join(f"<th>{title}</th>" for title in ("node", "feature", "value", "contribution"))
        table = []
        for j, d, value, added in self.top(10):
            node, feature = nodes[j] if nodes else str(j), features[d] if features else str(d)
            table.append((node, feature, f"{value:.4g}", f"{added:+.4g}"))
        rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table)
        name, target = nodes[self.node] if nodes else str(self.node), self.graph.class_name(self.target)
        score = f"{self.score:.4g}, {self.baseline:.4g} without features"
        caption = f"Node {escape(name)}, class {escape(target)}: score {score}"
        return f"<table><caption>{caption}</caption><tr>{head}</tr>{rows}</table>"


@dataclass(frozen=True, eq=False)
class ClassExplanation:
    """What each feature, on any node, added to a class's score: the mean over the nodes predicted as the class."""

    target: int
    num_nodes: int
    """Nodes predicted as this class; if there are none, the other fields mean nothing."""
    score: float
    baseline: float
    contributions: Doubles
    """``[D]``"""
    method: Method
    error: float

    def top(self, count: int) -> list[tuple[int, float]]:
        """List the features with the largest contributions of either sign, with these contributions, largest first."""
        order = np.argsort(-np.abs(self.contributions), kind="stable")[:count]
        return [(int(d), float(self.contributions[d])) for d in order if self.contributions[d]]


class Explainer:
    """Explains nodes of one graph, one after the other: what does not depend on the node is computed once.

    The model must not change meanwhile.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> explainer = Explainer(nfcgcn.GCN(50, 8, 2, 7).eval(), graph)
    >>> [explainer.explain(node).node for node in (7, 8)]
    [7, 8]
    """

    @enough_memory()
    @one_pool()
    def __init__(self, model: NodeClassifier, graph: Graph) -> None:
        self.model, self.graph = model, graph
        self._make_path = prepare_path(model, graph)

    @enough_memory()
    @one_pool()
    @torch.enable_grad()
    def explain(self, node: int | str, *, target: int | None = None) -> Explanation:
        """Do the same as :func:`explain`, for another node."""
        model, graph = self.model, self.graph
        node = graph.find_node(node) if isinstance(node, str) else int(node)
        if not 0 <= node < graph.num_nodes:
            raise GraphError(f"`node` must be between 0 and {graph.num_nodes - 1}, got {node}")
        path = self._make_path(np.array([node]))
        scores = _model_scores(model, graph, np.array([node]))[0]
        what = f"the scores of node {node} and their reasons"
        check_finite(scores, what)
        predicted = int(scores.argmax())
        target = predicted if target is None else target
        if not 0 <= target < len(scores):
            raise ConfigError(f"`target` must be a class from 0 to {len(scores) - 1}, got {target}")
        integral = integrate(path, lambda scores: scores[0, target])
        slots, own_map = path.own_map(node, integral.points) if isinstance(path, MapPath) else (None, None)
        contributions = path.contributions(integral.points)
        score = float(scores[target])
        error = score - integral.baseline - float(contributions.sum())
        check_finite(torch.tensor([error]), what)
        return Explanation(
            graph=graph,
            node=node,
            target=target,
            predicted=predicted,
            score=score,
            baseline=integral.baseline,
            contributions=contributions,
            slots=slots,
            own_map=own_map,
            hops=path.hops,
            method=integral.method,
            error=error,
            features=sp.csr_array(graph.features),
            probabilities=(scores.double() / model.temperature).softmax(0).numpy(),
        )


def explain(model: NodeClassifier, graph: Graph, node: int | str, *, target: int | None = None) -> Explanation:
    """Return how much each feature of each neighbour added to the score of `target`, by default the predicted class.

    `node` is the name of a node or its number. The neighbours are those that prediction draws. If the model scales
    features, the contributions are those of the scaled features and are listed under the original ones. Cost: one pass
    of the model, and work that grows with the node's neighbourhood.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> explanation = explain(nfcgcn.GCN(50, 8, 2, 7).eval(), graph, 7)
    >>> parts = sum(reason.contribution for reason in explanation.top())
    >>> abs(explanation.baseline + parts - explanation.score) < 1e-4
    True
    """
    return Explainer(model, graph).explain(node, target=target)


@enough_memory()
@one_pool()
@torch.enable_grad()
def explain_classes(model: NodeClassifier, graph: Graph, *, nodes: Ints | None = None) -> list[ClassExplanation]:
    """Return how much each feature adds to each class: the mean over those of `nodes` that are predicted as the class.

    Without `nodes`, all nodes of the graph are used.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("citations", nodes=200, features=50)
    >>> classes = explain_classes(nfcgcn.GCN(50, 8, 2, 7).eval(), graph)
    >>> sum(explained.num_nodes for explained in classes)
    200
    """
    nodes = np.arange(graph.num_nodes) if nodes is None else np.unique(nodes)
    path = prepare_path(model, graph)(nodes)
    scores = _model_scores(model, graph, nodes)
    what = f"the scores of some nodes of '{graph.name}' and their reasons"
    check_finite(scores, what)
    classes = []
    for target in range(scores.shape[1]):
        chosen = (scores.argmax(1) == target).nonzero().squeeze(1)
        if not len(chosen):
            classes.append(ClassExplanation(target, 0, 0.0, 0.0, np.zeros(graph.num_features), "exact", 0.0))
            continue
        integral = integrate(path, lambda scores, c=chosen, t=target: scores[c, t].mean())  # type: ignore[misc]
        contributions = np.asarray(path.contributions(integral.points).sum(axis=0)).ravel()
        score = float(scores[chosen, target].mean())
        error = score - integral.baseline - float(contributions.sum())
        check_finite(torch.tensor([error]), what)
        classes.append(
            ClassExplanation(target, len(chosen), score, integral.baseline, contributions, integral.method, error)
        )
    return classes


@torch.no_grad()
def _model_scores(model: NodeClassifier, graph: Graph, nodes: Ints) -> Tensor:
    """Return the model's own scores of `nodes`, ``[nodes, C]``, against which an explanation is checked."""
    was_training, first = model.training, next(model.parameters())
    device, dtype = first.device, first.dtype
    try:
        scores = model.eval().score_nodes(
            graph.x.to(device, dtype), model.edges_of(graph).to(device), torch.from_numpy(nodes).to(device)
        )
    finally:
        model.train(was_training)
    return scores.double().cpu()
