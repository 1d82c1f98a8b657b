"""MovieLens-100K: 100,000 ratings of 1,682 films by 943 people, which GroupLens collected in 1997 and 1998.

Its licence forbids redistribution, so that it is neither bundled nor in this repository: the files are read from a
folder, or downloaded from GroupLens when that is asked for. Cite Harper and Konstan, "The MovieLens Datasets: History
and Context", ACM TiiS 2015.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

from nfcgcn import files
from nfcgcn.errors import DatasetError

NAME = "movielens"
ADDRESS = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
ARCHIVE_MD5 = "0e33842e24a9c977be4e0107933c0723"
"""As GroupLens publishes it beside the archive; the files in it are checked by sha256."""
SHA256 = {
    "u.data": "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
    "u.item": "553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701",
    "u.user": "f120e114da2e8cf314fd28f99417c94ae9ddf1cb6db8ce0e4b5995d40e90e62c",
}
MOST_BYTES = 8 * 2**20
"""Four times the largest of these files."""
GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
COLUMNS = {"user": "user", "item": "item", "time": "time"}
"""Of the interactions. Every rating counts as one, as most published figures have it; with `rating` fewer do."""
ROLES = {"text": (), "words": ("genres",), "ignore": ("title",)}
"""Of the columns of users and items."""


def read_tables(data_dir: str | PathLike[str] | None = None, *, download: bool = False) -> dict[str, Any]:
    """Return data frames ``interactions``, ``users`` and ``items``, from files whose sha256 is checked.

    The files u.data, u.item and u.user are looked for in `data_dir`, or else in ``$NFCGCN_DATA/movielens`` and the
    user's cache. With `download` they are fetched from GroupLens into the cache if they are in none of these.
    """
    import pandas as pd

    folder = _folder(data_dir)
    if folder is None:
        if not download:
            raise DatasetError(
                f"MovieLens-100K is not on this machine, and its licence forbids passing it on: unpack {ADDRESS} into "
                "DIR/movielens and set NFCGCN_DATA to DIR, or add --download to have it fetched from there"
            )
        folder = _download()
    content = {name: _read_checked(folder / name) for name in SHA256}
    log = pd.read_csv(io.BytesIO(content["u.data"]), sep="\t", names=["user", "item", "rating", "time"])
    names = ["item", "title", "released", "video", "address", *GENRES]
    films = pd.read_csv(io.BytesIO(content["u.item"]), sep="|", names=names, encoding="latin-1")
    people = pd.read_csv(io.BytesIO(content["u.user"]), sep="|", names=["user", "age", "gender", "occupation", "zip"])
    genres = [";".join(genre for genre, has in zip(GENRES, row, strict=True) if has) for row in films[[*GENRES]].values]
    years = films["released"].str[-4:].astype(float).fillna(1995)
    # Ages and years as ranges: a linear model cannot say that people in their thirties like what others do not.
    items = pd.DataFrame({"item": films["item"], "title": films["title"], "genres": genres, "years": _range(years, 5)})
    users = people[["user", "gender", "occupation"]].assign(age=_range(people["age"], 10))
    return {"interactions": log, "users": users, "items": items}


def _range(numbers: Any, width: int) -> Any:
    return (numbers // width * width).astype(int).map(lambda first: f"{first} to {first + width - 1}")


def _folder(data_dir: str | PathLike[str] | None) -> Path | None:
    """Return the folder that has the files; None means that there is none yet."""
    if data_dir is not None:
        given = Path(data_dir).expanduser()
        for folder in (given / "movielens", given / "ml-100k", given):
            if (folder / "u.data").is_file():
                return folder
        raise DatasetError(f"u.data is neither in {given / 'movielens'} nor in {given}; unpack {ADDRESS} there")
    root = os.environ.get("NFCGCN_DATA")
    places = [Path(root).expanduser() / "movielens"] if root else []
    cache = _cache()
    places += [] if cache is None else [cache]
    return next((folder for folder in places if (folder / "u.data").is_file()), None)


def _cache() -> Path | None:
    root = os.environ.get("NFCGCN_CACHE")
    if root:
        return Path(root).expanduser() / "movielens"
    try:
        import pooch
    except ImportError:
        return None
    return Path(pooch.os_cache("nfcgcn")) / "movielens"


def _read_checked(path: Path) -> bytes:
    with files.reading(path):
        content = files.read_regular(path, MOST_BYTES)
    return _checked(path.name, content, f"{path.name} in {path.parent}")


def _checked(name: str, content: bytes, where: str) -> bytes:
    actual = hashlib.sha256(content).hexdigest()
    if actual != SHA256[name]:
        raise DatasetError(
            f"{where} is truncated or altered: sha256 {actual[:8]}… instead of {SHA256[name][:8]}…; "
            f"get it again from {ADDRESS}"
        )
    return content


def _download() -> Path:
    """Fetch the archive into the cache, check it, and keep the three files; nothing is kept if one of them is wrong."""
    folder = _cache()
    if folder is None:
        raise DatasetError(f"pooch, which downloads files, is not installed: `pip install pooch`, or unpack {ADDRESS}")
    import pooch
    from requests.exceptions import RequestException

    try:
        archive = pooch.retrieve(ADDRESS, known_hash=f"md5:{ARCHIVE_MD5}", fname="ml-100k.zip", path=folder)
    except RequestException as error:
        raise DatasetError(f"no connection to {ADDRESS}; unpack it into DIR/movielens with NFCGCN_DATA=DIR") from error
    except ValueError as error:
        raise DatasetError(
            f"{ADDRESS} is truncated or altered: its md5 differs; nothing was kept, try again"
        ) from error
    except OSError as error:
        raise DatasetError(
            f"ml-100k.zip cannot be written into {folder}: {error.strerror}; set NFCGCN_CACHE"
        ) from error
    unpack(Path(archive), folder)
    return folder


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of the archive that are read into a folder, after their sha256 was checked."""
    with files.parsing(archive, "zip"), zipfile.ZipFile(archive) as packed:
        content = {}
        for name in SHA256:
            with packed.open(f"ml-100k/{name}") as member:
                content[name] = _checked(name, member.read(MOST_BYTES), f"{name} in {archive}")
    for name, part in content.items():
        files.write_bytes(folder / name, part)
