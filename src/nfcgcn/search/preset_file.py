"""The preset file that a search ends with."""

from __future__ import annotations

from pathlib import Path

from nfcgcn.config.registry import MODELS
from nfcgcn.files import write_text
from nfcgcn.search.journal import TuningError
from nfcgcn.search.tuning import Tuned
from nfcgcn.settings import write_settings

SIGNATURE = "# Found by `nfcgcn tune`"
"""The first words of a preset file that may be overwritten."""


def write_preset(path: Path, tuned: Tuned, *, graph: str) -> None:
    """Write the best trial's settings as a preset file, with its validation accuracy in a comment."""
    start, best = tuned.start, tuned.best
    before = "not yet known" if start is None else "none, because training failed"
    if tuned.before is not None:
        before = f"{100 * tuned.before:.2f} %"
    tried = len(tuned.trials)
    comments = (
        f"{SIGNATURE} for {graph!a}, by accuracy on validation nodes; test nodes were not used.",
        f"# {100 * best.accuracy:.2f} % on validation (with the starting settings: {before}); the best of {tried} "
        f"trial{'s' if tried > 1 else ''} in {tuned.seconds / 60:.1f} minutes, over {len(best.accuracies)} seeds.",
        "# Use: nfcgcn train GRAPH --preset THIS_FILE",
    )
    fixed = {"backend", *MODELS[tuned.config.name].fixed}
    values = {name: value for name, value in tuned.config.values.items() if name not in fixed}
    write_text(path, "\n".join([*comments, "", write_settings(tuned.config.name, values)]))


def check_preset_path(path: Path) -> None:
    """Raise an error for a file that is not a preset of ours, or whose name a preset cannot have."""
    if path.suffix != ".toml":
        raise TuningError(f"a preset's name must end in .toml, got {path}; choose another with --out")
    check_ours(path, SIGNATURE, option="--out")


def check_ours(path: Path, signature: str, *, option: str) -> None:
    """Raise an error for a file that exists and does not have the `signature` of `nfcgcn tune` at its beginning."""
    try:
        with path.open("rb") as file:
            ours = signature.encode() in file.read(1000)
    except (IsADirectoryError, PermissionError):
        ours = False
    except OSError:  # it is not there, or cannot be: `check_writable` says why
        return
    if not ours:
        raise TuningError(f"{path} exists and was not written by `nfcgcn tune`; choose another file with {option}")
