import hashlib
import pickle
import shutil
import socket
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nfcgcn.data import at_hand, load, planetoid_files
from nfcgcn.errors import DatasetError

PUBLISHED = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/"
PARTS = planetoid_files.PARTS


def error_of(name="cora", **options) -> str:
    with pytest.raises(DatasetError) as caught:
        load(name, **options)
    return str(caught.value)


def fill(folder, content=b"junk", name="cora", parts=PARTS):
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        (folder / f"ind.{name}.{part}").write_bytes(content)
    return folder


def copy(planetoid_dir, folder, name="cora"):
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        shutil.copyfile(planetoid_dir / f"ind.{name}.{part}", folder / f"ind.{name}.{part}")
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def serve(monkeypatch):
    """Serve a folder in the place of the published address; return the address."""
    servers = []

    def start(folder):
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        address = f"http://127.0.0.1:{server.server_port}/"
        monkeypatch.setattr(planetoid_files, "BASE_URL", address)
        return address

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def test_address():
    assert planetoid_files.BASE_URL == PUBLISHED


@pytest.mark.data
def test_sums_are_the_published_ones(planetoid_dir):
    for file, sum_ in planetoid_files.SHA256.items():
        assert hashlib.sha256((planetoid_dir / file).read_bytes()).hexdigest() == sum_
    assert len(planetoid_files.SHA256) == 18


@pytest.mark.data
@pytest.mark.parametrize("below", ["", "planetoid"], ids=["flat", "planetoid/"])
def test_data_dir_comes_first(planetoid_dir, tmp_path, monkeypatch, cache, below):
    good = tmp_path / "good"
    copy(planetoid_dir, good / below)
    monkeypatch.setenv("NFCGCN_DATA", str(fill(tmp_path / "bad" / "planetoid").parent))
    fill(cache)
    assert load("cora", data_dir=good).num_edges == 5278
    assert load("cora", data_dir=str(good)).num_edges == 5278
    assert at_hand("cora", good) == str(good / below)


@pytest.mark.data
def test_environment_comes_before_the_cache(planetoid_dir, tmp_path, monkeypatch, cache):
    copy(planetoid_dir, tmp_path / "data" / "planetoid")
    monkeypatch.setenv("NFCGCN_DATA", str(tmp_path / "data"))
    fill(cache)
    assert load("cora").num_edges == 5278
    assert at_hand("cora") == str(tmp_path / "data" / "planetoid")


@pytest.mark.data
def test_environment_without_the_dataset_is_passed_over(planetoid_dir, tmp_path, monkeypatch, cache):
    fill(tmp_path / "data" / "planetoid", name="pubmed")
    monkeypatch.setenv("NFCGCN_DATA", str(tmp_path / "data"))
    copy(planetoid_dir, cache)
    assert load("cora").num_edges == 5278
    assert at_hand("cora") == str(cache)


def test_nothing_in_data_dir(tmp_path, cache):
    assert error_of(data_dir=tmp_path) == (
        f"ind.cora.allx is neither in {tmp_path}/planetoid nor in {tmp_path}; put the files ind.cora.* of "
        f"{PUBLISHED} there, or leave `data_dir` out to have them downloaded"
    )
    assert at_hand("cora", tmp_path) == "missing"
    assert at_hand("cora") == "to download"


def test_one_file_missing_in_data_dir(tmp_path, cache):
    fill(tmp_path, parts=PARTS[:4])
    assert error_of(data_dir=tmp_path) == (
        f"ind.cora.graph is missing in {tmp_path}; get it from {PUBLISHED}ind.cora.graph"
    )
    assert at_hand("cora", tmp_path) == "missing"


def test_one_file_missing_in_environment(tmp_path, cache, monkeypatch):
    folder = fill(tmp_path / "planetoid", parts=PARTS[1:])
    monkeypatch.setenv("NFCGCN_DATA", str(tmp_path))
    assert error_of() == f"ind.cora.allx is missing in {folder}; get it from {PUBLISHED}ind.cora.allx"
    assert at_hand("cora") == "missing"


def test_altered_file_in_data_dir(tmp_path, cache):
    fill(tmp_path, b"altered")
    found = hashlib.sha256(b"altered").hexdigest()[:8]
    assert error_of(data_dir=tmp_path) == (
        f"ind.cora.allx in {tmp_path} is truncated or altered: sha256 {found}… instead of 9419ba2f…; "
        f"get it again from {PUBLISHED}"
    )


def test_altered_file_in_cache(cache):
    fill(cache, b"altered")
    found = hashlib.sha256(b"altered").hexdigest()[:8]
    assert error_of() == (
        f"ind.cora.allx in {cache} is truncated or altered: sha256 {found}… instead of 9419ba2f…; "
        "delete it to have it downloaded again"
    )


@pytest.mark.data
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"\n"], ids=["truncated", "longer"])
def test_every_part_is_checked(planetoid_dir, tmp_path, cache, part, damage):
    path = copy(planetoid_dir, tmp_path / "data") / f"ind.cora.{part}"
    path.write_bytes(damage(path.read_bytes()))
    assert error_of(data_dir=tmp_path / "data").startswith(
        f"ind.cora.{part} in {tmp_path / 'data'} is truncated or altered: sha256 "
    )


