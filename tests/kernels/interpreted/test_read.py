"""Triton's read gives the verdict, the norm and the multiplier of the reference, whatever the gradients hold."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._gradients import Gradients, WaitlessReader
from mixprec._kernels._triton import _read, _tables
from mixprec._kernels._triton._read import LIMITS, read
from mixprec._kernels._triton._reader import TritonReader

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SMALL = {"chunk": 256, "block": 64}
PLANTED = {
    "nothing": (),
    "inf": (math.inf,),
    "-inf": (-math.inf,),
    "nan": (math.nan,),
    "inf and nan": (math.inf, math.nan),
    "the largest": ("largest",),
}


@st.composite
def gradients(draw):
    """A few tensors of mixed dtypes, shapes and magnitudes, some empty, with something planted in one of them."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    made = []
    for _ in range(draw(st.integers(1, 4))):
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.sampled_from([(), (0,), (1,), (63,), (64,), (257,), (5, 0, 3), (7, 31), (2, 3, 5), (515,)]))
        exponent = draw(st.integers(-20, 14 if dtype is torch.float16 else 100))
        made.append((torch.randn(shape, generator=generator) * 2.0**exponent).clamp(-6e37, 6e37).to(dtype))
    planted = PLANTED[draw(st.sampled_from(sorted(PLANTED)))]
    target = made[draw(st.integers(0, len(made) - 1))].view(-1)
    for value in planted:
        if target.numel():
            place = draw(st.integers(0, target.numel() - 1))
            target[place] = torch.finfo(target.dtype).max if value == "largest" else value
    return made


@settings(max_examples=30, deadline=None, derandomize=True)
@given(gradients(), st.sampled_from([None, 2.0**16, 1000.0, 0.3]), st.sampled_from([None, 1e-3, 1.0, 1e9]))
def test_every_number_is_the_reference_s(tensors, scale, max_norm):
    """Verdict and largest magnitude exactly, sums to float64's accuracy, factors to one rounding of float32."""
    scale = None if scale is None else torch.tensor(scale)
    reference = WaitlessReader(below_one=True)
    reading = reference.read(Gradients(tensors), scale, CPU)
    clipping = reference.clipping(reading, scale, max_norm)

    numbers = read(tensors, None, scale, max_norm, **SMALL)

    assert numbers.found_inf == reading.found_inf
    assert numbers.flag == reading.found_inf
    torch.testing.assert_close(numbers.square_sum, reading.square_sum, rtol=1e-13, atol=0, equal_nan=True)
    torch.testing.assert_close(numbers.norm, clipping.norm, rtol=1e-13, atol=0, equal_nan=True)
    every = torch.cat([tensor.double().abs().view(-1) for tensor in tensors] + [torch.zeros(1, dtype=torch.float64)])
    torch.testing.assert_close(numbers.largest, every.max(), rtol=0, atol=0, equal_nan=True)
    assert (numbers.flag.dtype, numbers.divisor.dtype, numbers.multiplier.dtype) == (torch.float32,) * 3
    if scale is not None and not reading.found_inf:
        divisor, multiplier = (f(scale, clipping.coefficient) for f in (reference.divisor, reference.multiplier))
        torch.testing.assert_close(numbers.divisor, divisor, rtol=1.2e-7, atol=0)
        torch.testing.assert_close(numbers.multiplier, multiplier, rtol=1.2e-7, atol=1e-45)
    if max_norm is not None:
        torch.testing.assert_close(numbers.coefficient, clipping.coefficient, rtol=1e-13, atol=0)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.sampled_from(DTYPES),
    st.floats(0.5, 2.0, allow_subnormal=False),
    st.floats(0.25, 1.0, allow_subnormal=False),
)
def test_an_infinity_made_by_the_division_is_found(dtype, share, scale):
    """Near the limit of each dtype, found_inf is 1 exactly if the gradient divided by the scale rounds to infinity."""
    scale = torch.tensor(scale)
    gradient = torch.tensor([torch.finfo(dtype).max * scale.item() * share, 0.0], dtype=torch.float64).to(dtype)
    quotient = (gradient.double() / scale.double()).float().to(dtype)

    assert read([gradient], None, scale, **SMALL).flag == (0.0 if quotient.isfinite().all() else 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_limit_is_the_first_value_that_rounds_to_infinity(dtype):
    """The float32 before it rounds to the largest number, it itself to infinity."""
    limit = torch.tensor(LIMITS[dtype])

    assert limit.to(dtype).isinf()
    assert torch.nextafter(limit, torch.zeros_like(limit)).to(dtype) == torch.finfo(dtype).max


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_that_float32_cannot_hold_is_no_infinity(dtype):
    """Finite gradients whose squares overflow float32 are found finite, with their norm."""
    tensors = [torch.full((300,), 1e38).to(dtype), torch.full((300,), -1e38).to(dtype)]

    numbers = read(tensors, **SMALL)

    assert numbers.flag == 0.0
    torch.testing.assert_close(numbers.norm.item(), tensors[0][0].item() * math.sqrt(600), rtol=1e-12, atol=0)


def test_the_same_gradients_give_the_same_bits():
    """Three reads, and reads of copies elsewhere in memory, agree in every bit."""
    tensors = [torch.randn(1000), torch.randn(777).bfloat16(), torch.randn(50)]
    first = read(tensors, None, torch.tensor(3.0), 1.0, **SMALL)

    for again in (tensors, tensors, [tensor.clone() for tensor in tensors]):
        assert read(again, None, torch.tensor(3.0), 1.0, **SMALL) == first


def test_shares_weigh_square_sums():
    """With parts of 1/2 and 1/3 the sum is that of the parts; the largest magnitude and the verdict are of all."""
    tensors = [torch.randn(300), torch.randn(10).half(), torch.randn(65)]
    shares = [1.0, 0.5, 1.0 / 3.0]
    expected = sum(share * tensor.double().square().sum() for share, tensor in zip(shares, tensors, strict=True))

    numbers = read(tensors, shares, **SMALL)

    torch.testing.assert_close(numbers.square_sum, expected, rtol=1e-13, atol=0)
    assert numbers.largest == max(tensor.abs().max().double() for tensor in tensors)
    tensors[1][3] = math.inf
    assert read(tensors, shares, **SMALL).flag == 1.0


def test_nothing_but_empty_tensors_is_zero():
    """No program for an empty tensor; the norm of nothing is 0 and finite."""
    numbers = read([torch.empty(0), torch.empty(3, 0).half()], None, torch.tensor(2.0), 1.0)

    assert (numbers.flag, numbers.norm, numbers.largest, numbers.coefficient) == (0.0, 0.0, 0.0, 1.0)


def test_tensors_that_begin_anywhere_are_read():
    """Views at odd addresses, and in another order than their memory, count like any other."""
    base = torch.randn(1001)
    tensors = [base[1:], torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)]
    expected = sum(tensor.double().square().sum() for tensor in tensors)

    assert not _tables.batch(tensors).aligned
    torch.testing.assert_close(read(tensors, **SMALL).square_sum, expected, rtol=1e-13, atol=0)


