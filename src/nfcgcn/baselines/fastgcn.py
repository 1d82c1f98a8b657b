"""FastGCN (Chen, Ma and Xiao, "FastGCN: Fast Learning with Graph Convolutional Networks via Importance Sampling").

ICLR 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.baselines.gcn import GCN, GCNConfig
from nfcgcn.graph import Edges, WeightedEdges, csr_tensor, edge_parts
from nfcgcn.kernels.products import aggregate
from nfcgcn.kernels.rows import column_sums
from nfcgcn.kernels.sparse import normalised_adjacency
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.classifier import ClassifierConfig
from nfcgcn.method.operations import multiply
from nfcgcn.settings import setting, takes


@dataclass(frozen=True)
class FastGCNConfig(ClassifierConfig):
    """The settings of FastGCN, named as its arguments."""

    hidden_channels: int = setting(16, "outputs of the first graph convolution", low=1)
    samples: int = setting(400, "nodes drawn per step, with replacement (the paper's t)", low=1)


class FastGCN(GCN):
    r"""Two graph convolutions, trained on sampled nodes.

    A training step draws nodes :math:`u_1 \ldots u_t` for its batch and estimates

    .. math:: (\hat A H W)_v \approx \frac{1}{t} \sum_{j=1}^t \frac{\hat A_{v u_j}}{q(u_j)} h_{u_j} W, \qquad
        q(u) \propto \lVert \hat A_{:,u} \rVert^2

    (the paper's algorithm 2), where :math:`h_u = \mathrm{ReLU}((\hat A X)_u W^{(1)})` needs no
    sampling, because :math:`\hat A X` is computed once per graph. Called as ``model(x, edge_index)``, it is the full
    two-layer GCN.

    For the arguments see :class:`FastGCNConfig`.

    Cost of a step: the edges of its batch and the features of its sample, independent of the size of the graph.
    """

    @takes(FastGCNConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: FastGCNConfig) -> None:
        # Paper: does not mention dropout; the authors' code sets it to 0.
        inner = GCNConfig(
            hidden_channels=config.hidden_channels, num_layers=2, dropout=0.0, feature_scale=config.feature_scale
        )
        super().__init__(in_channels, out_channels, config=inner)
        self.samples = config.samples

    def score_nodes(self, x: Tensor, edge_index: Edges, nodes: Tensor) -> Tensor:
        """Return the scores of `nodes`, ``[len(nodes), out_channels]``; in training an estimate from a sample."""
        if not self.training:
            return super().score_nodes(x, edge_index, nodes)
        # Paper: trains on the graph of the training nodes only. Here training also uses the features and edges of the
        # other nodes, but not their labels, as in the authors' second, transductive program and every other model here.
        adjacency = normalised_adjacency(edge_index, x.shape[0], x.dtype).matrix
        aggregated, importance = _prepare(self.scale(x), *edge_parts(edge_index))
        sampled, drawn = sample_columns(_rows(adjacency, nodes), importance, self.samples)
        first, second = self.parameters()
        rows = _rows(aggregated, drawn) if aggregated.layout == torch.sparse_csr else aggregated[drawn]
        return multiply(sampled, multiply(F.relu(multiply(rows, first)), second))


class _Prepared(NamedTuple):
    """What all steps on a graph share."""

    aggregated: Tensor
    """``A_hat X``, CSR where ``X`` is."""
    importance: Tensor
    """``[N]``: the squared norm of each column of ``A_hat``."""


@remembered
def _prepare(x: Tensor, edge_index: Tensor, weight: Tensor | None) -> _Prepared:
    edges = edge_index if weight is None else WeightedEdges(edge_index, weight)
    adjacency = normalised_adjacency(edges, x.shape[0], x.dtype)
    t = adjacency.transpose
    squares = torch.segment_reduce(t.values().square(), "sum", offsets=t.crow_indices(), axis=0, unsafe=True)
    return _Prepared(aggregate(adjacency, x), squares)


def sample_columns(matrix: Tensor, importance: Tensor, samples: int) -> tuple[Tensor, Tensor]:
    """Draw columns of a CSR matrix ``[B, N]``; return them, weighted, and their ids.

    The expectation of ``sampled @ h[ids]`` is ``matrix @ h``. `samples` columns are drawn with replacement, in
    proportion to ``importance [N]``; a column drawn ``m`` times appears once, multiplied by ``m / (samples q)``.
    """
    # Paper: draws from all nodes of the graph. A column without an entry in the batch's rows adds nothing, so only
    # the others are drawn from, as in the authors' code, and q sums to 1 over these. Their code draws without
    # replacement and divides by the q of the whole graph, which is not the unbiased estimate of their equation.
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
    # On a GPU the product of two sparse matrices has 32-bit indices, and starts and columns must have the same type.
    starts, columns = matrix.crow_indices().long(), matrix.col_indices().long()
    counts = starts.diff()[rows]
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    shift = torch.repeat_interleave(starts[rows] - ends[:-1], counts)
    places = torch.arange(len(shift), device=shift.device) + shift
    return csr_tensor(ends, columns[places], matrix.values()[places], (len(rows), matrix.shape[1]))