class Attack:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("route", ["data_dir", "environment", "cache", "download"])
def test_a_pickle_is_not_read_before_its_sum_is_right(route, tmp_path, cache, serve, monkeypatch):
    mark = tmp_path / "ran"
    attack = pickle.dumps(Attack(mark), protocol=2)
    if route == "cache":
        fill(cache, attack)
    else:
        folder = fill(tmp_path / "data" / "planetoid", attack)
        if route == "environment":
            monkeypatch.setenv("NFCGCN_DATA", str(folder.parent))
        elif route == "download":
            serve(folder)
    message = error_of(**({"data_dir": tmp_path / "data"} if route == "data_dir" else {}))
    assert " is truncated or altered: " in message  # the unpickler would have named what it refuses
    assert not mark.exists()
    pickle.loads(attack).close()
    assert mark.exists()  # the attack is real


@pytest.mark.data
@pytest.mark.parametrize("part", [part for part in PARTS if part != "test.index"])
def test_a_wrong_byte_is_refused_where_the_pickle_could_still_be_read(planetoid_dir, tmp_path, cache, part):
    path = copy(planetoid_dir, tmp_path / "data") / f"ind.cora.{part}"
    data = bytearray(path.read_bytes())
    place = len(data) // 2
    data[place] ^= 1
    path.write_bytes(data)
    assert error_of(data_dir=tmp_path / "data").startswith(f"ind.cora.{part} in {tmp_path / 'data'} is truncated or al")


@pytest.mark.data
def test_download_ends_in_the_cache(planetoid_dir, cache, serve, capfd, tmp_path):
    serve(copy(planetoid_dir, tmp_path / "server"))
    assert at_hand("cora") == "to download"
    assert load("cora").num_edges == 5278
    assert sorted(path.name for path in cache.iterdir()) == sorted(f"ind.cora.{part}" for part in PARTS)
    assert at_hand("cora") == str(cache)
    assert capfd.readouterr().err == ""
    planetoid_files.BASE_URL = "http://127.0.0.1:1/"  # `serve` puts it back
    assert load("cora").num_edges == 5278


@pytest.mark.data
def test_download_completes_the_cache(planetoid_dir, cache, serve, tmp_path):
    serve(copy(planetoid_dir, tmp_path / "server"))
    copy(planetoid_dir, cache)
    (cache / "ind.cora.graph").unlink()
    assert load("cora").num_edges == 5278


def test_altered_download_leaves_nothing(cache, serve, tmp_path):
    address = serve(fill(tmp_path / "server", b"altered"))
    assert error_of() == (
        f"{address}ind.cora.allx is truncated or altered: its sha256 is not 9419ba2f…; nothing was kept, try again"
    )
    assert list(cache.iterdir()) == []


def by_hand(cache):
    return f"put it into {cache} by hand, or all of ind.cora.* into DIR/planetoid with NFCGCN_DATA=DIR"


def test_download_of_a_missing_file(cache, serve, tmp_path):
    (tmp_path / "server").mkdir()
    address = serve(tmp_path / "server")
    assert error_of() == f"{address}ind.cora.allx answered 404; {by_hand(cache)}"
    assert list(cache.iterdir()) == []


def test_no_network(cache, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: a connection is refused
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        monkeypatch.setattr(planetoid_files, "BASE_URL", address)
        assert error_of() == f"no connection to {address}ind.cora.allx; {by_hand(cache)}"
    assert list(cache.iterdir()) == []


def test_cache_that_cannot_be_written(cache, serve, tmp_path):
    serve(tmp_path)
    cache.parent.write_text("a file where the folder should be")
    message = error_of()
    assert message.startswith(f"ind.cora.allx cannot be written into {cache}: ")
    assert message.endswith("; set NFCGCN_CACHE to a folder for downloads")
    assert "None" not in message
    assert "\n" not in message


def test_no_pooch(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert error_of() == (
        f"ind.cora.allx is not in {cache}, and pooch, which downloads it, is not installed: "
        f"`pip install pooch`, or get it from {PUBLISHED}ind.cora.allx"
    )
    monkeypatch.delenv("NFCGCN_CACHE")
    assert error_of() == (
        "cora is not on this machine, and pooch, which downloads it, is not installed: `pip install pooch`, "
        f"or put the files ind.cora.* of {PUBLISHED} into DIR/planetoid and set NFCGCN_DATA to DIR"
    )
    assert at_hand("cora") == "to download"


@pytest.mark.data
def test_files_at_hand_need_no_pooch(planetoid_dir, cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setenv("NFCGCN_DATA", str(planetoid_dir.parent))
    assert load("citeseer").num_edges == 4552


def test_default_cache_is_the_user_s(monkeypatch):
    import pooch

    monkeypatch.delenv("NFCGCN_CACHE", raising=False)
    assert planetoid_files._cache() == pooch.os_cache("nfcgcn") / "planetoid"


def test_file_that_cannot_be_read(tmp_path, cache):
    path = tmp_path / "ind.cora.allx"
    path.mkdir()
    with pytest.raises(DatasetError) as caught:
        planetoid_files._read_checked(path, "get it again")
    assert str(caught.value) == f"ind.cora.allx in {tmp_path} cannot be read: Is a directory; get it again"
