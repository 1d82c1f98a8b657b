"""`nfcgcn recommend`: learn who liked what, suggest items, compare recommenders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer

from nfcgcn import files
from nfcgcn.cli.console import (
    MOST_SEED,
    MOST_SEEDS,
    Application,
    Lines,
    app,
    err,
    interruptible,
    make_table,
    out,
    this_command,
    warn_of_formulas,
)
from nfcgcn.cli.interaction_source import LogSource
from nfcgcn.cli.recommend_page import write_recommendation_page
from nfcgcn.cli.sources import takes_options
from nfcgcn.errors import ConfigError
from nfcgcn.recommendation.evaluation import MEASURES, check_models, evaluate_recommenders, summarise_rows
from nfcgcn.recommendation.interactions import Interactions, read_interactions
from nfcgcn.recommendation.outcome import judge, with_everything
from nfcgcn.recommendation.recommender import Recommender, fit_recommender
from nfcgcn.recommendation.run_folder import load_reading, load_recommender, save_recommender
from nfcgcn.recommendation.settings import make_settings
from nfcgcn.recommendation.splits import RULES, Rule, split_log
from nfcgcn.recommendation.training import Epoch
from nfcgcn.settings import read_assignments, settings_of
from nfcgcn.training import choose_device

recommend = Application(
    help="Learn who liked what, suggest items to users, compare recommenders.", no_args_is_help=True
)
app.add_typer(recommend, name="recommend")
SUFFIXES = (".csv", ".parquet")


Model = Annotated[str, typer.Option(help="nfc-gcn, lightgcn, mf, or another encoder of `nfcgcn models`.")]
Split = Annotated[str, typer.Option(help="; ".join(f"{name}: {meaning}" for name, meaning in RULES.items()) + ".")]
Share = Annotated[
    float | None, typer.Option("--test", help="Share to hold out; by default 0.25, or 0.1 of the items for cold-items.")
]
Top = Annotated[int, typer.Option(min=1, max=1000, help="Length of the lists.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting of the recommender or the encoder.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


@recommend.command("train")
@takes_options(LogSource)
def train_recommender(
    source: LogSource,
    model: Model = "nfc-gcn",
    split: Split = "random",
    share: Share = None,
    top: Top = 10,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED)] = 0,
    assignments: Settings = None,
    device: Device = "auto",
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder to write; by default a new one in runs/.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in the --out folder.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")] = None,
) -> None:
    """Train a recommender, score it on held-out interactions, and write a folder with a report.

    The folder then suggests items with `nfcgcn recommend for`. It holds the interactions of all users.
    """
    settings = make_settings(model, read_assignments(assignments or []))
    chosen = choose_device(device)
    name = source.dataset or (source.interactions.stem if source.interactions else "log")
    folder = out_dir or Path("runs") / f"{name}-recommend-{model}-{datetime.now():%Y%m%d-%H%M%S}"
    files.check_free(folder, force=force)
    if json_file:
        files.check_writable(json_file, source.inputs(), outside=folder)
    log, reading = source.load()
    parts = split_log(log, cast(Rule, split), share=share, seed=seed)
    with interruptible() as interruption:
        with _progress() as on_epoch:
            fitted = fit_recommender(parts.train, settings=settings, seed=seed, device=chosen, on_epoch=on_epoch)
        interruption.hold()
        result = judge(fitted, parts, split=split, top=top, device=chosen, command=this_command())
        with files.new_folder(folder, force=force) as draft:
            save_recommender(draft, with_everything(fitted, parts), result, reading)
        if json_file:
            files.write_text(json_file, files.to_json(result))
        _print_scores({model: result["test_scores"], **result["baselines"]}, top)
        write_recommendation_page(folder)
        if fitted.interrupted:
            err.print("interrupted: the best state so far was kept and scored")
            raise typer.Exit(interruption.exit_code)


@recommend.command("for")
def recommend_for(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `nfcgcn recommend train` wrote.")],
    user: Annotated[str | None, typer.Option(metavar="ID", help="The user.")] = None,
    everybody: Annotated[bool, typer.Option("--all", help="All users; needs --out.")] = False,
    top: Top = 10,
    why: Annotated[
        bool, typer.Option("--why", help="Also say which past items and features led to each item.")
    ] = False,
    add_interactions: Annotated[
        Path | None,
        typer.Option(help="Further interactions, also of new users and items, with the columns of training."),
    ] = None,
    add_users: Annotated[Path | None, typer.Option(help="Table of new users.")] = None,
    add_items: Annotated[Path | None, typer.Option(help="Table of new items.")] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write the list to this .csv or .parquet file.")
    ] = None,
) -> None:
    """Suggest items to a user, or to all users; items of the user's interactions are left out."""
    if (user is None) != everybody:
        raise ConfigError("name a user with --user ID, or give --all with --out FILE")
    if everybody and out_file is None:
        raise ConfigError("--all needs --out, the .csv or .parquet file to write")
    if out_file is not None:
        if out_file.suffix.lower() not in SUFFIXES:
            raise ConfigError(f"--out must end in .csv or .parquet, got '{out_file.name}'")
        files.check_writable(out_file, filter(None, (add_interactions, add_users, add_items)))
    recommender = load_recommender(run)
    if add_interactions or add_users or add_items:
        added = {"interactions": add_interactions, "users": add_users, "items": add_items}
        recommender = _extended(recommender, load_reading(run), added)
    if user is None:
        _write_all(recommender, top, out_file or Path())
        return
    suggestions = recommender.recommend(user, top=top)
    table = make_table(">rank", "item", ">score")
    for rank, (item, score) in enumerate(suggestions, 1):
        table.add_row(str(rank), item, f"{score:.3f}")
    out.print(f"for user {user}", style="bold", soft_wrap=True)
    out.print(table)
    if out_file is not None:
        _write(out_file, [(user, rank, *s) for rank, s in enumerate(suggestions, 1)])
    for item, _ in suggestions if why else ():
        _print_why(recommender, user, item)


