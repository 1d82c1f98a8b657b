"""Odd and damaged graphs for `fuzz.py`: in files of every format, in frames, and in NetworkX's objects."""

from __future__ import annotations

import datetime
import decimal
import gzip
import hashlib
import io
import json
import sys
import warnings
import zipfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent / "data"))  # where the writer of Planetoid's pickles is

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from planetoid_writer import dumps
from torch_geometric.data import Data

import nfcgcn
from nfcgcn.data import planetoid
from nfcgcn.data.formats import add_tables
from random_graphs import random_graph

TEXTS = (
    "", "a", "b", "é", "\x1b[2J", "=1+1", "x;y", "None", "nan", "1", "-0", "1e400", "٣", "a" * 300, "\u202e", "<b>",
    "[/b]", "'", '"', "a,b", "a\nb", "{x}", "%s", "train", "2020-01-01", "\ufeff", "\x00", "9" * 400, "true",
)  # fmt: skip
NUMBERS = (0.0, 1.0, -1.0, 1e-45, 1e-30, 1e19, 3.4e38, -3.4e38, 0.5, 7.0, 1e300, float("inf"), float("nan"))
SPRUNG = "sprung"


class Trap:
    def __reduce__(self) -> Any:
        return Path.touch, (Path(SPRUNG),)


