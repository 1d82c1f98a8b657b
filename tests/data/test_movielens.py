"""MovieLens-100K: files are found and checked; nothing of it is in this repository."""

from __future__ import annotations

import hashlib
import zipfile

import pytest

from nfcgcn.data import movielens
from nfcgcn.errors import DatasetError
from nfcgcn.recommendation.interactions import read_interactions

DATA = "196\t242\t3\t881250949\n186\t302\t3\t891717742\n196\t302\t5\t881250950\n"
ITEM = (
    "242|Kolya (1996)|24-Jan-1997||http://x|0|0|0|0|0|1|0|0|0|0|0|0|0|0|0|0|0|0|0\n"
    "302|L\xe9on (1994)|||http://y|0|1|0|0|0|0|1|0|1|0|0|0|0|0|0|0|0|0|0\n"
)
USER = "196|49|M|writer|55105\n186|39|F|executive|00000\n"


@pytest.fixture
def content(monkeypatch):
    """Small files in the same form; their checksums take the place of the published ones."""
    files = {"u.data": DATA.encode(), "u.item": ITEM.encode("latin-1"), "u.user": USER.encode()}
    monkeypatch.setattr(movielens, "SHA256", {name: hashlib.sha256(part).hexdigest() for name, part in files.items()})
    return files


def test_tables_from_a_folder(content, tmp_path, monkeypatch):
    (tmp_path / "movielens").mkdir()
    for name, part in content.items():
        (tmp_path / "movielens" / name).write_bytes(part)
    monkeypatch.setenv("NFCGCN_DATA", str(tmp_path))
    log = read_interactions(**movielens.read_tables(), **movielens.COLUMNS, **movielens.ROLES)
    assert (len(log.users), len(log.items), log.pairs.shape[1]) == (2, 2, 3)
    assert "genres: Comedy" in log.items.feature_names
    assert "age=30 to 39" in log.users.feature_names
    (tmp_path / "movielens" / "u.item").write_bytes(content["u.item"][:-1])
    with pytest.raises(DatasetError, match=r"u\.item in .* is truncated or altered: sha256"):
        movielens.read_tables(tmp_path)


def test_an_archive_is_unpacked_only_if_all_is_right(content, tmp_path):
    for last, is_right in ((content["u.user"], True), (b"1|2|M|x|y\n", False)):
        archive, folder = tmp_path / "ml-100k.zip", tmp_path / str(is_right)
        with zipfile.ZipFile(archive, "w") as packed:
            for name, part in {**content, "u.user": last}.items():
                packed.writestr(f"ml-100k/{name}", part)
        if is_right:
            movielens.unpack(archive, folder)
            assert sorted(path.name for path in folder.iterdir()) == ["u.data", "u.item", "u.user"]
        else:
            with pytest.raises(DatasetError, match=r"u\.user in .* is truncated or altered"):
                movielens.unpack(archive, folder)
            assert not folder.exists()


def test_it_is_not_fetched_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("NFCGCN_DATA", str(tmp_path))
    monkeypatch.setenv("NFCGCN_CACHE", str(tmp_path))
    with pytest.raises(DatasetError, match="is not on this machine, and its licence forbids passing it on"):
        movielens.read_tables()
    with pytest.raises(DatasetError, match=r"u\.data is neither in"):
        movielens.read_tables(tmp_path)
