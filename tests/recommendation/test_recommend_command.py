"""`nfcgcn recommend`, as a user meets it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from planted_tastes import planted_tables

QUICK = ("--set", "channels=4", "--set", "epochs=4", "--set", "check_every=2")


@pytest.fixture
def tables(tmp_path):
    for name, frame in planted_tables(users=18, items=12, each=4).items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return ("--interactions", "interactions.csv", "--items", "items.csv", "--users", "users.csv")


def test_train_then_ask(run, tables, tmp_path):
    code, out, err = run("recommend", "train", *tables, "--time", "time", *QUICK, "--out", "shop", "--json", "r.json")
    assert code == 0, err
    assert "Interactions(users=18, items=12, pairs=" in err
    result = json.loads((tmp_path / "r.json").read_text())
    assert f"{result['test_scores']['ndcg']:.4f}" in out
    assert set(result["baselines"]) == {"popularity", "item-cosine"}
    page = (tmp_path / "shop" / "report.html").read_text()
    assert page.count("<img") == 2
    assert result["examples"][0]["user"] in page
    (tmp_path / "shop" / "report.html").unlink()
    assert run("report", "shop")[0] == 0
    assert (tmp_path / "shop" / "report.html").read_text() == page

    code, out, err = run("recommend", "for", "shop", "--user", "u3", "--top", "2", "--why")
    assert code == 0, err
    assert out.count("why i") == 2
    assert "past items: i" in out
    assert "features: " in out

    assert run("recommend", "for", "shop", "--all", "--out", "all.parquet", "--top", "3")[0] == 0
    lists = pd.read_parquet(tmp_path / "all.parquet")
    assert set(lists.groupby("user").size()) == {3}
    liked = planted_tables(users=18, items=12, each=4)["interactions"]
    assert not len(lists.merge(liked, on=["user", "item"]))

    pd.DataFrame({"user": ["zoe"], "item": ["i1"], "time": [1]}).to_csv(tmp_path / "more.csv", index=False)
    code, out, err = run("recommend", "for", "shop", "--user", "zoe", "--add-interactions", "more.csv")
    assert code == 0, err
    assert "for user zoe" in out
    pd.DataFrame({"user": ["yan"], "town": ["town 1"]}).to_csv(tmp_path / "new.csv", index=False)
    code, out, err = run("recommend", "for", "shop", "--user", "yan", "--add-users", "new.csv")
    assert code == 0, err


def test_evaluate_writes_a_table(run, tables, tmp_path):
    models = "popularity,item-cosine,nfc-gcn+features"
    options = ("--models", models, "--seeds", "2", "--top", "3", "--json", "table.json")
    code, out, err = run("recommend", "evaluate", *tables, *options, *QUICK)
    assert code == 0, err
    table = json.loads((tmp_path / "table.json").read_text())
    assert [line["model"] for line in table["summary"]] == models.split(",")
    assert len(table["rows"]) == 6
    assert f"{table['summary'][0]['ndcg']['mean']:.4f}" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train",), "give either a table of your own with --interactions, or the dataset movielens"),
        (("train", "netflix"), "unknown dataset of interactions 'netflix'; choose from movielens"),
        (("train", "--interactions", "interactions.csv", "--user", "who"), "interactions.csv has no column 'who'"),
        (("train", "--interactions", "interactions.csv", "--split", "time"), "name their column with --time"),
        (("train", "--interactions", "interactions.csv", "--test", "1"), "must be above 0 and below 1, got 1"),
        (("train", "--interactions", "interactions.csv", "--set", "chanels=3"), "did you mean 'channels' or"),
        (("train", "--interactions", "one.csv"), "one.csv has interactions of one user only; at least two are needed"),
        (("for", "nowhere", "--user", "u1"), "nowhere is not a run folder: config.json is missing"),
        (("for", "nowhere"), "name a user with --user ID, or give --all with --out FILE"),
        (("for", "nowhere", "--all"), "--all needs --out"),
        (("evaluate", "--interactions", "interactions.csv", "--models", "magic"), "unknown recommender 'magic'"),
    ],
)
def test_bad_input_is_one_line(run, tables, tmp_path, arguments, message):
    (tmp_path / "one.csv").write_text("user,item\nann,tea\nann,milk\n")
    code, out, err = run("recommend", *arguments)
    assert code == 2
    assert message in err
    *_, last = err.splitlines()
    assert last.startswith("error: ")
    assert err.count("error:") == 1
    assert not out


def test_settings_are_listed_with_the_values_that_suit_the_encoder(run):
    code, out, _ = run("recommend", "settings", "--model", "lightgcn")
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines() if line.strip().startswith("loss ")] == ["bpr"]


def test_an_unknown_user_is_one_line(run, tables):
    assert run("recommend", "train", *tables, *QUICK, "--out", "shop")[0] == 0
    code, _, err = run("predict", "shop", "--out", "p.csv")
    assert (code, err) == (2, "error: shop holds a recommender; use it with `nfcgcn recommend for`\n")
    code, _, err = run("recommend", "for", "shop", "--user", "u33")
    assert code == 2
    assert err.startswith("error: unknown user 'u33'; did you mean 'u3'")
