"""The numbers taken of a tensor are those that counting element by element gives, on every path."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._trace._measure import _on_device, _with, measure, settle
from mixprec.records import TensorStats

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
VALUES = [0.0, -0.0, 1.0, -3.5, 65504.0, 2.0**-24, -(2.0**-20), 2.0**-14, math.inf, -math.inf, math.nan, 1e-42, -1e38]


def counted(tensor):
    """The specification: a loop in Python."""
    values = [float(v) for v in tensor.flatten()]
    tiny = torch.finfo(tensor.dtype).tiny
    magnitudes = [abs(v) for v in values if math.isfinite(v)]
    return TensorStats(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        numel=len(values),
        zeros=sum(v == 0 for v in values),
        subnormals=sum(0 < m < tiny for m in magnitudes),
        infs=sum(math.isinf(v) for v in values),
        nans=sum(math.isnan(v) for v in values),
        amax=max(magnitudes, default=0.0),
        amin=min((m for m in magnitudes if m), default=0.0),
        negative_infs=sum(v == -math.inf for v in values),
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(values=st.lists(st.sampled_from(VALUES), max_size=12), dtype=st.sampled_from(DTYPES))
def test_both_paths_count_what_a_loop_counts(values, dtype):
    """The path with branches (CPU) and the one without (devices) agree with the loop, for every mix of numbers."""
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype)

    assert measure(tensor).stats == counted(tensor)
    if values:
        blank = TensorStats(str(dtype).removeprefix("torch."), tuple(tensor.shape), tensor.numel())
        assert _with(blank, tuple(_on_device(tensor).tolist())) == counted(tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(3, dtype=torch.int64),
        torch.ones(2, dtype=torch.bool),
        torch.empty(0, 4),
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    ],
    ids=["integers", "bool", "empty", "sparse", "meta", "nested"],
)
def test_what_holds_no_readable_numbers_has_shape_and_dtype_only(tensor):
    """Integers, masks, empty, sparse, meta and nested tensors are no trouble and count nothing."""
    stats = measure(tensor).stats

    assert stats.finite
    assert (stats.dtype, stats.zeros, stats.amax) == (str(tensor.dtype).removeprefix("torch."), 0, 0.0)


def test_views_complex_and_narrow_numbers_are_read():
    """A transposed view, a complex and a float8 tensor give the numbers of their elements."""
    assert measure(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t()).stats.amax == 4.0
    assert measure(torch.tensor([3 + 4j])).stats.amax == 4.0
    assert measure(torch.tensor([0.0, 448.0]).to(torch.float8_e4m3fn)).stats.amax == 448.0


def test_without_counts_only_trouble_is_counted():
    """`counts=False` leaves a finite tensor's zeros uncounted and a bad one's Infs not."""
    assert measure(torch.tensor([0.0, 2.0]), counts=False).stats.zeros == 0
    assert measure(torch.tensor([0.0, math.inf]), counts=False).stats.infs == 1


def test_settling_reads_what_waits():
    """Rows that wait on a device are turned into numbers together."""
    waiting = [measure(torch.tensor([1.0])), measure(torch.tensor([0.0]))]
    for one in waiting:
        one.row, one.stats = _on_device(torch.tensor([2.0, 0.0])), TensorStats("float32", (2,), 2)

    settle(waiting)

    assert [one.stats.amax for one in waiting] == [2.0, 2.0]
    assert [one.row for one in waiting] == [None, None]
