"""The options of every command that reads a log of interactions: MovieLens, or tables of the user's own."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from nfcgcn.cli.console import err
from nfcgcn.data import movielens
from nfcgcn.errors import ConfigError, unknown
from nfcgcn.recommendation.interactions import Interactions, read_interactions
from nfcgcn.recommendation.run_folder import READING


@dataclass(frozen=True)
class LogSource:
    """The options that choose a log; each field is an option of the commands that read one."""

    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help="movielens, instead of tables of your own.")
    ] = None
    interactions: Annotated[
        Path | None, typer.Option(help="Table with one row per interaction, .csv, .tsv or .parquet.")
    ] = None
    user: Annotated[str | None, typer.Option(help="Column with the users' identifiers; by default user.")] = None
    item: Annotated[str | None, typer.Option(help="Column with the items' identifiers; by default item.")] = None
    rating: Annotated[str | None, typer.Option(help="Column with ratings; needs --at-least.")] = None
    at_least: Annotated[float | None, typer.Option(help="Rows with a lower rating are left out.")] = None
    time: Annotated[str | None, typer.Option(help="Column that says when, as numbers or dates.")] = None
    users: Annotated[Path | None, typer.Option(help="Table with one row per user; its columns become features.")] = None
    items: Annotated[Path | None, typer.Option(help="Table with one row per item; its columns become features.")] = None
    user_id: Annotated[str | None, typer.Option(help="Column of --users with identifiers; by default as --user.")] = (
        None
    )
    item_id: Annotated[str | None, typer.Option(help="Column of --items with identifiers; by default as --item.")] = (
        None
    )
    text: Annotated[list[str] | None, typer.Option(help="Column to read as text; may be repeated.")] = None
    words: Annotated[list[str] | None, typer.Option(help="Column to read as lists of words; may be repeated.")] = None
    ignore: Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.")] = None
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the files of MovieLens-100K.")] = None
    download: Annotated[bool, typer.Option("--download", help="Fetch MovieLens-100K if it is not there.")] = False

    def inputs(self) -> list[Path]:
        """Return the tables of the user's own that are read. No output may be one."""
        return [path for path in (self.interactions, self.users, self.items) if path is not None]

    def load(self) -> tuple[Interactions, dict[str, Any]]:
        """Read the log; also return how it was read, for the run's folder."""
        if (self.dataset is None) == (self.interactions is None):
            raise ConfigError("give either a table of your own with --interactions, or the dataset movielens")
        options = {name: value for name, value in asdict(self).items() if name in READING and value is not None}
        tables: dict[str, Any] = {"interactions": self.interactions, "users": self.users, "items": self.items}
        roles: dict[str, Any] = {name: getattr(self, name) or () for name in ("text", "words", "ignore")}
        if self.dataset is not None:
            if self.dataset != movielens.NAME:
                raise ConfigError(unknown("dataset of interactions", self.dataset, [movielens.NAME]))
            if self.users or self.items:
                raise ConfigError("movielens has its own tables of users and items; leave out --users and --items")
            tables = movielens.read_tables(self.data_dir, download=self.download)
            rating = {} if self.at_least is None else {"rating": "rating"}
            roles, options = dict(movielens.ROLES), {**movielens.COLUMNS, **rating, **options}
        options = {"user": "user", "item": "item", **options}
        with err.status("reading interactions"):
            log = read_interactions(**tables, **options, **roles)
        counts = f"{len(log.users.feature_names)} of users, {len(log.items.feature_names)} of items"
        err.print(f"{log}, features: {counts}", soft_wrap=True)
        return log, options
