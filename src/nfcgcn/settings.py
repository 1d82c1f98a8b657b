"""Settings: each declared once, as a field of a frozen dataclass with its type, default, bounds and meaning.

Constructors, the command line, TOML files, the estimator and the listings all read these declarations.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from nfcgcn.errors import ConfigError, unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
MOST = 2**53
"""Largest magnitude of a whole number: beyond it numbers of many programs are no longer exact."""
MOST_LAYERS = 1000
"""Most layers of a model."""
MOST_SLOTS = 10_000
"""Most neighbours that a model draws for a node."""
MOST_EPOCHS = 1_000_000
"""Most epochs of a training; the figures of each are kept."""
MOST_CHANNELS = 2**16
"""Most numbers in the vector of a node, a user or an item where it is what a model is asked for."""
MOST_BYTES = 64 * 1024
"""Largest file of settings that is read."""


def setting(
    default: T,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> T:
    """Declare a setting: its default, one line on its meaning, and its bounds (`low` and `high` inclusive)."""
    bounds = {"at least": low, "above": above, "at most": high, "below": below}
    return field(default=default, metadata={"meaning": meaning, "bounds": bounds})


def depth(default: int, meaning: str, *, low: int = 1) -> int:
    """Declare a number of layers: every one is built, so that more than any model is good for take minutes."""
    return setting(default, meaning, low=low, high=MOST_LAYERS)


def rate(default: float, meaning: str) -> float:
    """Declare a dropout rate: at least 0 and below 1."""
    return setting(default, meaning, low=0, below=1)


@dataclass(frozen=True)
class Setting:
    """One field of a config class."""

    name: str
    type: Any
    default: Any
    meaning: str
    bounds: Mapping[str, float | None]

    @property
    def type_name(self) -> str:
        """The type in words: ``a whole number``, ``1d | 2d``, ``a number or none``."""
        return _type_name(self.type)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a choice; empty for any other type."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    def check(self, value: Any) -> None:
        """Raise an error for a value that is not a choice or is out of bounds."""
        if self.choices and value not in self.choices:
            raise ConfigError(unknown(self.name, one_line(value), self.choices))
        if isinstance(value, int) and abs(value) > MOST:
            raise ConfigError(f"`{self.name}` must be at most {MOST:,}, got a larger number")
        bounds = {rule: bound for rule, bound in self.bounds.items() if bound is not None}
        if value is None or all(_keeps(value, rule, bound) for rule, bound in bounds.items()):
            return
        # A highest value is there for what cannot be meant: it is named to whoever exceeds it alone.
        named = {r: b for r, b in bounds.items() if r != "at most" or not _keeps(value, r, b)}
        rules = " and ".join(f"{rule} {bound:,}" for rule, bound in named.items())
        optional = " or none" if types.NoneType in get_args(self.type) else ""
        raise ConfigError(f"`{self.name}` must be {rules}{optional}, got {value}")


def _keeps(value: float, rule: str, bound: float) -> bool:
    if not math.isfinite(value):
        return False
    return {"at least": value >= bound, "above": value > bound, "at most": value <= bound, "below": value < bound}[rule]


@dataclass(frozen=True)
class Settings:
    """Base of all config classes: checks every value when a config is made."""

    def __post_init__(self) -> None:
        for name, s in settings_of(type(self)).items():
            s.check(getattr(self, name))


_declared: dict[type, dict[str, Setting]] = {}


def settings_of(config_class: type) -> dict[str, Setting]:
    """List the settings of a config class by name."""
    if config_class not in _declared:  # reading the types is slow, and every new config needs them
        hints = get_type_hints(config_class)
        _declared[config_class] = {
            f.name: Setting(
                f.name,
                hints[f.name],
                None if f.default is MISSING else f.default,
                f.metadata["meaning"],
                f.metadata["bounds"],
            )
            for f in fields(config_class)
        }
    return dict(_declared[config_class])


def takes(config_class: type, *, positional: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Any]:
    """Let a constructor ``__init__(self, ..., config)`` be called with the settings of `config_class` by name.

    Those named in `positional` may also be positional arguments. ``config=`` passes all settings at once.
    """

    def decorate(init: Callable[..., None]) -> Any:
        own = [p for p in inspect.signature(init).parameters.values() if p.name != "config"]
        known = settings_of(config_class)
        signature = _joined_signature(own, known, positional)

        @wraps(init)
        def construct(self: Any, *args: Any, config: Any = None, **values: Any) -> None:
            if config is not None:
                init(self, *args, config=config, **values)
                return
            bound = signature.bind(self, *args, **values)
            bound.apply_defaults()
            given = {name: value for name, value in bound.arguments.items() if name in known}
            others = {name: value for name, value in bound.arguments.items() if name not in known and name != "self"}
            init(self, **others, config=config_class(**given))

        construct.__signature__, construct.config_class = signature, config_class  # type: ignore[attr-defined]
        return construct

    return decorate


def _joined_signature(
    own: list[inspect.Parameter], known: Mapping[str, Setting], positional: tuple[str, ...]
) -> inspect.Signature:
    """Return ``(self, in_channels, *positional, out_channels, *, settings, other keywords)``."""
    by_place = [p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
    by_name = [p for p in own if p.kind is p.KEYWORD_ONLY]
    required = len(by_place) > 2  # the number of outputs follows, so those before it can have no default
    middle = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if required else known[name].default,
            annotation=known[name].type,
        )
        for name in positional
    ]
    rest = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=s.default, annotation=s.type)
        for name, s in known.items()
        if name not in positional
    ]
    return inspect.Signature([*by_place[:2], *middle, *by_place[2:], *rest, *by_name])


def read_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Read ``key=value`` texts; if a key repeats, the last value wins."""
    values = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"`--set` takes key=value, got '{text}'")
        values[key.strip()] = value.strip()
    return values


