"""Check the options of a dataset."""

from __future__ import annotations

import math
from numbers import Integral, Real

from nfcgcn.errors import ConfigError
from nfcgcn.settings import MOST, one_line


def check_integer(name: str, value: object, *, low: int, high: int | None = None) -> int:
    """Return `value` as an int from ``low`` to ``high``, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ConfigError(f"`{name}` must be a whole number, got {one_line(repr(value))}")
    number = int(value)
    if abs(number) > MOST:
        raise ConfigError(f"`{name}` must be between {low} and {MOST if high is None else high:,}, got a larger number")
    if number < low or (high is not None and number > high):
        rule = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ConfigError(f"`{name}` must be {rule}, got {number}")
    return number


def check_number(name: str, value: object, *, low: float, high: float) -> float:
    """Return `value` as a float from ``low`` to ``high``, or refuse it; NaN is refused too."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"`{name}` must be a number, got {one_line(repr(value))}")
    number = math.inf if abs(value) > MOST else float(value)  # type: ignore[operator]
    if not low <= number <= high:
        raise ConfigError(f"`{name}` must be between {low:g} and {high:g}, got {number:g}")
    return number
