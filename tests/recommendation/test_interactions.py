"""Logs of interactions: what is read, what is refused in one line, and what is done with duplicates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from planted_tastes import planted_log, planted_tables

from nfcgcn.errors import GraphError, NFCWarning
from nfcgcn.recommendation.interactions import read_interactions


def read(rows, **options):
    frame = pd.DataFrame(rows, columns=["who", "what", "stars", "day"])
    return read_interactions(frame, user="who", item="what", **options)


ROWS = [("ann", "tea", 5, "2024-01-02"), ("bob", "tea", 1, "2024-01-01"), ("bob", "milk", 4, "2024-03-01")]


def test_pairs_ratings_and_dates():
    log = read(ROWS, rating="stars", at_least=4, time="day")
    assert log.users.names == ("ann", "bob")
    assert log.items.names == ("milk", "tea")
    assert log.pairs.tolist() == [[0, 1], [1, 0]]
    np.testing.assert_array_equal(np.diff(log.times), [(pd.Timestamp("2024-03-01") - pd.Timestamp("2024-01-02")).days])


@pytest.mark.parametrize("limit", [10**400, float("nan"), float("inf")], ids=["1e400", "nan", "inf"])
def test_a_limit_that_is_no_rating(limit):
    with pytest.raises(GraphError, match=r"^--at-least must be a number of at most 1e\+300, got \w+"):
        read(ROWS, rating="stars", at_least=limit)


def test_csv_and_parquet_say_the_same(tmp_path):
    frame = pd.DataFrame(ROWS, columns=["who", "what", "stars", "day"])
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_parquet(tmp_path / "log.parquet")
    logs = [
        read_interactions(tmp_path / name, user="who", item="what", rating="stars", at_least=2)
        for name in ("log.csv", "log.parquet")
    ]
    assert logs[0].users.names == logs[1].users.names
    np.testing.assert_array_equal(logs[0].pairs, logs[1].pairs)


def test_a_repeated_pair_counts_once_with_its_earliest_time():
    with pytest.warns(NFCWarning, match="1 interactions repeat a pair"):
        log = read([*ROWS, ("bob", "milk", 5, "2023-12-01")], time="day")
    assert log.pairs.shape == (2, 3)
    milk = np.flatnonzero((log.pairs == [[1], [0]]).all(axis=0))
    assert log.times[milk] == log.times.min()


def test_each_kind_has_its_own_columns_and_those_without_a_row_have_none():
    tables = planted_tables(users=6, items=6)
    tables["users"] = tables["users"][1:]
    log = read_interactions(**tables, user="user", item="item")
    assert log.users.feature_names == ("town=town 0", "town=town 1", "town=town 2")
    assert log.items.feature_names == ("kind=kind 0", "kind=kind 1", "kind=kind 2")
    assert log.users.features[[log.users.numbers["u0"]]].nnz == 0
    assert log.users.features[[log.users.numbers["u4"]]].toarray().tolist() == [[0, 1, 0]]


def test_a_column_called_label_is_a_feature():
    tables = planted_tables(users=6, items=6)
    tables["items"] = tables["items"].rename(columns={"kind": "label"}).assign(split="a")
    log = read_interactions(**tables, user="user", item="item")
    assert log.items.feature_names == ("label=kind 0", "label=kind 1", "label=kind 2", "split=a")


def test_later_tables_are_read_as_the_first_were():
    log = planted_log(users=6, items=6)
    new = pd.DataFrame({"item": ["i9", "i8"], "kind": ["kind 2", "kind 1"]})
    more = read_interactions(
        pd.DataFrame({"user": ["u1", "zoe"], "item": ["i9", "i0"]}), user="user", item="item", items=new, known=log
    )
    assert more.users.names == (*log.users.names, "zoe")
    assert more.items.names == (*log.items.names, "i9", "i8")
    np.testing.assert_array_equal(more.items.features[:6].toarray(), log.items.features.toarray())
    assert more.items.features[[6]].toarray().tolist() == [[0, 0, 1]]
    assert more.pairs.shape == (2, 2)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "the interactions has no rows; each row is one interaction"),
        ([("ann", "tea", 5, 1), ("ann", "milk", 5, 1)], {}, "interactions of one user only"),
        ([("ann", "tea", 5, 1), ("bob", "tea", 5, 1)], {}, "interactions of one item only"),
        (ROWS, {"rating": "stars", "at_least": 9}, "holds no interaction; lower --at-least"),
        (ROWS, {"rating": "stars"}, "--rating and --at-least go together"),
        (ROWS, {"time": "stars", "rating": "stars", "at_least": 1}, "is named for two purposes"),
        (ROWS, {"time": "hour"}, "has no column 'hour'; it has who, what, stars, day"),
        ([*ROWS, (None, "tea", 1, 1)], {}, "row 4 of the interactions has no who; fill it in or remove it"),
        ([*ROWS, ("eve", "tea", 1, "soon")], {"time": "day"}, "column 'day' of the interactions"),
        ([*ROWS, ("eve", "tea", "much", 1)], {"rating": "stars", "at_least": 1}, "must hold a number, but row 4 says"),
        (ROWS, {"words": ["kind"]}, "--words names 'kind', which is not a column of the interactions"),
    ],
)
def test_bad_logs_are_refused_in_one_line(rows, options, message):
    with pytest.raises(GraphError, match=message) as caught:
        read(rows, **options)
    assert "\n" not in str(caught.value)