@recommend.command("evaluate")
@takes_options(LogSource)
def evaluate(
    source: LogSource,
    models: Annotated[
        str,
        typer.Option(
            help="Comma-separated: popularity, item-cosine, als, bpr, lightgcn, mf, nfc-gcn, ...; "
            "NAME+features also reads the columns of users and items."
        ),
    ] = "popularity,item-cosine,lightgcn,nfc-gcn",
    split: Split = "random",
    share: Share = None,
    top: Top = 10,
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Number of splits, each with its own seed.")] = 1,
    first_seed: Annotated[int, typer.Option("--seed", min=0, max=MOST_SEED, help="Seed of the first split.")] = 0,
    assignments: Settings = None,
    device: Device = "auto",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the results here, after every row.")
    ] = None,
) -> None:
    """Compare recommenders on the same splits: NDCG, recall, precision and coverage of their lists."""
    from nfcgcn.evaluation import environment

    wanted = [name.strip() for name in models.split(",") if name.strip()]
    check_models(wanted)
    chosen, settings = choose_device(device), read_assignments(assignments or [])
    if json_file:
        files.check_writable(json_file, source.inputs())
    log, _ = source.load()
    rows: list[dict[str, Any]] = []

    def on_row(row: dict[str, Any]) -> None:
        rows.append(row)
        shown = f", {row['shown']} interactions of new items shown" if "shown" in row else ""
        scores = ", ".join(f"{name} {row[name]:.4f}" for name in MEASURES)
        err.print(
            f"seed {row['seed']}, {row['model']}{shown}: {scores}; {row['cpu_seconds']:.0f} s of CPU", soft_wrap=True
        )
        if json_file:
            facts = {"top": top, **environment(chosen), "command": this_command()}
            files.write_text(json_file, files.to_json({**facts, "summary": summarise_rows(rows), "rows": rows}))

    seed_list = range(first_seed, first_seed + seeds)
    evaluate_recommenders(
        log,
        wanted,
        split=cast(Rule, split),
        share=share,
        seeds=seed_list,
        top=top,
        settings=settings,
        device=chosen,
        on_row=on_row,
    )
    _print_summary(summarise_rows(rows), top)


@recommend.command("settings")
def list_settings(model: Model = "nfc-gcn") -> None:
    """List the settings that `--set KEY=VALUE` accepts for an encoder, with the values it has here."""
    settings = make_settings(model)
    table = make_table("setting", "meaning", "takes", "value")
    table.columns[0].no_wrap = True  # so that names can be copied
    for part in (settings.training, settings.encoder):
        for s in settings_of(type(part)).values():
            value = getattr(part, s.name)
            table.add_row(s.name, s.meaning, s.type_name, "none" if value is None else f"{value}")
    out.print(table)


