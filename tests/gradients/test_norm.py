"""The square sum is exact, whatever the shapes, dtypes and numbers; a float64 loop over them is the specification."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mixprec._agreement import Alone
from mixprec._gradients import (
    Gradients,
    HostReader,
    Reader,
    WaitlessReader,
    _norm,
    amax,
    collect,
    look_again,
    make_plan,
    multiply_,
    reader_for,
    reciprocal,
    square_sum,
    wide_square_sum,
)
from mixprec._gradients._plan import BLOCK, FEW, SMALL

CPU = torch.device("cpu")
INF = float("inf")
READERS: list[Reader] = [HostReader(), WaitlessReader(), WaitlessReader(below_one=True)]


def exact(tensors: list[torch.Tensor]) -> float:
    """The specification: every element in float64, one sum."""
    return math.fsum(x * x for t in tensors for x in t.double().flatten().tolist())


def with_gradients(*grads: torch.Tensor) -> list[nn.Parameter]:
    params = [nn.Parameter(torch.zeros_like(grad)) for grad in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    return params


SHAPES = st.sampled_from(
    [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (0, 3), (4, 1), (5, 5), (SMALL,), (130, 260), (SMALL + 5,)]
)
DTYPES = st.sampled_from([torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64])


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    kinds=st.lists(st.tuples(SHAPES, DTYPES), max_size=8),
    copies=st.sampled_from([1, 1, FEW]),
    exponent=st.integers(-4, 10),
    transposed=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_every_reader_reads_the_exact_square_sum(
    kinds: list[Any], copies: int, exponent: int, transposed: bool, seed: int
) -> None:
    """Any mix of shapes and dtypes, contiguous or not, planned or not, few or many; the norm to 1e-6."""
    generator = torch.Generator().manual_seed(seed)
    small = [kind for kind in kinds if math.prod(kind[0]) < 100]
    grads = []
    for shape, dtype in kinds + small * (copies - 1):
        grad = (torch.randn(shape, generator=generator) * 2.0**exponent).to(dtype)
        grads.append(grad.t().contiguous().t() if transposed and grad.ndim == 2 else grad)
    params = with_gradients(*grads)
    expected = exact(grads)
    for gradients in (collect(params), collect(params, plan=make_plan(params)) if params else collect(params)):
        assert square_sum(gradients, CPU).item() == pytest.approx(expected, rel=2e-6, abs=1e-12)
        assert wide_square_sum(gradients, CPU).item() == pytest.approx(expected, rel=2e-6, abs=1e-12)
        assert look_again(gradients)[1] == pytest.approx(expected, rel=2e-6, abs=1e-12)
        for reader in READERS:
            reading = reader.read(gradients, torch.tensor(4.0), CPU)
            assert float(reading.found_inf) == 0.0
            assert float(reading.square_sum) == pytest.approx(expected, rel=2e-6, abs=1e-12)


def test_eight_million_elements_are_added_up_to_nine_digits() -> None:
    """torch's own norm of the same tensor is off in the fourth digit, because it adds up in float32."""
    values = torch.randn(1 << 23, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.vector_norm(values, dtype=torch.float64).item()
    ours = math.sqrt(square_sum(Gradients([values]), CPU).item())
    assert abs(ours / expected - 1) < 1e-8
    assert abs(torch.linalg.vector_norm(values).item() / expected - 1) > 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_network_that_fills_its_block_is_added_up_to_six_digits(dtype: torch.dtype) -> None:
    """As many elements as BLAS adds up in one row, some of which the last step left there."""
    shapes = [(100, 100), (BLOCK - 20000 - 1,), (1, 10000), ()]
    params = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]
    plan = make_plan(params)
    assert plan is not None
    assert plan.block is not None
    assert make_plan([*params, nn.Parameter(torch.zeros(1, dtype=dtype))]).block is None  # type: ignore[union-attr] # they have a plan
    for seed in range(3):
        for param in params:
            param.grad = torch.randn(param.shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
        expected = exact([param.grad for param in params if param.grad is not None])
        assert HostReader().read(collect(params, plan=plan), None, CPU).square_sum == pytest.approx(expected, rel=1e-6)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    dtypes=st.lists(DTYPES, min_size=1, max_size=4),
    shape=st.sampled_from([(3,), (40, 20), (SMALL + 3,), (200, 200)]),
    place=st.integers(0, 10**6),
    value=st.sampled_from([INF, -INF, float("nan"), 1e30, 3e38, 1e300, 65504.0, 1.0, 0.0]),
    log_scale=st.integers(-40, 24),
    planned=st.booleans(),
)
def test_found_inf_is_whether_an_unscaled_element_is_not_finite(
    dtypes: list[torch.dtype], shape: Any, place: int, value: float, log_scale: int, planned: bool
) -> None:
    """For every reader: one element anywhere, any value that the dtype holds, any scale; the spec divides and looks."""
    scale = torch.tensor(2.0**log_scale)
    grads = [torch.ones(shape, dtype=dtype) for dtype in dtypes]
    chosen = grads[place % len(grads)]
    chosen.view(-1)[place % chosen.numel()] = torch.tensor(value, dtype=torch.float64).to(chosen.dtype)
    params = with_gradients(*grads)
    unscaled = [(g.double() / scale.double()).to(g.dtype) for g in grads]
    expected = float(not all(u.isfinite().all() for u in unscaled) or not all(g.isfinite().all() for g in grads))
    plan = make_plan(params) if planned else None
    for reader in (HostReader(), WaitlessReader(below_one=log_scale < 0)):
        reading = reader.agreed([reader.read(collect(params, plan=plan), scale, CPU)], Alone(), CPU)
        assert float(reading.found_inf) == expected, type(reader)
        if expected == 0.0 and value <= 1e100:
            assert math.isfinite(float(reading.square_sum))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: type(reader).__name__)
