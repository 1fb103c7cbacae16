"""With a fused optimizer nothing in step and update waits for the device.

Shown on fake CUDA tensors, which hold no data, so whoever reads a number of one gets an error; and on CPU tensors that
are handled as an accelerator's are, by counting reads of single numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from mixprec import GradScaler, presets
from mixprec._gradients import WaitlessReader
from mixprec._headroom import HeadroomRules
from mixprec._kernels import _means
from mixprec._scaler import _held, _reports

FAKE = {
    "adam": lambda params: torch.optim.Adam(params, amsgrad=True, fused=True),
    "adamw": lambda params: torch.optim.AdamW(params, fused=True),
}
FUSED = {
    **FAKE,
    "adagrad": lambda params: torch.optim.Adagrad(params, fused=True),
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, fused=True),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True),
}
RULES = {
    "ours": None,
    "megatron": presets.MEGATRON.rules,
    "torch": presets.TORCH.rules,
    "flax": presets.FLAX.rules,
    "headroom": HeadroomRules(),
}


@pytest.fixture
def cuda() -> Iterator[None]:
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(shape, device="cuda")) for shape in ((4, 4), (4,), (300, 200))]


def give_gradients(params: list[nn.Parameter]) -> None:
    for param in params:
        param.grad = torch.randn_like(param)


@pytest.mark.parametrize("kind", FAKE)
@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("rules", ["ours", "torch"])
@pytest.mark.usefixtures("cuda")
def test_a_fused_step_and_update_read_nothing(kind: str, max_norm: float | None, unscale: bool, rules: str) -> None:
    """Scale, unscale, clip, step, update and the report's tensors, over several iterations."""
    params = parameters()
    optimizer, scaler = FAKE[kind](params), GradScaler("fake", rules=RULES[rules])
    for _ in range(3):
        scaler.scale(torch.randn((), device="cuda"))
        give_gradients(params)
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer, max_norm=max_norm)
        scaler.update()
        report = scaler.report(optimizer)
        assert report.on_device.scale_after.device.type == "cuda"
    with pytest.raises(DataDependentOutputException):
        _ = report.applied


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.usefixtures("cuda")
def test_the_largest_magnitude_stays_on_the_device(unscale: bool) -> None:
    """Headroom rules read it there, without a look. (A CPU build of PyTorch cannot fake the kernels of the update.)"""
    params = parameters()
    optimizer, scaler = FAKE["adamw"](params), GradScaler("fake", rules=HeadroomRules())
    scaler.scale(torch.randn((), device="cuda"))
    give_gradients(params)
    if unscale:
        scaler.unscale_(optimizer)
    scaler.step(optimizer, max_norm=1.0)
    noted = scaler._course._noted
    assert len(noted) == 1 + unscale
    assert all((amax.device.type, amax.dtype, amax.shape) == ("cuda", torch.float32, ()) for amax in noted)


@pytest.mark.usefixtures("cuda")
def test_several_fused_optimizers_together_read_nothing() -> None:
    """All or nothing is decided on the device."""
    groups = [parameters(), parameters()]
    optimizers = [FUSED["adamw"](params) for params in groups]
    scaler = GradScaler("fake")
    for _ in range(2):
        scaler.scale(torch.randn((), device="cuda"))
        for params in groups:
            give_gradients(params)
        scaler.step_together(optimizers, max_norm=1.0)
        scaler.update()


@pytest.mark.parametrize(
    "make",
    [
        lambda params: torch.optim.AdamW(params),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True),
    ],
    ids=["plain", "fused without state"],
)
@pytest.mark.usefixtures("cuda")
def test_where_the_host_decides_the_fake_device_notices(make: Any) -> None:
    """The test can fail: a plain optimizer, and fused SGD before it has momentum, are decided by a look."""
    params = parameters()
    optimizer, scaler = make(params), GradScaler("fake")
    scaler.scale(torch.randn((), device="cuda"))
    give_gradients(params)
    with pytest.raises(DataDependentOutputException):
        scaler.step(optimizer)


class Items(TorchDispatchMode):
    """Counts reads of single numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "_local_scalar_dense" in str(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_on_cpu_a_fused_step_calls_item_no_more_often_than_torch_s(max_norm: float | None) -> None:
    """0 times, in step and update together."""
    counts = []
    for kind in (torch.amp.GradScaler, GradScaler):
        weight = nn.Parameter(torch.ones(8))
        optimizer, scaler = torch.optim.AdamW([weight], fused=True), kind("cpu")
        with Items() as items:
            for _ in range(5):
                optimizer.zero_grad()
                scaler.scale(weight.sum()).backward()
                scaler.step(optimizer, **({"max_norm": max_norm} if kind is GradScaler else {}))
                scaler.update()
        counts.append(items.count)
    assert counts == [0, 0]


@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("rules", RULES)
def test_handled_as_an_accelerator_no_number_is_read(
    kind: str, max_norm: float | None, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fused optimizers, several rules, overflows; only momentum's first applied step is the host's."""
    monkeypatch.setattr(_means, "reader_for", lambda devices, *, below_one: WaitlessReader(below_one))
    monkeypatch.setattr(_reports, "on_host", lambda tensor: False)
    monkeypatch.setattr(_held, "on_host", lambda tensor: False)
    weight = nn.Parameter(torch.ones(8))
    optimizer, scaler = FUSED[kind]([weight]), GradScaler("cpu", rules=RULES[rules])
    counts = []
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(weight.sum() * (float("inf") if step in (0, 3) else 1.0)).backward()
        with Items() as items:
            scaler.step(optimizer, max_norm=max_norm)
            scaler.update()
        counts.append(items.count)
        assert scaler.report(optimizer).applied is (step not in (0, 3))
    assert counts == ([1, 1, 0, 0, 0, 0] if kind == "momentum" else [0] * 6)
    assert weight.isfinite().all()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_on_cuda_no_step_of_ours_synchronises(max_norm: float | None) -> None:
    """Under the sync debug mode that raises, 20 steps and updates with a fused optimizer pass."""
    model = nn.Linear(64, 64, device="cuda")
    optimizer, scaler = torch.optim.AdamW(model.parameters(), fused=True), GradScaler("cuda")
    batch = torch.randn(8, 64, device="cuda")
    for step in range(20):
        optimizer.zero_grad()
        scaler.scale(model(batch).square().mean()).backward()
        torch.cuda.set_sync_debug_mode("error" if step else "default")
        try:
            scaler.step(optimizer, max_norm=max_norm)
            scaler.update()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert scaler.report(optimizer).applied
