"""Each intervention changes its one thing, in code that does not know of it, and nothing else."""

from __future__ import annotations

import math
import os

import pytest
import torch
from torch import nn

from mixprec.doctor import interventions
from mixprec.doctor._notebook import _undone
from mixprec.errors import UnknownNameError


@pytest.fixture
def apply(monkeypatch):
    """`apply(name=value, ...)` puts interventions in place until the test ends."""
    for name in ("TORCHDYNAMO_DISABLE", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that what an intervention sets is taken back
        if not os.environ[name]:
            monkeypatch.delenv(name)
    flags = torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()
    with _undone():
        yield lambda **changes: interventions.apply(changes)
    torch.use_deterministic_algorithms(flags[0])
    torch.set_float32_matmul_precision(flags[1])
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.cuda.enable_mem_efficient_sdp(True)


def stepped(**settings):
    """How far one SGD step moves a weight of 1 with gradient 1."""
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.5, **settings)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=10, cycle_momentum=False)
    moves = []
    for _ in range(3):
        before, lr = weight.detach().clone(), optimizer.param_groups[0]["lr"]
        weight.grad = torch.ones(4)
        optimizer.step()
        scheduler.step()
        moves.append(float((before - weight.detach())[0] / lr))
    return moves


@pytest.mark.parametrize("name", interventions.names())
def test_every_intervention_is_described(name):
    """The first line of each file says what it changes."""
    assert len(interventions.described(name)) > 20


def test_an_unknown_intervention_is_refused_with_suggestions():
    """The error names what is meant."""
    with pytest.raises(UnknownNameError, match="did you mean 'precision'"):
        interventions.apply({"presision": "fp32"})


@pytest.mark.parametrize(
    ("value", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)]
)
def test_precision_reaches_regions_and_scalers(apply, value, dtype):
    """Regions compute in the given precision, scalers are on exactly for FP16, and what was off stays off."""
    apply(precision=value)
    layer, x = nn.Linear(4, 4), torch.randn(2, 4)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype is dtype
        with torch.autocast("cpu", enabled=False):
            assert layer(x).dtype is torch.float32
    assert torch.amp.GradScaler("cpu", enabled=False).is_enabled() is (value == "fp16")


def test_explicit_conversions_are_exchanged(apply):
    """`.half()`, `.to(dtype)` and factories with a 16-bit dtype give float32; other dtypes are left."""
    apply(explicit="fp32")

    model = nn.Linear(4, 4).half()
    made = torch.zeros(2, 4, dtype=torch.float16)
    assert {model.weight.dtype, made.dtype, torch.ones(2).bfloat16().dtype} == {torch.float32}
    assert torch.ones(2).to(torch.float16).dtype is torch.float32
    assert torch.ones(2).double().dtype is torch.float64
    assert torch.arange(3, dtype=torch.int64).dtype is torch.int64
    assert model(made).dtype is torch.float32


