"""Every derived number is PyTorch's, and rounding is PyTorch's conversion, bit for bit."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mixprec.errors import UnknownNameError
from mixprec.formats import BF16, FORMATS, FP8_E4M3, FP8_E5M2, FP16, FP32, TF32, FloatFormat, find_format

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}
NARROW = [FORMATS[name] for name in DTYPES if name != "fp32"]
ROWS = list(FORMATS.values())

SATURATES = math.isfinite(torch.tensor(1e4).to(torch.float8_e4m3fn).float().item())
"""PyTorch 2.12 and later; before, what is too large for float8_e4m3fn became NaN."""


def by_name(row: FloatFormat) -> str:
    return row.name


def same(a: float, b: float) -> bool:
    """Equal as numbers and in sign of zero; all NaNs are one."""
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1.0, a) == math.copysign(1.0, b))


def torch_rounds(row: FloatFormat, values: list[float]) -> list[float]:
    """float32 `values` converted by PyTorch to the format and back."""
    return torch.tensor(values, dtype=torch.float32).to(DTYPES[row.name]).to(torch.float32).tolist()


def every_pattern(row: FloatFormat) -> list[float]:
    """The value of every bit pattern of a 16- or 8-bit format, in bit order."""
    ints = torch.arange(2**row.bits).to(torch.int32)
    held = ints.to(torch.uint8) if row.bytes == 1 else ints.to(torch.uint16)
    return held.view(DTYPES[row.name]).to(torch.float32).tolist()


def float32_after(x: float, steps: int) -> float:
    """The float32 number `steps` away from a finite float32 `x`, towards larger magnitude for positive steps."""
    (bits,) = struct.unpack("<I", struct.pack("<f", x))
    (value,) = struct.unpack("<f", struct.pack("<I", bits + steps))
    return float(value)


def midpoints_and_neighbours(row: FloatFormat) -> Iterator[float]:
    """Between every two neighbours the midpoint and the float32 numbers on both sides of it, in both signs."""
    values = sorted({v for v in every_pattern(row) if math.isfinite(v) and v >= 0.0})
    for low, high in zip(values, [*values[1:], 2.0 * row.overflow_threshold - row.max], strict=True):
        middle = (low + high) / 2.0
        for x in (middle, float32_after(middle, -1), float32_after(middle, 1)):
            yield from (x, -x)


@pytest.mark.parametrize("row", [FORMATS[name] for name in DTYPES], ids=by_name)
def test_derived_numbers_are_torchs(row: FloatFormat) -> None:
    """max, tiny, eps and bits equal `torch.finfo`'s; the smallest subnormal is the first positive bit pattern."""
    info = torch.finfo(DTYPES[row.name])
    assert (row.max, row.tiny, row.eps, row.bits) == (info.max, info.smallest_normal, info.eps, info.bits)
    assert row.bytes == DTYPES[row.name].itemsize
    first = struct.unpack("<f", b"\x01\0\0\0")[0] if row is FP32 else every_pattern(row)[1]
    assert row.smallest_subnormal == first


def test_tf32_is_float32_with_fewer_mantissa_bits() -> None:
    """tf32 has float32's range, float16's precision, 19 bits of information and takes 4 bytes."""
    assert (TF32.tiny, TF32.max_exponent, TF32.eps) == (FP32.tiny, FP32.max_exponent, FP16.eps)
    assert (TF32.bits, TF32.bytes) == (19, 4)


@pytest.mark.parametrize("row", NARROW, ids=by_name)
def test_every_bit_pattern_rounds_to_itself(row: FloatFormat) -> None:
    """All 65,536 (or 256) values of the format are fixed points, signed zeros, infinities and NaNs among them."""
    for value in every_pattern(row):
        assert same(row.round(value), value)


@pytest.mark.parametrize("row", NARROW, ids=by_name)
def test_every_tie_and_its_neighbours_round_as_torch_converts(row: FloatFormat) -> None:
    """At and beside every midpoint of the format, up to the overflow threshold, `round` is PyTorch's conversion."""
    values = list(midpoints_and_neighbours(row))
    for x, expected in zip(values, torch_rounds(row, values), strict=True):
        if row is FP8_E4M3 and not SATURATES and abs(x) > row.overflow_threshold:
            expected = math.copysign(row.max, x)
        assert same(row.round(x), expected), x


