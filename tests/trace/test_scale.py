"""Which loss scale a step's backward has room for is what running it at that scale shows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mixprec._trace import Tracer, flushes, locate, room


def traced(scale, gain=1.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    x = torch.randn(8, 16)
    tracer = Tracer(keep="all", exact=True)
    with tracer:
        with torch.autocast("cpu", torch.float16):
            loss = model(x).float().pow(2).mean() * gain
        (loss * scale).backward()
    return tracer.records


def descended(scale, gain):
    """The scale that following ceilings down from `scale` ends at, and how many steps that takes."""
    for steps in range(10):
        found = room(traced(scale, gain), scale)
        if found.complete:
            return scale, steps
        assert found.smaller_scale_helps
        scale = found.ceiling
    raise AssertionError("no end")


@pytest.mark.parametrize("gain", [1.0, 64.0, 2.0**-6])
def test_the_ceilings_lead_to_the_largest_scale_without_overflow(gain):
    """Tracing again at the ceiling ends in a few steps at a scale without overflow, and at twice it something does."""
    scale, steps = descended(2.0**30, gain)

    assert 0 < steps <= 4
    assert locate(traced(scale, gain)).clean
    assert not locate(traced(scale * 2, gain)).clean


def test_a_scale_that_fits_is_told_how_much_more_room_there_is():
    """A step that does not overflow names the ceiling at which it does not overflow and above which it does."""
    low = room(traced(64.0), 64.0)

    assert low.complete
    assert not low.smaller_scale_helps
    assert locate(traced(low.ceiling / 2)).clean
    assert not locate(traced(low.ceiling * 2)).clean


def test_an_overflow_that_does_not_depend_on_the_scale_is_told():
    """1/x² at a tiny x overflows in backward at every scale, and is named."""
    x = torch.tensor([2.0**-10], dtype=torch.float16, requires_grad=True)
    with Tracer(keep="all", exact=True) as tracer:
        (1 / x).backward()

    found = room(tracer.records, 1.0)

    assert found.at_any_scale is not None or found.ceiling < 1
    assert not found.smaller_scale_helps


def test_flushed_gradients_are_found_and_the_named_scale_keeps_them():
    """Gradients below the format's range are found where they are flushed; at the scale that is named none is lost."""
    lost = flushes(traced(1.0, 2.0**-20), 1.0)
    assert lost
    assert max(flush.zeroed for flush in lost) > 0.5
    assert all(flush.record.phase == "backward" for flush in lost)

    floor = room(traced(2.0**10, 2.0**-20), 2.0**10).floor

    assert max((flush.zeroed for flush in flushes(traced(floor, 2.0**-20), floor)), default=0.0) < 0.01


def test_zeros_that_are_exact_are_no_flush():
    """Zeros of a ReLU's gradient are zeros in float32 too, and nobody lost them."""
    x = torch.tensor([-1.0, 2.0], dtype=torch.float16, requires_grad=True)
    with Tracer(keep="all", exact=True) as tracer:
        torch.relu(x).sum().backward()

    assert flushes(tracer.records, 1.0) == ()
