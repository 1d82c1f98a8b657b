"""The paper's tables and figures as data: one TOML file per table or figure, and the runs that it needs."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

from nfcgcn.baselines.lgcn import ADDITIONS as LGCN_ADDITIONS
from nfcgcn.baselines.lgcn import LGCNConfig
from nfcgcn.config.registry import Config, make_config
from nfcgcn.data import DATASETS
from nfcgcn.errors import ConfigError, unknown
from nfcgcn.method.additions import ADDITIONS
from nfcgcn.settings import one_line, settings_of
from nfcgcn.training.values import ADDITIONS as TRAINING_ADDITIONS
from nfcgcn.training.values import Stopping, TrainingConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LATER = {
    **ADDITIONS,
    **{name: settings_of(LGCNConfig)[name].default for name in LGCN_ADDITIONS},
    **{name: settings_of(TrainingConfig)[name].default for name in TRAINING_ADDITIONS},
}
"""The settings that came after the first runs, and their values when they are off."""
EXPERIMENTS = (
    "accuracy",
    "no-gcn",
    "bandwidth",
    "depth",
    "depth-planetoid",
    "curves",
    "convergence",
    "cost",
    "label-rate",
    "degrees",
)
"""In the order in which the page shows them."""
Kind = Literal["train", "cost", "degrees"]
Show = Literal["table", "lines", "curves", "convergence", "cost", "degrees"]


@dataclass(frozen=True)
class Axis:
    """The setting that varies along a figure's axis: every row is run once per value."""

    setting: str
    label: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """A row of a table, or a line of a figure."""

    label: str
    model: str = "nfc-gcn"
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    datasets: tuple[str, ...] = ()
    """Only these datasets; if empty, all of the experiment's."""
    per_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    """What the paper prints per dataset, in %: one number, or a list with one number per value of the axis."""
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """One table or figure."""

    name: str
    title: str
    about: str
    """What it shows. `{best_is}` in the file stands for how the best epoch is chosen, taken from the settings."""
    rows: tuple[Row, ...]
    datasets: tuple[str, ...]
    source: str = ""
    """Its place in the paper."""
    kind: Kind = "train"
    show: Show = "table"
    history: bool = False
    """Whether losses and accuracies are stored for every epoch."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    axis: Axis | None = None


@dataclass(frozen=True)
class Setup:
    """Everything that decides the result of a run, except its seed and the machine."""

    kind: Kind | Literal["selection"]
    dataset: str
    model: str
    values: Mapping[str, Any]
    """Every setting; empty if nothing is trained."""
    held: tuple[str, ...] = ()
    """In a choice of settings: those that may not change."""

    @property
    def id(self) -> str:
        """A digest of the setup: two setups share it only if they are equal."""
        held = [sorted(self.held)] if self.held else []
        # Settings that came later count only if they are in use, so that older runs keep their ids.
        values = {k: v for k, v in self.values.items() if k not in LATER or v != LATER[k]}
        content = json.dumps([self.kind, self.dataset, self.model, values, *held], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def config(self) -> Config:
        """Return the settings in the form that training needs."""
        return make_config(self.model, dataset=self.dataset, preset="default", settings=self.values)

    def __str__(self) -> str:
        return f"{self.model or self.kind} on {self.dataset}"


@dataclass(frozen=True)
class Entry:
    """One cell of a table or one point of a figure."""

    row: str
    dataset: str
    x: Any
    """The value on the axis; None without an axis."""
    paper: Any
    """What the paper prints, in % (for degrees: highest, lowest, mean, median); None if it prints nothing."""
    setup: Setup


@cache
def load_experiment(name: str) -> Experiment:
    """Read one of the package's experiments."""
    if name not in EXPERIMENTS:
        raise ConfigError(unknown("experiment", name, EXPERIMENTS))
    text = (resources.files("nfcgcn.reproduction") / "experiments" / f"{name}.toml").read_text(encoding="utf-8")
    return read_experiment(name, text)


def read_experiment(name: str, text: str) -> Experiment:
    """Read an experiment from TOML; every row's settings are checked."""
    try:
        values = tomllib.loads(text)
        axis = values.pop("axis", None)
        rows = tuple(Row(**{**row, "datasets": tuple(row.get("datasets", ()))}) for row in values.pop("rows"))
        experiment = Experiment(
            name=name,
            rows=rows,
            axis=None if axis is None else Axis(**{**axis, "values": tuple(axis["values"])}),
            **{**values, "datasets": tuple(values["datasets"])},
        )
        _check(experiment)
        experiment = replace(experiment, about=experiment.about.replace("{best_is}", _best_is(experiment)))
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"experiment '{name}': {one_line(reason)}") from error
    return experiment


def _check(experiment: Experiment) -> None:
    for name, options in (("kind", Kind), ("show", Show)):
        if getattr(experiment, name) not in get_args(options):
            raise ConfigError(unknown(name, getattr(experiment, name), get_args(options)))
    labels = [row.label for row in experiment.rows]
    if len(set(labels)) < len(labels):
        raise ConfigError("two rows have the same label")
    for row in experiment.rows:
        for dataset in {*experiment.datasets, *row.datasets, *row.per_dataset, *row.paper}:
            if dataset not in DATASETS:
                raise ConfigError(unknown("dataset", dataset, DATASETS))
    entries(experiment)


def _best_is(experiment: Experiment) -> str:
    """Say how the best epoch is chosen, by the settings of all rows."""
    monitors = dict.fromkeys(e.setup.values["monitor"] for e in entries(experiment) if "monitor" in e.setup.values)
    return " or ".join(Stopping(monitor).best_is for monitor in monitors)


def entries(experiment: Experiment) -> list[Entry]:
    """List the cells of the table: per row, per value of the axis, per dataset."""
    axis = experiment.axis
    cells = []
    for row in experiment.rows:
        for position, x in enumerate(axis.values if axis else (None,)):
            for dataset in row.datasets or experiment.datasets:
                printed = row.paper.get(dataset)
                if axis and printed is not None:
                    printed = printed[position] if position < len(printed) else None
                point = {} if axis is None else {axis.setting: x}
                settings = {**experiment.settings, **row.settings, **row.per_dataset.get(dataset, {}), **point}
                cells.append(Entry(row.label, dataset, x, printed, _setup(experiment.kind, row, dataset, settings)))
    return cells


def _setup(kind: Kind, row: Row, dataset: str, settings: Mapping[str, Any]) -> Setup:
    if kind == "degrees":
        return Setup(kind, dataset, "", {})
    config = make_config(row.model, dataset=dataset, preset=row.preset, settings=settings)
    return Setup(kind, dataset, row.model, config.values)
