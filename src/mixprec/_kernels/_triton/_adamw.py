"""One launch takes 16-bit gradients to new masters, moments and 16-bit weights: 28 bytes per parameter, once each.

The arithmetic is that of PyTorch's fused AdamW on CPU: the same operations in the same order, two of them fused
multiply-adds, divisions and the root correctly rounded. The compiler fuses nothing else (see `launch`).
Source: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/cpu/FusedAdamKernel.cpp
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton.language as tl
from torch import Tensor

from mixprec._kernels._part import Hyper, Part
from mixprec._kernels._triton._jit import kernel
from mixprec._kernels._triton._tables import CHUNK, TYPES, batch, launch, table

__all__ = ["update_"]

BLOCK = 1024
WARPS = 4
TENSORS = 256
"""Tensors whose steps one program counts."""

_SETTINGS = tl.constexpr(8)
"""Numbers in a row of the table of settings."""


@kernel("n")
def _count(
    steps: tl.tensor,
    rows: tl.tensor,
    settings: tl.tensor,
    found_inf: tl.tensor,
    factors: tl.tensor,
    n: tl.tensor,
    has_found: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Counts the step of each tensor unless it is skipped, and works out what depends on the count, in float64."""
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    mask = lanes < n
    pointers = tl.load(steps + lanes, mask=mask, other=0).to(tl.pointer_type(tl.float32))
    step = tl.load(pointers, mask=mask, other=1.0) + 1.0
    if has_found:
        step -= tl.where(tl.load(found_inf) > 0, 1.0, 0.0)
    tl.store(pointers, step, mask=mask)

    row = settings + tl.load(rows + lanes, mask=mask, other=0) * _SETTINGS
    count = tl.maximum(step, 1.0).to(tl.float64)
    correction = 1.0 - tl.exp(count * tl.load(row + 1))
    correction_sq = 1.0 - tl.exp(count * tl.load(row + 2))
    tl.store(factors + lanes, -(tl.load(row) / correction), mask=mask)
    tl.store(factors + n + lanes, tl.sqrt(correction_sq), mask=mask)


@kernel()
def _move(
    gradients: tl.tensor,
    masters: tl.tensor,
    exp_avgs: tl.tensor,
    exp_avg_sqs: tl.tensor,
    weights: tl.tensor,
    mask: tl.tensor,
    scale: tl.tensor,
    step_size: tl.tensor,
    correction: tl.tensor,
    decay: tl.tensor,
    pull: tl.tensor,
    beta_sq: tl.tensor,
    pull_sq: tl.tensor,
    epsilon: tl.tensor,
    dtype: tl.constexpr,
    has_scale: tl.constexpr,
) -> None:
    """One step of AdamW on the elements at these pointers; `step_size` is negative, `pull` is 1 - beta1."""
    gradient = tl.load(gradients, mask=mask).to(tl.float32)
    master = tl.load(masters, mask=mask)
    exp_avg = tl.load(exp_avgs, mask=mask)
    exp_avg_sq = tl.load(exp_avg_sqs, mask=mask)
    if has_scale:
        gradient = tl.div_rn(gradient, tl.zeros_like(gradient) + scale)
    near = pull < 0.5  # as torch.lerp: from the closer end
    weight = tl.where(near, pull, pull - 1.0)
    exp_avg = tl.fma(tl.zeros_like(gradient) + weight, gradient - exp_avg, tl.where(near, exp_avg, gradient))
    exp_avg_sq = tl.fma(pull_sq * gradient, gradient, exp_avg_sq * beta_sq)
    root = tl.sqrt_rn(exp_avg_sq)
    denominator = tl.div_rn(root, tl.zeros_like(root) + correction) + epsilon
    master = master * decay + tl.div_rn(step_size * exp_avg, denominator)
    tl.store(masters, master, mask=mask)
    tl.store(exp_avgs, exp_avg, mask=mask)
    tl.store(exp_avg_sqs, exp_avg_sq, mask=mask)
    tl.store(weights, master.to(dtype), mask=mask)