class Draw:
    """Odd things by chance."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, options: Any) -> Any:
        options = list(options)
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def features(self, n: int, d: int) -> Any:
        rng = self.rng
        x = rng.standard_normal((n, d)) * (rng.random((n, d)) < self.one((0.05, 0.3, 1.0)))
        if self.chance(0.3):
            x *= self.one((1e-38, 1e-20, 1e18, 1e30, 0.0))
        if self.chance(0.1) and x.size:
            x[rng.random(x.shape) < 0.1] = self.one(NUMBERS)
        if self.chance(0.2):
            x = np.abs(np.round(x))
        return x

    def labels(self, n: int) -> Any:
        rng = self.rng
        kinds = (
            lambda: rng.integers(0, 3, n), lambda: rng.integers(-1, 2, n), lambda: np.zeros(n, int),
            lambda: np.full(n, -1), lambda: np.arange(n), lambda: rng.integers(0, 2, n) * 7,
            lambda: np.where(np.arange(n) == 0, self.one((99, 99999, 2**20, 2**40)), rng.integers(0, 2, n)),
            lambda: rng.integers(-5, 3, n),
        )  # fmt: skip
        return (kinds[0] if self.chance(0.5) else self.one(kinds))().astype(np.int64)

    def edges(self, n: int) -> Any:
        nodes, rng = np.arange(n), self.rng
        kinds = (
            lambda: np.zeros((2, 0), int), lambda: np.stack([nodes, np.roll(nodes, 1)]),
            lambda: np.stack([nodes * 0, nodes]), lambda: rng.integers(0, max(n, 1), (2, 4 * n)),
            lambda: rng.integers(0, max(n, 1), (2, n * n // 2)), lambda: rng.integers(-1, n + 1, (2, 5)),
        )  # fmt: skip
        return (kinds[3] if self.chance(0.5) else self.one(kinds))()

    def names(self, n: int) -> list[str]:
        if self.chance(0.5):
            return [f"n{i}" for i in range(n)]
        return [self.one(TEXTS) + (str(i) if self.chance(0.8) else "") for i in range(n)]

    def sizes(self) -> tuple[int, int]:
        return self.one((0, 1, 2, 3, 12, 30, 60) if self.chance(0.3) else (30, 60)), self.one((0, 1, 2, 5, 40, 70))

    def damage(self, content: bytes) -> bytes:
        """Flip, cut, repeat or insert bytes."""
        data = bytearray(content)
        for _ in range(self.one((1, 1, 3, 20))):
            place = int(self.rng.integers(len(data) + 1))
            length = self.one((1, 2, 8, 100))
            kind = self.one(("flip", "cut", "repeat", "insert", "end"))
            if kind == "flip" and place < len(data):
                data[place] ^= 1 << int(self.rng.integers(8))
            elif kind == "cut":
                del data[place : place + length]
            elif kind == "repeat":
                data[place:place] = data[place : place + length] * self.one((1, 50))
            elif kind == "insert":
                data[place:place] = self.rng.bytes(length)
            elif kind == "end" and self.chance(0.3):
                del data[place:]
        return bytes(data)

    def write(self, path: Path, content: bytes, share: float = 0.3) -> Path:
        path.write_bytes(self.damage(content) if self.chance(share) else content)
        return path


def cells(draw: Draw, n: int) -> list[str]:
    kinds = (
        lambda: [repr(v) for v in draw.features(n, 1)[:, 0].tolist()], lambda: [draw.one("uvw") for _ in range(n)],
        lambda: [draw.one(TEXTS) for _ in range(n)], lambda: [" ".join(draw.names(3)) for _ in range(n)],
        lambda: [draw.one(("true", "False", "")) for _ in range(n)], lambda: [""] * n,
        lambda: [draw.one(("1", "2.5", "NA", "", "1e38", "-1e-40")) for _ in range(n)],
        lambda: [repr(draw.one(NUMBERS)) for _ in range(n)],
        lambda: [f"{draw.one((1, 1969, 2024, 9999))}-0{draw.one((1, 2))}-{draw.one((28, 30))}" for _ in range(n)],
        lambda: [draw.one(("2024-02-28T23:59:59Z", "2024-02-28 10:00", "0000-00-00", "")) for _ in range(n)],
    )  # fmt: skip
    return (kinds[0] if draw.chance(0.4) else draw.one(kinds))()


def columns(draw: Draw) -> tuple[dict[str, list[str]], list[tuple[str, str]], dict[str, Any]]:
    """Make a table of nodes by column, the edges by name, and what the reader is told about columns."""
    n, d = draw.sizes()
    odd = draw.chance(0.5)
    table = {"id": draw.names(n) if odd else [f"n{i}" for i in range(n)]}
    for i in range(min(d, 8)):
        name = draw.one(TEXTS) if odd and draw.chance(0.2) else f"c{i}"
        table[name] = (
            cells(draw, n) if odd and draw.chance(0.3) else [repr(v) for v in draw.features(n, 1)[:, 0].tolist()]
        )
    if draw.chance(0.95):
        table["label"] = cells(draw, n) if odd and draw.chance(0.3) else [draw.one("ab") for _ in range(n)]
    if draw.chance(0.2):
        table["split"] = [draw.one(("train", "val", "test", "")) for _ in range(n)]
    pairs = [(table["id"][a], table["id"][b]) for a, b in draw.edges(n).T.tolist() if 0 <= a < n and 0 <= b < n]
    if draw.chance(0.05):
        pairs.append(("nobody", "n0"))
    options = {key: draw.one([*table][1:] or ["c0"]) for key in ("text", "words", "ignore") if odd and draw.chance(0.2)}
    return table, pairs, options


WEIGHTS = ("1", "0", "0.5", "1e-300", "1e-45", "1e38", "-1", "nan", "inf", "1e400", "x", "")


def edge_table(draw: Draw, pairs: list[tuple[str, str]]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Make a table of edges, at times with weights, and what the reader is told about edges."""
    frame, options = pd.DataFrame(pairs, columns=["source", "target"], dtype=object), {}
    if draw.chance(0.25):
        good = draw.chance(0.6)
        frame["w"] = [draw.one(WEIGHTS[:6] if good else WEIGHTS) for _ in pairs]
        options["weight"] = "w"
    if draw.chance(0.2):
        options["features"] = draw.one(("degree", "one-hot", "spectral", "walk"))
    if draw.chance(0.2):
        options["unknown_edges"] = draw.one(("error", "drop", "add"))
    return frame, options | ({"directed": True} if draw.chance(0.1) else {})


