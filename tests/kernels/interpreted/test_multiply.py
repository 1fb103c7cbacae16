"""Triton's multiplication leaves the same bits and the same verdict as PyTorch's."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._gradients import Gradients
from mixprec._gradients import multiply_ as reference_multiply_
from mixprec._kernels._triton import _multiply, _tables
from mixprec._kernels._triton._means import TritonMeans
from mixprec._kernels._triton._multiply import multiply_

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SMALL = {"chunk": 256, "block": 64}
VALUES = (0.0, -0.0, 1.0, 65504.0, 6e-8, 1e-5, 3e38, 1e-45, 1e-39, math.inf, -math.inf, math.nan)


@st.composite
def cases(draw):
    """Tensors of mixed dtypes and sizes whose values reach from the subnormal to the infinite, and a factor."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    made = []
    for _ in range(draw(st.integers(1, 4))):
        tensor = torch.randn(draw(st.sampled_from([0, 1, 63, 64, 257, 600])), generator=generator)
        tensor = (tensor * 2.0 ** draw(st.integers(-30, 20))).to(draw(st.sampled_from(DTYPES)))
        for value in draw(st.lists(st.sampled_from(VALUES), max_size=2)):
            if tensor.numel():
                tensor[draw(st.integers(0, tensor.numel() - 1))] = value
        made.append(tensor)
    return made, draw(st.sampled_from([1.0, 0.5, 1.0 / 65536.0, 1.0 / 3.0, 0.0, math.inf]))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(cases())
def test_every_bit_is_the_reference_s(case):
    """Products and flag, for all dtypes, subnormals, infinities and NaN."""
    tensors, factor = case
    mine, theirs = [t.clone() for t in tensors], [t.clone() for t in tensors]
    flag = torch.zeros(())

    multiply_(mine, torch.tensor(factor), flag, **SMALL)
    expected = reference_multiply_(Gradients(theirs), torch.tensor(factor), torch.zeros(()))

    assert flag == expected[flag.device]
    for product, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(product, right, rtol=0, atol=0, equal_nan=True)
        signs = (p.signbit() | p.isnan() for p in (product, right))
        assert torch.equal(*signs)


def test_a_flag_that_is_set_stays_set():
    """Finite gradients do not clear what was found before."""
    flag = torch.ones(())

    multiply_([torch.ones(10)], torch.tensor(2.0), flag, **SMALL)

    assert flag == 1.0


def test_whoever_watches_versions_sees_the_write():
    """The version of every gradient moves, as PyTorch's in-place ops move it."""
    tensors = [torch.ones(3), torch.ones(2).half()]

    multiply_(tensors, torch.tensor(2.0), torch.zeros(()))

    assert [tensor._version for tensor in tensors] == [1, 1]


def test_elements_beyond_two_to_the_31_are_where_64_bits_say(monkeypatch):
    """The last chunks of a tensor of 2^31 + 5000 elements, of which only those exist, are multiplied, no others."""
    padded = torch.ones(_tables.CHUNK + 5000 + 2)
    size = 2**31 + 5000
    chunks = _tables.chunk_table((size,), _tables.CHUNK)[:, -2:].contiguous()
    begin = padded[1:].data_ptr() - (size - padded.numel() + 2) * 4
    monkeypatch.setattr(_multiply, "batch", lambda t, chunk: _tables.Batch(chunks, torch.tensor([begin]), 1, False))

    multiply_([padded[1:-1]], torch.tensor(3.0), torch.zeros(()))

    assert padded[1:-1].eq(3.0).all()
    assert (padded[0], padded[-1]) == (1.0, 1.0)


@pytest.mark.parametrize("planted", [1.0, math.inf])
def test_what_the_kernel_cannot_take_is_multiplied_by_the_reference(planted):
    """Tensors with gaps, of float64, or none at all: multiplied once, and their infinities found."""
    gaps, wide, plain = torch.ones(4, 6)[:, ::2], torch.ones(3, dtype=torch.float64), torch.ones(5)
    wide[1] = planted

    flags = TritonMeans().multiply_(Gradients([gaps, wide, plain]), torch.tensor(0.5), torch.zeros(()))

    assert flags[gaps.device] == float(math.isinf(planted))
    assert gaps.eq(0.5).all()
    assert plain.eq(0.5).all()
    assert wide.tolist() == [0.5, planted / 2, 0.5]
