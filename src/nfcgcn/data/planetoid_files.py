"""The files of Planetoid: where to look for them, their sha256, and how they are downloaded.

Without ``data_dir``, a folder that holds none of a dataset's files is skipped. With ``data_dir``, or if a folder holds
some of the files, the others must be in the same folder: mixing files from two places would hide a mistake. Only the
cache is completed by downloads.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from os import PathLike
from pathlib import Path

from nfcgcn.errors import DatasetError
from nfcgcn.files import cache_folder

BASE_URL = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/"
"""The repository's last commit, of 2016."""

MAX_BYTES = 2**25
"""More than four times the largest file."""

PARTS = ("allx", "ally", "tx", "ty", "graph", "test.index")
"""The parts that are read. Planetoid also has x and y, which are the first rows of allx and ally."""

SHA256 = {
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
}


def read_parts(name: str, data_dir: str | PathLike[str] | None = None) -> dict[str, bytes]:
    """Return the bytes of each part, from the first folder that has them or by download; their sha256 is checked."""
    files = _files(name)
    folder = _folder(name, data_dir)
    if folder is None:
        folder = _cache()
        if folder is None:
            raise DatasetError(
                f"{name} is not on this machine, and pooch, which downloads it, is not installed: "
                f"`pip install pooch`, or put the files ind.{name}.* of {BASE_URL} into DIR/planetoid "
                "and set NFCGCN_DATA to DIR"
            )
        for file in files.values():
            if not (folder / file).is_file():
                _download(file, folder)
        remedy = "delete it to have it downloaded again"
    else:
        for file in files.values():
            if not (folder / file).is_file():
                raise DatasetError(f"{file} is missing in {folder}; get it from {BASE_URL}{file}")
        remedy = f"get it again from {BASE_URL}"
    return {part: _read_checked(folder / file, remedy) for part, file in files.items()}


def whereabouts(name: str, data_dir: str | PathLike[str] | None = None) -> str:
    """Return the folder with all parts of a dataset, or "to download", or "missing" if the user's folder lacks some."""
    try:
        given = _folder(name, data_dir)
    except DatasetError:
        return "missing"
    folder = given or _cache()
    if folder is not None and all((folder / file).is_file() for file in _files(name).values()):
        return str(folder)
    return "to download" if given is None else "missing"


def _files(name: str) -> dict[str, str]:
    return {part: f"ind.{name}.{part}" for part in PARTS}


def _folder(name: str, data_dir: str | PathLike[str] | None) -> Path | None:
    """Return the folder, given or from NFCGCN_DATA, that has files of the dataset; None means to use the cache."""
    files = _files(name).values()
    if data_dir is not None:
        given = Path(data_dir).expanduser()
        for folder in (given / "planetoid", given):
            if any((folder / file).is_file() for file in files):
                return folder
        raise DatasetError(
            f"ind.{name}.allx is neither in {given / 'planetoid'} nor in {given}; put the files ind.{name}.* of "
            f"{BASE_URL} there, or leave `data_dir` out to have them downloaded"
        )
    root = os.environ.get("NFCGCN_DATA")
    if root:
        folder = Path(root).expanduser() / "planetoid"
        if any((folder / file).is_file() for file in files):
            return folder
    return None


def _cache() -> Path | None:
    """Return the folder for downloads; None if there is none, see :func:`nfcgcn.files.cache_folder`."""
    folder = cache_folder()
    return None if folder is None else folder / "planetoid"


def _read_checked(path: Path, remedy: str) -> bytes:
    """Read a file once, check its sha256, and return the checked bytes."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise DatasetError(f"{path.name} in {path.parent} cannot be read: {error.strerror}; {remedy}") from error
    actual, expected = hashlib.sha256(data).hexdigest(), SHA256[path.name]
    if actual != expected:
        raise DatasetError(
            f"{path.name} in {path.parent} is truncated or altered: "
            f"sha256 {actual[:8]}… instead of {expected[:8]}…; {remedy}"
        )
    return data


def _download(file: str, folder: Path) -> None:
    """Download a file into the cache: first to a temporary file, which is renamed only if its sha256 is right."""
    try:
        import pooch
        from requests.exceptions import HTTPError, RequestException
    except ImportError as error:
        raise DatasetError(
            f"{file} is not in {folder}, and pooch, which downloads it, is not installed: "
            f"`pip install pooch`, or get it from {BASE_URL}{file}"
        ) from error
    address = BASE_URL + file
    by_hand = (
        f"put it into {folder} by hand, or all of ind.{file.split('.')[1]}.* into DIR/planetoid with NFCGCN_DATA=DIR"
    )
    logger = pooch.get_logger()
    level = logger.level
    # pooch logs one line per file, which is enough progress for files this small.
    logger.setLevel(logging.INFO if sys.stderr.isatty() else logging.WARNING)
    try:
        pooch.retrieve(address, known_hash=f"sha256:{SHA256[file]}", fname=file, path=folder)
    except HTTPError as error:
        status: int | str = "with an error"
        if error.response is not None:
            status = error.response.status_code
            error.response.close()  # pooch leaves its connection open
        raise DatasetError(f"{address} answered {status}; {by_hand}") from error
    except RequestException as error:
        raise DatasetError(f"no connection to {address}; {by_hand}") from error
    except ValueError as error:
        raise DatasetError(
            f"{address} is truncated or altered: its sha256 is not {SHA256[file][:8]}…; nothing was kept, try again"
        ) from error
    except OSError as error:
        raise DatasetError(
            f"{file} cannot be written into {folder}: {error.strerror}; set NFCGCN_CACHE to a folder for downloads"
        ) from error
    finally:
        logger.setLevel(level)
