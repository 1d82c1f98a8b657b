import pickle

import pytest

from nfcgcn import errors
from nfcgcn.errors import unknown


@pytest.mark.parametrize("name", ["GraphError", "ConfigError", "DatasetError"])
def test_every_error_is_an_nfc_error(name):
    assert issubclass(getattr(errors, name), errors.NFCError)


@pytest.mark.parametrize("name", ["GraphError", "ConfigError"])
def test_wrong_values_are_value_errors_too(name):
    assert issubclass(getattr(errors, name), ValueError)


def test_a_warning_is_a_user_warning():
    assert issubclass(errors.NFCWarning, UserWarning)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        pytest.param("coar", ["pubmed", "cora"], "unknown dataset 'coar'; did you mean 'cora'?", id="one near"),
        pytest.param(
            "strid",
            ["stride", "strides", "x"],
            "unknown dataset 'strid'; did you mean 'stride' or 'strides'?",
            id="two",
        ),
        pytest.param("zzz", ["pubmed", "cora"], "unknown dataset 'zzz'; choose from cora, pubmed", id="none near"),
        pytest.param("", ["b", "a"], "unknown dataset ''; choose from a, b", id="empty"),
    ],
)
def test_unknown_names_the_near_ones_or_all(name, options, message):
    assert unknown("dataset", name, options) == message


def test_unknown_names_three_at_most():
    assert unknown("x", "abc", ["abc1", "abc2", "abc3", "abc4"]).count("'abc") == 4  # the name itself and three more


def test_of_many_names_some_are_listed():
    message = unknown("user", "nobody", [f"u{i:03}" for i in range(120)])
    assert message.startswith("unknown user 'nobody'; choose from u000, u001, ")
    assert message.endswith(", u049 and 70 more")


def test_several_messages_are_numbered():
    error = errors.GraphError("the first", "the second")
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == "2 problems: (1) the first (2) the second"
    assert str(errors.ConfigError("alone")) == "alone"
    assert str(errors.SilentError()) == ""
    assert str(errors.GraphError(*"abcdefghijklmn")).endswith("(12) l and 2 more")
