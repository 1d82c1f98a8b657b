"""Settings: frozen dataclasses whose fields say what they mean, and text that is read into them by type."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from nfcgcn.errors import ConfigError, unknown

T = TypeVar("T")


def setting(default: T, meaning: str) -> T:
    """Declare a dataclass field with its default and one line on what it means."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Setting:
    """One field of a config class."""

    name: str
    type: Any
    default: Any
    meaning: str

    @property
    def type_name(self) -> str:
        """The type as a user reads it: ``a whole number``, ``1d | 2d``, ``a number or none``."""
        return _type_name(self.type)


def settings_of(config_class: type) -> dict[str, Setting]:
    """List the settings of a config class by name."""
    hints = get_type_hints(config_class)
    return {
        f.name: Setting(f.name, hints[f.name], None if f.default is MISSING else f.default, f.metadata["meaning"])
        for f in fields(config_class)
    }


def read_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Read ``key=value`` texts, the later ones winning."""
    values = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"`--set` takes key=value, got '{text}'")
        values[key.strip()] = value.strip()
    return values


def read_number(name: str, text: str) -> int | float:
    """Read a whole number or, failing that, any number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ConfigError(f"`{name}` must be a number, got '{text}'")


def build_configs(classes: Iterable[type], values: Mapping[str, Any]) -> list[Any]:
    """Make one config of each class from a flat mapping of settings; texts are read as the field's type."""
    classes = list(classes)
    known = {name: s for c in classes for name, s in settings_of(c).items()}
    for key in values:
        if key not in known:
            raise ConfigError(unknown("setting", key, known))
    typed = {key: _read(known[key], value) for key, value in values.items()}
    return [c(**{name: typed[name] for name in settings_of(c) if name in typed}) for c in classes]


def _read(s: Setting, value: Any) -> Any:
    options = get_args(s.type) if get_origin(s.type) in (Union, types.UnionType) else (s.type,)
    for option in options:
        found, result = _read_as(option, value)
        if found:
            return result
    raise ConfigError(f"`{s.name}` must be {s.type_name}, got '{value}'")


def _read_as(option: Any, value: Any) -> tuple[bool, Any]:
    if get_origin(option) is Literal:
        return value in get_args(option), value
    if option is types.NoneType:
        return value is None or value == "none", None
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
    return {int: "a whole number", float: "a number", types.NoneType: "none"}.get(option, str(option))
