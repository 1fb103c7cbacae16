"""Triton's step of AdamW on masters leaves the bits that PyTorch's fused AdamW leaves on float32 gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._kernels._part import Held, Hyper, Part
from mixprec._kernels._triton import _adamw, _tables
from mixprec._kernels._triton._adamw import update_

HALVES = (torch.float16, torch.bfloat16)
SMALL = {"chunk": 256, "block": 64}
USUAL = Hyper(1e-3, 0.9, 0.999, 1e-8, 1e-2)
ULP = 0 if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") else 2
"""PyTorch's kernel on CPU uses fused multiply-adds where the processor has them, as GPUs do."""

PAD = 64
"""PyTorch's kernel has other code for what its vectors leave over; tensors that are a multiple of it have none."""


@dataclass
class Masters:
    """One group's tensors, as `update_` takes them, and their copies, padded, for PyTorch's kernel."""

    hyper: Hyper
    sizes: list[int]
    dtype: torch.dtype
    generator: torch.Generator
    part: Part = field(init=False)

    def __post_init__(self) -> None:
        masters = [torch.randn(size, generator=self.generator) for size in self.sizes]
        held = Held(
            weights=[master.to(self.dtype) for master in masters],
            masters=masters,
            exp_avgs=[torch.zeros_like(master) for master in masters],
            exp_avg_sqs=[torch.zeros_like(master) for master in masters],
            steps=[torch.zeros(()) for _ in masters],
        )
        self.part = Part(self.hyper, [torch.empty_like(weight) for weight in held.weights], held)
        self.theirs = [[padded(t) for t in ts] for ts in (masters, self.part.held.exp_avgs, self.part.held.exp_avg_sqs)]
        self.their_steps = [torch.zeros(()) for _ in masters]

    def draw_gradients(self, scale: float) -> None:
        for gradient in self.part.gradients:
            gradient.copy_(torch.randn(gradient.shape, generator=self.generator) * 1e-3 * scale)

    def step_theirs(self, grad_scale, found_inf) -> None:
        """As `torch.optim.AdamW(fused=True)` does with its step counts."""
        torch._foreach_add_(self.their_steps, 1)
        masters, exp_avgs, exp_avg_sqs = self.theirs
        torch._fused_adamw_(
            masters,
            [padded(gradient.float()) for gradient in self.part.gradients],
            exp_avgs,
            exp_avg_sqs,
            [],
            self.their_steps,
            lr=self.hyper.lr,
            beta1=self.hyper.beta1,
            beta2=self.hyper.beta2,
            weight_decay=self.hyper.weight_decay,
            eps=self.hyper.eps,
            amsgrad=False,
            maximize=False,
            grad_scale=grad_scale,
            found_inf=found_inf,
        )
        if found_inf is not None:
            torch._foreach_sub_(self.their_steps, [found_inf] * len(self.their_steps))

    def check(self) -> None:
        mine = (self.part.held.masters, self.part.held.exp_avgs, self.part.held.exp_avg_sqs)
        for ours, theirs in zip(mine, self.theirs, strict=True):
            for tensor, other in zip(ours, theirs, strict=True):
                assert ulps(tensor, other[: tensor.numel()]) <= ULP
        assert self.part.held.steps == self.their_steps
        for weight, master in zip(self.part.held.weights, self.part.held.masters, strict=True):
            assert torch.equal(weight, master.to(self.dtype))


def padded(tensor):
    """`tensor` with zeros up to a multiple of PAD."""
    return torch.nn.functional.pad(tensor.clone(), (0, -tensor.numel() % PAD))


def ulps(tensor, other) -> int:
    """How many float32 numbers lie between, at most."""
    if not tensor.numel():
        return 0
    return int((tensor.view(torch.int32).long() - other.view(torch.int32).long()).abs().max())


HYPERS = {
    "usual": USUAL,
    "no decay": Hyper(1e-3, 0.9, 0.999, 1e-8, 0.0),
    "no momentum": Hyper(3e-4, 0.0, 0.9, 1e-8, 0.1),
    "little momentum": Hyper(3e-4, 0.3, 0.95, 1e-6, 0.1),
    "no second moment": Hyper(1e-2, 0.9, 0.0, 1e-3, 0.1),
    "no rate": Hyper(0.0, 0.9, 0.999, 1e-8, 0.1),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", HYPERS)
def test_five_steps_of_which_one_is_skipped_are_pytorch_s(name, dtype):
    """Masters, moments, weights and step counts after each step, with a divisor that is no power of two."""
    masters = Masters(HYPERS[name], [1, 63, 64, 700, 0], dtype, torch.Generator().manual_seed(3))
    for found in (0.0, 0.0, 1.0, 0.0, 0.0):
        masters.draw_gradients(1000.0)
        grad_scale, found_inf = torch.tensor(1000.0), torch.tensor(found)

        update_([masters.part], grad_scale, found_inf, **SMALL)
        masters.step_theirs(grad_scale, found_inf)

        masters.check()
    assert [step.item() for step in masters.part.held.steps] == [4.0] * 5


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(HYPERS)), st.lists(st.sampled_from([0, 1, 65, 300]), min_size=1, max_size=3)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(HALVES),
    st.sampled_from([None, 1.0, 65536.0, 12345.678]),
    st.integers(0, 2**32),
)
def test_any_groups_in_one_launch_are_pytorch_s(groups, dtype, scale, seed):
    """Groups of any settings and sizes, with and without a divisor, in two steps."""
    generator = torch.Generator().manual_seed(seed)
    parts = [Masters(HYPERS[name], sizes, dtype, generator) for name, sizes in groups]
    grad_scale = None if scale is None else torch.tensor(scale)
    for _ in range(2):
        for masters in parts:
            masters.draw_gradients(min(scale or 1.0, 1000.0))
        update_([masters.part for masters in parts], grad_scale, None, **SMALL)
        for masters in parts:
            masters.step_theirs(grad_scale, None)
            masters.check()