def write_table(draw: Draw, path: Path, frame: pd.DataFrame, share: float) -> Path:
    text = frame.to_csv(index=False, sep="\t" if ".tsv" in path.name else ",").encode()
    return draw.write(path, gzip.compress(text) if path.suffix == ".gz" else text, share)


def tables(draw: Draw, folder: Path) -> nfcgcn.Graph:
    table, pairs, options = columns(draw)
    suffix = draw.one((".csv", ".tsv", ".csv.gz"))
    edges, more = edge_table(draw, pairs)
    write_table(draw, folder / f"nodes{suffix}", pd.DataFrame(table), 0.15)
    write_table(draw, folder / f"edges{suffix}", edges, 0.05)
    return nfcgcn.load(folder, **options, **more)


def additions(draw: Draw, folder: Path) -> nfcgcn.Graph:
    """A good graph from tables, to which odd or damaged tables are added."""
    n = 30
    table: dict[str, Any] = {"id": [f"n{i}" for i in range(n)], "c1": draw.rng.random(n)}
    table["c0"] = cells(draw, n) if draw.chance(0.3) else [draw.one(("u", "v", "")) for _ in range(n)]
    table |= {"label": [draw.one("ab") for _ in range(n)]}
    pairs = [(f"n{a}", f"n{b}") for a, b in draw.rng.integers(0, n, (3 * n, 2)).tolist()]
    edges, options = edge_table(draw, pairs)
    nodes = write_table(draw, folder / "nodes.csv", pd.DataFrame(table), 0)
    graph = nfcgcn.load(nodes, edges=write_table(draw, folder / "edges.csv", edges, 0), **options)
    odd, ends, _ = columns(draw)
    if draw.chance(0.8):  # the new nodes have most of the columns that they need
        odd |= {name: cells(draw, len(odd["id"])) for name in ("c0", "c1") if draw.chance(0.9)}
        odd["id"] = [f"new{i}" if draw.chance(0.98) else "n1" for i in range(len(odd["id"]))]
        ends = [(draw.one(("n3", "n4", *odd["id"][:3])), f"n{i % n}") for i in range(len(ends))]
    more, _ = edge_table(draw, ends)
    if "w" not in more and draw.chance(0.8):
        more["w"] = draw.one(WEIGHTS)
    paths = (
        write_table(draw, folder / "more.csv", pd.DataFrame(odd), 0.2),
        write_table(draw, folder / "links.csv", more, 0.1),
    )
    chosen = [path if draw.chance(0.8) else None for path in paths]
    return add_tables(graph, *chosen, encoding=graph.encoding)


def frames(draw: Draw, folder: Path) -> nfcgcn.Graph:
    """Data frames with columns of many types."""
    table, pairs, options = columns(draw)
    n = len(table["id"])
    frame: Any = pd.DataFrame(table, dtype=object)
    values = (
        None, pd.NaT, pd.NA, 10**400, 2**63, True, 1j, b"x", decimal.Decimal("NaN"), decimal.Decimal(1), object(),
        datetime.date(1, 1, 1), datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC), datetime.time(3), ["a"], {"a"},
        {"a": 1}, np.float16(1), np.ones(2), np.datetime64("NaT"), pd.Timedelta(1), pd.Interval(0, 1), float("inf"),
        "2024-01-01", np.str_("x"), range(3), Exception("x"),
    )  # fmt: skip
    kinds = (
        lambda: [draw.one(values) for _ in range(n)], lambda: [draw.one(values)] * n,
        lambda: pd.Categorical(table["id"]), lambda: pd.array([1, None] * n, "Int64")[:n],
        lambda: pd.date_range("2020-01-01", periods=n, tz=draw.one((None, "UTC"))), lambda: np.ones(n) * 1j,
        lambda: pd.arrays.SparseArray(np.zeros(n)), lambda: pd.period_range("2020-01", periods=n, freq="M"),
        lambda: pd.to_timedelta(np.arange(n), "s"), lambda: np.arange(n, dtype=np.uint64) + 2**63,
        lambda: pd.array([True, None] * n, "boolean")[:n], lambda: draw.features(n, 1)[:, 0].astype(np.float16),
    )  # fmt: skip
    for name in list(frame.columns):
        if draw.chance(0.15 if name not in ("id", "label") else 0.05):
            frame[name] = draw.one(kinds)()
    if draw.chance(0.1):
        frame.columns = [draw.one((name, 5, None, ("a", "b"), "id")) for name in frame.columns]
    if draw.chance(0.1):
        with suppress(TypeError, ValueError):  # what pandas itself makes no index of
            frame = frame.set_index(frame.columns[0])
    edges, more = edge_table(draw, pairs)
    if "w" in edges and draw.chance(0.5):
        edges["w"] = [draw.one((*values, 1.0, -1.0, float("nan"))) for _ in pairs]
    return nfcgcn.from_frames(frame, draw.one((edges, edges, edges, None)), **options, **more)


