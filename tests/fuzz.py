"""Feed every reader odd and damaged input, go on to training, explaining and exporting, and see that nothing breaks.

A case is a number: it decides the kind of input, its content and what is done with it. Every case runs in a forked
child, with at most 2 GiB beyond what the interpreter took before and at most a minute. One of our errors is a good end;
any other exception, code from a file, a signal, too much memory or time is a failure. `make fuzz` runs many;
``python tests/fuzz.py --replay NUMBER`` repeats one.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent / "data"))  # where the writer of Planetoid's pickles is
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")  # the only one that lives through a fork

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from planetoid_writer import dumps
from torch_geometric.data import Data

import nfcgcn
from nfcgcn import NFCError
from nfcgcn.config.registry import MODELS, make_config
from nfcgcn.data import planetoid
from nfcgcn.evaluation import describe, repeat
from nfcgcn.inference.checkpoint import load_run, save_run
from nfcgcn.search.tuning import tune
from nfcgcn.settings import settings_of
from random_graphs import random_graph

MEMORY, SECONDS = 2**31, 60
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


def tables(draw: Draw, folder: Path) -> nfcgcn.Graph:
    table, pairs, options = columns(draw)
    suffix = draw.one((".csv", ".tsv", ".csv.gz"))
    for stem, frame in (("nodes", pd.DataFrame(table)), ("edges", pd.DataFrame(pairs, columns=["source", "target"]))):
        text = frame.to_csv(index=False, sep="\t" if suffix == ".tsv" else ",").encode()
        share = 0.15 if stem == "nodes" else 0.05
        draw.write(folder / (stem + suffix), gzip.compress(text) if "gz" in suffix else text, share)
    return nfcgcn.load(folder, **options)


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
    graph.add_edges_from((a, b) for a, b in pairs if a in graph and b in graph)
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


def settings(draw: Draw, model: str, share: float = 0.15) -> dict[str, Any]:
    """Some settings at odd but legal values, and some that are not."""
    known = {**settings_of(MODELS[model].config), **settings_of(type(make_config(model).training))}
    values: dict[str, Any] = {}
    for name, s in known.items():
        if not draw.chance(share) or name in (*MODELS[model].fixed, "epochs", "precision", "backend"):
            continue
        if s.choices:
            values[name] = draw.one(s.choices)
        elif draw.chance(0.1):
            values[name] = draw.one((0, -1, 1e400, "x", None, [1], 10**400, 10**9, True, "nan", 10**6, 1e-300))
        else:
            values[name] = draw.one((1, 2, 3, 5)) if s.type is int else draw.one((0.0, 0.5, 0.999, 1e-3))
    return values


def presets(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    model = draw.one(MODELS)
    values = settings(draw, model, 0.4)
    lines = [f"{key} = {json.dumps(value) if value is not None else 'none'}" for key, value in values.items()]
    deep = draw.one(("", "", "", f"x = {'[' * 2000}{']' * 2000}", f"activation{'.a' * 2000} = 1", "x = 1" + "0" * 400))
    text = "\n".join([f"[{draw.one((model, model, model, draw.one(TEXTS)))}]", *lines, deep])
    draw.write(folder / "p.toml", text.encode(), 0.5)
    config = make_config(model, preset=str(folder / "p.toml"), settings={"epochs": 1, "split": "ratio"})
    repeat(random_graph(40, 12, sparse=draw.chance(0.5)), config, [0])
    return None


def studies(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    shutil.copy(SEEDS / "study.jsonl", folder / "s.jsonl")
    lines = (folder / "s.jsonl").read_bytes().split(b"\n")
    values = (b"1" + b"0" * 400, b"NaN", b"-1", b"null", b"[]", b'"x"', b"{}", b"1e400", b"[" * 2000, b"true")
    for _ in range(draw.one((0, 1, 2))):
        place = int(draw.rng.integers(len(lines)))
        record = lines[place].split(b":")
        record[int(draw.rng.integers(len(record)))] = b" " + draw.one(values) + draw.one((b",", b"}", b""))
        lines[place] = b":".join(record) if draw.chance(0.8) else lines[int(draw.rng.integers(len(lines)))]
    draw.write(folder / "s.jsonl", b"\n".join(lines), 0.3)
    tune(*STUDY, trials=3, study=folder / "s.jsonl")
    return None


def runs(draw: Draw, folder: Path) -> nfcgcn.Graph | None:
    """A run folder with odd values, damaged bytes or other weights."""
    model = draw.one(("nfc-gcn", "gcn"))
    shutil.copytree(SEEDS / model, folder / "run")
    config = json.loads((folder / "run" / "config.json").read_text())
    odd = (None, -1, 0, 10**9, 10**400, "x", [], {}, [1], {"a": 1}, 1.5, True, float("nan"), "\x1b", [["a"]])
    for _ in range(draw.one((0, 1, 1, 3))):
        inside = config
        key = draw.one(inside)
        if isinstance(inside[key], dict) and inside[key] and draw.chance(0.8):
            inside, key = inside[key], draw.one(inside[key])
        if draw.chance(0.1):
            del inside[key]
        else:
            inside[key] = draw.one(odd)
    draw.write(folder / "run" / "config.json", json.dumps(config).encode(), 0.2)
    weights = folder / "run" / "weights.safetensors"
    kind = draw.one(("as it is", "damaged", "other values", "other types", "missing"))
    if kind == "damaged":
        weights.write_bytes(draw.damage(weights.read_bytes()))
    elif kind.startswith("other"):
        from safetensors.torch import load_file, save_file

        state = load_file(weights)
        for name in list(state):
            if draw.chance(0.4):
                kinds = (torch.Tensor.double, torch.Tensor.int, torch.Tensor.half)
                changes = (*kinds, torch.Tensor.ravel, torch.zeros_like)
                filled = torch.full_like(state[name], min(draw.one(NUMBERS), 3e38))
                state[name] = filled if kind == "other values" else draw.one(changes)(state[name]).contiguous()
        save_file(state, weights)
    elif kind == "missing":
        weights.unlink()
    saved = load_run(folder / "run")
    graph = SEED_GRAPHS[model]
    saved.check_features(graph)
    saved.read_labels(graph)
    use(draw, saved.model, graph)
    return None


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


KINDS = (tables, parquet, npz, pyg, networkx, tables, npz, pyg, pickles, presets, studies, runs, stores)
SEEDS, STUDY, SEED_GRAPHS = Path(), (), {}


def use(draw: Draw, model: Any, graph: nfcgcn.Graph) -> None:
    """Predict, embed, explain and, as it takes long, seldom export."""
    nfcgcn.predict_proba(model, graph, draws=draw.one((1, 2)))
    nfcgcn.embed(model, graph)
    if graph.num_nodes and draw.chance(0.5):
        nfcgcn.explain(model, graph, int(draw.rng.integers(graph.num_nodes)))
    if draw.chance(0.1):
        nfcgcn.explain_classes(model, graph)
    if draw.chance(0.03):
        nfcgcn.export(model)


def go_on(draw: Draw, graph: nfcgcn.Graph, folder: Path) -> None:
    """Train on a graph that was accepted, keep the run, read it back and use it."""
    nfcgcn.inspect(graph)
    if draw.chance(0.1):
        nfcgcn.write_npz(graph, folder / "again.npz")
        nfcgcn.load(folder / "again.npz")
    model = draw.one(("nfc-gcn", "gcn", draw.one(MODELS)))
    config = make_config(model, graph=graph, settings={**settings(draw, model, 0.1), "epochs": draw.one((1, 2))})
    repeats = repeat(graph, config, [draw.one((0, 2**40))])
    result = describe(graph, config, repeats, device=torch.device("cpu"))
    (folder / "kept").mkdir()
    save_run(folder / "kept", graph, result, {repeats[0].seed: repeats[0].run}, repeats[0].seed)
    saved = load_run(folder / "kept")
    saved.check_features(graph)
    use(draw, saved.model, graph)


def by_command(draw: Draw, folder: Path) -> None:
    """The same through the command line, with its pages and tables; only the files in the folder are read."""
    from nfcgcn import cli

    path = next((p for p in (folder / "own.npz", folder / "own.pt") if p.exists()), folder)
    for arguments in (
        ["inspect", path], ["train", path, "--set", "epochs=1", "--out", folder / "out"],
        ["predict", folder / "out", path, "--out", folder / "p.csv"], ["explain", folder / "out", path, "--global"],
    ):  # fmt: skip
        sys.argv = ["nfcgcn", *map(str, arguments)]
        try:
            cli.main()
        except SystemExit as leaving:
            if leaving.code not in (None, 0, 2):
                raise RuntimeError(f"exit code {leaving.code} of {sys.argv}") from leaving


def prepare(folder: Path) -> None:
    """Write what damaged runs and studies start from, and load all that children would each have to load."""
    global SEEDS, STUDY
    SEEDS = folder
    for model, sparse in (("nfc-gcn", True), ("gcn", False)):
        graph = SEED_GRAPHS[model] = random_graph(40, 20, sparse=sparse)
        config = make_config(model, graph=graph, settings={"epochs": 1})
        repeats = repeat(graph, config, [0])
        (folder / model).mkdir()
        result = describe(graph, config, repeats, device=torch.device("cpu"))
        save_run(folder / model, graph, result, {0: repeats[0].run}, 0)
        use(Draw(1), repeats[0].model, graph)
    STUDY = (graph, make_config("gcn", graph=graph, settings={"epochs": 1}))
    tune(*STUDY, trials=2, study=folder / "study.jsonl")
    import pyarrow.parquet  # noqa: F401
    import sklearn.feature_extraction.text  # noqa: F401


def run_case(number: int, folder: Path) -> str:
    """Run a case and return how it ended; raises whatever is no error of ours."""
    draw = Draw(number)
    make = KINDS[number % len(KINDS)]
    kind, end = make.__name__, "refused"
    try:
        graph = make(draw, folder)
        end = "accepted"
        if graph is not None:
            go_on(draw, graph, folder)
            end = "accepted and trained"
    except NFCError:
        pass
    if kind in ("tables", "npz", "pyg", "parquet") and draw.chance(0.01):
        by_command(draw, folder)
    if (folder / SPRUNG).exists():
        raise RuntimeError("code from a file was run")
    return f"{kind}: {end}"


def forked(number: int, *, memory: int = MEMORY) -> tuple[bool, str]:
    """Run a case in a child; return whether it ended well, and how."""
    reader, writer = os.pipe()
    with tempfile.TemporaryDirectory(prefix="nfcgcn-fuzz-") as name:
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(reader)
                os.chdir(name)
                silent = os.open(os.devnull, os.O_RDWR)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))  # whatever else the machine does
                signal.alarm(20 * SECONDS)  # for a case that waits for something
                message = run_case(number, Path(name))
                code = 0
            except BaseException:
                message = traceback.format_exc()
            with os.fdopen(writer, "wb") as stream:
                stream.write(message.encode(errors="replace"))
            os._exit(code)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            message = stream.read().decode()
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False, f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return os.WEXITSTATUS(status) == 0, message


def fuzz(numbers: range, *, report: Any = print) -> tuple[Counter[str], dict[int, str]]:
    """Run cases; return how many ended in which way, and the failures by number."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ends: Counter[str] = Counter()
    failures = {}
    with tempfile.TemporaryDirectory(prefix="nfcgcn-fuzz-seeds-") as folder:
        prepare(Path(folder))
        shown = time.monotonic()
        for number in numbers:
            good, message = forked(number)
            ends[message if good else "FAILED"] += 1
            if not good:
                failures[number] = message
                report(f"case {number} failed: python tests/fuzz.py --replay {number}\n{message}")
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                report(f"{number - numbers.start + 1} of {len(numbers)} cases, {len(failures)} failures")
    return ends, failures


def main() -> None:
    """Run many cases, or one again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--replay", type=int, help="run this case only, in this process")
    options = parser.parse_args()
    if options.replay is not None:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as seeds, tempfile.TemporaryDirectory() as folder:
            prepare(Path(seeds))
            os.chdir(folder)
            print(run_case(options.replay, Path(folder)))
        return
    start = time.monotonic()
    ends, failures = fuzz(
        range(options.first, options.first + options.cases), report=lambda text: print(text, flush=True)
    )
    for end, count in sorted(ends.items()):
        print(f"{count:6} {end}")
    print(f"{len(failures)} failures in {options.cases} cases, {time.monotonic() - start:.0f} s")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