@pytest.mark.parametrize("max_norm", [0.01, 1.0, 1e6, INF])
@pytest.mark.parametrize("scale", [1.0, 1024.0, 2.0**24])
def test_the_factors_of_a_step_are_those_of_clip_grad_norm(reader: Reader, max_norm: float, scale: float) -> None:
    """Norm, coefficient, divisor and multiplier, against torch's clipping of the unscaled gradients."""
    grads = [torch.randn(50, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    controls = with_gradients(*[g.clone() for g in grads])
    norm = nn.utils.clip_grad_norm_(controls, max_norm)
    tensor = torch.tensor(scale)
    reading = reader.read(collect(with_gradients(*[g * scale for g in grads])), tensor, CPU)
    clipping = reader.clipping(reading, tensor, max_norm)
    coefficient = min(1.0, max_norm / (norm.item() + 1e-6))
    assert float(clipping.norm) == pytest.approx(norm.item(), rel=1e-5)
    assert float(clipping.coefficient) == pytest.approx(coefficient, rel=1e-5)
    assert reader.divisor(tensor, clipping.coefficient).item() == pytest.approx(scale / coefficient, rel=1e-5)
    assert reader.multiplier(tensor, clipping.coefficient).item() == pytest.approx(coefficient / scale, rel=1e-5)  # type: ignore[union-attr] # never None with a scale


@pytest.mark.parametrize("scale", [3.0, 65536.0, 2.0**-100])
def test_readers_and_torch_round_the_reciprocal_alike(scale: float) -> None:
    """Without clipping the multiplier is torch's `scale.double().reciprocal().float()`, to the last bit."""
    tensor = torch.tensor(scale)
    expected = tensor.double().reciprocal().float()
    assert torch.equal(reciprocal(tensor), expected)
    assert torch.equal(HostReader().multiplier(tensor, 1.0), expected)  # type: ignore[arg-type] # never None with a scale
    assert torch.equal(WaitlessReader().multiplier(tensor, None), expected)  # type: ignore[arg-type] # same


def test_multiply_flags_what_was_not_finite_before() -> None:
    """In any mix of dtypes, in one flag per device, each element multiplied in float32 at least."""
    grads = [torch.full((3,), 32768.0, dtype=dtype) for dtype in (torch.float16, torch.float32, torch.float64)]
    flags = multiply_(Gradients(grads), torch.tensor(2.0**-30), torch.zeros(()))
    assert {d.type: f.item() for d, f in flags.items()} == {"cpu": 0.0}
    assert all(g.tolist() == [2.0**-15] * 3 for g in grads)
    grads[1][1] = float("nan")
    assert multiply_(Gradients(grads), torch.tensor(2.0), torch.zeros(()))[CPU].item() == 1.0
    assert multiply_(Gradients([]), torch.tensor(2.0), torch.zeros(())) == {}


@pytest.mark.parametrize("value", [1.0, 1e30, INF])
def test_offloaded_gradients_are_read_where_they_lie(value: float) -> None:
    """Gradients in the host's memory, a scale elsewhere: finite numbers give a finite sum, however large."""
    grads = [torch.full((SMALL + 1,), 2.0), torch.tensor([value])]
    assert wide_square_sum(Gradients(grads), torch.device("meta")).device.type == "meta"
    exactly = _norm._exact_square_sum(grads, None).item()
    assert exactly == pytest.approx(4.0 * (SMALL + 1) + value * value)
    assert math.isfinite(exactly) is math.isfinite(value)


def test_amax_is_the_largest_magnitude() -> None:
    """Of any number of tensors; NaN if there is one, 0 of nothing."""
    assert amax([torch.tensor([-3.0, 2.0]), torch.tensor([1.0])]) == 3.0
    assert math.isnan(amax([torch.tensor([1.0]), torch.tensor([float("nan"), 2.0])]))
    assert amax([torch.empty(0)]) == amax([]) == 0.0


def test_the_host_reads_its_own_memory_and_waits_for_no_other() -> None:
    """CPU gradients are read by the host's reader; one on an accelerator is enough for the one that never waits."""
    assert isinstance(reader_for([CPU]), HostReader)
    assert isinstance(reader_for([CPU, torch.device("cuda", 0)]), WaitlessReader)
    assert isinstance(reader_for([torch.device("xpu", 0)]), WaitlessReader)
