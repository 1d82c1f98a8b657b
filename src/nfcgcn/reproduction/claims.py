"""The paper's sentences, each judged by a rule on stored results.

A rule looks at parts (datasets, or a dataset and a model) and says of each whether the sentence is true there. It holds
if all parts do, in part if some do. A part with too few seeds of what it compares leaves it undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from nfcgcn.reproduction import evidence as rules
from nfcgcn.reproduction.evidence import Found, Part

Verdict = Literal["holds", "holds in part", "does not hold", "not enough results"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what became of it."""

    name: str
    sentence: str
    rule: str
    """What was asked of each part, in words."""
    experiment: str
    """Where the evidence stands."""
    verdict: Verdict
    parts: tuple[Part, ...]


def judge(parts: Sequence[Part]) -> Verdict:
    """Put parts together."""
    if not parts or any(part.holds is None for part in parts):
        return "not enough results"
    if all(part.holds for part in parts):
        return "holds"
    return "holds in part" if any(part.holds for part in parts) else "does not hold"


def claims(found: Found) -> list[Claim]:
    """Judge every claim by the experiments there are."""
    judged = []
    for name, sentence, rule, experiment, look in _CLAIMS:
        parts = tuple(look(found)) if experiment in found else ()
        judged.append(Claim(name, sentence, rule, experiment, judge(parts), parts))
    return judged


_CLAIMS: tuple[tuple[str, str, str, str, Callable[[Found], Iterable[Part]]], ...] = (
    (
        "Outperforms all baselines",
        "NFC-GCN outperforms existing GCN methods across all three datasets",
        "On a dataset it holds where NFC-GCN 1D is significantly above every baseline (paired test, 95 %).",
        "accuracy",
        rules.outperforms,
    ),
    (
        "Converges in fewer epochs",
        "the NFC-GCN model took much fewer epochs to converge compared to GCN and GAT",
        "Holds against a model where the epochs to 99 % of the final validation accuracy are significantly fewer.",
        "convergence",
        rules.converges,
    ),
    (
        "Steadier with depth than GCN",
        "NFC-GCN has much smaller performance variation than GCN",
        "On a dataset it holds where a seed's highest less its lowest accuracy over K = 1 to 5 is significantly "
        "smaller than GCN's.",
        "depth-planetoid",
        rules.steadier,
    ),
    (
        "Changes little with depth",
        "the three citation datasets' test accuracy changes less than 3.50%",
        "On a dataset it holds where the mean accuracies of K = 1 to 5 are less than 3.50 points apart. The paper "
        "prints 3.21 for PubMed, but its own column has 3.72.",
        "depth",
        rules.steady,
    ),
    (
        "Accuracy rises with n",
        "consistent improvement in accuracy with increasing n",
        "On a dataset it holds where the slope over n = 2 to 6, a seed at a time, is significantly positive.",
        "bandwidth",
        rules.rises,
    ),
    (
        "Competitive without GCN layers",
        "our method can get competitive performance without the GCN layers",
        "On a dataset it holds where the mean is at most 1 point below the best other method, both as the paper prints "
        "it and as run here.",
        "no-gcn",
        rules.competitive,
    ),
    (
        "Uses neighbours' features best",
        "Our methods significantly increase the test accuracy",
        "On a dataset it holds where NFC without GCN layers is significantly above both other ways to use five "
        "neighbours.",
        "no-gcn",
        rules.aggregates_better,
    ),
    (
        "Needs many labels",
        "NFC-GCN needs more training samples to learn the parameters",
        "On a dataset it holds where the difference to GCN grows significantly from the fewest labels to the most.",
        "label-rate",
        rules.needs_labels,
    ),
    (
        "Slower to train",
        "our training time is much more than other methods",
        f"On a dataset it holds where an epoch of NFC-GCN 1D takes at least {rules.MUCH:g} times as long as GCN's. "
        "Plain PyTorch is what it costs without our kernels.",
        "cost",
        rules.slower,
    ),
)
