"""What runs in a closure that an optimizer's step is given is forward and backward."""

from __future__ import annotations

import pytest
import torch

from mixprec._trace import Tracer, locate


@pytest.mark.parametrize("by_name", [False, True])
def test_an_overflow_in_a_closure_is_one_in_forward(by_name):
    """As in a step without a closure; what the optimizer computes itself stays its own."""
    weight = torch.nn.Parameter(torch.full((4,), 300.0, dtype=torch.float16))
    optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False)

    def closure():
        optimizer.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    with Tracer(keep="all") as tracer:
        optimizer.step(closure=closure) if by_name else optimizer.step(closure)

    first = locate(tracer.records).first
    assert (first.op, first.phase) == ("aten.mul.Tensor", "forward")
    assert [r.phase for r in tracer.records if r.op == "aten.add_.Tensor"] == ["optimizer"]
    assert {r.phase for r in tracer.records} == {"forward", "backward", "optimizer"}
