"""Our results beside the paper's: computed by hand, and compared with SciPy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scipy import stats
from synthetic_results import WHERE, make_records, ours

from nfcgcn.errors import ConfigError
from nfcgcn.evaluation import estimate, paired
from nfcgcn.reproduction.comparison import (
    axis_point_name,
    compare,
    decimals,
    estimate_lead_growth,
    estimate_per_seed,
    estimate_slope,
    estimate_spread_difference,
    missing,
    paired_tests,
    select,
    slope,
)
from nfcgcn.reproduction.experiment import read_experiment

TABLE = """
title = "A table"
about = "Two models."
datasets = ["cora", "pubmed"]
[[rows]]
label = "GCN"
model = "gcn"
paper = {cora = 81.8}
[[rows]]
label = "NFC"
model = "nfc-gcn"
paper = {cora = 81.9}
"""
LINES = """
title = "Lines"
about = "Over an axis."
show = "lines"
datasets = ["cora"]
[axis]
setting = "bandwidth"
label = "bandwidth n"
values = [2, 4, 8]
[[rows]]
label = "NFC"
model = "nfc-gcn"
paper = {cora = [80.5, 81.25]}
"""


def scored(text, scores):
    """A comparison whose cells all have these accuracies, one per seed."""
    experiment = read_experiment("toy", text)
    records = make_records(experiment, lambda entry: 0.0, seeds=len(scores), noise=False)
    for record in records:
        record["test_accuracy"] = scores[record["seed"]] / 100
    return compare(experiment, records)


@pytest.mark.parametrize(
    ("paper", "verdict"),
    [
        # The mean of 79, 81, 79, 81 is 80 with the interval 80 ± 3.18245 * 1.15470 / 2 = 78.1626 to 81.8374.
        ("81.8", "within"),
        ("81.88", "below"),
        ("81.9", "below"),
        ("78.2", "within"),
        ("78.1", "above"),
        # A number that was rounded to 0.1 may have been 0.05 nearer; one that was rounded to 0.01 only 0.005.
        ("81.84", "within"),
        ("81.85", "below"),
        ("82", "within"),
    ],
)
def test_verdicts(paper, verdict):
    comparison = scored(TABLE.replace("81.8}", paper + "}"), [79, 81, 79, 81])
    cell = comparison.find(row="GCN", dataset="cora")[0]
    assert cell.summary["ci95"] == pytest.approx((78.1626, 81.8374), abs=1e-4)
    assert cell.verdict == verdict
    assert cell.difference == pytest.approx(80 - float(paper))


def test_a_single_run_or_no_printed_figure_has_no_verdict():
    alone = scored(TABLE, [80]).find(row="GCN", dataset="cora")[0]
    assert (alone.verdict, alone.difference) == (None, pytest.approx(-1.8))
    unprinted = scored(TABLE, [79, 81]).find(row="GCN", dataset="pubmed")[0]
    assert (unprinted.verdict, unprinted.difference) == (None, None)


def test_a_column_is_rounded_alike():
    assert decimals([88.3]) == 1
    assert decimals([88.3, 87.53]) == 2
    assert decimals([80.0]) == 1
    assert decimals([168, 4]) == 0
    assert [cell.digits for cell in scored(LINES, [80]).cells] == [2, 2, 2]
    assert [cell.digits for cell in scored(TABLE, [80]).find(row="GCN")] == [1, 0]


def test_paired_differences_by_hand():
    difference = paired({0: 81.0, 1: 82.0, 2: 83.0, 9: 50.0}, {2: 80.0, 1: 80.0, 0: 80.0, 7: 99.0})
    assert (difference.num, difference.mean) == (3, pytest.approx(2))
    assert (difference.low, difference.high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    assert difference.p == pytest.approx(1 - 12**0.5 / 14**0.5)  # two degrees of freedom have a closed form
    assert not difference.is_above
    assert not difference.is_below


def test_paired_differences_are_scipys():
    ours, theirs = [88.1, 87.9, 88.6, 88.0, 87.2], [87.0, 87.4, 88.0, 87.9, 86.1]
    difference, expected = paired(dict(enumerate(ours)), dict(enumerate(theirs))), stats.ttest_rel(ours, theirs)
    interval = expected.confidence_interval()
    assert (difference.p, difference.low, difference.high) == pytest.approx(
        (expected.pvalue, interval.low, interval.high)
    )
    assert difference.is_above
    assert paired(dict(enumerate(theirs)), dict(enumerate(ours))).is_below


def test_differences_that_do_not_vary():
    assert estimate([0.3, 0.1 + 0.2]) == estimate([0.3, 0.3])
    assert (estimate([0.3, 0.3]).p, estimate([0.3, 0.3]).is_above) == (0.0, True)
    assert (estimate([0.0, 0.0]).p, estimate([0.0, 0.0]).is_above) == (1.0, False)
    assert estimate([1.0]) is None
    assert paired({0: 1.0, 1: 2.0}, {2: 1.0}) is None


def test_figures_across_an_axis():
    assert slope([2, 3, 4], [5.0, 7.0, 9.0]) == pytest.approx(2)
    assert slope([1, 2, 3], [0.0, 3.0, 0.0]) == pytest.approx(0)
    line = [{0: 1.0, 1: 1.0}, {0: 2.0, 1: 4.0, 5: 9.0}]
    assert estimate_per_seed(lambda values: values[1] - values[0], line).mean == pytest.approx(2)
    assert estimate_per_seed(max, []) is None
    falling = scored(LINES, [80, 82]).cells
    assert estimate_slope(falling).mean == pytest.approx(0)


def lines_of(values):
    text = LINES + '[[rows]]\nlabel = "NFC 2D"\nmodel = "nfc-gcn-2d"\n'
    experiment = read_experiment("toy", text)
    records = make_records(experiment, lambda e: values[e.row][[2, 4, 8].index(e.x)], noise=False)
    comparison = compare(experiment, records)
    return comparison.find(row="NFC"), comparison.find(row="NFC 2D")


def test_two_lines_by_hand():
    one, other = lines_of({"NFC": [80, 83, 81], "NFC 2D": [70, 78, 79]})
    assert estimate_slope(one).mean == pytest.approx((-8 / 3 * 80 + -2 / 3 * 83 + 10 / 3 * 81) / (56 / 3))
    assert estimate_spread_difference(one, other).mean == pytest.approx(3 - 9)
    assert estimate_lead_growth(one, other).mean == pytest.approx((81 - 79) - (80 - 70))


def test_machines_are_never_mixed():
    experiment = read_experiment("toy", TABLE)
    here = make_records(experiment, lambda entry: 80)
    gpu = make_records(experiment, lambda entry: 20 if entry.row == "GCN" else None, where={**WHERE, "device": "cuda"})
    older = make_records(experiment, lambda entry: 10 if ours(entry) else None, where={**WHERE, "torch": "1.0"})
    chosen = select([*older, *gpu, *here])
    assert chosen.machine == WHERE
    assert (len(chosen.records), chosen.left_out) == (len(here), len(gpu) + len(older))
    assert min(compare(experiment, chosen.records).cells[0].scores.values()) > 79
    assert select([*here, *gpu], device="cuda").records == tuple(gpu)
    with pytest.raises(
        ConfigError, match=r"^there are no results from device 'tpu'; there are results from: cpu, cuda$"
    ):
        select([*here, *gpu], device="tpu")


def test_costs_come_from_one_machine_of_their_own():
    experiment = read_experiment("toy", TABLE)
    cost = read_experiment("cost", TABLE.replace("datasets =", 'kind = "cost"\nshow = "cost"\ndatasets =', 1))
    far = {**WHERE, "device": "cuda"}
    scores = make_records(experiment, lambda entry: 80, where=far)
    few = make_records(cost, lambda entry: 1.0 if entry.row == "GCN" else None, where=far)
    costs = make_records(cost, lambda entry: 2.0)
    chosen = select([*scores, *few, *costs])
    assert (chosen.machine, chosen.left_out) == (far, len(few))
    assert [cell.seconds_per_epoch for cell in compare(experiment, chosen.records).cells] == [2.0] * 4
    assert select([*scores, *few, *costs], device="cuda").records == (*scores, *few)
    # If both machines have as many costs, scores and costs come from the same one.
    assert select([*scores, *costs, *make_records(cost, lambda entry: 3.0, where=far)]).records[-1]["where"] == far


def test_records_go_to_the_cell_with_their_setup():
    experiment = read_experiment("toy", TABLE)
    records = make_records(experiment, lambda entry: 80, seeds=3)
    strangers = [{**record, "setup": "0" * 16} for record in records]
    comparison = compare(experiment, [*strangers, *records[::-1], *records])
    assert [list(cell.scores) for cell in comparison.cells] == [[0, 1, 2]] * 4
    assert (comparison.num_runs, comparison.most_seeds) == (12, 3)


def test_what_is_missing_is_named():
    experiment = read_experiment("toy", LINES)
    records = make_records(experiment, lambda e: 80 if e.x != 4 else None)
    few = [r for r in make_records(experiment, lambda e: 80) if r["config"]["bandwidth"] != 2 or r["seed"] == 0]
    assert missing(compare(experiment, records)) == ["NFC on Cora, n = 4: no runs"]
    assert missing(compare(experiment, few)) == ["NFC on Cora, n = 2: 1 run"]
    assert missing(compare(experiment, [])) == []


def test_contrasts_of_a_table():
    tests = paired_tests(scored(TABLE, [80, 82]))
    assert [(c.label, c.dataset) for c in tests] == [("NFC against GCN", "cora"), ("NFC against GCN", "pubmed")]
    assert tests[0].estimate.mean == 0


def test_contrasts_along_an_axis():
    experiment = read_experiment("toy", LINES)
    tests = paired_tests(compare(experiment, make_records(experiment, lambda e: 80 + e.x, noise=False)))
    assert [(c.label, c.estimate.mean) for c in tests] == [
        ("slope per unit from n = 2 to 4", pytest.approx(1)),
        ("n = 4 against n = 2", pytest.approx(2)),
        ("n = 8 against n = 4", pytest.approx(4)),
    ]


def test_names_of_places():
    comparison = scored(LINES, [80])
    axis = replace(comparison.experiment.axis, label="labels per class")
    other = replace(comparison, experiment=replace(comparison.experiment, axis=axis))
    assert (axis_point_name(comparison, 2), axis_point_name(other, 2)) == ("n = 2", "2 labels per class")
    assert axis_point_name(other, "none") == "all labels"