@kernel("n", "tensors")
def _step(
    chunks: tl.tensor,
    addresses: tl.tensor,
    n: tl.tensor,
    tensors: tl.tensor,
    rows: tl.tensor,
    settings: tl.tensor,
    factors: tl.tensor,
    grad_scale: tl.tensor,
    found_inf: tl.tensor,
    dtype: tl.constexpr,
    has_scale: tl.constexpr,
    has_found: tl.constexpr,
    aligned: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """One chunk each; no element is read or written where the step is skipped."""
    program = tl.program_id(0)
    place = tl.load(chunks + program)
    start = tl.load(chunks + n + program)
    count = tl.load(chunks + 2 * n + program)
    if has_found:
        count = tl.where(tl.load(found_inf) > 0, 0, count)
    address = addresses + place
    gradients = tl.load(address).to(tl.pointer_type(dtype)) + start
    masters = tl.load(address + tensors).to(tl.pointer_type(tl.float32)) + start
    exp_avgs = tl.load(address + 2 * tensors).to(tl.pointer_type(tl.float32)) + start
    exp_avg_sqs = tl.load(address + 3 * tensors).to(tl.pointer_type(tl.float32)) + start
    weights = tl.load(address + 4 * tensors).to(tl.pointer_type(dtype)) + start

    row = settings + tl.load(rows + place) * _SETTINGS
    step_size = tl.load(factors + place)
    correction = tl.load(factors + tensors + place)
    decay = tl.load(row + 3).to(tl.float32)
    pull = tl.load(row + 4).to(tl.float32)
    beta_sq = tl.load(row + 5).to(tl.float32)
    pull_sq = tl.load(row + 6).to(tl.float32)
    epsilon = tl.load(row + 7).to(tl.float32)
    scale = 1.0
    if has_scale:
        scale = tl.load(grad_scale)

    lanes = tl.arange(0, block)
    whole = count - count % block
    for first in range(0, whole, block):
        at = first + lanes
        g, p, m, v, w = gradients + at, masters + at, exp_avgs + at, exp_avg_sqs + at, weights + at
        if aligned:
            g, w = tl.multiple_of(g, 16), tl.multiple_of(w, 16)
            p, m, v = tl.multiple_of(p, 16), tl.multiple_of(m, 16), tl.multiple_of(v, 16)
        _move(
            g,
            p,
            m,
            v,
            w,
            None,
            scale,
            step_size,
            correction,
            decay,
            pull,
            beta_sq,
            pull_sq,
            epsilon,
            dtype,
            has_scale,
        )
    at = whole + lanes
    _move(
        gradients + at,
        masters + at,
        exp_avgs + at,
        exp_avg_sqs + at,
        weights + at,
        at < count,
        scale,
        step_size,
        correction,
        decay,
        pull,
        beta_sq,
        pull_sq,
        epsilon,
        dtype,
        has_scale,
    )


def update_(
    parts: Sequence[Part],
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    *,
    chunk: int = CHUNK,
    block: int = BLOCK,
) -> None:
    """One step of `parts`, on one device and of one dtype; a `MasterUpdate`.

    **Cost**: one launch, and a small one for the step counts; 28 bytes moved per parameter. No host sync.
    """
    held = [part.held for part in parts]
    by_part = (
        (part.gradients, h.masters, h.exp_avgs, h.exp_avg_sqs, h.weights) for part, h in zip(parts, held, strict=True)
    )
    lists = [[tensor for tensors in roles for tensor in tensors] for roles in zip(*by_part, strict=True)]
    each = batch(*lists, chunk=chunk)
    device = lists[0][0].device
    steps = tuple(step.data_ptr() for h in held for step in h.steps)
    rows = table(tuple(row for row, h in enumerate(held) for _ in h.steps), torch.int64, device)
    settings = table(tuple(n for part in parts for n in _settings(part.hyper)), torch.float64, device)
    factors = torch.empty((2, len(steps)), dtype=torch.float32, device=device)
    found = factors if found_inf is None else found_inf
    launch(
        _count,
        -(-len(steps) // TENSORS),
        device,
        table(steps, torch.int64, device),
        rows,
        settings,
        found,
        factors,
        len(steps),
        has_found=found_inf is not None,
        block=TENSORS,
        num_warps=4,
    )
    if each.programs:
        launch(
            _step,
            each.programs,
            device,
            each.chunks,
            each.addresses,
            each.programs,
            each.tensors,
            rows,
            settings,
            factors,
            factors if grad_scale is None else grad_scale,
            found,
            dtype=TYPES[lists[0][0].dtype],
            has_scale=grad_scale is not None,
            has_found=found_inf is not None,
            aligned=each.aligned,
            block=block,
            num_warps=WARPS,
        )
    for h in held:
        torch.autograd.graph.increment_version([*h.weights, *h.masters, *h.exp_avgs, *h.exp_avg_sqs, *h.steps])


def _settings(hyper: Hyper) -> tuple[float, ...]:
    """Rounded once, from float64, where they are used: as PyTorch's kernel has them."""
    return (
        hyper.lr,
        _log(hyper.beta1),
        _log(hyper.beta2),
        1.0 - hyper.lr * hyper.weight_decay,
        1.0 - hyper.beta1,
        hyper.beta2,
        1.0 - hyper.beta2,
        hyper.eps,
    )


def _log(beta: float) -> float:
    return math.log(beta) if beta else -math.inf
