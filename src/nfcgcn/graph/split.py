"""Which nodes train, validate and test."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from nfcgcn.errors import GraphError, NFCWarning
from nfcgcn.graph.parts import Ints

if TYPE_CHECKING:
    from torch_geometric.data import Data


class Labelled(Protocol):
    """What a split is checked against: a graph's labels."""

    @property
    def labels(self) -> Ints: ...

    @property
    def num_nodes(self) -> int: ...

    def class_name(self, label: int) -> str: ...


@dataclass(frozen=True, eq=False)
class Split:
    """Which nodes are for training, for validation (to choose the best epoch and settings) and for testing.

    >>> import numpy as np
    >>> Split(train=np.array([0, 1]), val=np.array([2]), test=np.array([3, 4, 5]))
    Split('given', train=2, val=1, test=3)
    """

    train: Ints
    val: Ints
    test: Ints
    name: str = "given"

    def __post_init__(self) -> None:
        for part in ("train", "val", "test"):
            nodes = getattr(self, part)
            if nodes.dtype != np.int64 or nodes.ndim != 1:
                raise GraphError(f"the split's `{part}` must be a list of node ids, got {nodes.dtype} {nodes.shape}")
        everything = np.concatenate([self.train, self.val, self.test])
        nodes, counts = np.unique(everything, return_counts=True)
        if (counts > 1).any():
            raise GraphError(f"the split uses node {nodes[counts > 1][0]} twice; its parts must be disjoint")

    @classmethod
    def from_pyg(cls, data: Data) -> Split:
        """Read the ``train_mask``, ``val_mask`` and ``test_mask`` of a PyTorch Geometric ``Data``."""
        masks = {}
        for part in ("train", "val", "test"):
            mask = data.get(f"{part}_mask")
            if mask is None or mask.dim() != 1:
                raise GraphError(f"the PyG data needs a one-dimensional `{part}_mask` to give a split")
            masks[part] = mask.cpu().nonzero().squeeze(1).numpy()
        return cls(**masks)

    def check(self, graph: Labelled, *, needed: Sequence[str] = ("train", "val")) -> None:
        """Refuse a split that does not fit `graph`; warn of classes without training nodes."""
        for part in ("train", "val", "test"):
            nodes = getattr(self, part)
            if len(nodes) and (nodes.min() < 0 or nodes.max() >= graph.num_nodes):
                raise GraphError(f"the split's `{part}` names a node outside 0 to {graph.num_nodes - 1}")
            unlabelled = nodes[graph.labels[nodes] < 0]
            if len(unlabelled):
                raise GraphError(f"the split's `{part}` holds node {unlabelled[0]}, which has no label; leave it out")
        for part, why in (("train", "learn from"), ("val", "choose the best epoch by")):
            if part in needed and not len(getattr(self, part)):
                raise GraphError(
                    f"the split '{self.name}' has no labelled {part} node to {why}; label nodes or change the split"
                )
        present = np.unique(graph.labels[graph.labels >= 0])
        unseen = np.setdiff1d(present, graph.labels[self.train])
        if len(unseen):
            names = ", ".join(f"'{graph.class_name(int(c))}'" for c in unseen)
            warnings.warn(
                f"no training node has class {names}; the model can never predict it", NFCWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        return f"Split('{self.name}', train={len(self.train)}, val={len(self.val)}, test={len(self.test)})"