def read_number(name: str, text: str) -> int | float:
    """Read a text as a whole number if it is one, else as any number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ConfigError(f"`{name}` must be a number, got '{one_line(text)}'")


def read_settings(path: Path) -> dict[str, dict[str, Any]]:
    """Read a TOML file of settings, one table per model, without checking the values."""
    if not path.is_file():
        raise ConfigError(f"{path} is not a file; give the path of a preset that `nfcgcn tune` wrote")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path} is too large for a preset: at most {MOST_BYTES // 1024} KiB are read")
    try:
        tables: dict[str, Any] = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {one_line(error)}") from error
    stray = next((key for key, table in tables.items() if not isinstance(table, dict)), None)
    if stray is not None:
        raise ConfigError(
            f"{path}: '{one_line(stray)}' is not in a table; put it below a line with the model's name, as in [nfc-gcn]"
        )
    return tables


def one_line(text: object) -> str:
    """Return untrusted text as one short line that is safe to print in a terminal."""
    try:
        line = " ".join(str(text).split())[:200]
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        line = f"a {type(text).__name__} that is too large to show"
    return "".join(c if c.isprintable() else "?" for c in line)


def write_settings(model: str, values: Mapping[str, Any]) -> str:
    """Return a TOML table of settings, as `read_settings` reads it."""
    # TOML has no null; the text "none" is read as None if the setting may be None.
    lines = [f"{name} = {json.dumps('none' if value is None else value)}" for name, value in values.items()]
    return "\n".join([f"[{model}]", *lines, ""])


def build_configs(classes: Iterable[type], values: Mapping[str, Any]) -> list[Any]:
    """Make one config per class from a flat mapping of settings; texts are converted to the field's type.

    Of two classes with a setting of one name, such as the `negatives` of DeepWalk and of link prediction, the last one
    gets the value. All that is wrong is reported in one message.
    """
    classes = list(classes)
    known = {name: s for c in classes for name, s in settings_of(c).items()}
    typed, problems = {}, []
    for key, value in values.items():
        try:
            if key not in known:
                raise ConfigError(unknown("setting", key, known))
            typed[key] = _read(known[key], value)
            known[key].check(typed[key])
        except ConfigError as error:
            problems += error.args
    if problems:
        raise ConfigError(*problems)
    return [
        c(**{name: typed[name] for name, s in settings_of(c).items() if name in typed and known[name] is s})
        for c in classes
    ]


def _read(s: Setting, value: Any) -> Any:
    options = get_args(s.type) if get_origin(s.type) in (Union, types.UnionType) else (s.type,)
    for option in options:
        fits, result = _read_as(option, value)
        if fits:
            return result
    raise ConfigError(f"`{s.name}` must be {s.type_name}, got '{one_line(value)}'")


def _read_as(option: Any, value: Any) -> tuple[bool, Any]:
    if get_origin(option) is Literal:
        return value in get_args(option), value
    if option is types.NoneType:
        return value is None or value == "none", None
    if hasattr(option, "meaning"):  # a type of its own, whose constructor reads and checks the value
        try:
            return True, option(value)
        except ValueError:
            return False, None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False, None
    try:
        if option is int:
            return not isinstance(value, float), int(value)
        return True, option(value)
    except (ValueError, OverflowError):
        return False, None


def _type_name(option: Any) -> str:
    if get_origin(option) in (Union, types.UnionType):
        return " or ".join(_type_name(o) for o in get_args(option))
    if get_origin(option) is Literal:
        return " | ".join(get_args(option))
    known = {int: "a whole number", float: "a number", types.NoneType: "none"}
    return known.get(option) or str(getattr(option, "meaning", option))
