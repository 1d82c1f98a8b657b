"""Who computes the formulas, and what is remembered: once per tensor, never stale, and nothing is kept alive."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from nfcgcn.method import acceleration
from nfcgcn.method.acceleration import MOST_REMEMBERED, accelerated, accelerates, plain_formulas, remembered


@pytest.fixture
def calls():
    return []


@pytest.fixture
def total(calls):
    """A remembered function that keeps a list of its calls."""

    @remembered
    def total(tensor, times=1, other=None):
        calls.append(times)
        result = tensor.sum() * times
        return result if other is None else result + other.sum()

    return total


def test_a_result_is_computed_once_per_tensor(calls, total):
    tensor = torch.ones(3)
    assert total(tensor) is total(tensor)
    assert len(calls) == 1
    total(tensor.clone())
    assert len(calls) == 2


def test_other_arguments_are_other_results(calls, total):
    tensor = torch.ones(3)
    assert [total(tensor, 2).item(), total(tensor, 3).item(), total(tensor, times=2).item()] == [6, 9, 6]
    total(tensor, 2)
    total(tensor, times=2)
    assert calls == [2, 3, 2]


def test_a_tensor_that_is_written_to_is_computed_anew(calls, total):
    tensor = torch.ones(3)
    assert total(tensor).item() == 3
    tensor[0] = 5
    assert total(tensor).item() == 7
    assert len(calls) == 2


def test_tensors_among_the_arguments_count_as_they_are_now(calls, total):
    tensor, other = torch.ones(3), torch.ones(2)
    assert total(tensor, other=other) is total(tensor, other=other)
    other += 1
    assert total(tensor, other=other).item() == 7
    assert total(tensor, other=other.clone()).item() == 7
    assert len(calls) == 3


def test_a_tensor_from_inference_mode_keeps_no_count_of_writes(calls, total):
    with torch.inference_mode():
        tensor = torch.ones(3)
        assert total(tensor) is total(tensor)
    assert len(calls) == 1


def test_what_belongs_to_a_backward_pass_is_not_kept(calls, total):
    tensor = torch.ones(3, requires_grad=True)
    for _ in range(2):
        total(tensor).backward()
    assert len(calls) == 2


def test_neither_tensors_nor_results_are_kept_alive(total):
    tensor, other = torch.ones(3), torch.ones(2)
    seen = [weakref.ref(tensor), weakref.ref(other), weakref.ref(total(tensor, other=other))]
    del other
    gc.collect()
    assert seen[2]() is total(tensor, other=seen[1]())
    del tensor
    gc.collect()
    assert [thing() for thing in seen] == [None] * 3


def test_only_the_last_results_of_a_tensor_are_kept(calls, total):
    tensor = torch.ones(3)
    for times in range(MOST_REMEMBERED + 1):
        total(tensor, times)
        total(tensor, 0)  # in use all the time
    del calls[:]
    total(tensor, 0)
    total(tensor, MOST_REMEMBERED)
    assert calls == []
    total(tensor, 1)
    assert calls == [1]


def test_a_failure_is_not_remembered():
    answers = [ValueError("first"), 7]

    @remembered
    def once(tensor):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    tensor = torch.ones(1)
    with pytest.raises(ValueError, match="first"):
        once(tensor)
    assert once(tensor) == once(tensor) == 7


def test_plain_formulas_remember_nothing(calls, total):
    tensor = torch.ones(3)
    total(tensor)
    with plain_formulas():
        total(tensor)
        total(tensor)
    total(tensor)
    assert len(calls) == 3


@pytest.fixture
def double(monkeypatch):
    """A formula with a faster way for whole numbers, which is off by 100 so as to be told apart."""
    monkeypatch.setattr(acceleration, "_faster", dict(acceleration._faster))

    @accelerated
    def double(value):
        return 2 * value

    @accelerates(double)
    def faster(value):
        return 2 * value + 100 if isinstance(value, int) else NotImplemented

    return double


def test_the_faster_way_is_taken_where_it_applies(double):
    assert double(3) == 106
    assert double(3.0) == 6.0
    assert double.formula(3) == 6


def test_plain_formulas_come_alone_and_end_with_the_block(double):
    with plain_formulas():
        assert double(3) == 6
        with plain_formulas({double: lambda value: -value}):
            assert double(3) == -3
        assert double(3) == 6
    with pytest.raises(ZeroDivisionError), plain_formulas():
        double(1 / 0)
    assert double(3) == 106
