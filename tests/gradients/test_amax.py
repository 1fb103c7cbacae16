"""The largest magnitude is that of a loop over all elements, for either reader and any mix of dtypes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mixprec._gradients import Gradients, HostReader, WaitlessReader, amax, collect, make_plan
from mixprec._gradients import _amax as module
from mixprec._gradients._plan import FEW, SMALL

CPU = torch.device("cpu")
LARGEST = torch.finfo(torch.float32).max
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.float64])
SHAPES = st.sampled_from([(), (7,), (3, 5), (0,), (4, 1), (SMALL + 5,)])


def largest_of(grads: list[torch.Tensor]) -> float:
    """The specification."""
    return max((abs(x) for grad in grads for x in grad.double().flatten().tolist()), default=0.0)


def with_gradients(grads: list[torch.Tensor]) -> list[nn.Parameter]:
    params = [nn.Parameter(torch.zeros_like(grad)) for grad in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    return params


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    kinds=st.lists(st.tuples(SHAPES, DTYPES), max_size=6),
    alike=st.booleans(),
    copies=st.sampled_from([1, 1, FEW]),
    sign=st.sampled_from([1.0, -1.0]),
    exponent=st.integers(-20, 10),
    seed=st.integers(0, 2**16),
)
def test_both_readers_find_the_largest_magnitude(
    kinds: list[Any], alike: bool, copies: int, sign: float, exponent: int, seed: int
) -> None:
    """Exactly, whatever its sign, planned or not, few tensors or many, and 0 where there is no element."""
    generator = torch.Generator().manual_seed(seed)
    if alike:
        kinds = [(shape, kinds[0][1]) for shape, _ in kinds]
    kinds = kinds + [kind for kind in kinds if math.prod(kind[0]) < 100] * (copies - 1)
    grads = [(torch.randn(shape, generator=generator).abs() * sign * 2.0**exponent).to(dtype) for shape, dtype in kinds]
    params = with_gradients(grads)
    expected = largest_of(grads)
    for gradients in (collect(params), collect(params, plan=make_plan(params)) if params else collect(params)):
        assert HostReader().amax(gradients, CPU) == expected
        found = WaitlessReader().amax(gradients, CPU)
        assert (found.dtype, found.shape) == (torch.float32, ())
        assert found.item() == torch.tensor(expected, dtype=torch.float64).float().item()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_stays_so(value: float) -> None:
    """In any place; NaN wins over infinity."""
    for place in range(3):
        grads = [torch.ones(3), torch.ones(40, dtype=torch.float16)]
        grads[place % 2].view(-1)[place] = value
        for found in (HostReader().amax(Gradients(grads), CPU), WaitlessReader().amax(Gradients(grads), CPU).item()):
            assert found == abs(value) or (math.isnan(value) and math.isnan(found))
    assert math.isnan(amax([torch.tensor([math.inf]), torch.tensor([math.nan])]))


def test_a_finite_number_that_float32_cannot_hold_stays_finite() -> None:
    """It is no overflow; as float32's largest number it still says that there is no headroom."""
    gradients = Gradients([torch.tensor([-1e300], dtype=torch.float64)])
    assert HostReader().amax(gradients, CPU) == 1e300
    assert WaitlessReader().amax(gradients, CPU).item() == LARGEST


def test_the_form_for_accelerators_is_the_same() -> None:
    """Infinity norms of all tensors of a dtype at once; shown on CPU, where they are right but slow."""
    grads = [torch.randn(50, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    mixed = [*grads, torch.tensor([-9.0], dtype=torch.bfloat16)]
    assert [norm.item() for norm in module._norms(mixed)] == [largest_of(grads), 9.0]
