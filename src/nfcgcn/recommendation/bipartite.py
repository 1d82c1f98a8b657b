"""Users and items as the nodes of one graph: its edges are interactions, its features identities and columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.graph import Graph, Ints
from nfcgcn.recommendation.interactions import Interactions


@dataclass(frozen=True, eq=False)
class Layout:
    """Which columns of the features belong to whom; it is fixed when a recommender is trained.

    First come the identities, one column per user, then per item, of those that training saw; then the columns of
    users, then those of items.
    """

    num_users: int
    num_items: int
    identified: npt.NDArray[np.bool_]
    """``[num_users + num_items]``: whether training saw an interaction; others have no identity to learn."""
    user_features: tuple[str, ...]
    item_features: tuple[str, ...]

    @classmethod
    def of(cls, log: Interactions, *, identity: bool) -> Layout:
        """Return the layout for the users and items of a log."""
        num_users, num_items = len(log.users), len(log.items)
        identified = np.zeros(num_users + num_items, bool)
        if identity:
            identified[log.pairs[0]] = identified[num_users + log.pairs[1]] = True
        return cls(num_users, num_items, identified, log.users.feature_names, log.items.feature_names)

    @property
    def num_features(self) -> int:
        """All columns."""
        return len(self.identified) + len(self.user_features) + len(self.item_features)


@dataclass(frozen=True, eq=False)
class Bipartite:
    """The graph of a log, and where its users and items are."""

    graph: Graph
    users: Ints
    """``[users]``: the node of each user."""
    items: Ints
    """``[items]``: the node of each item."""
    layout: Layout


def make_graph(log: Interactions, layout: Layout) -> Bipartite:
    """Return the graph of a log whose first users and items are those of the layout.

    Users and items that are new come after all others, so that no draw of neighbours changes for those.
    """
    old = layout.num_users + layout.num_items
    new_users = len(log.users) - layout.num_users
    users, items = np.arange(len(log.users)), layout.num_users + np.arange(len(log.items))
    users[layout.num_users :] += layout.num_items
    items[layout.num_items :] += new_users
    num_nodes = len(users) + len(items)
    known = np.flatnonzero(layout.identified)
    ones = np.ones(len(known), np.float32)
    identity = sp.csr_array((ones, (known, known)), shape=(num_nodes, old))
    columns = [
        sp.csr_array((kind.features.data, (nodes[kind.features.tocoo().row], kind.features.tocoo().col)),
                     shape=(num_nodes, kind.features.shape[1]))
        for kind, nodes in ((log.users, users), (log.items, items))
    ]  # fmt: skip
    features = sp.csr_array(sp.hstack([identity, *columns], format="csr"), dtype=np.float32)
    features.sort_indices()
    names = np.empty(num_nodes, object)
    names[users], names[items] = log.users.names, log.items.names
    graph = Graph.from_edges(
        np.stack([users[log.pairs[0]], items[log.pairs[1]]]),
        features,
        name="interactions",
        node_names=names.tolist(),
        feature_names=[
            *("identity" for _ in range(old)),
            *(f"user: {name}" for name in layout.user_features),
            *(f"item: {name}" for name in layout.item_features),
        ],
    )
    return Bipartite(graph, users, items, layout)
