import re
from dataclasses import fields, replace
from importlib import resources
from typing import Literal, get_args, get_origin

import pytest
import torch

from nfcgcn.config.registry import MODELS, PRESETS, SplitConfig, make_config, preset_tables
from nfcgcn.errors import ConfigError
from nfcgcn.method.features import scale_features
from nfcgcn.settings import settings_of
from nfcgcn.training import TrainingConfig
from nfcgcn.training.class_weights import ClassWeights
from nfcgcn.training.fan_out import FanOut


def message(text):
    return f"^{re.escape(text)}$"


# The paper's parameter table, but one layer for PubMed, its headline: k, s, c, hidden, layers, learning rate
PAPER = {
    "cora": (32, 16, 64, 16, 2, 0.002),
    "citeseer": (64, 32, 64, 16, 2, 0.002),
    "pubmed": (64, 16, 32, 32, 1, 0.01),
}
KEYS = ("kernel_size", "stride", "filters", "hidden_channels", "num_layers", "learning_rate")


@pytest.mark.parametrize("model", ["nfc-gcn", "nfc-gcn-2d"])
@pytest.mark.parametrize("dataset", PAPER)
@pytest.mark.parametrize("preset", ["paper", None])
def test_nfc_gcn_is_trained_as_published(model, dataset, preset):
    config = make_config(model, dataset=dataset, preset=preset)
    assert config.preset == "paper"
    # Which kernels run is no matter of the paper's.
    assert {name: value for name, value in config.values.items() if name != "backend"} == {
        **dict(zip(KEYS, PAPER[dataset], strict=True)),
        "bandwidth": 6,
        "conv": "2d" if model.endswith("2d") else "1d",
        "kernel_width": 3,
        "activation": "none",
        "map_dropout": 0.5,
        "representation_dropout": 0.0,
        "dropout": 0.5,
        "classifier": "none",
        "edge_dropout": 0.0,
        "own_features": "none",
        "self_weight": 1.0,
        "neighbour_draw": "uniform",
        "conv_layers": 1,
        "slot_order": "random",
        "resample": "once",
        "feature_scale": "given",
        "epochs": 200,
        "weight_decay": 1e-4,
        "monitor": "accuracy",
        "patience": None,
        "batch_size": None,
        "fan_out": None,
        "batch_parts": None,
        "precision": "float32",
        "class_weight": None,
        "calibrate": "none",
        "split": "fastgcn",
        "labels_per_class": None,
        "train_per_class": 20,
        "num_val": 500,
        "num_test": 1000,
        "train_ratio": 0.6,
        "val_ratio": 0.2,
    }


