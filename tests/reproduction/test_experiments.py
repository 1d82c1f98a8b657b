"""The experiments of the package: they run what the paper ran, and hold what it prints."""

from functools import cache

import pytest

from nfcgcn.config.registry import MODELS
from nfcgcn.reproduction.experiment import EXPERIMENTS, entries, load_experiment, read_experiment

DATASETS = ("cora", "citeseer", "pubmed")


@cache
def cells(name):
    """The entries of an experiment by row, dataset and value on the axis."""
    return {(e.row, e.dataset, e.x): e for e in entries(load_experiment(name))}


def setups(name, *rows):
    return {e.setup.id for e in cells(name).values() if not rows or e.row in rows}


def printed(name):
    """What the paper prints, by row and dataset, along the axis."""
    numbers = {}
    for (row, dataset, _), e in cells(name).items():
        if e.paper is not None:
            numbers.setdefault(row, {}).setdefault(dataset, []).append(e.paper)
    return numbers


def in_columns(*rows):
    """A table of the paper, one line per value of the axis, as `printed` has it for one row of an experiment."""
    return dict(zip(DATASETS, map(list, zip(*rows, strict=True)), strict=True))


# Typed from the paper
TABLES = {
    "accuracy": {
        "GCN": in_columns((86.3, 77.8, 86.8)),
        "FastGCN": in_columns((85.0, 77.6, 88.0)),
        "GraphSAGE-mean": in_columns((82.2, 71.4, 87.1)),
        "GAT": in_columns((80.4, 75.7, 85.0)),
        "NFC-GCN 1D": in_columns((88.3, 78.5, 89.5)),
        "NFC-GCN 1D, tanh": in_columns((88.3, 78.5, 89.5)),
        "NFC-GCN 2D": in_columns((88.0, 78.9, 88.43)),
        "NFC-GCN 1D, two layers": {"pubmed": [88.23]},
        "NFC-GCN 2D, two layers": {"pubmed": [88.43]},
        "NFC-GCN 2D, tanh": in_columns((88.0, 78.9, 88.43)),
        "NFC-GCN 1D, tanh, two layers": {"pubmed": [88.23]},
        "NFC-GCN 2D, tanh, two layers": {"pubmed": [88.43]},
        "NFC-GCN 1D, parameter table to the letter": in_columns((88.3, 78.5, 88.23)),
    },
    "no-gcn": {
        "GCN_5": in_columns((64.8, 74.1, 80.0)),
        "GAT_5": in_columns((64.2, 74.2, 82.2)),
        "NFC_5": in_columns((86.0, 79.1, 89.0)),
    },
    "bandwidth": {
        "NFC-GCN 1D": in_columns(
            (87.53, 78.30, 87.58),
            (87.79, 78.34, 87.83),
            (88.13, 78.37, 88.02),
            (88.18, 78.48, 88.29),
            (88.30, 78.52, 88.23),
        )
    },
    "depth": {
        "NFC-GCN 1D": in_columns(
            (86.58, 76.70, 89.49),
            (88.30, 78.52, 88.23),
            (88.15, 77.95, 86.70),
            (87.51, 77.43, 86.28),
            (86.83, 76.88, 85.77),
        )
    },
    "degrees": {"degree": in_columns(([168, 1, 4.87, 4], [99, 1, 3.7, 3], [171, 1, 5.5, 3]))},
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_papers_numbers(name):
    assert printed(name) == TABLES.get(name, {})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_two_cells_are_one_run(name):
    assert len(setups(name)) == len(cells(name))


def test_what_varies_along_the_axes():
    wanted = {
        "bandwidth": ("bandwidth", (2, 3, 4, 5, 6, 8, 12, 16)),
        "depth": ("num_layers", (1, 2, 3, 4, 5)),
        "depth-planetoid": ("num_layers", (1, 2, 3, 4, 5)),
        "label-rate": ("labels_per_class", (5, 10, 20, 50, 100, None)),
    }
    for name, (setting, values) in wanted.items():
        for row in load_experiment(name).rows:
            for dataset in DATASETS:
                along = [e.setup.values for key, e in cells(name).items() if key[:2] == (row.label, dataset)]
                assert tuple(v[setting] for v in along) == values
                assert all({**v, setting: None} == {**along[0], setting: None} for v in along)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_split(name):
    if name == "degrees":
        return
    split = "planetoid" if name == "depth-planetoid" else "fastgcn"
    assert {e.setup.values["split"] for e in cells(name).values()} == {split}
    drawn = {e.setup.values["labels_per_class"] for e in cells(name).values()}
    assert drawn == {None} or name == "label-rate"


def test_runs_that_experiments_share():
    shared = ("GCN", "GAT", "NFC-GCN 1D")
    assert setups("convergence") == setups("accuracy", *shared)
    assert setups("curves") < setups("convergence")
    assert load_experiment("curves").history
    accuracy, depth = cells("accuracy"), cells("depth")
    for dataset in DATASETS:
        two = "NFC-GCN 1D, two layers" if dataset == "pubmed" else "NFC-GCN 1D"
        wanted = accuracy[two, dataset, None].setup
        assert cells("bandwidth")["NFC-GCN 1D", dataset, 6].setup == depth["NFC-GCN 1D", dataset, 2].setup == wanted
        for row in ("NFC-GCN 1D", "GCN"):
            assert cells("label-rate")[row, dataset, "none"].setup == accuracy[row, dataset, None].setup
    assert depth["NFC-GCN 1D", "pubmed", 1].setup == accuracy["NFC-GCN 1D", "pubmed", None].setup


def changed(base, other):
    """The settings in which two setups differ."""
    return {k: v for k, v in other.setup.values.items() if v != base.setup.values[k]}


@pytest.mark.parametrize("dataset", DATASETS)
def test_how_the_rows_of_ours_differ(dataset):
    rows, base = cells("accuracy"), cells("accuracy")["NFC-GCN 1D", dataset, None]
    two = {"num_layers": 2} if dataset == "pubmed" else {}
    literal = {"activation": "relu", "map_dropout": 0.0, "representation_dropout": 0.5, "classifier": "linear"}
    wanted = {
        "NFC-GCN 1D, tanh": {"activation": "tanh"},
        "NFC-GCN 2D": {"conv": "2d"},
        "NFC-GCN 2D, tanh": {"conv": "2d", "activation": "tanh"},
        "NFC-GCN 1D, two layers": two,
        "NFC-GCN 2D, two layers": {"conv": "2d", **two},
        "NFC-GCN 1D, tanh, two layers": {"activation": "tanh", **two},
        "NFC-GCN 2D, tanh, two layers": {"conv": "2d", "activation": "tanh", **two},
        "NFC-GCN 1D, parameter table to the letter": {**literal, **two},
    }
    for row, settings in wanted.items():
        if "two layers" not in row or dataset == "pubmed":
            assert changed(base, rows[row, dataset, None]) == settings
    assert changed(base, cells("no-gcn")["NFC_5", dataset, None]) == {"num_layers": 0}


def test_the_cost_of_every_model():
    costs = cells("cost")
    later = {"chebnet", "fingerprint", "gated-gnn", "gnn", "planetoid-t", "planetoid-i"} | {
        m for m in MODELS if not MODELS[m].model.reads_features
    }
    assert {e.setup.model for e in costs.values()} == set(MODELS) - later
    assert {row for row, _, _ in costs} == {row.label for row in load_experiment("cost").rows}
    assert len(costs) == 3 * len(load_experiment("cost").rows)
    plain = changed(costs["NFC-GCN 1D, tanh", "cora", None], costs["NFC-GCN 1D, tanh, plain PyTorch", "cora", None])
    assert plain == {"backend": "reference"}
    assert {e.setup.kind for e in costs.values()} == {"cost"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_a_page_says(name):
    experiment = load_experiment(name)
    for text in (experiment.title, experiment.about, *(row.note for row in experiment.rows if row.note)):
        assert text == " ".join(text.split())
    assert experiment.about.endswith(".")
    assert "{" not in experiment.about


@pytest.mark.parametrize(
    ("monitor", "about"), [("accuracy", "Highest validation accuracy."), ("loss", "Lowest validation loss.")]
)
def test_how_the_best_epoch_is_chosen_comes_from_the_settings(monitor, about):
    text = f"""
title = "One model"
about = "{{best_is}}."
datasets = ["cora"]
settings = {{monitor = "{monitor}"}}
[[rows]]
label = "GCN"
model = "gcn"
"""
    assert read_experiment("one", text).about.capitalize() == about