def parquet(draw: Draw, folder: Path) -> nfcgcn.Graph:
    import pyarrow as pa
    from pyarrow import parquet

    table, pairs, options = columns(draw)
    n = len(table["id"])
    odd = (
        lambda: pa.array(draw.features(n, 1)[:, 0]), lambda: pa.array([draw.names(2)] * n, pa.list_(pa.string())),
        lambda: pa.array([None] * n), lambda: pa.array(table["id"]).dictionary_encode(), lambda: pa.array([b"x"] * n),
        lambda: pa.array([{"a": "b"}] * n), lambda: pa.array([2**63 - 1] * n), lambda: pa.array([[1.0]] * n),
        lambda: pa.array(np.full(n, 5, "datetime64[s]")), lambda: pa.array(draw.features(n, 1)[:, 0].astype("f2")),
        lambda: pa.array([["w" * 5000] * 2000] * n, pa.list_(pa.string())), lambda: pa.array([True] * n),
        lambda: pa.array(["w" * 100000] * n), lambda: pa.array([None, *table["id"]][:n], pa.large_string()),
        lambda: pa.array([2**62] * n, pa.timestamp("us", tz=draw.one((None, "UTC")))),
        lambda: pa.array([1] * n, "date32"),
    )  # fmt: skip
    arrays: dict[str, Any] = {name: pa.array(column, pa.string()) for name, column in table.items()}
    for name in list(arrays):
        if draw.chance(0.15 if name not in ("id", "label") else 0.03):
            arrays[name] = draw.one(odd)()
    for stem, columns_ in (
        ("nodes", arrays),
        ("edges", {"source": [a for a, _ in pairs], "target": [b for _, b in pairs]}),
    ):
        stream = io.BytesIO()
        parquet.write_table(pa.table(columns_), stream, compression=draw.one(("zstd", "snappy", "none")))
        draw.write(folder / f"{stem}.parquet", stream.getvalue(), 0.1)
    return nfcgcn.load(folder, **options)


