"""On a real device the kernels give what the interpreter gave: the reference's results, and no wait for the host."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="Triton is published for Linux only")

from mixprec import GradScaler, Precision  # only where there is one
from mixprec._gradients import Gradients, WaitlessReader  # as above
from mixprec._gradients import multiply_ as reference_multiply_  # as above
from mixprec._kernels._part import Held, Hyper, Part  # as above
from mixprec._kernels._triton._adamw import update_  # as above
from mixprec._kernels._triton._multiply import multiply_  # as above
from mixprec._kernels._triton._read import read  # as above

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SIZES = (0, 1, 1000, 16384, 100_001, 1 << 21)
HYPER = Hyper(1e-3, 0.9, 0.999, 1e-8, 1e-2)


def drawn(dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    return [torch.randn(size, device="cuda", generator=generator).to(dtype) for size in SIZES]


@pytest.mark.parametrize("planted", [0.0, math.inf, math.nan])
def test_the_read_is_the_reference_s(planted):
    """Three dtypes at once, with a scale and clipping, and something planted in the last element."""
    tensors = [tensor for dtype in DTYPES for tensor in drawn(dtype)]
    tensors[-1][-1] = planted
    scale, reference = torch.tensor(3.0, device="cuda"), WaitlessReader(below_one=True)
    reading = reference.read(Gradients(tensors), scale, scale.device)
    clipping = reference.clipping(reading, scale, 1.0)

    numbers = read(tensors, None, scale, 1.0)

    assert numbers.flag == reading.found_inf
    torch.testing.assert_close(numbers.norm, clipping.norm, rtol=1e-12, atol=0, equal_nan=True)
    torch.testing.assert_close(numbers.coefficient, clipping.coefficient, rtol=1e-12, atol=0)
    again = read(tensors, None, scale, 1.0)
    torch.testing.assert_close(again.square_sum, numbers.square_sum, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_multiplication_is_the_reference_s(dtype):
    """Every bit, and the flag."""
    mine, factor = drawn(dtype), torch.tensor(1.0 / 3.0, device="cuda")
    mine[2][5] = math.inf
    theirs, flag = [tensor.clone() for tensor in mine], torch.zeros((), device="cuda")

    multiply_(mine, factor, flag)
    expected = reference_multiply_(Gradients(theirs), factor, torch.zeros((), device="cuda"))

    assert flag == expected[flag.device] == 1.0
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_step_is_that_of_pytorch_on_cpu(dtype):
    """Masters and moments have its bits, since both round every operation alike; one of three steps is skipped."""
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("the processor has no fused multiply-add to compare with")
    generator = torch.Generator().manual_seed(0)
    masters = [torch.randn(size, generator=generator) for size in (64, 4096, 1 << 20)]
    on_host = [masters, *([torch.zeros_like(m) for m in masters] for _ in range(2))]
    here = [[t.cuda() for t in ts] for ts in on_host]
    weights = [m.to(dtype) for m in here[0]]
    steps, their_steps = ([torch.zeros((), device=device) for _ in masters] for device in ("cuda", "cpu"))
    for found in (0.0, 1.0, 0.0):
        gradients = [torch.randn(m.shape, generator=generator).to(dtype) for m in masters]
        part = Part(HYPER, [g.cuda() for g in gradients], Held(weights, *here, steps=steps))
        update_([part], torch.tensor(777.0, device="cuda"), torch.tensor(found, device="cuda"))
        torch._foreach_add_(their_steps, 1)
        torch._fused_adamw_(
            on_host[0],
            [g.float() for g in gradients],
            on_host[1],
            on_host[2],
            [],
            their_steps,
            lr=HYPER.lr,
            beta1=HYPER.beta1,
            beta2=HYPER.beta2,
            weight_decay=HYPER.weight_decay,
            eps=HYPER.eps,
            amsgrad=False,
            maximize=False,
            grad_scale=torch.tensor(777.0),
            found_inf=torch.tensor(found),
        )
        torch._foreach_sub_(their_steps, [torch.tensor(found)] * len(their_steps))
    for mine, theirs in zip(here, on_host, strict=True):
        assert all(torch.equal(a.cpu(), b) for a, b in zip(mine, theirs, strict=True))
    assert [step.item() for step in steps] == [step.item() for step in their_steps]
    assert all(torch.equal(w, m.to(dtype)) for w, m in zip(weights, here[0], strict=True))


def test_more_than_two_to_the_31_elements_are_read_and_multiplied():
    """One bfloat16 tensor of 2^31 + 1000 elements, whose last one counts."""
    free, _ = torch.cuda.mem_get_info()
    if free < 6 << 30:
        pytest.skip(f"needs 6 GiB of memory, {free / 2**30:.1f} are free")
    tensor, flag = torch.zeros(2**31 + 1000, dtype=torch.bfloat16, device="cuda"), torch.zeros((), device="cuda")
    tensor[-1] = 3.0

    assert read([tensor]).norm == 3.0
    multiply_([tensor], torch.tensor(2.0, device="cuda"), flag)

    assert tensor[-1] == 6.0
    assert flag == 0.0


@pytest.mark.parametrize("fused", [True, False])
def test_a_scaler_s_step_waits_for_nothing(fused):
    """Under the sync debug mode that raises, clipped steps with a fused optimizer pass; a plain one looks, once."""
    model = nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = GradScaler("cuda", kernels="triton")
    for step in range(20):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(8, 64, device="cuda")).square().mean()).backward()
        torch.cuda.set_sync_debug_mode("error" if step and fused else "default")
        try:
            scaler.step(optimizer, max_norm=1.0)
            scaler.update()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert scaler.report(optimizer).applied


@pytest.mark.parametrize("mode", ["fp16-master", "bf16-master"])
def test_training_with_masters_is_the_same(mode):
    """Against PyTorch's kernels: verdicts alike, weights within a rounding of 16 bits per step."""
    models, verdicts = [], []
    for kernels in ("triton", "foreach"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 5)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        precision = Precision(mode, optimizer, model=model, max_norm=0.1, kernels=kernels)
        applied = []
        for step in range(6):
            with precision.autocast():
                loss = model(torch.randn(8, 20, device="cuda")).float().square().mean()
            precision.backward(loss * (math.inf if step == 2 else 1.0))
            applied.append(precision.step().applied)
        models.append(model)
        verdicts.append(applied)
    assert verdicts == [[True, True, False, True, True, True]] * 2
    for weight, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(weight, other, rtol=2e-2, atol=2e-3)