@contextmanager
def _progress() -> Iterator[Callable[[Epoch], None]]:
    """Show how far training is, on stderr: in a terminal at once, elsewhere a line now and then."""
    lines = Lines()

    def describe(epoch: Epoch) -> str:
        score = f", validation NDCG {epoch['val_ndcg']:.4f}" if "val_ndcg" in epoch else ""
        return f"epoch {epoch['epoch']}: loss {epoch['train_loss']:.3f}{score}"

    if not err.is_terminal:
        yield lambda epoch: lines.show(lambda: describe(epoch))
        return
    with err.status("training") as status:
        yield lambda epoch: status.update(describe(epoch))


def _extended(recommender: Recommender, reading: Mapping[str, Any], added: Mapping[str, Any]) -> Recommender:
    """Return the recommender with further users, items and interactions, read as those of training were."""
    more = read_interactions(**added, **reading, known=recommender.log)
    pairs = np.unique(np.concatenate([recommender.log.pairs, more.pairs], axis=1), axis=1)
    return recommender.with_log(Interactions(more.users, more.items, pairs))


def _print_why(recommender: Recommender, user: str, item: str) -> None:
    reasons = recommender.explain(user, item)
    out.print(f"why {item}: score {reasons.score:.3f}", style="bold", soft_wrap=True)
    for title, some in (("past items", reasons.past_items), ("features", reasons.features)):
        if some:
            listed = ", ".join(f"{reason.name} {reason.contribution:+.3f}" for reason in some[:5])
            out.print(f"  {title}: {listed}", soft_wrap=True)
    parts = ", ".join(f"{name} {added:+.3f}" for name, added in reasons.parts)
    out.print(f"  together: {parts}; unexplained {reasons.error:+.1g}", soft_wrap=True)


def _write_all(recommender: Recommender, top: int, path: Path) -> None:
    rows: list[tuple[str, int, str, float]] = []
    names, lines = recommender.log.items.names, Lines()
    for users, lists, scores in recommender.blocks(top=top):
        for user, items, values in zip(users.tolist(), lists.tolist(), scores.tolist(), strict=True):
            name = recommender.log.users.names[user]
            pairs = zip(items, values, strict=True)
            rows += [(name, rank, names[item], score) for rank, (item, score) in enumerate(pairs, 1) if item >= 0]
        lines.show(f"{users[-1] + 1} of {len(recommender.log.users)} users")
    _write(path, rows)


def _write(path: Path, rows: Sequence[tuple[str, int, str, float]]) -> None:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=["user", "rank", "item", "score"])
    with files.draft_of(path) as draft:
        if path.suffix.lower() == ".parquet":
            try:
                frame.to_parquet(draft, index=False)
            except ImportError as error:
                raise ConfigError(
                    "Parquet files need pyarrow: `pip install nfcgcn[parquet]`, or name a .csv"
                ) from error
        else:
            frame.to_csv(draft, index=False)
            warn_of_formulas(str(cell) for row in rows for cell in (row[0], row[2]))
    out.print(f"written: {path}", soft_wrap=True)


def _print_scores(models: Mapping[str, Any], top: int) -> None:
    table = make_table("model", *(f">{name}@{top}" if name != "coverage" else ">coverage" for name in MEASURES))
    for name, scores in models.items():
        table.add_row(name, *(f"{scores[measure]:.4f}" for measure in MEASURES))
    out.print(table)


def _print_summary(lines: Sequence[Mapping[str, Any]], top: int) -> None:
    with_shown = any("shown" in line for line in lines)
    columns = [f">{name}@{top}" if name != "coverage" else ">coverage" for name in MEASURES]
    compared = any(line["ndcg_against_first"] for line in lines)
    more = [f">ndcg less {lines[0]['model']}"] if compared else []
    table = make_table("model", *([">shown"] if with_shown else []), *columns, *more, ">CPU s")
    for line in lines:
        cells = []
        for name in MEASURES:
            spread = "" if line[name]["std"] is None else f" ± {line[name]['std']:.4f}"
            cells.append(f"{line[name]['mean']:.4f}{spread}")
        shown = [str(line["shown"])] if with_shown else []
        difference = line["ndcg_against_first"]
        interval = f"{difference['low']:+.4f} to {difference['high']:+.4f}" if difference else ""
        table.add_row(line["model"], *shown, *cells, *([interval] if compared else []), f"{line['cpu_seconds']:.0f}")
    out.print(table)
