"""FastGCN (Chen, Ma and Xiao, "FastGCN: Fast Learning with Graph Convolutional Networks via Importance Sampling").

ICLR 2018.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.baselines.gcn import GCN
from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.product import Factor, aggregate, multiply, product
from nfcgcn.kernels.product.reference import Sparse
from nfcgcn.kernels.rows import column_sums
from nfcgcn.layers import Remembered, at_least_one


class FastGCN(GCN):
    r"""Two graph convolutions, trained on sampled nodes.

    A training step draws nodes :math:`u_1 \ldots u_t` for its batch and estimates

    .. math:: (\hat A H W)_v \approx \frac{1}{t} \sum_{j=1}^t \frac{\hat A_{v u_j}}{q(u_j)} h_{u_j} W, \qquad
        q(u) \propto \lVert \hat A_{:,u} \rVert^2

    (the paper's algorithm 2), where :math:`h_u = \mathrm{ReLU}((\hat A X)_u W^{(1)})` needs no
    sampling, since :math:`\hat A X` is computed once a graph. Called as ``model(x, edge_index)`` it is the whole
    two-layer GCN.

    Args:
        samples: ``t``, nodes drawn a step, with replacement.

    Cost of a step: the edges of its batch and the features of its sample, whatever the size of the graph.
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, *, samples: int = 400) -> None:
        # Paper: does not speak of dropout; the authors' code has it at 0.
        super().__init__(in_channels, hidden_channels, 2, out_channels, dropout=0.0)
        at_least_one(samples=samples)
        self.samples = samples
        self._prepared: Remembered[_Prepared] = Remembered()

    def score_nodes(self, x: Tensor, edge_index: Tensor, nodes: Tensor) -> Tensor:
        """Return the scores of `nodes`, ``[len(nodes), out_channels]``; in training an estimate from a sample."""
        if not self.training:
            return super().score_nodes(x, edge_index, nodes)
        # Paper: trains on the graph of the training nodes alone; here the other nodes' features and edges are seen, as
        # in the authors' second, transductive programme and as in every other model here. Their labels are not.
        adjacency = self.adjacency(x, edge_index)
        known = self._prepared.get(
            x, lambda x: _Prepared.of(self.read(x), adjacency), id(adjacency), self.feature_scale
        )
        sampled, drawn = sample_columns(_rows(adjacency.matrix, nodes), known.importance, self.samples)
        first, second = self.parameters()
        ax = known.aggregated
        rows = _rows(ax, drawn) if ax.layout == torch.sparse_csr else ax[drawn]
        return multiply(sampled, product(F.relu(multiply(rows, first)), second))


class _Prepared(NamedTuple):
    """What all steps on a graph share; the adjacency is kept so that its id cannot come to name another."""

    adjacency: Sparse
    aggregated: Tensor
    """``A_hat X``, CSR where ``X`` is."""
    importance: Tensor
    """``[N]``: the squared norm of each column of ``A_hat``."""

    @classmethod
    def of(cls, x: Factor, adjacency: Sparse) -> _Prepared:
        t = adjacency.transpose
        squares = csr_tensor(t.crow_indices(), t.col_indices(), t.values().square(), t.shape)
        ones = t.values().new_ones(t.shape[1], 1)
        return cls(adjacency, aggregate(adjacency, x), multiply(squares, ones).squeeze(1))


def sample_columns(matrix: Tensor, importance: Tensor, samples: int) -> tuple[Tensor, Tensor]:
    """Draw columns of a CSR matrix ``[B, N]``: return them, weighted, and their ids, such that
    ``sampled @ h[ids]`` has the expectation ``matrix @ h``.

    `samples` columns are drawn with replacement, in proportion to ``importance [N]``; one drawn ``m`` times is there
    once, times ``m / (samples q)``.
    """
    # Paper: draws from all nodes of the graph. A column without an entry in the batch's rows adds nothing, so the draw
    # is among the others, as in the authors' code, and q sums to 1 over these. Their code draws without replacement and
    # divides by the q of the whole graph, which is not the unbiased estimate of their equation.
    columns, place = torch.unique(matrix.col_indices(), return_inverse=True)
    q = importance[columns] / column_sums(importance[columns][:, None])
    times = torch.bincount(torch.multinomial(q, samples, replacement=True), minlength=len(columns))
    drawn = times > 0
    kept = drawn[place]
    weights = times / (samples * q)
    before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
    sampled = csr_tensor(
        before[matrix.crow_indices()],
        (drawn.cumsum(0) - 1)[place[kept]],
        matrix.values()[kept] * weights[place[kept]],
        (matrix.shape[0], int(drawn.sum())),
    )
    return sampled, columns[drawn]


def _rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return these rows of a CSR matrix as a CSR matrix; torch cannot index one by a list."""
    # On a GPU the product of two sparse matrices has 32-bit indices, and starts and columns must be of one kind.
    starts, columns = matrix.crow_indices().long(), matrix.col_indices().long()
    counts = starts.diff()[rows]
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    shift = torch.repeat_interleave(starts[rows] - ends[:-1], counts)
    places = torch.arange(len(shift), device=shift.device) + shift
    return csr_tensor(ends, columns[places], matrix.values()[places], (len(rows), matrix.shape[1]))
