"""`nfcgcn datasets`, `models` and `settings`: lists to choose from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nfcgcn import data as datasets
from nfcgcn.cli.console import among, app, make_table, out
from nfcgcn.config.registry import MODELS, PRESETS, SplitConfig, preset_tables
from nfcgcn.errors import ConfigError, unknown
from nfcgcn.settings import settings_of
from nfcgcn.training import TrainingConfig


@app.command("datasets")
def list_datasets(
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the Planetoid files.")] = None,
) -> None:
    """List the datasets: sizes, sources, and where they are."""
    table = make_table("dataset", ">nodes", ">edges", ">features", ">classes", "at hand")
    for d in datasets.DATASETS.values():
        counts = (f"{c:,}" if isinstance(c, int) else c for c in (d.nodes, d.edges, d.features, d.classes))
        table.add_row(d.name, *counts, datasets.at_hand(d.name, data_dir))
    out.print(table)
    for d in datasets.DATASETS.values():
        options = f"; options {', '.join(d.options)}" if d.options else ""
        out.print(f"{d.name}: {d.summary} ({d.source}{options})", highlight=False)


@app.command("models")
def list_models() -> None:
    """List the models: what each is, where it was published, its settings with defaults, and its presets."""
    for name, entry in MODELS.items():
        parameters = {key: s.default for key, s in settings_of(entry.config).items()} | dict(entry.fixed)
        presets = [f"{p} ({', '.join(known)})" for p in PRESETS if (known := preset_tables(p, name))]
        out.print(f"[bold]{name}[/bold]  {entry.summary}", markup=True, soft_wrap=True)
        for line in (
            entry.paper,
            " ".join(f"{key}={value}" for key, value in parameters.items()),
            f"presets {', '.join(presets)}",
        ):
            out.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


@app.command("settings")
def list_settings(
    model: Annotated[str, typer.Option(help="A name from `nfcgcn models`.", autocompletion=among(MODELS))] = "nfc-gcn",
) -> None:
    """List the settings that `nfcgcn train --set KEY=VALUE` accepts for a model, with defaults."""
    if model not in MODELS:
        raise ConfigError(unknown("model", model, MODELS))
    table = make_table("setting", "meaning", "takes", "default")
    table.columns[0].no_wrap = True  # so that names can be copied
    for config_class in (MODELS[model].config, TrainingConfig, SplitConfig):
        for s in settings_of(config_class).values():
            default = MODELS[model].fixed.get(s.name, s.default)
            table.add_row(s.name, s.meaning, s.type_name, "none" if default is None else f"{default}")
    out.print(table)
