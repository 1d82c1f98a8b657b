"""GRAPH, as every command takes it: a dataset's name, or a graph of the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from nfcgcn import datasets
from nfcgcn.graph import Graph
from nfcgcn.settings import read_number


@dataclass(frozen=True)
class GraphSource:
    """The options that say which graph is meant; each field is an option of every command that takes a graph."""

    graph: Annotated[str | None, typer.Argument(metavar="GRAPH", help="A name from `nfcgcn datasets`.")] = None
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the Planetoid files.")] = None

    @property
    def name(self) -> str:
        """What the graph is called: the dataset's name."""
        return self.graph or "digits"

    @property
    def dataset(self) -> str | None:
        """The built-in dataset that is meant, whose presets apply; None for a user's own graph."""
        return self.name

    def take_options(self, settings: dict[str, str]) -> dict[str, int | float]:
        """Remove the dataset's own options from `settings` and return them, read."""
        known = datasets.describe(self.name).options
        return {key: read_number(key, settings.pop(key)) for key in known if key in settings}

    def load(self, options: Mapping[str, Any] | None = None) -> Graph:
        """Read the graph."""
        return datasets.load(self.name, data_dir=self.data_dir, **(options or {}))


def takes_graph(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `GraphSource` in place of its parameter ``source``."""
    hints = get_type_hints(command, include_extras=True)
    options = get_type_hints(GraphSource, include_extras=True)
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name != "source":
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=parameter.KEYWORD_ONLY))
            continue
        parameters += [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=options[f.name])
            for f in fields(GraphSource)
        ]

    def wrapped(**values: Any) -> None:
        source = GraphSource(**{f.name: values.pop(f.name) for f in fields(GraphSource)})
        command(source=source, **values)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped
