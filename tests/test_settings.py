import inspect
import re
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfcgcn.errors import ConfigError
from nfcgcn.settings import (
    MOST_BYTES,
    Settings,
    build_configs,
    rate,
    read_assignments,
    read_number,
    read_settings,
    setting,
    settings_of,
    takes,
    write_settings,
)


def message(text):
    return f"^{re.escape(text)}$"


@dataclass(frozen=True)
class Engine:
    count: int = setting(2, "how many")
    share: float = setting(0.5, "how much")
    colour: Literal["red", "green"] = setting("red", "which")
    limit: int | None = setting(None, "at most")
    pressure: float | None = setting(1.5, "how hard")


@dataclass(frozen=True)
class Wheel:
    radius: float = setting(1.0, "how far")


GOOD = [
    ("count", 3, 3),
    ("count", "3", 3),
    ("count", "-3", -3),
    ("share", 0.25, 0.25),
    ("share", "0.25", 0.25),
    ("share", "1e-3", 0.001),
    ("share", 1, 1.0),
    ("share", "1", 1.0),
    ("colour", "green", "green"),
    ("limit", 4, 4),
    ("limit", "4", 4),
    ("limit", "none", None),
    ("limit", None, None),
    ("pressure", "2", 2.0),
    ("pressure", "none", None),
]


@pytest.mark.parametrize(("name", "value", "expected"), GOOD)
def test_values_are_read_by_type(name, value, expected):
    (engine,) = build_configs([Engine], {name: value})
    found = getattr(engine, name)
    assert found == expected
    assert type(found) is type(expected)


BAD = [
    ("count", "x", "`count` must be a whole number, got 'x'"),
    ("count", "1.5", "`count` must be a whole number, got '1.5'"),
    ("count", 1.5, "`count` must be a whole number, got '1.5'"),
    ("count", 2.0, "`count` must be a whole number, got '2.0'"),
    ("count", True, "`count` must be a whole number, got 'True'"),
    ("count", "none", "`count` must be a whole number, got 'none'"),
    ("count", None, "`count` must be a whole number, got 'None'"),
    ("count", "", "`count` must be a whole number, got ''"),
    ("share", "half", "`share` must be a number, got 'half'"),
    ("share", [0.5], "`share` must be a number, got '[0.5]'"),
    ("colour", "blue", "`colour` must be red | green, got 'blue'"),
    ("colour", "Red", "`colour` must be red | green, got 'Red'"),
    ("limit", "few", "`limit` must be a whole number or none, got 'few'"),
    ("pressure", "few", "`pressure` must be a number or none, got 'few'"),
]


@pytest.mark.parametrize(("name", "value", "text"), BAD)
def test_values_of_the_wrong_type(name, value, text):
    with pytest.raises(ConfigError, match=message(text)):
        build_configs([Engine], {name: value})


def test_each_class_takes_what_is_its_own():
    engine, wheel = build_configs([Engine, Wheel], {"radius": "2", "count": 7})
    assert (engine, wheel) == (Engine(count=7), Wheel(2.0))
    assert build_configs([Wheel], {}) == [Wheel()]


def test_unknown_settings_and_their_near_names():
    with pytest.raises(ConfigError, match=message("unknown setting 'radios'; did you mean 'radius'?")):
        build_configs([Engine, Wheel], {"radios": 1})
    text = "unknown setting 'zzz'; choose from colour, count, limit, pressure, radius, share"
    with pytest.raises(ConfigError, match=message(text)):
        build_configs([Engine, Wheel], {"zzz": 1})


def test_all_that_is_wrong_is_said_at_once():
    text = "2 problems: (1) unknown setting 'radios'; did you mean 'radius'? (2) `count` must be at least"
    with pytest.raises(ConfigError) as caught:
        build_configs([Engine, Wheel], {"radios": 1, "count": -99, "limit": "none"})
    assert str(caught.value).startswith(text)


def test_settings_say_what_they_are():
    found = settings_of(Engine)
    assert list(found) == ["count", "share", "colour", "limit", "pressure"]
    assert [s.type_name for s in found.values()] == [
        "a whole number", "a number", "red | green", "a whole number or none", "a number or none",
    ]  # fmt: skip
    assert [s.default for s in found.values()] == [2, 0.5, "red", None, 1.5]
    assert found["limit"].meaning == "at most"


@dataclass(frozen=True)
class Boiler(Settings):
    valves: int = setting(2, "how many", low=1)
    heat: float = setting(0.5, "how hot", above=0, high=100)
    loss: float = rate(0.25, "what is lost")
    fuel: Literal["coal", "wood"] = setting("coal", "what burns")
    limit: int | None = setting(None, "at most", low=1)


@pytest.mark.parametrize(
    "values",
    [{"valves": 1}, {"heat": 1e-9}, {"heat": 100}, {"loss": 0}, {"limit": 1}, {"limit": None}, {"fuel": "wood"}],
    ids=str,
)
def test_values_at_their_bounds(values):
    boiler = Boiler(**values)
    assert {name: getattr(boiler, name) for name in values} == values


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"valves": 0}, "`valves` must be at least 1, got 0"),
        ({"heat": 0.0}, "`heat` must be above 0, got 0.0"),
        ({"heat": 100.5}, "`heat` must be above 0 and at most 100, got 100.5"),
        ({"heat": float("nan")}, "`heat` must be above 0 and at most 100, got nan"),
        ({"loss": 1}, "`loss` must be at least 0 and below 1, got 1"),
        ({"loss": -0.1}, "`loss` must be at least 0 and below 1, got -0.1"),
        ({"limit": 0}, "`limit` must be at least 1 or none, got 0"),
        ({"fuel": "woods"}, "unknown fuel 'woods'; did you mean 'wood'?"),
        ({"fuel": "oil"}, "unknown fuel 'oil'; choose from coal, wood"),
    ],
    ids=str,
)
def test_values_out_of_bounds(values, text):
    with pytest.raises(ConfigError, match=message(text)):
        Boiler(**values)


class Train:
    @takes(Boiler, positional=("valves",))
    def __init__(self, wagons: int, *, config: Boiler, number: int = 7) -> None:
        self.wagons, self.config, self.number = wagons, config, number


def test_a_constructor_takes_settings_by_name_by_place_or_at_once():
    train = Train(3, 4, heat=2.0, number=1)
    assert (train.wagons, train.number, train.config) == (3, 1, Boiler(valves=4, heat=2.0))
    assert Train(wagons=3, valves=4).config == Boiler(valves=4)
    assert Train(3).config == Boiler()
    given = Boiler(loss=0.5)
    assert Train(3, config=given, number=2).config is given


def test_a_constructor_tells_its_settings():
    assert Train.__init__.config_class is Boiler
    parameters = inspect.signature(Train).parameters
    assert list(parameters) == ["wagons", "valves", "heat", "loss", "fuel", "limit", "number"]
    assert parameters["heat"].default == 0.5
    assert parameters["heat"].kind is inspect.Parameter.KEYWORD_ONLY


def test_a_constructor_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="unexpected keyword argument 'heet'"):
        Train(3, heet=1.0)
    with pytest.raises(TypeError, match="missing a required argument: 'wagons'"):
        Train()
    with pytest.raises(ConfigError, match=message("`valves` must be at least 1, got 0")):
        Train(3, 0)


def test_assignments():
    assert read_assignments(["a=1", " b = x=y ", "a=2", "c="]) == {"a": "2", "b": "x=y", "c": ""}
    with pytest.raises(ConfigError, match=message("`--set` takes key=value, got 'a'")):
        read_assignments(["b=1", "a"])


@pytest.mark.parametrize(("text", "expected"), [("3", 3), ("3.0", 3.0), ("1e3", 1000.0), ("-2", -2)])
def test_numbers(text, expected):
    found = read_number("nodes", text)
    assert found == expected
    assert type(found) is type(expected)


def test_no_number():
    with pytest.raises(ConfigError, match=message("`nodes` must be a number, got 'many'")):
        read_number("nodes", "many")


def test_a_table_of_settings_comes_back(tmp_path):
    values = {"count": 3, "share": 1e-05, "colour": "green", "limit": None, "pressure": 2.5}
    path = tmp_path / "settings.toml"
    path.write_text(write_settings("steam-engine", values))
    tables = read_settings(path)
    assert list(tables) == ["steam-engine"]
    (engine,) = build_configs([Engine], tables["steam-engine"])
    assert engine == Engine(**values)


def test_files_that_are_no_settings(tmp_path):
    path = tmp_path / "settings.toml"
    with pytest.raises(
        ConfigError, match=message(f"{path} is not a file; give the path of a preset that `nfcgcn tune` wrote")
    ):
        read_settings(path)
    path.mkdir()
    with pytest.raises(
        ConfigError, match=message(f"{path} is not a file; give the path of a preset that `nfcgcn tune` wrote")
    ):
        read_settings(path)
    path.rmdir()
    path.write_text("#" * (MOST_BYTES + 1))
    with pytest.raises(ConfigError, match=message(f"{path} is too large for a preset: at most 64 KiB are read")):
        read_settings(path)
    path.write_text('"epo\\u001b[31m\\nchs" = 3')
    text = f"{path}: 'epo?[31m chs' is not in a table; put it below a line with the model's name, as in [nfc-gcn]"
    with pytest.raises(ConfigError, match=message(text)):
        read_settings(path)


@pytest.mark.parametrize(
    "content",
    [b"[gcn", b"\xff\xfe", b"a = " + b"[" * 60_000, b"a = " + b"9" * 5000, b"[a]\nb = 1\nb = 2"],
    ids=["cut off", "no text", "deep", "long number", "twice"],
)
def test_what_is_not_toml_is_said_in_one_line(content, tmp_path):
    path = tmp_path / "settings.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read_settings(path)
    assert str(error.value).startswith(f"{path} is not TOML: ")
    assert str(error.value).isprintable()


@given(st.binary(max_size=60) | st.text("[]{}=\"'.#\n a1", max_size=60).map(str.encode))
def test_any_file_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    try:
        tables = read_settings(path)
    except ConfigError:
        return
    assert all(isinstance(table, dict) for table in tables.values())
