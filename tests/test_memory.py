"""What would need more memory than there is is refused before any of it is taken."""

import mmap
import re
import resource
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from nfcgcn import NFCClassifier, fit, load, make_split, predict
from nfcgcn.baselines import MLP
from nfcgcn.config.registry import DEPTHS, MODELS, make_config
from nfcgcn.errors import ConfigError, OutOfMemoryError
from nfcgcn.evaluation import repeat
from nfcgcn.graph import Graph
from nfcgcn.links.training import fit_links
from nfcgcn.memory import available, check_memory, enough_memory, in_words
from nfcgcn.recommendation.interactions import Interactions
from nfcgcn.recommendation.recommender import fit_recommender
from nfcgcn.settings import settings_of
from nfcgcn.training import TrainingConfig

SIZES = [(model, name) for model in MODELS for name, s in settings_of(MODELS[model].config).items() if s.type is int]
HARMLESS = {"stride", "num_neighbours", "num_further"}
"""However large they are: what there is limits them."""


@pytest.fixture
def taken():
    """Fails if the test took a GiB, however briefly."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize(("model", "name"), SIZES)
@pytest.mark.parametrize("value", [10**12, 10**15, 10**400], ids=["1e12", "1e15", "1e400"])
def test_no_setting_asks_for_more_than_there_is(model, name, value, sparse_graph):
    settings = {name: value, "epochs": 1}
    if value < 10**100 and (name in HARMLESS or (model, name) == ("nfc-gcn", "kernel_width")):
        config = make_config(model, settings={"kernel_size": 8, **settings} if "nfc" in model else settings)
        fit(config.build(sparse_graph, 0), sparse_graph, make_split(sparse_graph, "ratio", seed=0), config.training)
        return
    with pytest.raises(ConfigError, match=f"`{name}` .*"):
        repeat(sparse_graph, make_config(model, settings=settings), [0])


@pytest.mark.parametrize(("model", "name"), [pair for pair in SIZES if pair[1] in DEPTHS])
def test_layers_that_fit_into_memory_and_would_take_minutes_to_build(model, name):
    low = settings_of(MODELS[model].config)[name].bounds["at least"]
    with pytest.raises(ConfigError, match=rf"^`{name}` must be at least {low} and at most 1,000, got 100000$"):
        make_config(model, settings={name: 100_000})


def test_epochs_that_never_end(sparse_graph):
    message = r"^`epochs` must be at least 1 and at most 1,000,000, got 1000000000$"
    for begin in (
        lambda settings: make_config("gcn", settings=settings),
        lambda settings: fit_links(sparse_graph, "gcn", settings=settings),
        lambda settings: fit_recommender(log(), "mf", settings=settings),
    ):
        with pytest.raises(ConfigError, match=message):
            begin({"epochs": 10**9})


def log():
    return Interactions.from_pairs([(f"u{i}", f"i{(i + k) % 7}") for i in range(20) for k in (1, 2, 3)])


LINKS = {
    "channels": {"decoder": "bilinear"}, "decoder_channels": {"decoder": "mlp"}, "num_negatives": {},
    "hidden_channels": {}, "num_layers": {},
}  # fmt: skip


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("value", [10**9, 10**12], ids=["1e9", "1e12"])
@pytest.mark.parametrize("name", LINKS)
def test_no_setting_of_links_asks_for_more_than_there_is(name, value, sparse_graph):
    with pytest.raises(ConfigError, match=f"^`{name}` "):
        fit_links(sparse_graph, "gcn", settings={name: value, **LINKS[name]})


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("model", ["gcn", "lightgcn"])
@pytest.mark.parametrize("name", ["channels", "num_negatives", "num_layers", "hidden_channels", "top"])
def test_no_setting_of_recommenders_asks_for_more_than_there_is(model, name):
    settings = {name: 10**12, "loss": "bpr"}
    with pytest.raises(ConfigError, match=f"^`{name}` |unknown setting 'hidden_channels'"):
        fit_recommender(log(), model, settings=settings)


def test_lists_longer_than_memory():
    recommender = fit_recommender(log(), "mf", settings={"epochs": 1})
    assert len(recommender.recommend("u0", top=10**12)) == 7 - 3
    with pytest.raises(ConfigError, match=r"^`top` 1000000000000 would need about .* lower it$"):
        recommender.top(np.arange(3), top=10**12)


@pytest.mark.usefixtures("taken")
def test_the_refusal_names_setting_estimate_and_what_there_is(sparse_graph):
    config = make_config("gcn", settings={"hidden_channels": 10**9})
    wanted = r"`hidden_channels` 1000000000 of gcn on 'random sparse' would need about \d+\.\d GiB of memory, but only "
    with pytest.raises(ConfigError, match=wanted + r"\d+\.\d GiB are available; lower it$"):
        config.build(sparse_graph, 0)
    with pytest.raises(ConfigError, match="`hidden_channels`"):
        NFCClassifier(sparse_graph, hidden_channels=10**11, kernel_size=8).fit(np.arange(300), sparse_graph.labels)


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize(
    ("model", "settings"), [("nfc-gcn", {}), ("nfc-gcn", {"kernel_size": 2, "stride": 2**30}), ("gcn", {})]
)
def test_a_graph_that_claims_many_features(model, settings):
    width = 2**31 - 1
    features = sp.csr_array((np.ones(30, np.float32), np.arange(30), np.arange(31)), shape=(30, width))
    graph = Graph.from_edges([[0, 1], [1, 2]], features, labels=np.arange(30) % 2, name="wide")
    with pytest.raises(ConfigError, match=rf"^{model} on 'wide' with 30 nodes, 2,147,483,647 features and 2 classes"):
        make_config(model, graph=graph, settings=settings).build(graph, 0)


def test_the_copies_of_training_count():
    """Of 5 columns a product makes 8, and the best state is kept: training took 1.5 times what was once estimated."""
    wide = sp.csr_array((np.ones(30, np.float32), np.arange(30), np.arange(31)), shape=(30, 2**24))
    graph = Graph.from_edges([[0, 1], [1, 2]], wide, labels=np.arange(30) % 2)
    assert make_config("fastgcn", settings={"hidden_channels": 5}).memory(graph) > (5 * 20 + 8 * 4) * 2**24


@pytest.fixture
def limited():
    """Limits the memory of this process to some bytes more than it holds."""
    before = resource.getrlimit(resource.RLIMIT_AS)

    def limit(more):
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + more, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_memory_that_runs_out_in_training_or_prediction(limited):
    # One matrix of 4 GiB: more than this process can have kept of what earlier tests gave back.
    many = 2**15
    graph = Graph.from_edges([[0, 1], [1, 2]], np.ones((many, 2), np.float32), labels=np.arange(many) % 2)
    split = make_split(graph, "ratio", seed=0)
    fit(MLP(2, 2, 2, 2), graph, split, TrainingConfig(epochs=1))  # which loads the kernels
    model = MLP(2, many, 2, 2)
    message = r"^there is not enough memory: 4\.0 GiB more were asked for; use a smaller graph or settings$"
    limited(2**25)
    with pytest.raises(OutOfMemoryError, match=message):
        fit(model, graph, split, TrainingConfig(epochs=1))
    with pytest.raises(OutOfMemoryError, match=message):
        predict(model, graph)


def fail(error):
    raise error


@pytest.mark.parametrize(
    ("take", "reason"),
    [
        (lambda: bytearray(2**50), "none is left"),
        (
            lambda: np.empty(2**50),
            "Unable to allocate 8.00 PiB for an array with shape (1125899906842624,) and data type float64",
        ),
        (lambda: torch.empty(2**50), "4,096 TiB more were asked for"),
        (lambda: mmap.mmap(-1, 2**62), "Cannot allocate memory"),
        (lambda: fail(RuntimeError("std::bad_alloc")), "std::bad_alloc"),
        (lambda: fail(ImportError("a.so: failed to map segment")), "a.so: failed to map segment"),
        (lambda: fail(RuntimeError("memory: you tried to allocate 2097152 bytes.")), "2.0 MiB more were asked for"),
    ],
    ids=["Python", "NumPy", "torch", "the system", "C++", "a library", "little"],
)  # fmt: skip
def test_a_lack_of_memory_is_one_line(take, reason):
    message = f"there is not enough memory: {reason}; use a smaller graph or settings"
    with pytest.raises(OutOfMemoryError, match=f"^{re.escape(message)}$"), enough_memory():
        take()


def test_no_other_error_is_taken_for_a_lack_of_memory():
    for error in (
        RuntimeError("no memory of that"),
        KeyError("allocate memory"),
        ConfigError("memory, alloc"),
        OSError(28, "x"),
    ):
        with pytest.raises(type(error)) as caught, enough_memory():
            raise error
        assert caught.value is error


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 10**12}, r"^`nodes` 1e\+12 would need about \d+ TiB of memory, but only .* available; lower it$"),
        ({"features": 10**12}, r"^`features` 1e\+12 would need"),
        ({"words": 10**9, "features": 10**10}, r"^`words` 1e\+09 would need"),
        ({"nodes": 10**400}, r"^`nodes` must be between 2 and 9,007,199,254,740,992, got a larger number$"),
        ({"degree": 10**400}, r"^`degree` must be between 0 and 446.116, got inf$"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_a_generated_graph_of_absurd_size(options, message):
    with pytest.raises(ConfigError, match=message):
        load("citations", **options)


def test_ordinary_settings_need_little(sparse_graph):
    for model in MODELS:
        assert make_config(model).memory(sparse_graph) < 2**27


def files(root, content):
    for name, text in content.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MACHINE = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n", "proc/self/status": "VmSize: 0 kB\n"}
GROUPS = {
    "no group": ({}, 8000),
    "version 2": (
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/memory.max": "3000000\n",
            "sys/fs/cgroup/outer/memory.current": "1000000\n",
            "sys/fs/cgroup/outer/memory.stat": "anon 1\ninactive_file 48000\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
            "sys/fs/cgroup/outer/inner/memory.current": "1000\n",
        },
        2000,
    ),
    "version 2 seen from inside": (
        {
            "proc/self/cgroup": "0::/elsewhere\n",
            "sys/fs/cgroup/memory.max": "1024000\n",
            "sys/fs/cgroup/memory.current": "0\n",
        },
        1000,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "5:cpu:/\n4:memory,other:/box\n0::/\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "3072000\n",
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "1024000\n",
        },
        2000,
    ),
    "more used than allowed": (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "5\n", "sys/fs/cgroup/memory.current": "9\n"},
        0,
    ),
}


@pytest.mark.parametrize("case", GROUPS)
def test_a_container_s_limit_counts(tmp_path, case):
    content, left = GROUPS[case]
    assert available(files(tmp_path, MACHINE | content)) == left * 1024


def test_a_limit_of_the_process_counts():
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (2**40, before[1]))
        assert available() < 2**40
        with pytest.raises(ConfigError, match=r"^this would need about 1024\.0 GiB of memory, but only .*; stop$"):
            check_memory(2**40, "this", "stop")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_sizes_in_words():
    sizes = (0, 60 * 2**20, 1.5 * 2**30, 11 * 2**40, 2**63 * 10, float("inf"))
    words = ["0.0 MiB", "60.0 MiB", "1.5 GiB", "11 TiB", "80 EiB", "more than 1,000 EiB"]
    assert [in_words(size) for size in sizes] == words