def npz(draw: Draw, folder: Path) -> nfcgcn.Graph:
    n, d = draw.sizes()
    ends = draw.edges(n).clip(0, max(n - 1, 0)) if n else np.zeros((2, 0), int)
    a = sp.csr_array((np.ones(ends.shape[1]), ends), shape=(n, n))
    x = draw.features(n, d)
    arrays: dict[str, Any] = {"labels": draw.labels(n), "node_names": draw.names(n), "class_names": draw.names(8)}
    arrays |= {"attr_names": draw.names(d), "name": draw.one(TEXTS), "test_nodes": np.arange(n)[-3:]}
    arrays |= {f"given_{p}": np.arange(i, n, 3) for i, p in enumerate(("train", "val", "test"))}
    arrays = {key: value for key, value in arrays.items() if key == "labels" or draw.chance(0.15)}
    if draw.chance(0.2):
        arrays["adj_weighted"] = np.array(True)
        a.data *= draw.one((1.0, 1.0, 0.5, 1e-300, 1e38, 1e300, 0.0, -1.0, np.nan, np.inf))
    arrays |= {"adj_data": a.data, "adj_indices": a.indices, "adj_indptr": a.indptr, "adj_shape": a.shape}
    if draw.chance(0.5):
        arrays["attr_matrix"] = x
    else:
        s = sp.csr_array(x)
        width = draw.one((d, d, d, 10**5, 2**24, 2**31, 2**62))
        arrays |= {"attr_data": s.data, "attr_indices": s.indices, "attr_indptr": s.indptr, "attr_shape": [n, width]}
    for key in [key for key in arrays if draw.chance(0.04)]:
        value = np.asarray(arrays[key])
        changes = (
            lambda v: v.astype(draw.one(("f2", "u1", "i8", "u8", "c8", "S3", "U3", "?"))), lambda v: v[..., None],
            lambda v: v[:-1], lambda v: -v, lambda v: v * 0 + 2**62, lambda v: v.astype(object), lambda v: v * 0,
            lambda v: np.asfortranarray(v), lambda v: v.astype(v.dtype.newbyteorder()), lambda v: np.repeat(v, 2, 0),
        )  # fmt: skip
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                arrays[key] = draw.one(changes)(value)
        except Exception:
            del arrays[key]
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return nfcgcn.load(draw.write(folder / "own.npz", stream.getvalue(), 0.2))


def pyg(draw: Draw, folder: Path) -> nfcgcn.Graph:
    n, d = draw.sizes()
    x = torch.from_numpy(draw.features(n, d)).to(draw.one((torch.float32, torch.float64, torch.bfloat16, torch.int32)))
    forms = {
        "dense": lambda: x, "coo": x.to_sparse, "csr": x.to_sparse_csr, "csc": x.to_sparse_csc,
        "wide": lambda: torch.sparse_coo_tensor(torch.zeros(2, 1), torch.ones(1), (n, draw.one((10**5, 2**24, 2**31)))),
        "expanded": lambda: torch.ones(1, 1).expand(n, draw.one((5, 10**6, 2**31))), "trap": Trap, "flat": x.flatten,
    }  # fmt: skip
    parts: dict[str, Any] = {"x": (forms["dense"] if draw.chance(0.4) else draw.one(forms.values()))()}
    parts |= {"edge_index": torch.from_numpy(draw.edges(n)), "y": torch.from_numpy(draw.labels(n))}
    if draw.chance(0.2):
        values = torch.tensor([1.0, 0.0, draw.one(NUMBERS)], dtype=draw.one((torch.float32, torch.float64)))
        parts["edge_weight"] = values[torch.arange(parts["edge_index"].shape[1]) % 3]
    if draw.chance(0.3):
        part = torch.from_numpy(draw.rng.integers(0, 3, n))
        parts |= {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    parts |= {key: draw.names(draw.one((n, d))) for key in ("node_names", "class_names", "name") if draw.chance(0.1)}
    for key in [key for key in parts if draw.chance(0.05)]:
        parts[key] = draw.one((None, "text", 5, {}, torch.zeros(0), torch.ones(3, 3, 3), Trap(), torch.ones(n) * 1j))
    stream = io.BytesIO()
    torch.save(Data(**parts), stream)
    content = stream.getvalue()
    if draw.chance(0.2):  # damage inside, which a checksum of the archive would hide
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream := io.BytesIO(), "w") as new:
            for name in old.namelist():
                new.writestr(name, draw.damage(old.read(name)) if draw.chance(0.3) else old.read(name))
        content = stream.getvalue()
    return nfcgcn.load(draw.write(folder / "own.pt", content, 0.1))


