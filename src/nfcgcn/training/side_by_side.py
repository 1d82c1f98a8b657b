"""Several NFC-GCNs of the same shape as one model, for training side by side on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.choice import Precision
from nfcgcn.kernels.choice import refusal as kernel_refusal
from nfcgcn.kernels.sparse import normalised_adjacency
from nfcgcn.method.model import NFCGCN
from nfcgcn.method.sampling import (
    SlotOrder,
    adjacency_lists,
    draw_seed,
    next_draw,
    node_scores,
    rank_by_score,
    rank_by_similarity,
)


def refusal(models: Sequence[nn.Module], x: Tensor) -> str | None:
    """Return why these models cannot be stacked, or None if they can."""
    first = models[0]
    if any(type(m) is not NFCGCN for m in models) or not isinstance(first, NFCGCN):
        return "only NFC-GCN models can be stacked"
    if any(_shape(m) != _shape(first) for m in models):
        return "the models differ in shape"
    config = first.config
    if config.representation_dropout:
        return "dropout on the convolution's output needs all of it in memory"
    if config.classifier != "none":
        return "a classifier follows the graph convolutions"
    if config.additions:
        return f"`{config.additions[0]}` is {getattr(config, config.additions[0])}"
    if config.backend not in ("auto", "gpu"):
        return f"`backend` is {config.backend}"
    return kernel_refusal("gpu", x, first.nfc.weight, first.first_matrix)


def _shape(model: nn.Module) -> tuple[object, ...]:
    assert isinstance(model, NFCGCN)  # noqa: S101
    return model.config, *(tuple(p.shape) for p in model.parameters())


def _short(matrix: Tensor) -> Tensor:
    """Return a CSR matrix with 32-bit indices, which are half of what a product reads."""
    return csr_tensor(matrix.crow_indices().int(), matrix.col_indices().int(), matrix.values(), matrix.shape)


def _ranks(x: Tensor, edge_index: Tensor, lists: tuple[Tensor, Tensor], order: SlotOrder) -> Tensor | None:
    """Return the order of each node's neighbours in its map; None for any."""
    if order == "random":
        return None
    if order == "similarity":
        return rank_by_similarity(x, *lists)
    return rank_by_score(node_scores(edge_index, x.shape[0], order), *lists)


class SideBySide(nn.Module):
    """The models' parameters, each stacked along a new first dimension, and their forward pass all at once.

    The result of a run does not depend on the other runs, bit for bit.
    """

    def __init__(self, models: Sequence[NFCGCN], x: Tensor, edge_index: Tensor, precision: Precision) -> None:
        super().__init__()
        from nfcgcn.kernels.gpu.neighbour_draw import Source
        from nfcgcn.kernels.gpu.tables import Options, Tables

        self.names = [name for name, _ in models[0].named_parameters()]
        stacked = [torch.stack([m.get_parameter(name).detach() for m in models]) for name in self.names]
        self.stacked = nn.ParameterList(stacked)
        first = models[0]
        decayed = first.decayed_parameters()
        self.decayed = [
            p for p, name in zip(self.stacked, self.names, strict=True) if first.get_parameter(name) is decayed[0]
        ]
        x = first.scale(x)
        # Those of evaluation; training may draw its own.
        tables = torch.stack([m.eval().nfc.table(x, edge_index) for m in models])
        self.tables = Tables(x, tables)
        self.source = None
        if first.config.resample == "epoch":
            lists = adjacency_lists(edge_index, x.shape[0], x.device)
            self.source = Source(self.tables, *lists, _ranks(x, edge_index, lists, first.config.slot_order))
        self.neighbour_seeds = [m.nfc.seed for m in models]
        matrix, transpose, _ = normalised_adjacency(edge_index, x.shape[0], x.dtype)
        self.adjacency = _short(matrix), _short(transpose)
        c = first.config
        self.num_layers, self.precision = c.num_layers, precision
        self.map_dropout, self.dropout = c.map_dropout, c.dropout
        self.options = {rate: Options(c.stride, c.activation, rate, precision) for rate in {0.0, c.map_dropout}}

    def forget(self) -> None:
        """Forget what former passes have derived from the tables."""
        self.tables = self.tables.copy()

    def draw_seeds(self, run: int) -> list[int]:
        """Draw the seeds that a training pass of one run needs, as the model alone would draw them, in that order."""
        neighbours = [draw_seed(self.neighbour_seeds[run], next_draw())] if self.source else []
        num_masks = (self.map_dropout > 0) + max(self.num_layers - 1, 0) * (self.dropout > 0)
        return neighbours + [int(torch.randint(2**62, ())) for _ in range(num_masks)]

    def forward(self, seeds: Tensor) -> Tensor:
        """Return class scores ``[S, N, C]``; in training neighbours and masks come from ``seeds [draws, S]``."""
        from nfcgcn.kernels.gpu.masks import relu_dropout
        from nfcgcn.kernels.gpu.node_feature_conv import projected_stack
        from nfcgcn.kernels.gpu.product import product, shifted, sparse_product

        params = dict(zip(self.names, self.stacked, strict=True))
        layers = [params[f"layers.{i}.weight"] for i in range(self.num_layers)]
        matrices = layers or [params["classifier.weight"].mT]
        map_dropout, dropout = (self.map_dropout, self.dropout) if self.training else (0.0, 0.0)
        draws = iter(seeds)
        tables = self.source.draw(next(draws)) if self.source and self.training else self.tables
        own = next(draws) if map_dropout else seeds.new_zeros(len(matrices[0]))
        h: Tensor = projected_stack(tables, params["nfc.weight"], matrices[0], own, self.options[map_dropout])
        if not self.num_layers:
            return shifted(h, params["classifier.bias"])
        h = sparse_product(*self.adjacency, h)
        for matrix in matrices[1:]:
            h = relu_dropout(h, next(draws) if dropout else seeds, dropout)
            h = sparse_product(*self.adjacency, product(h, matrix, self.precision))
        return h

    def states(self, values: Sequence[Tensor]) -> list[dict[str, Tensor]]:
        """Split stacked parameter values into one state per model, on the CPU."""
        parts = [v.detach().cpu() for v in values]
        return [
            {name: part[run].clone() for name, part in zip(self.names, parts, strict=True)}
            for run in range(self.tables.num_runs)
        ]
