"""The paper's tables and figures as data: a TOML file each, and the runs it asks for."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, get_args

from nfcgcn.config.registry import Config, make_config
from nfcgcn.data import DATASETS
from nfcgcn.errors import ConfigError, unknown
from nfcgcn.settings import one_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
"""In the order in which a page shows them."""
Kind = Literal["train", "cost", "degrees"]
Show = Literal["table", "lines", "curves", "convergence", "cost", "degrees"]


@dataclass(frozen=True)
class Axis:
    """One setting that every row is tried at several values of."""

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
    """Only these; none: all of the experiment's."""
    per_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    """What the paper prints for a dataset, in %, or a list of it along the axis."""
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """One table or figure."""

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    datasets: tuple[str, ...]
    source: str = ""
    """Its place in the paper."""
    kind: Kind = "train"
    show: Show = "table"
    history: bool = False
    """Whether every epoch's figures are kept."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    axis: Axis | None = None


@dataclass(frozen=True)
class Setup:
    """All that decides a run's figures but its seed and the machine."""

    kind: Kind
    dataset: str
    model: str
    values: Mapping[str, Any]
    """Every setting. Empty where nothing is trained."""

    @property
    def id(self) -> str:
        """A digest of it."""
        told = json.dumps([self.kind, self.dataset, self.model, self.values], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def config(self) -> Config:
        """Return the settings as training takes them."""
        return make_config(self.model, dataset=self.dataset, preset="default", settings=self.values)

    def __str__(self) -> str:
        return f"{self.model} on {self.dataset}"


@dataclass(frozen=True)
class Entry:
    """One cell of a table or one point of a figure."""

    row: str
    dataset: str
    x: Any
    """The axis's value; None without an axis."""
    paper: Any
    """What the paper prints for it, in % (for degrees: highest, lowest, mean, median); None where it prints nothing."""
    setup: Setup


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


def entries(experiment: Experiment) -> list[Entry]:
    """List the cells of the table, row by row, along the axis, over the datasets."""
    axis = experiment.axis
    found = []
    for row in experiment.rows:
        for place, x in enumerate(axis.values if axis else (None,)):
            for dataset in row.datasets or experiment.datasets:
                told = row.paper.get(dataset)
                if axis and told is not None:
                    told = told[place] if place < len(told) else None
                point = {} if axis is None else {axis.setting: x}
                settings = {**experiment.settings, **row.settings, **row.per_dataset.get(dataset, {}), **point}
                found.append(Entry(row.label, dataset, x, told, _setup(experiment.kind, row, dataset, settings)))
    return found


def _setup(kind: Kind, row: Row, dataset: str, settings: Mapping[str, Any]) -> Setup:
    if kind == "degrees":
        return Setup(kind, dataset, "", {})
    config = make_config(row.model, dataset=dataset, preset=row.preset, settings=settings)
    return Setup(kind, dataset, row.model, config.values)
