"""What a published rule adds to a test accuracy: ``python selection_on_test.py cora lgcn 10``.

The program of LGCN's authors prints the highest test accuracy among all epochs in which the validation accuracy was at
least as high as in any epoch before; the first version of that program prints the highest of all epochs. Here the same
runs are scored by these rules and by ours, which scores the test nodes once, at the epoch chosen on validation nodes. A
fourth argument names the device, further ones are settings, as in ``epochs=1000``.
"""

import sys

import numpy as np
import torch

import nfcgcn
from nfcgcn.training.loop import fit_in_steps


def score(graph, config, seed, device):
    """Train once; return the test accuracy by our rule, by that of LGCN's authors, and of the best test epoch."""
    split, net = config.split.make(graph, seed), config.build(graph, seed)
    x, edges, labels = graph.x.to(device), net.edges_of(graph).to(device), graph.y.to(device)
    test = torch.from_numpy(split.test).to(device)
    seen = []

    @torch.no_grad()
    def look(epoch):
        right = net.score_nodes(x, edges, test).argmax(1) == labels[test]
        seen.append((epoch["val_accuracy"], right.double().mean().item()))

    run = fit_in_steps(
        net, graph, (split.train, split.val), config.training, seed=seed, device=torch.device(device), on_epoch=look
    )
    validated, tested = np.array(seen).T
    leading = validated >= np.maximum.accumulate(validated)
    return tested[run.best["epoch"] - 1], tested[leading].max(), tested.max()


def main(dataset="cora", model="lgcn", seeds="3", device="cpu", *assignments):
    """Print the three means over the seeds."""
    graph = nfcgcn.load(dataset)
    settings = dict(assignment.split("=", 1) for assignment in assignments)
    config = nfcgcn.make_config(model, dataset=dataset, settings={"split": "planetoid", **settings})
    scores = 100 * np.array([score(graph, config, seed, device) for seed in range(int(seeds))])
    names = ("chosen on validation nodes", "the authors' rule", "the authors' first rule, the best on test nodes")
    for name, mean, deviation in zip(names, scores.mean(0), scores.std(0), strict=True):
        print(f"{dataset}, {model}, {name}: {mean:.1f} ± {deviation:.1f} % over {seeds} seeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