def test_elements_beyond_two_to_the_31_are_where_64_bits_say(monkeypatch):
    """The last chunks of a tensor of 2^31 + 5000 elements, of which only those exist, are read right."""
    exists = torch.randn(_tables.CHUNK + 5000)
    monkeypatch.setattr(_read, "batch", lambda tensors, chunk: end_of_a_huge_one(tensors[0]))

    numbers = read([exists])

    torch.testing.assert_close(numbers.square_sum, exists.double().square().sum(), rtol=1e-13, atol=0)


def end_of_a_huge_one(exists):
    """The tables of a tensor that ends with `exists` and begins where nothing is; only its last chunks are launched."""
    size = 2**31 + 5000
    chunks = _tables.chunk_table((size,), _tables.CHUNK)[:, -2:].contiguous()
    assert chunks[1].max() >= 2**31
    assert chunks[2].sum() == exists.numel()
    begin = exists.data_ptr() - (size - exists.numel()) * exists.element_size()
    return _tables.Batch(chunks, torch.tensor([begin]), 1, False)


def test_a_reader_hands_out_what_the_read_worked_out():
    """With one scale and one reading nothing is computed after the read: the tensors are the read's own."""
    scale, reader = torch.tensor(1024.0), TritonReader(False, 1.0)
    reading = reader.read(Gradients([torch.randn(100) * 1e4]), scale, CPU)
    clipping = reader.clipping(reading, scale, 1.0)
    numbers = reader._numbers

    assert clipping.norm is numbers.norm
    assert reader.divisor(scale, clipping.coefficient) is numbers.divisor
    assert reader.multiplier(scale, clipping.coefficient) is numbers.multiplier
    assert reader.tensor(reading.found_inf, CPU) is numbers.flag


def test_a_reader_hands_out_nothing_for_another_reading():
    """Where ranks or other readings changed the numbers, the arithmetic is the reference's, on the changed ones."""
    scale, reader, reference = torch.tensor(1024.0), TritonReader(False, 1.0), WaitlessReader()
    reading = reader.unscaled(reader.read(Gradients([torch.randn(100) * 1e4]), scale, CPU), scale)

    clipping = reader.clipping(reading, None, 1.0)

    assert clipping == reference.clipping(reading, None, 1.0)
    assert reader.divisor(scale, clipping.coefficient) == reference.divisor(scale, clipping.coefficient)


def test_float64_and_nothing_at_all_are_left_to_the_reference():
    """Gradients that the kernels do not know are read all the same."""
    reader = TritonReader(False, None)

    assert reader.read(Gradients([torch.tensor([3.0, 4.0], dtype=torch.float64)]), None, CPU).square_sum == 25.0
    assert reader.read(Gradients([]), None, CPU).square_sum == 0.0
