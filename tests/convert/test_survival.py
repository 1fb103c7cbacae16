"""What a cast does to values is counted exactly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._convert import survival
from mixprec.formats import find_format


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
    st.sampled_from(["float16", "bfloat16"]),
)
def test_counts_equal_those_of_the_formats_own_rounding(values, name):
    """Overflowed, flushed and subnormal counts are what `FloatFormat.round`, exact in Python, gives."""
    form = find_format(name)
    given_values = torch.tensor(values, dtype=torch.float32)
    rounded = [form.round(v) for v in given_values.tolist()]

    found = survival(given_values, getattr(torch, name))

    assert found.overflowed == sum(abs(r) == float("inf") for r in rounded)
    assert found.flushed == sum(r == 0 != v for r, v in zip(rounded, given_values.tolist(), strict=True))
    assert found.subnormal == sum(0 < abs(r) < form.tiny for r in rounded)
    assert found.amax == given_values.abs().max().item()


@pytest.mark.parametrize(
    ("values", "survives", "why"),
    [
        ([1.0, 65504.0], True, ""),
        ([1.0, 65520.0], False, "1 of 2 values overflow float16: the largest is 6.552e+04"),
        ([1.0, 1e-9], True, ""),
        ([2e-8, 1e-9], False, "2 of 2 values are flushed to zero"),
        ([3e-7, 2e-7], False, "0 of 2 values are flushed to zero in float16, 2 are subnormal"),
        ([0.0, 0.0], True, ""),
        ([float("inf"), 1.0], True, ""),
    ],
)
def test_a_tensor_survives_where_only_rounding_is_lost(values, survives, why):
    """One value too large is enough not to; small ones matter where they are most of the tensor."""
    found = survival(torch.tensor(values), torch.float16)
    assert found.survives is survives
    assert why in found.reason
