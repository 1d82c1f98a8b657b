"""What the learned filters look for: their weights, and the places of the graph that excite them most."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from nfcgcn.explore.node import answers_of, map_of
from nfcgcn.explore.subject import Subject
from nfcgcn.graph import Floats
from nfcgcn.method.features import scale_features
from nfcgcn.method.node_feature_conv import convolve

MOST_STRONGEST = 30
"""Nodes whose strongest places say what a filter looks for."""
SHOWN = 12
CHUNK = 2**24
"""Numbers held in memory at a time."""
MOST_NODES = 20_000
"""In a larger graph, filters are tried on so many nodes, evenly spread over it."""


class Filters:
    """The filters of a model on a graph; their strongest answers are computed once, when they are first asked for."""

    def __init__(self, subject: Subject) -> None:
        assert subject.convolved is not None  # noqa: S101
        self.subject, self.model = subject, subject.convolved
        self.weight: Floats = self.model.nfc.weight.detach().cpu().numpy()
        count = subject.graph.num_nodes
        self.nodes = np.unique(np.linspace(0, count - 1, min(count, MOST_NODES)).astype(np.int64))
        self._strongest: Floats | None = None

    @property
    def strongest(self) -> Floats:
        """The largest magnitude of each filter's answers in the map of each of the nodes, ``[nodes, c]``."""
        if self._strongest is None:
            self._strongest = self._find_strongest()
        return self._strongest

    def _find_strongest(self) -> Floats:
        subject, config = self.subject, self.model.config
        table = subject.own_table
        answers = self.model.nfc.out_channels
        step = max(1, CHUNK // max(config.bandwidth * subject.graph.num_features, answers))
        maxima = []
        for start in range(0, len(self.nodes), step):
            slots = table[self.nodes[start : start + step]]
            sources, place = np.unique(slots, return_inverse=True)
            rows = subject.graph.features[sources]
            dense = torch.from_numpy(rows if isinstance(rows, np.ndarray) else rows.toarray())
            maps = scale_features(dense, config.feature_scale)[torch.from_numpy(place.reshape(slots.shape))]
            with torch.no_grad():
                z = convolve(maps, self.model.nfc.weight, stride=config.stride)
            maxima.append(z.abs().amax(dim=(1, 3)).numpy())
        return np.concatenate(maxima)

    def list(self) -> dict[str, Any]:
        """List the filters, the strongest first: how large their weights and their answers are."""
        answers = self.strongest
        sizes = np.sqrt((self.weight**2).sum(axis=(1, 2)))
        order = np.argsort(-answers.mean(axis=0), kind="stable")
        config = self.model.config
        return {
            "kernel_size": config.kernel_size,
            "stride": config.stride,
            "slots": self.weight.shape[1],
            "bandwidth": config.bandwidth,
            "num_nodes": len(self.nodes),
            "filters": [
                {"filter": int(f), "size": float(sizes[f]), "answer": float(answers[:, f].mean())} for f in order
            ],
        }

    def describe(self, number: int) -> dict[str, Any]:
        """Return the weights of a filter by slot and position, and the nodes and features that excite it most."""
        subject, config = self.subject, self.model.config
        nodes = self.nodes[np.argsort(-self.strongest[:, number], kind="stable")[:MOST_STRONGEST]]
        table = subject.own_table
        width = self.weight.shape[1]
        sums = np.zeros(subject.graph.num_features)
        places = []
        for node in nodes.tolist():
            cells = map_of(subject, table[node])
            answers = answers_of(self.model, cells)[:, number]
            slot, place = np.unravel_index(int(np.abs(answers).argmax()), answers.shape)
            first = int(place) * config.stride
            window = cells[slot : slot + width, first : first + config.kernel_size]
            sums[first : first + config.kernel_size] += (window * self.weight[number]).sum(axis=0)
            where = {"answer": float(answers[slot, place]), "first": first, "last": first + config.kernel_size - 1}
            places.append({**subject.brief(node), **where})
        features = np.argsort(-np.abs(sums), kind="stable")[:SHOWN]
        return {
            "filter": number,
            "weights": self.weight[number].tolist(),
            "places": places[:SHOWN],
            "features": [
                {"feature": int(d), "name": subject.feature(int(d)), "sum": float(sums[d])} for d in features if sums[d]
            ],
            "num_places": len(places),
        }