# What the authors print, by model, preset and dataset
PUBLISHED = {
    ("gcn", "paper", "cora"): {
        "split": "planetoid", "feature_scale": "row-sum", "hidden_channels": 16, "num_layers": 2, "dropout": 0.5,
        "epochs": 200, "learning_rate": 0.01, "weight_decay": 5e-4, "monitor": "loss", "patience": 10,
    },
    ("gcn", "nfc-paper", "cora"): {
        "split": "fastgcn", "feature_scale": "given", "hidden_channels": 16, "num_layers": 2, "dropout": 0.5,
        "epochs": 400, "learning_rate": 0.01, "weight_decay": 5e-4, "monitor": "accuracy", "patience": None,
    },
    ("gat", "paper", "cora"): {
        "split": "planetoid", "feature_scale": "row-sum", "hidden_channels": 8, "num_layers": 2, "heads": 8,
        "output_heads": 1, "dropout": 0.6, "attention_dropout": 0.6, "learning_rate": 0.005, "weight_decay": 5e-4,
        "patience": 100,
    },
    ("gat", "paper", "pubmed"): {"output_heads": 8, "learning_rate": 0.01, "weight_decay": 1e-3},
    ("fastgcn", "paper", "cora"): {
        "split": "fastgcn", "feature_scale": "row-sum", "hidden_channels": 16, "samples": 400, "batch_size": 256,
        "epochs": 200, "learning_rate": 0.01, "weight_decay": 5e-4,
    },
    ("fastgcn", "paper", "pubmed"): {"samples": 100, "batch_size": 256},
    ("sage-mean", "paper", "cora"): {
        "split": "fastgcn", "num_neighbours": 25, "num_further": 10, "hidden_channels": 128, "batch_size": 512,
    },
    ("jknet", "paper", "cora"): {"split": "ratio", "num_layers": 6, "mode": "concat", "learning_rate": 0.005},
    ("lgcn", "paper", "cora"): {
        "split": "planetoid", "feature_scale": "row-sum", "hidden_channels": 32, "num_layers": 2, "filters": 8, "k": 8,
        "dropout": 0.84, "learning_rate": 0.1, "weight_decay": 5e-4,
    },
    ("lgcn", "paper", "citeseer"): {"num_layers": 1, "k": 8},
    ("gat-5", "paper", "cora"): {"split": "fastgcn", "bandwidth": 6, "learning_rate": 0.002, "weight_decay": 1e-4},
    ("gat", "nfc-paper", "cora"): {"split": "fastgcn", "heads": 8, "hidden_channels": 8, "epochs": 400},
}  # fmt: skip
PUBLISHED |= {
    (model, preset, dataset): PUBLISHED[model, preset, "cora"]
    for model, preset in (("gcn", "paper"), ("gcn", "nfc-paper"), ("gat", "nfc-paper"))
    for dataset in ("citeseer", "pubmed")
}