def test_the_loss_scale_is_fixed(apply):
    """It is the given value, also after a step that overflowed."""
    apply(loss_scale=4.0)
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")

    for value in (1.0, float("inf"), 1.0):
        scaler.scale((weight * value).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert scaler.get_scale() == 4.0
    assert weight.detach().tolist() == pytest.approx([0.8, 0.8])


def test_the_first_scale_is_given(apply):
    """The scaler starts there and backs off as ever."""
    apply(init_scale=8.0)

    assert torch.amp.GradScaler("cpu", init_scale=2.0**16).get_scale() == 8.0


def test_the_learning_rate_is_a_tenth_whatever_the_schedule_says(apply):
    """The move is a tenth of what the schedule's rate gives, and the schedule itself does not notice."""
    plain = stepped()

    apply(learning_rate=0.1)

    assert stepped() == pytest.approx([0.1 * move for move in plain], rel=1e-4)


def test_warm_up_rises(apply):
    """The first moves are 1/4, 2/4 and 3/4 of what they would be."""
    apply(warm_up=4)

    assert stepped() == pytest.approx([0.25, 0.5, 0.75], rel=1e-4)


def test_gradients_are_clipped(apply):
    """Four gradients of 1, norm 2, become 1/2 each at a limit of 1; at 10 they are untouched."""
    apply(clip=1.0)

    assert stepped() == pytest.approx([0.5] * 3, rel=1e-4)


def test_epsilon_is_exchanged(apply):
    """Adam's first step is lr · g / (|g| + eps)."""
    apply(adam_eps=1.0)
    weight = nn.Parameter(torch.zeros(1))
    weight.grad = torch.ones(1)

    optimizer = torch.optim.Adam([weight], lr=0.5)
    optimizer.step()

    assert float(weight.detach()) == pytest.approx(-0.25)
    assert optimizer.param_groups[0]["eps"] == 1e-8


def batches(count=6):
    """What a DataLoader over 0 ... 5 hands out."""
    return [int(batch) for batch in torch.utils.data.DataLoader(torch.arange(count), batch_size=1)]


def test_batches_are_pinned(apply):
    """The first two are repeated."""
    apply(pin_batches=2)

    assert batches() == [0, 1, 0, 1, 0, 1]


def test_batches_are_left_out(apply):
    """The given ones are never seen."""
    apply(leave_out=[1, 4])

    assert batches() == [0, 2, 3, 5]


def test_optimizers_are_unfused(apply):
    """`fused=True` is not heard."""
    apply(unfused=True)

    assert not torch.optim.AdamW([nn.Parameter(torch.ones(1))], fused=True).param_groups[0]["fused"]


def test_nothing_is_compiled(apply):
    """`torch.compile` returns what it is given, as function and as decorator."""
    apply(eager=True)
    model = nn.Linear(1, 1)

    assert torch.compile(model) is model
    assert torch.compile(mode="reduce-overhead")(len) is len


def test_flags_are_set(apply, monkeypatch):
    """TF32 is off for good, deterministic kernels are on, attention is plain."""
    # Other tests import torch.testing._internal, which forbids to set flags for the rest of the process.
    names = torch.backends.ContextProp.__set__.__globals__
    assert "__allow_nonbracketed_mutation_flag" in names
    monkeypatch.setitem(names, "__allow_nonbracketed_mutation_flag", True)
    apply(tf32_off=True, deterministic=True, math_attention=True)
    torch.set_float32_matmul_precision("medium")

    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cuda.flash_sdp_enabled()


def test_the_cast_cache_is_off(apply):
    """Regions keep no casts."""
    apply(cast_cache_off=True)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not torch.is_autocast_cache_enabled()


def test_cuda_policy_on_the_cpu(apply):
    """softmax, which the CPU's list leaves in 16 bits, runs in float32 as on CUDA; linear stays in 16."""
    x, layer = torch.randn(2, 4), nn.Linear(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).softmax(-1).dtype is torch.bfloat16

    apply(cuda_policy=True)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = layer(x)
        assert (made.dtype, made.softmax(-1).dtype) == (torch.bfloat16, torch.float32)
    assert not torch.is_autocast_enabled("cpu")


def test_one_module_runs_in_float32(apply):
    """The named module gets and gives float32, its neighbours stay in 16 bits."""
    apply(fp32_modules=["1"])
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    seen = []
    for part in model:
        part.register_forward_hook(lambda module, args, output: seen.append(output.dtype))

    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.randn(2, 4))

    assert seen == [torch.bfloat16, torch.float32, torch.bfloat16]


def test_interventions_compose(apply):
    """FP16 at a fixed scale of 1 with a tenth of the rate: all three hold at once."""
    apply(precision="fp16", loss_scale=1.0, learning_rate=0.1)

    scaler = torch.amp.GradScaler("cpu", enabled=False)

    assert (scaler.is_enabled(), scaler.get_scale()) == (True, 1.0)
    assert stepped() == pytest.approx([0.1] * 3, rel=1e-4)


def test_fill_empty_fills_what_the_script_asks_for(apply):
    """Uninitialised memory of the script's own is NaN; integers, and what a library allocates, stay as they were."""
    apply(fill_empty=math.nan)

    assert torch.empty(3).isnan().all()
    assert torch.empty_like(torch.zeros(3)).isnan().all()
    assert torch.zeros(1).new_empty(3).isnan().all()
    assert torch.empty(3, dtype=torch.int64).dtype == torch.int64
    assert torch.nn.Linear(3, 3).weight.isfinite().all()
