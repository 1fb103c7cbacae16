"""The tracer sees each op once, where it belongs, with the numbers it had, and keeps no tensor alive."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mixprec._trace import Tracer, locate, source_line


class Squared(nn.Module):
    def forward(self, x):
        y = x * 300.0
        return y * y


def trained(model, x, tracer, scale=1.0, dtype=torch.float16):
    with tracer:
        with torch.autocast("cpu", dtype):
            loss = model(x).float().mean()
        (loss * scale).backward()
    return loss


def line_of(record):
    return source_line(record.location)


def test_a_forward_overflow_is_named_by_op_line_and_module():
    """The op whose inputs were finite and whose output was not is named with its line, module, dtype and numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Squared(), nn.ReLU(inplace=True), nn.Linear(8, 8))
    tracer = Tracer()
    trained(model, torch.randn(4, 8) * 4, tracer)

    record = locate(tracer.records).first_inf

    assert record.op == "aten.mul.Tensor"
    assert (record.phase, line_of(record)) == ("forward", "return y * y")
    assert (record.location.module, record.module_class) == ("1", "Squared")
    assert record.autocast == "float16"
    assert record.inputs[0].finite
    assert record.inputs[0].amax ** 2 > 65504
    assert record.exact[0].amax == pytest.approx(record.inputs[0].amax ** 2)


def test_a_healthy_step_has_no_origin():
    """The same model on small inputs is clean, forward and backward."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Squared(), nn.ReLU(inplace=True), nn.Linear(8, 8))
    tracer = Tracer()
    trained(model, torch.randn(4, 8) / 64, tracer)

    assert tracer.ops > 10
    assert tracer.records == ()
    assert locate(tracer.records).clean


def test_a_backward_division_by_zero_is_mapped_to_the_forward_line():
    """The gradient of sqrt at 0 is found in backward and shown as the line that took the root."""
    x = torch.zeros(3, requires_grad=True)
    with Tracer() as tracer:
        root = torch.sqrt(x * 2)
        root.sum().backward()

    record = locate(tracer.records).first_inf

    assert (record.phase, record.node, record.forward_op) == ("backward", "SqrtBackward0", "aten.sqrt.default")
    assert line_of(record) == "root = torch.sqrt(x * 2)"


def test_the_overflow_of_a_scaled_gradient_is_found_in_backward():
    """A scale that is too large shows as an Inf in backward whose float32 twin is finite."""
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    tracer = Tracer(exact=True)
    trained(model, torch.randn(4, 8), tracer, scale=2.0**23)

    record = locate(tracer.records).first_inf

    assert record.phase == "backward"
    assert record.exact[0].finite
    assert record.exact[0].amax > 65504


@pytest.mark.parametrize("value", [float("-inf"), float("inf")])
def test_infinities_on_purpose_are_not_accused(value):
    """Masks made of infinities and consumed by softmax are nobody's fault."""
    scores = torch.randn(2, 4, requires_grad=True)
    hidden = torch.tensor([False, True, False, False])
    with Tracer() as tracer:
        a = F.softmax(scores.masked_fill(hidden, -abs(value)), -1)
        mask = torch.full((4,), float("-inf"))
        mask[0] = 0
        b = F.softmax(scores + mask, -1)
        (a * b).sum().backward()

    assert locate(tracer.records).clean


def test_a_fully_masked_row_is_the_softmax():
    """Where a whole row is masked the softmax is named as the maker of the NaN, and no mask."""
    scores = torch.randn(2, 4)
    with Tracer() as tracer:
        F.softmax(scores.masked_fill(torch.ones(4, dtype=torch.bool), float("-inf")), -1)

    origin = locate(tracer.records)

    assert origin.first_inf is None
    assert origin.first.op == "aten._softmax.default"


def test_nothing_is_kept_alive():
    """A tensor that went through the tracer is freed when its last user lets go, before the block ends."""
    with Tracer(keep="all") as tracer:
        x = torch.ones(1000)
        y = x * 2
        alive = weakref.ref(y)
        del y
        gc.collect()
        assert alive() is None
    assert [record.op for record in tracer.records][-1] == "aten.mul.Tensor"


def test_the_traced_step_computes_what_the_bare_step_computes():
    """Loss and gradients are bit for bit those of the step without tracer, random ops included."""
    x = torch.randn(4, 8)

    def step(tracer):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), Squared())
        with tracer, torch.autocast("cpu", torch.float16):
            loss = model(x).float().mean()
            loss.backward()
        return loss.detach(), model[0].weight.grad

    bare, traced = step(contextlib.nullcontext()), step(Tracer(keep="all", exact=True))

    assert all(torch.equal(a, b) for a, b in zip(bare, traced, strict=True))


def test_what_a_collective_has_yet_to_receive_is_nobodys_fault():
    """A buffer holds anything until the other ranks have filled it: that accuses no op, an overflow beside it does."""
    distributed = pytest.importorskip("torch.distributed")
    from torch.testing._internal.distributed.fake_pg import FakeStore  # its collectives never fill a buffer

    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        buffer = torch.full((4,), float("nan"))
        with Tracer() as waiting:
            distributed.broadcast(buffer, 1)
            distributed.all_reduce(buffer)
        with Tracer() as overflowing:
            distributed.broadcast(buffer, 1)
            torch.full((4,), 300.0, dtype=torch.float16) * 300
    finally:
        distributed.destroy_process_group()

    assert locate(waiting.records).clean
    assert locate(overflowing.records).first.op == "aten.mul.Tensor"