@pytest.mark.parametrize(("model", "preset", "dataset"), PUBLISHED)
def test_baselines_are_trained_as_published(model, preset, dataset):
    values = make_config(model, dataset=dataset, preset=preset).values
    wanted = PUBLISHED[model, preset, dataset]
    assert {key: values[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("model", "split", "preset", "found"),
    [
        pytest.param("gcn", None, "nfc-paper", "fastgcn", id="the same protocol as NFC-GCN"),
        pytest.param("gcn", "fastgcn", "nfc-paper", "fastgcn", id="made for the split"),
        pytest.param("gcn", "planetoid", "paper", "planetoid", id="the model's own paper"),
        pytest.param("gcn", "ratio", "nfc-paper", "ratio", id="made for another split"),
        pytest.param("nfc-gcn", "planetoid", "paper", "planetoid", id="only one preset"),
        pytest.param("lgcn", "planetoid", "default", "planetoid", id="chosen here for the same split"),
    ],
)
def test_a_preset_that_suits_the_split(model, split, preset, found):
    config = make_config(model, dataset="cora", settings={"split": split} if split else {})
    assert (config.preset, config.split.split) == (preset, found)


TABLES = [(preset, model) for preset in PRESETS for model in MODELS if preset_tables(preset, model)]


@pytest.mark.parametrize(("preset", "model"), TABLES)
def test_every_preset_can_be_read(preset, model):
    for dataset, values in preset_tables(preset, model).items():
        config = make_config(model, dataset=dataset, preset=preset)
        assert values.items() <= config.values.items()


@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_a_preset_of_its_paper(model):
    assert {"cora", "citeseer"} <= set(preset_tables("paper", model))


def test_every_table_of_a_preset_is_of_a_model():
    for preset in PRESETS:
        text = (resources.files("nfcgcn.config") / "presets" / f"{preset}.toml").read_text(encoding="utf-8")
        assert set(re.findall(r"^\[([\w-]+)\.", text, flags=re.MULTILINE)) <= set(MODELS)


@pytest.mark.parametrize("split", [None, "fastgcn", "planetoid", "ratio"])
@pytest.mark.parametrize("model", MODELS)
def test_the_tuned_preset_is_used_only_if_it_is_named(model, split):
    for dataset in ("cora", "citeseer", "pubmed"):
        assert make_config(model, dataset=dataset, settings={"split": split} if split else {}).preset != "tuned"


@pytest.mark.parametrize("model", ["nfc-gcn", "gcn"])
def test_the_tuned_preset_is_for_one_split(model):
    tables = preset_tables("tuned", model)
    assert list(tables) == ["cora", "citeseer", "pubmed"]
    assert {values["split"] for values in tables.values()} == {"fastgcn"}


def test_presets_for_digits_and_others():
    digits = make_config("nfc-gcn", dataset="digits")
    assert (digits.preset, digits.values["kernel_size"], digits.values["stride"]) == ("default", 16, 8)
    assert make_config("gcn", dataset="digits").values["hidden_channels"] == 64
    bare = make_config("nfc-gcn")
    assert (bare.preset, bare.model) == ("default", MODELS["nfc-gcn"].config())
    assert make_config("nfc-gcn", dataset="cora", preset="default").training == TrainingConfig()
    assert make_config("nfc-gcn", dataset="citations").split == SplitConfig()


def test_settings_win_over_the_preset():
    config = make_config("nfc-gcn", dataset="cora", preset="paper", settings={"stride": "8", "split": "planetoid"})
    assert (config.values["stride"], config.values["split"], config.values["kernel_size"]) == (8, "planetoid", 32)


FIELDS = [(model, s) for model, entry in MODELS.items() for s in settings_of(entry.config).values()]
FIELDS += [("gcn", s) for config in (TrainingConfig, SplitConfig) for s in settings_of(config).values()]


@pytest.mark.parametrize(("model", "field"), FIELDS, ids=lambda v: v if isinstance(v, str) else v.name)
def test_every_setting_can_be_set_by_text(model, field):
    if get_origin(field.type) is Literal:
        texts = [MODELS[model].fixed[field.name]] if field.name in MODELS[model].fixed else get_args(field.type)
        wanted = {text: text for text in texts}
    elif field.type is int:
        wanted = {"3": 3, "1": 1}
    elif field.type is float:
        wanted = {"0.125": 0.125, "25e-2": 0.25}
    elif field.name == "class_weight":
        wanted = {"a=2": ClassWeights("a=2"), "balanced": "balanced", "none": None}
    elif field.name == "fan_out":
        wanted = {"5": FanOut("5"), "15, 10": FanOut("15,10"), "none": None}
    else:
        wanted = {"5": 5, "none": None}
    for text, value in wanted.items():
        found = make_config(model, settings={field.name: text}).values[field.name]
        assert found == value
        assert type(found) is type(value)
    assert field.meaning
    with pytest.raises(ConfigError, match=f"^`{field.name}` (must be|is) .*"):
        make_config(model, settings={field.name: "no such thing"})


@pytest.mark.parametrize("model", MODELS)
def test_no_setting_belongs_to_two_parts(model):
    config = make_config(model)
    names = [f.name for part in (config.model, config.training, config.split) for f in fields(part)]
    assert len(set(names)) == len(names)
    assert list(config.values) == names


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param(
            {"model": "nfcgcn"},
            "unknown model 'nfcgcn'; did you mean 'nfc-gcn' or 'nfc-gcn-2d' or 'gcn'?",
            id="near model",
        ),
        pytest.param({"model": "zzz"}, f"unknown model 'zzz'; choose from {', '.join(sorted(MODELS))}", id="far model"),
        pytest.param(
            {"preset": "papr"}, "unknown preset 'papr'; did you mean 'paper' or 'nfc-paper'?", id="near preset"
        ),
        pytest.param(
            {"preset": "zzz"}, f"unknown preset 'zzz'; choose from {', '.join(sorted(PRESETS))}", id="far preset"
        ),
        pytest.param(
            {"settings": {"bandwith": 3}}, "unknown setting 'bandwith'; did you mean 'bandwidth'?", id="near setting"
        ),
        pytest.param(
            {"dataset": "digits", "preset": "paper"},
            "preset 'paper' of model 'nfc-gcn' has no settings for 'digits'; it covers cora, citeseer, pubmed",
            id="preset without dataset",
        ),
        pytest.param(
            {"settings": {"conv": "2d"}}, "`conv` is 1d in model 'nfc-gcn'; choose another --model instead", id="1d"
        ),
        pytest.param(
            {"model": "nfc-gcn-2d", "settings": {"conv": "1d"}},
            "`conv` is 2d in model 'nfc-gcn-2d'; choose another --model instead",
            id="2d",
        ),
        pytest.param({"settings": {"epochs": "0"}}, "`epochs` must be at least 1, got 0", id="epochs"),
        pytest.param(
            {"settings": {"train_per_class": 0}}, "`train_per_class` must be at least 1, got 0", id="per class"
        ),
        pytest.param(
            {"settings": {"labels_per_class": 0}}, "`labels_per_class` must be at least 1 or none, got 0", id="labels"
        ),
        pytest.param({"settings": {"num_val": -1}}, "`num_val` must be at least 1, got -1", id="num_val"),
        pytest.param({"settings": {"num_test": 0}}, "`num_test` must be at least 1, got 0", id="num_test"),
        pytest.param(
            {"settings": {"train_ratio": 1}}, "`train_ratio` must be above 0 and below 1, got 1.0", id="train_ratio"
        ),
        pytest.param(
            {"settings": {"val_ratio": "nan"}}, "`val_ratio` must be above 0 and below 1, got nan", id="val_ratio"
        ),
    ],
)
def test_bad_configs(options, text):
    with pytest.raises(ConfigError, match=message(text)):
        make_config(**options)


