"""Masters stepped a piece at a time have the bits that PyTorch's kernel leaves on whole tensors."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._kernels._part import Held, Hyper, Part
from mixprec._kernels._pieces import Pieces

HALVES = (torch.float16, torch.bfloat16)
HYPERS = (Hyper(1e-3, 0.9, 0.999, 1e-8, 1e-2), Hyper(3e-4, 0.0, 0.9, 1e-8, 0.0))


def drawn(hyper, shapes, dtype, generator):
    """A part with masters and moments, and gradients that carry a scale of 1000."""
    masters = [torch.randn(shape, generator=generator) for shape in shapes]
    gradients = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    held = Held(
        weights=[master.to(dtype) for master in masters],
        masters=masters,
        exp_avgs=[torch.randn(shape, generator=generator) * 1e-3 for shape in shapes],
        exp_avg_sqs=[torch.rand(shape, generator=generator) * 1e-6 for shape in shapes],
        steps=[torch.tensor(3.0) for _ in masters],
    )
    return Part(hyper, gradients, held)


def whole(part, grad_scale, found_inf):
    """What `torch.optim.AdamW(fused=True)` makes of copies with float32 gradients: masters, moments, steps."""
    copies = [
        [t.clone() for t in ts]
        for ts in (part.held.masters, part.held.exp_avgs, part.held.exp_avg_sqs, part.held.steps)
    ]
    masters, exp_avgs, exp_avg_sqs, steps = copies
    torch._foreach_add_(steps, 1)
    torch._fused_adamw_(
        masters,
        [gradient.float() for gradient in part.gradients],
        exp_avgs,
        exp_avg_sqs,
        [],
        steps,
        lr=part.hyper.lr,
        beta1=part.hyper.beta1,
        beta2=part.hyper.beta2,
        weight_decay=part.hyper.weight_decay,
        eps=part.hyper.eps,
        amsgrad=False,
        maximize=False,
        grad_scale=grad_scale,
        found_inf=found_inf,
    )
    if found_inf is not None:
        torch._foreach_sub_(steps, [found_inf] * len(steps))
    return copies


def check(part, expected):
    for mine, theirs in zip(
        (part.held.masters, part.held.exp_avgs, part.held.exp_avg_sqs, part.held.steps), expected, strict=True
    ):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert all(torch.equal(w, m.to(w.dtype)) for w, m in zip(part.held.weights, part.held.masters, strict=True))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.lists(st.sampled_from([(0,), (), (1,), (63,), (129,), (7, 31), (20, 33)]), min_size=1, max_size=4),
        min_size=1,
        max_size=2,
    ),
    st.sampled_from(HALVES),
    st.sampled_from([None, 1000.0]),
    st.sampled_from([None, 0.0, 1.0]),
    st.sampled_from([64, 100, 128, 1024]),
    st.integers(0, 2**32),
)
def test_every_bit_is_pytorch_s(groups, dtype, scale, found, size, seed):
    """Any shapes, groups and sizes of pieces; with and without a divisor; skipped or not."""
    generator = torch.Generator().manual_seed(seed)
    parts = [drawn(HYPERS[i], shapes, dtype, generator) for i, shapes in enumerate(groups)]
    grad_scale, found_inf = (None if number is None else torch.tensor(number) for number in (scale, found))
    expected = [whole(part, grad_scale, found_inf) for part in parts]

    Pieces(size)(parts, grad_scale, found_inf)

    for part, copies in zip(parts, expected, strict=True):
        check(part, copies)


def test_a_skip_survives_nan():
    """Gradients that are NaN change nothing where the step is skipped."""
    part = drawn(HYPERS[0], [(70,)], torch.float16, torch.Generator())
    part.gradients[0].fill_(math.nan)
    before = [
        t.clone()
        for ts in (part.held.masters, part.held.exp_avgs, part.held.exp_avg_sqs, part.held.steps, part.held.weights)
        for t in ts
    ]

    Pieces(64)([part], torch.tensor(8.0), torch.tensor(1.0))

    after = [
        t
        for ts in (part.held.masters, part.held.exp_avgs, part.held.exp_avg_sqs, part.held.steps, part.held.weights)
        for t in ts
    ]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_tensors_that_changed_places_are_cut_again():
    """The same pieces serve the next step; other tensors, or the same memory in other shapes, get their own."""
    pieces, generator = Pieces(64), torch.Generator().manual_seed(0)
    first = drawn(HYPERS[0], [(130,), (5,)], torch.bfloat16, generator)
    other = drawn(HYPERS[0], [(130,), (5,)], torch.bfloat16, generator)
    for part in (first, first, other, first):
        expected = whole(part, None, None)
        pieces([part], None, None)
        check(part, expected)


def test_tensors_in_another_memory_order_are_stepped_where_they_lie():
    """Channels last: every element meets its own gradient."""
    part = drawn(HYPERS[0], [(2, 3, 4, 5)], torch.bfloat16, torch.Generator().manual_seed(0))
    plain = whole(part, None, None)
    turned = [
        [t.contiguous(memory_format=torch.channels_last) for t in ts]
        for ts in (part.gradients, part.held.weights, part.held.masters, part.held.exp_avgs, part.held.exp_avg_sqs)
    ]
    held = Held(*turned[1:], steps=part.held.steps)

    Pieces(64)([Part(part.hyper, turned[0], held)], None, None)

    torch.testing.assert_close(held.masters[0], plain[0][0], rtol=0, atol=1e-7)


@pytest.mark.parametrize("size", [64, 1 << 17])
def test_no_float32_gradient_of_the_whole_exists(size):
    """The scratch is one piece."""
    pieces, part = Pieces(size), drawn(HYPERS[0], [(1000,)], torch.bfloat16, torch.Generator())

    pieces([part], None, None)

    assert pieces._scratch.numel() == size