def networkx(draw: Draw, folder: Path) -> nfcgcn.Graph:
    table, pairs, options = columns(draw)
    graph: Any = draw.one((nx.Graph, nx.DiGraph, nx.MultiGraph))()
    values = (None, 5, 2.5, float("nan"), 10**400, True, ["a"], {"a"}, {"a": 1}, np.float32(1), np.ones(2), object())
    odd = draw.chance(0.3)
    for row in zip(*table.values(), strict=True):
        attributes = dict(zip(table, row, strict=True))
        node = attributes.pop("id")
        attributes |= {"c0": draw.one(values)} if odd else {"c0": float(draw.rng.random())}
        graph.add_node(node, **attributes)
    weighted = draw.chance(0.2)
    for a, b in pairs:
        if a in graph and b in graph:
            graph.add_edge(a, b, **({"w": draw.one((1, 0.5, 1.0, draw.one((*values, *WEIGHTS))))} if weighted else {}))
    options |= {"weight": "w"} if weighted and draw.chance(0.9) else {}
    options = {key: value for key, value in options.items() if value != "id"}
    if draw.chance(0.2):  # what is written in one of NetworkX's formats comes back as text
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                nx.write_graphml(graph, folder / "g.xml")
                graph = nx.read_graphml(folder / "g.xml")
            except Exception:
                return nfcgcn.from_networkx(graph, **options)
    return nfcgcn.from_networkx(graph, **options)


def pickles(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    """Damaged files of Planetoid are refused by their sums; if one had the right sum, the unpickler stands behind."""
    graph = random_graph(40, 20, sparse=True)
    one_hot = np.eye(3, dtype=np.int32)[graph.labels]
    links = defaultdict(list, {i: graph.adjacency[[i]].indices.tolist() for i in range(40)})
    parts = {
        "allx": graph.features[:30], "ally": one_hot[:30], "tx": graph.features[30:], "ty": one_hot[30:],
        "graph": links,
    }  # fmt: skip
    data = {key: dumps(sp.csr_matrix(value) if key.endswith("x") else value) for key, value in parts.items()}
    data["test.index"] = "\n".join(map(str, range(30, 40))).encode()
    for name, content in data.items():
        draw.write(folder / f"ind.cora.{name}", content)
    if draw.chance(0.5):
        return planetoid.parse("cora", data)
    return nfcgcn.load("cora", data_dir=folder)


def stores(draw: Draw, folder: Path) -> nfcgcn.Graph:
    """A store with damaged bytes or odd numbers, some of them with a sha256 that fits, and odd values in meta.json."""
    n, d = draw.one((1, 2, 12, 40)), draw.one((1, 5, 40))
    x = np.nan_to_num(draw.features(n, d).astype(np.float32), posinf=1, neginf=1)
    graph = nfcgcn.Graph.from_edges(
        draw.rng.integers(0, n, (2, 3 * n)),
        x if draw.chance(0.5) else sp.csr_array(x),
        labels=draw.rng.integers(-1, 3, n),
        weights=draw.rng.random(3 * n) + 0.1 if draw.chance(0.3) else None,
        node_names=[f"n{i}" for i in range(n)] if draw.chance(0.5) else None,
        class_names=["a", "b", "c"],
    )
    place = folder / "store"
    nfcgcn.write_store(graph, place)
    meta = json.loads((place / "meta.json").read_text())
    for _ in range(draw.one((0, 1, 1, 2))):
        path = place / draw.one(meta["files"])
        content = path.read_bytes()
        if path.suffix == ".npy" and not len(content) % 8 and draw.chance(0.6):
            numbers = np.frombuffer(bytearray(content[128:]), meta["files"][path.name]["dtype"])
            if len(numbers):
                odd = draw.one((-1, -2, 0, 1, n, d, 2**31 - 1, 2**40, 0.5))
                numbers[int(draw.rng.integers(len(numbers)))] = np.array(odd).astype(numbers.dtype)
            content = content[:128] + numbers.tobytes()
        else:
            content = draw.damage(content)
        path.write_bytes(content)
        if draw.chance(0.7):
            meta["files"][path.name] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    if draw.chance(0.3):
        inside = meta if draw.chance(0.5) else meta["files"][draw.one(meta["files"])]
        inside[draw.one(inside)] = draw.one((None, -1, 0, 1, 10**9, 10**400, "x", [], {}, [1], [[1]], 1.5, True, "<f8"))
    draw.write(place / "meta.json", json.dumps(meta).encode(), 0.1)
    return nfcgcn.load(place)