def test_thirty_steps_stay_by_float64():
    """Against the same formulas in float64, masters are off by some roundings per step, of which decay's repeats."""
    masters = Masters(USUAL, [64], torch.bfloat16, torch.Generator().manual_seed(0))
    exact, mean, square = masters.part.held.masters[0].double(), torch.zeros(64).double(), torch.zeros(64).double()
    for step in range(1, 31):
        masters.draw_gradients(8.0)
        update_([masters.part], torch.tensor(8.0), torch.tensor(0.0), **SMALL)
        gradient = masters.part.gradients[0].double() / 8.0
        exact *= 1.0 - USUAL.lr * USUAL.weight_decay
        mean = USUAL.beta1 * mean + (1.0 - USUAL.beta1) * gradient
        square = USUAL.beta2 * square + (1.0 - USUAL.beta2) * gradient.square()
        root = (square / (1.0 - USUAL.beta2**step)).sqrt() + USUAL.eps
        exact -= USUAL.lr * mean / (1.0 - USUAL.beta1**step) / root

    torch.testing.assert_close(masters.part.held.masters[0].double(), exact, rtol=30 * 2.0**-24, atol=1e-6)


def test_a_skip_leaves_every_bit():
    """With found_inf nothing is written, even where gradients are NaN and the step is the first."""
    masters = Masters(USUAL, [70, 300], torch.float16, torch.Generator().manual_seed(0))
    for gradient in masters.part.gradients:
        gradient.fill_(math.nan)
    before = [t.clone() for ts in tensors_of(masters.part) for t in ts]

    update_([masters.part], torch.tensor(8.0), torch.tensor(1.0), **SMALL)

    after = [t for ts in tensors_of(masters.part) for t in ts]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def tensors_of(part):
    """What a step writes."""
    return part.held.weights, part.held.masters, part.held.exp_avgs, part.held.exp_avg_sqs, part.held.steps


def test_a_master_beyond_the_half_s_range_gives_an_infinite_weight():
    """As `copy_` does: a float16 weight of a master of 7e4 is infinite, and the master goes on."""
    masters = Masters(Hyper(0.0, 0.9, 0.999, 1e-8, 0.0), [3], torch.float16, torch.Generator())
    masters.part.held.masters[0].fill_(7e4)
    masters.draw_gradients(1.0)

    update_([masters.part], None, None, **SMALL)

    assert masters.part.held.weights[0].isinf().all()
    assert masters.part.held.masters[0].eq(7e4).all()


def test_whoever_watches_versions_sees_the_step():
    """The versions of weights, masters, moments and counts move by one."""
    masters = Masters(USUAL, [10], torch.bfloat16, torch.Generator())
    masters.draw_gradients(1.0)
    before = [t._version for ts in tensors_of(masters.part) for t in ts]

    update_([masters.part], None, None, **SMALL)

    assert [t._version for ts in tensors_of(masters.part) for t in ts] == [version + 1 for version in before]


def test_elements_beyond_two_to_the_31_are_where_64_bits_say(monkeypatch):
    """The last chunks of tensors of 2^31 + 5000 elements, of which only those exist, are stepped, in every list."""
    count = _tables.CHUNK + 5000
    masters = Masters(USUAL, [count], torch.bfloat16, torch.Generator().manual_seed(0))
    masters.draw_gradients(1.0)
    size = 2**31 + 5000
    chunks = _tables.chunk_table((size,), _tables.CHUNK)[:, -2:].contiguous()

    def batch(*lists, chunk):
        begins = [ts[0].data_ptr() - (size - count) * ts[0].element_size() for ts in lists]
        return _tables.Batch(chunks, torch.tensor(begins), 1, False)

    monkeypatch.setattr(_adamw, "batch", batch)
    update_([masters.part], None, None)
    masters.step_theirs(None, None)

    masters.check()
