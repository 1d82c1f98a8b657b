"""The claims of the paper, each judged by stored results.

A claim is checked in parts: once per dataset, or once per dataset and baseline. It holds if it holds in all parts, and
holds in part if it holds in some. It is undecided if any part has too few seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from nfcgcn.reproduction.evidence import (
    MUCH_SLOWER,
    Comparisons,
    Part,
    aggregates_better,
    competitive,
    converges,
    needs_labels,
    outperforms,
    rises,
    slower,
    steadier,
    steady,
)

Verdict = Literal["holds", "holds in part", "does not hold", "not enough results"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and whether our results confirm it."""

    name: str
    sentence: str
    criterion: str
    """When it holds, in words."""
    experiment: str
    """The experiment whose results decide it."""
    verdict: Verdict
    parts: tuple[Part, ...]


def judge(parts: Sequence[Part]) -> Verdict:
    """Return the verdict on a claim from its parts."""
    if not parts or any(part.holds is None for part in parts):
        return "not enough results"
    if all(part.holds for part in parts):
        return "holds"
    return "holds in part" if any(part.holds for part in parts) else "does not hold"


def claims(comparisons: Comparisons) -> list[Claim]:
    """Judge every claim by the experiments that have been run."""
    judged = []
    for name, sentence, criterion, experiment, check in _CLAIMS:
        parts = tuple(check(comparisons)) if experiment in comparisons else ()
        judged.append(Claim(name, sentence, criterion, experiment, judge(parts), parts))
    return judged


_CLAIMS: tuple[tuple[str, str, str, str, Callable[[Comparisons], Iterable[Part]]], ...] = (
    (
        "Outperforms all baselines",
        "NFC-GCN outperforms existing GCN methods across all three datasets",
        "Holds on a dataset if NFC-GCN 1D is significantly above every baseline (paired test, 95 %).",
        "accuracy",
        outperforms,
    ),
    (
        "Converges in fewer epochs",
        "the NFC-GCN model took much fewer epochs to converge compared to GCN and GAT",
        "Holds against a model if NFC-GCN reaches 99 % of its final validation accuracy in significantly fewer epochs.",
        "convergence",
        converges,
    ),
    (
        "Steadier with depth than GCN",
        "NFC-GCN has much smaller performance variation than GCN",
        "Holds on a dataset if the highest minus the lowest accuracy over K = 1 to 5, computed per seed, is "
        "significantly smaller than GCN's.",
        "depth-planetoid",
        steadier,
    ),
    (
        "Changes little with depth",
        "the three citation datasets' test accuracy changes less than 3.50%",
        "Holds on a dataset if the mean accuracies of K = 1 to 5 are less than 3.50 points apart. The paper prints "
        "3.21 for PubMed, but the numbers in its own column are 3.72 apart.",
        "depth",
        steady,
    ),
    (
        "Accuracy rises with n",
        "consistent improvement in accuracy with increasing n",
        "Holds on a dataset if the slope of the accuracy over n = 2 to 6, per seed, is significantly positive.",
        "bandwidth",
        rises,
    ),
    (
        "Competitive without GCN layers",
        "our method can get competitive performance without the GCN layers",
        "Holds on a dataset if the mean is at most 1 point below the best other method, both as printed in the paper "
        "and as run here.",
        "no-gcn",
        competitive,
    ),
    (
        "Uses neighbours' features best",
        "Our methods significantly increase the test accuracy",
        "Holds on a dataset if NFC without GCN layers is significantly above both other ways to use five neighbours.",
        "no-gcn",
        aggregates_better,
    ),
    (
        "Needs many labels",
        "NFC-GCN needs more training samples to learn the parameters",
        "Holds on a dataset if the lead over GCN grows significantly from the fewest labels to the most.",
        "label-rate",
        needs_labels,
    ),
    (
        "Slower to train",
        "our training time is much more than other methods",
        f"Holds on a dataset if an epoch of NFC-GCN 1D takes at least {MUCH_SLOWER:g} times as long as GCN's. "
        "The row of plain PyTorch shows the cost without our kernels.",
        "cost",
        slower,
    ),
)
