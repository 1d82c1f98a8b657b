from dataclasses import FrozenInstanceError
from inspect import signature

import pytest

from nfcgcn.data import DATASETS, at_hand, citations, digits, load
from nfcgcn.errors import ConfigError, DatasetError, GraphError


def test_table_in_order():
    assert list(DATASETS) == ["cora", "citeseer", "pubmed", "digits", "citations"]
    assert all(name == dataset.name for name, dataset in DATASETS.items())
    with pytest.raises(FrozenInstanceError):
        DATASETS["cora"].nodes = 1


def test_table_names_the_options_there_are():
    assert DATASETS["digits"].options == tuple(signature(digits.read).parameters)
    assert DATASETS["citations"].options == tuple(signature(citations.generate).parameters)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("cora", marks=pytest.mark.data),
        pytest.param("citeseer", marks=pytest.mark.data),
        pytest.param("pubmed", marks=pytest.mark.data),
        "digits",
    ],
)
def test_table_tells_the_sizes(name, request):
    folder = request.getfixturevalue("planetoid_dir") if name != "digits" else None
    graph, row = load(name, data_dir=folder), DATASETS[name]
    assert graph.name == name
    assert (row.nodes, row.edges, row.features, row.classes) == (
        graph.num_nodes,
        graph.num_edges,
        graph.num_features,
        graph.num_classes,
    )


@pytest.mark.parametrize("function", [load, at_hand], ids=["load", "at_hand"])
def test_unknown_dataset(function):
    with pytest.raises(DatasetError, match=r"^unknown dataset 'coral'; did you mean 'cora'\?$"):
        function("coral")


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("cora", "nodes", "dataset 'cora' takes no option `nodes`; it takes none"),
        ("digits", "neighbors", "dataset 'digits' takes no option `neighbors`; it takes `neighbours`"),
        (
            "citations",
            "size",
            "dataset 'citations' takes no option `size`; it takes `nodes`, `seed`, `classes`, `features`, `words`, "
            "`degree`, `homophily`",
        ),
    ],
    ids=["cora", "digits", "citations"],
)
def test_unknown_option(name, option, message):
    with pytest.raises(DatasetError) as caught:
        load(name, **{option: 5})
    assert str(caught.value) == message


def test_at_hand_without_files():
    assert at_hand("digits") == "bundled"
    assert at_hand("citations") == "generated"


def test_what_is_in_memory(four_nodes):
    graph = load(four_nodes.to_pyg())
    assert (graph.adjacency != four_nodes.adjacency).nnz == 0
    with pytest.raises(GraphError, match=r"a SciPy matrix has only edges; Graph\.from_scipy"):
        load(four_nodes.adjacency)
    from torch_geometric.data import HeteroData

    with pytest.raises(GraphError, match="nodes of several types are not supported, got a HeteroData"):
        load(HeteroData())


def test_an_option_that_does_not_exist(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,x\na,1\n")
    with pytest.raises(ConfigError, match=r"^unknown option of a graph 'lable'; did you mean 'label'\?$"):
        load(tmp_path / "nodes.csv", lable="x")