def test_gcn_has_no_settings_of_nfc_gcn():
    with pytest.raises(
        ConfigError, match=r"^unknown setting 'bandwidth'; choose from batch_parts, batch_size, calibrate, "
    ):
        make_config("gcn", settings={"bandwidth": 3})


@pytest.mark.parametrize("model", MODELS)
def test_build_follows_its_seed_alone(model, sparse_graph):
    config = make_config(model)
    before = torch.get_rng_state()
    one, two, other = (config.build(sparse_graph, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert type(one) is MODELS[model].model
    for (name, a), b, c in zip(one.named_parameters(), two.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert len(a.unique()) == 1 or not torch.equal(a, c), name  # biases and the like start at 0 or 1
    scores = [m.eval()(sparse_graph.x, sparse_graph.edge_index) for m in (one, two)]
    assert torch.equal(*scores)
    assert scores[0].shape == (300, 3)
    if model in ("gcn-5", "gat-5"):
        assert (one.seed, other.seed) == (1, 2)
    if model.startswith("nfc-gcn"):
        assert (one.nfc.seed, other.nfc.seed, one.nfc.config.conv) == (1, 2, MODELS[model].fixed["conv"])


def test_settings_reach_the_model(sparse_graph):
    wanted = {"bandwidth": 4, "filters": 5, "kernel_size": 6, "stride": 3, "activation": "tanh", "map_dropout": 0.25,
              "slot_order": "similarity", "resample": "epoch", "dropout": 0.75, "hidden_channels": 9,
              "num_layers": 3, "representation_dropout": 0.125, "classifier": "linear"}  # fmt: skip
    model = make_config("nfc-gcn", settings=wanted).build(sparse_graph, 0)
    assert {name: getattr(model.config, name) for name in wanted} == wanted
    assert model.nfc.config is model.config
    assert model.nfc.weight.shape == (5, 4, 6)
    assert [tuple(layer.weight.shape) for layer in (*model.layers, model.classifier)] == [
        (60, 9), (9, 9), (9, 3), (3, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("model", [m for m in MODELS if MODELS[m].model.reads_features])
def test_the_scale_of_features_reaches_every_model(model, sparse_graph):
    as_given, scaled = (
        make_config(model, settings={"feature_scale": scale}).build(sparse_graph, 0).eval()
        for scale in ("given", "row-norm")
    )
    x, edge_index = sparse_graph.x, sparse_graph.edge_index
    torch.testing.assert_close(scaled(x, edge_index), as_given(scale_features(x, "row-norm"), edge_index))
    assert not torch.allclose(scaled(x, edge_index), as_given(x, edge_index))


def test_the_split_config_makes_its_split(sparse_graph):
    config = make_config(settings={"train_per_class": 5, "num_val": 30, "num_test": 60}).split
    split = config.make(sparse_graph, 0)
    assert (len(split.train), len(split.val), len(split.test)) == (15, 30, 60)
    ratio = make_config(settings={"split": "ratio", "train_ratio": 0.5, "val_ratio": 0.1}).split.make(sparse_graph, 4)
    assert abs(len(ratio.train) - 150) <= 2
    assert abs(len(ratio.val) - 30) <= 3
    assert split.train.tolist() != config.make(sparse_graph, 1).train.tolist()


def test_every_preset_of_the_package_is_offered():
    files = {path.name.removesuffix(".toml") for path in (resources.files("nfcgcn.config") / "presets").iterdir()}
    assert files == set(PRESETS)


def test_an_infinite_count_is_refused():
    with pytest.raises(ConfigError, match=r"^`epochs` must be a whole number, got 'inf'$"):
        make_config(settings={"epochs": float("inf")})


@pytest.mark.parametrize("model", MODELS)
def test_a_config_for_a_graph_with_few_features(model, four_nodes):
    config = make_config(model, graph=four_nodes)
    config.build(four_nodes, 0)
    if model.startswith("nfc-gcn"):
        assert (config.values["kernel_size"], config.values["stride"]) == (5, 5)
        given = make_config(model, graph=four_nodes, settings={"kernel_size": 3, "stride": "2"}).values
        assert (given["kernel_size"], given["stride"]) == (3, 2)


def test_a_config_for_a_graph_keeps_presets(dense_graph):
    assert make_config(graph=dense_graph, dataset="digits") == make_config(dataset="digits")
    assert make_config(graph=dense_graph, dataset="cora") == make_config(dataset="cora")


def test_a_preset_from_a_file(tmp_path, dense_graph):
    path = tmp_path / "mine.toml"
    path.write_text('[gcn]\nhidden_channels = 5\npatience = "none"\nsplit = "ratio"\n[nfc-gcn]\nkernel_size = 7\n')
    config = make_config("gcn", dataset="cora", preset=str(path), settings={"epochs": 3})
    assert config == replace(
        make_config("gcn", settings={"hidden_channels": 5, "split": "ratio", "epochs": 3}), preset=str(path)
    )
    assert make_config("gcn", preset=str(path), settings={"hidden_channels": "6"}).values["hidden_channels"] == 6
    assert make_config(graph=dense_graph, preset=str(path)).values["kernel_size"] == 7


FILES = {
    "[gat]\n": "{} has no settings for model 'gcn'; it covers gat",
    "": "{} has no settings for model 'gcn'; it covers no known model",
    '["\\u001b[31m"]\n': "{} has no settings for model 'gcn'; it covers no known model",
    "[gcn]\nhiden_channels = 5": "{}: unknown setting 'hiden_channels'; did you mean 'hidden_channels'?",
    "[gcn]\nhidden_channels = 5.5": "{}: `hidden_channels` must be a whole number, got '5.5'",
    "[gcn]\nhidden_channels = true": "{}: `hidden_channels` must be a whole number, got 'True'",
    "[gcn]\nhidden_channels = [1]": "{}: `hidden_channels` must be a whole number, got '[1]'",
    "[gcn]\ndropout = 1979-05-27": "{}: `dropout` must be a number, got '1979-05-27'",
    "[gcn]\nsplit = {a = 1}": "{}: `split` must be fastgcn | planetoid | per-class | ratio | given, got '{{'a': 1}}'",
    "[gcn]\nepochs = 0": "{}: `epochs` must be at least 1, got 0",
    "[gcn]\nlearning_rate = inf": "{}: `learning_rate` must be above 0, got inf",
    '[gcn]\nmonitor = "\\u001b[31m\\n"': "{}: `monitor` must be accuracy | loss | macro-f1 | "
    "balanced-accuracy | roc-auc | log-loss | calibration-error, got '?[31m'",
}


@pytest.mark.parametrize("content", FILES)
def test_bad_preset_files(content, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message(FILES[content].format(path))):
        make_config("gcn", preset=str(path))
