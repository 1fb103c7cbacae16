"""Bytes and casts are counted from the ops that run, and checked against ops whose traffic is known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from benchmarks.casts import counted_casts
from benchmarks.optimizer_phase import Phase, Size, our_phase, torch_phase
from benchmarks.saved import saved_bytes
from benchmarks.traffic import bytes_moved

N = 1 << 16


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda a, b: a.copy_(b), 8),
        (lambda a, b: a.mul_(2.0), 8),
        (lambda a, b: a + b, 12),
        (lambda a, b: a.add_(b), 12),
        (lambda a, b: a.fill_(1.0), 4),
        (lambda a, b: a.view(-1)[2:].t(), 0),
        (lambda a, b: a.sum(), 4),
        (lambda a, b: a.half(), 6),
        (lambda a, b: torch.empty_like(a), 0),
        (lambda a, b: torch._foreach_add_([a], [b]), 12),
        (lambda a, b: torch._foreach_copy_([a], [b]), 8),
    ],
)
def test_known_ops(program, expected):
    """Reads and writes per float32 element."""
    moved = bytes_moved(lambda: program(torch.ones(N).requires_grad_(False), torch.ones(N)))

    assert moved == pytest.approx((expected + 2 * 4) * N, rel=1e-3)  # the two ones are written first


@pytest.mark.parametrize(
    ("make", "max_norm", "expected"), [(torch_phase, 1.0, 48), (torch_phase, None, 40), (our_phase, 1.0, 36)]
)
def test_phases_move_what_their_kernels_say(make, max_norm, expected):
    """torch.amp with a fused AdamW moves 48 bytes per parameter with clipping and 40 without, mixprec 36."""
    phase = Phase(Size("one", "one tensor", ((N,),)), "cpu", fused=True)
    call = make(phase, "cpu", max_norm)
    call()
    phase.restore()

    assert bytes_moved(call) / N == pytest.approx(expected, rel=1e-2)


def test_memory_is_counted_once_and_parameters_not_at_all():
    """Two ops that save the same tensor, and a view of it, count it once; a parameter's own memory is left out."""
    weight = nn.Parameter(torch.ones(8, 8))
    x = torch.ones(16, 8, requires_grad=True)

    def forward():
        return (x @ weight).sum() + (x[:4] @ weight).sum()

    assert saved_bytes(forward, [weight]) == x.numel() * 4
    assert saved_bytes(forward, []) == (x.numel() + weight.numel()) * 4


def test_casts_are_changes_of_floating_dtype():
    """A cast down and its way back in backward are two; a copy, an integer and a cast to the same dtype are none."""
    x = torch.ones(10, requires_grad=True)

    casts = counted_casts(lambda: x.bfloat16().sum().backward())
    none = counted_casts(lambda: (x.detach().clone(), x.float(), torch.arange(3).float()))

    assert (casts.count, casts.bytes) == (2, 10 * 2 + 10 * 4)
    assert none.count == 0
