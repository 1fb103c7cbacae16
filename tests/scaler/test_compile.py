"""Unscale, clip, step and update also work inside torch.compile, as far as the optimizer itself does.

PyTorch marks its own scaler as not to be traced, and its optimizers break the graph, so `fullgraph=True` is not to be
had here; what can be compiled is, and the results are those of the same calls outside.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

from mixprec import GradScaler

# torch.compile imports torch's own deprecated modules while it traces.
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.slow]

OPTIMIZERS = {
    "fused adamw": lambda params: torch.optim.AdamW(params, lr=0.01, fused=True),
    "sgd": lambda params: torch.optim.SGD(params, lr=0.01),
}


def train(kind: str, max_norm: float | None, compiled: bool) -> tuple[Any, ...]:
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer, scaler = OPTIMIZERS[kind](list(model.parameters())), GradScaler("cpu", growth_interval=2)

    def phase() -> None:
        scaler.step(optimizer, max_norm=max_norm)
        scaler.update()

    torch._dynamo.reset()
    run = torch.compile(phase, backend="aot_eager") if compiled else phase
    applied = []
    for step in range(5):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean() * (float("inf") if step in (0, 3) else 1.0)
        scaler.scale(loss).backward()
        run()
        applied.append(scaler.report(optimizer).applied)
    return [p.detach() for p in model.parameters()], scaler.get_scale(), applied


@pytest.mark.parametrize(("kind", "max_norm"), [("fused adamw", 0.1), ("sgd", None)])
def test_the_compiled_phase_does_what_the_plain_one_does(kind: str, max_norm: float | None) -> None:
    """Parameters, scale and reports, with overflows."""
    params, scale, applied = train(kind, max_norm, compiled=False)
    compiled_params, compiled_scale, compiled_applied = train(kind, max_norm, compiled=True)
    assert (compiled_scale, compiled_applied) == (scale, applied)
    assert applied == [False, True, True, False, True]
    torch.testing.assert_close(compiled_params, params)


def test_a_compiled_forward_may_scale_its_loss() -> None:
    """`scale` leaves no graph break, and with all guards on there is no false alarm; the gradients are the same."""
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), GradScaler("cpu")
        scaler.scale(torch.zeros(()))

        def forward(batch: torch.Tensor, model: Any = model, scaler: Any = scaler) -> torch.Tensor:
            return scaler.scale(model(batch).square().mean())

        torch._dynamo.reset()
        run = torch.compile(forward, backend="aot_eager", fullgraph=True) if compiled else forward
        for _ in range(4):
            optimizer.zero_grad()
            run(torch.randn(3, 4)).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(model.weight.detach())
    torch.testing.assert_close(*results)


def test_a_compiled_optimizer_step_is_stepped_by_the_scaler() -> None:
    """The direct-step guard's hook is traced to nothing."""
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=0.1), GradScaler("cpu")
        if compiled:
            torch._dynamo.reset()
            optimizer.step = torch.compile(optimizer.step, backend="aot_eager")
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(3, 4)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(model.weight.detach())
    torch.testing.assert_close(*results)
