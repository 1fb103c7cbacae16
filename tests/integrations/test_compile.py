"""Under torch.compile forward stays one graph with everything of ours around it, and trains as eager does."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from mixprec import Precision
from mixprec.monitor import Monitor


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1))


def train(mode: str, *, policy: str | None, watched: bool, counter: CompileCounterWithBackend | None):
    """Parameters after four steps, the second of which overflows in fp16."""
    torch._dynamo.reset()
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, fused=True)
    door = Precision(mode, optimizer, model=model, max_norm=0.1, policy=policy)
    run = model if counter is None else torch.compile(model, backend=counter, fullgraph=True)
    watch = Monitor(model, optimizer, level="light") if watched else contextlib.nullcontext()
    with watch:
        for step in range(4):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
            with door.autocast():
                loss = run(x).float().square().mean() * (float("inf") if step == 1 else 1.0)
            door.backward(loss)
            assert door.step().applied is (step != 1)
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("watched", [False, True], ids=["alone", "monitored"])
@pytest.mark.parametrize("policy", [None, "uniform"])
@pytest.mark.parametrize("mode", ["fp16-mixed", "bf16-mixed"])
def test_one_graph_and_eagers_results(mode, policy, watched):
    """fullgraph=True holds, forward is one graph compiled once, and the parameters are eager's within rounding."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = train(mode, policy=policy, watched=watched, counter=counter)
    eager = train(mode, policy=policy, watched=watched, counter=None)

    assert counter.frame_count == 1
    eps = torch.finfo(torch.float16 if mode == "fp16-mixed" else torch.bfloat16).eps
    for mine, theirs in zip(compiled, eager, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=eps, atol=0.01 * eps * 4)


def test_a_graph_break_would_be_seen():
    """The check can fail: a model that breaks the graph is refused by fullgraph and counted as two without it."""

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            torch._dynamo.graph_break()
            return y * 2

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    torch.compile(Broken(), backend=counter)(torch.ones(2))
    assert counter.frame_count == 2