@pytest.mark.parametrize("row", NARROW, ids=by_name)
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(width=32))
@example(math.inf)
@example(-math.inf)
@example(FP32.max)
@example(-FP32.smallest_subnormal)
def test_any_float32_rounds_as_torch_converts(row: FloatFormat, x: float) -> None:
    """Whatever the float32 number, `round` is PyTorch's conversion."""
    (expected,) = torch_rounds(row, [x])
    if row is FP8_E4M3 and not SATURATES and abs(x) > row.overflow_threshold:
        expected = math.copysign(row.max, x)
    assert same(row.round(x), expected)


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.floats())
@example(1.7976931348623157e308)
@example(FP32.overflow_threshold)
@example(math.nextafter(FP32.overflow_threshold, 0.0))
@example(FP32.underflow_threshold)
@example(math.nextafter(FP32.underflow_threshold, 1.0))
def test_float32_rounds_as_torch_converts_from_float64(x: float) -> None:
    """For float32 the source can be any Python float."""
    expected = torch.tensor(x, dtype=torch.float64).to(torch.float32).item()
    assert same(FP32.round(x), expected)


def test_float64_is_rounded_once_where_torch_rounds_twice() -> None:
    """1 + 2**-11 + 2**-30 is above the tie, so float16's next number is nearest; float32 on the way makes it a tie."""
    x = 1.0 + 2.0**-11 + 2.0**-30
    assert FP16.round(x) == 1.0 + FP16.eps
    assert torch.tensor(x, dtype=torch.float64).to(torch.float16).item() == 1.0


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_thresholds_are_where_rounding_changes(row: FloatFormat) -> None:
    """Above the overflow threshold nothing is finite (or all is `max`); up to the underflow threshold all is zero."""
    beyond = math.inf if row.has_infinities else row.max
    assert row.round(math.nextafter(row.overflow_threshold, math.inf)) == beyond
    assert row.round(math.nextafter(row.overflow_threshold, 0.0)) == row.max
    assert row.round(row.overflow_threshold) == beyond
    assert same(row.round(-row.underflow_threshold), -0.0)
    assert row.round(math.nextafter(row.underflow_threshold, 1.0)) == row.smallest_subnormal


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_counting_ends_at_the_largest_exact_integer(row: FloatFormat) -> None:
    """Every integer up to `max_exact_integer` is itself; the next one is lost."""
    last = row.max_exact_integer
    assert all(row.round(float(n)) == n for n in {*range(min(last, 300)), last - 1, last})
    assert row.round(float(last + 1)) == last


@pytest.mark.parametrize("row", NARROW, ids=by_name)
def test_spacing_leads_from_each_number_to_the_next(row: FloatFormat) -> None:
    """`x + spacing(x)` is the next number for every number of the format; at `max` it is the spacing below."""
    values = sorted({v for v in every_pattern(row) if math.isfinite(v) and v >= 0.0})
    for low, high in itertools.pairwise(values):
        assert row.spacing(low) == high - low == row.spacing(-low)
    assert row.spacing(row.max) == values[-1] - values[-2]


def test_spacing_is_not_a_number_where_the_value_is_not_finite() -> None:
    """Infinities, NaN and what rounds to infinity have no spacing; saturating formats have one everywhere."""
    assert math.isnan(FP16.spacing(65520.0))
    assert math.isnan(FP16.spacing(math.nan))
    assert FP16.spacing(65519.0) == 32.0
    assert FP8_E4M3.spacing(math.inf) == 32.0


def test_numbers_that_articles_get_wrong() -> None:
    """float16: smallest normal 2**-14, smallest subnormal 2**-24; 2.5e-5 survives, 2**-25 does not."""
    assert (FP16.tiny, FP16.smallest_subnormal) == (2.0**-14, 2.0**-24)
    assert FP16.round(2.5e-5) == pytest.approx(2.5e-5, rel=2e-3)
    assert (FP16.round(2.0**-25), BF16.round(257.0)) == (0.0, 256.0)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("fp16", FP16),
        ("half", FP16),
        ("float16", FP16),
        ("torch.float16", FP16),
        ("Float16", FP16),
        (torch.float16, FP16),
        (torch.bfloat16, BF16),
        (torch.float32, FP32),
        ("float", FP32),
        ("tf32", TF32),
        (torch.float8_e4m3fn, FP8_E4M3),
        (torch.float8_e5m2, FP8_E5M2),
    ],
)
def test_a_format_is_found_by_any_of_its_names(name: object, row: FloatFormat) -> None:
    """Ours, PyTorch's with and without its prefix, and the dtype itself."""
    assert find_format(name) is row


def test_an_unknown_format_gets_suggestions() -> None:
    """A slip of the pen is answered with what was probably meant."""
    with pytest.raises(UnknownNameError) as caught:
        find_format("float61")
    assert caught.value.suggestions[0] == "float16"
    assert str(caught.value).startswith("format is 'float61'; accepted is a known name; did you mean 'float16'")


def test_no_two_formats_share_a_name() -> None:
    """Every alias belongs to one row."""
    names = [name for row in ROWS for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
