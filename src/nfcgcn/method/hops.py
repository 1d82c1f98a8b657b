"""Some nodes at a time: what a mini-batch has in place of edges, and the models that can be computed so."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nfcgcn.graph import csr_tensor
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.operations import drop_edges, propagate


class Hops(NamedTuple):
    r"""What a model takes in place of edges to score some nodes: one matrix per graph convolution.

    The matrix of a convolution has one row per node that it writes and one column per node that it reads; the nodes
    written are the first of those read. With all neighbours its rows are those of :math:`\hat A`; with some, drawn at
    random, they are so in the mean.
    """

    matrices: tuple[Tensor, ...]
    """One per graph convolution, first to last, ``[written, read]``, torch CSR."""
    table: Tensor | None
    """The neighbour table of the nodes that the first one reads, ``[M, n]``: rows of the features that come with it."""


def hop(edges: Any, number: int) -> Any:
    """Return the edges of one graph convolution: its matrix of :class:`Hops`, and any other edges as they are."""
    return edges.matrices[number] if isinstance(edges, Hops) else edges


def first_rows(x: Tensor, count: int) -> Tensor:
    """Return the first rows of ``x``, dense or CSR."""
    if x.layout != torch.sparse_csr:
        return x[:count]
    if count == x.shape[0]:
        return x
    starts = x.crow_indices()[: count + 1]
    end = int(starts[-1])
    return csr_tensor(starts, x.col_indices()[:end], x.values()[:end], (count, x.shape[1]))


class LayeredClassifier(NodeClassifier):
    r"""A model of graph convolutions, which can be called with :class:`Hops`, and computed layer by layer.

    .. math:: H^{(l)} = \hat A \, \sigma(H^{(l-1)}) W^{(l)}, \; l = 2 \ldots K, \qquad H^{(1)} = \hat A H^{(0)} W^{(1)}

    where :math:`\sigma`, ``rectify``, is a ReLU and dropout, ``read`` returns :math:`H^{(0)} W^{(1)}`, and ``complete``
    makes class scores of :math:`H^{(K)}`.
    """

    layers: nn.ModuleList
    """The graph convolutions, first to last."""

    @property
    @abstractmethod
    def num_hops(self) -> int:
        """How many graph convolutions there are, ``K``."""

    @property
    def embed_hops(self) -> int:
        """How many of them come before what :meth:`embed` returns."""
        return max(0, self.num_hops - 1)

    @abstractmethod
    def read(self, x: Tensor, edge_index: Any) -> Tensor:
        """Return what the first propagation reads, ``[rows, channels]``, and what :meth:`split` takes from it."""

    @abstractmethod
    def split(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the columns that are propagated, and those about the node alone."""

    @abstractmethod
    def rectify(self, h: Tensor) -> Any:
        """Return what a graph convolution but the first reads, from what the one before it wrote."""

    @abstractmethod
    def complete(self, h: Tensor, own: Tensor) -> Tensor:
        """Return class scores from what the last propagation wrote."""

    def finish(self, h: Tensor, edges: Any) -> Tensor:
        """Return the class scores that follow from what :meth:`read` returned."""
        h, own = self.split(h)
        return self.complete(self.convolve(h, edges, self.num_hops), own)

    def convolve(self, h: Tensor, edges: Any, num_hops: int) -> Tensor:
        """Return ``H`` after so many graph convolutions, before its ReLU, from ``H(0) W(1)``."""
        if not num_hops:
            return h
        edges = drop_edges(edges, self.config.edge_dropout, self.training)
        h = propagate(h, hop(edges, 0), self.config.self_weight)
        for number in range(1, num_hops):
            h = self.layers[number](self.rectify(h), hop(edges, number))
        return h

    def onward(self, h: Tensor, number: int) -> Tensor:
        """Return what propagation `number`, 1 or more, reads, from what the one before it wrote."""
        projected: Tensor = self.layers[number].project(self.rectify(h))  # type: ignore[operator]
        return projected
