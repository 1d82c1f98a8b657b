"""Do the weights of one graph help on another with the same features? ``python transfer.py cora 5``.

A citation graph is cut into two halves with about as many nodes, by breadth-first search from one node; edges between
them are dropped. A model learns from 70 % of the labels of the first half; another 20 % choose its best epoch. On the
second half it trains with 1 to 50 labels per class, once from that start and once from a random one, with the same
splits and seeds; the difference has its 95 % interval. ``nfcgcn train GRAPH --init RUN`` does the same with graphs of
your own. A third argument names another model, a fourth the device.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy.sparse.csgraph import breadth_first_order, connected_components

import nfcgcn
from nfcgcn.evaluation import describe, paired
from nfcgcn.files import new_folder
from nfcgcn.inference.checkpoint import load_run, save_run
from nfcgcn.inference.transfer import starting_weights

LABELS = (1, 2, 5, 10, 20, 50)


def halves(graph):
    """Return two graphs, the first of them of the half of the nodes that is nearest to the first node."""
    _, component = connected_components(graph.adjacency, directed=False)
    order = []
    for number in np.argsort(-np.bincount(component), kind="stable"):  # the largest component first
        start = np.flatnonzero(component == number)[0]
        order.append(breadth_first_order(graph.adjacency, start, directed=False, return_predecessors=False))
    order = np.concatenate(order)
    for nodes in np.split(order, [len(order) // 2]):
        inside = graph.adjacency[nodes][:, nodes]
        yield nfcgcn.Graph.from_scipy(
            inside, graph.features[nodes], labels=graph.labels[nodes], class_names=graph.class_names, name=graph.name
        )


def learn(graph, dataset, model, device):
    """Return the run of a model on the first half, as a folder would hold it."""
    settings = {"split": "ratio", "train_ratio": 0.7, "val_ratio": 0.2}
    config = nfcgcn.make_config(model, dataset=dataset, settings=settings)
    runs = nfcgcn.repeat(graph, config, [0], device=device)
    with tempfile.TemporaryDirectory() as folder:
        with new_folder(Path(folder) / "run") as draft:
            result = describe(graph, config, runs, device=torch.device(device))
            save_run(draft, graph, result, {0: runs[0].run}, 0)
        return load_run(Path(folder) / "run")


def main(dataset="cora", seeds="5", model="nfc-gcn", device="cpu"):
    """Print the test accuracy on the second half for each number of labels, from both starts."""
    first, second = halves(nfcgcn.load(dataset))
    source = learn(first, dataset, model, device)
    print(f"{dataset}: {first.num_nodes} nodes to start from, {second.num_nodes} nodes to learn", flush=True)
    for count in LABELS:
        settings = {"split": "per-class", "train_per_class": count, "num_val": 200, "num_test": 500}
        config = nfcgcn.make_config(model, dataset=dataset, settings=settings)
        starts = {"random": None, "from the other half": starting_weights(source, second, config)}
        texts, scores = [], {}
        for name, start in starts.items():
            runs = nfcgcn.repeat(second, config, range(int(seeds)), device=device, start=start)
            scores[name] = {run.seed: 100 * run.test_accuracy for run in runs}
            values = list(scores[name].values())
            texts.append(f"{name} {np.mean(values):.1f} ± {np.std(values):.1f} %")
        if gain := paired(scores["from the other half"], scores["random"]):
            texts.append(f"difference {gain.mean:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})")
        print(f"{count} labels per class: {', '.join(texts)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
