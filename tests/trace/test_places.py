"""What models and scripts are made of does not confuse the tracer: outputs, wrappers, checkpointing, compile, hooks."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from mixprec._trace import Tracer, locate, source_line


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    mask: torch.Tensor


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x, *, mask=None, gain=1.0):
        hidden = self.act(self.linear(x)) * gain
        return {"hidden": hidden if mask is None else hidden.masked_fill(mask, 0.0), "empty": x[:0]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Stem()
        self.head = nn.Linear(8, 4)
        self.tied = self.head
        self.frozen = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x, gain=1.0):
        mask = torch.zeros(8, dtype=torch.bool)
        out = self.stem(self.frozen(x), mask=mask, gain=gain)
        return Output(self.head(out["hidden"]) + self.tied(out["hidden"]), mask)


def step(gain):
    torch.manual_seed(0)
    model = Net()
    with Tracer(keep="all") as tracer:
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.randn(4, 8), gain=gain).logits.float().mean()
        loss.backward()
    return tracer.records


def test_a_model_of_awkward_parts_is_healthy_until_it_is_not():
    """Dict and dataclass outputs, kwargs, bool masks, empty tensors, in-place ReLU, tied and frozen weights."""
    assert locate(step(1.0)).clean

    first = locate(step(1e6)).first_inf

    assert source_line(first.location) == "hidden = self.act(self.linear(x)) * gain"
    assert (first.location.module, first.module_class, first.call) == ("stem", "Stem", "mul")


def test_every_backward_op_of_a_module_has_the_module_of_its_forward_op():
    """No backward op but the accumulation of gradients is without line and module."""
    backward = [record for record in step(1.0) if record.phase == "backward" and record.node != "AccumulateGrad"]

    assert len(backward) > 10
    assert all(record.location.line is not None and record.forward_op for record in backward)
    assert {record.location.module for record in backward} >= {"stem.linear", "stem.act", "head"}


class Root(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        hidden = self.linear(x)
        return torch.sqrt(hidden - hidden.detach())


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_ops_are_no_forward_ops_and_backward_finds_its_line(reentrant):
    """Both kinds of checkpointing: recompute is told apart, and the gradient at 0 is found at its line."""
    model = Root()
    x = torch.randn(2, 8, requires_grad=True)
    with Tracer(keep="all") as tracer:
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()

    phases = [record.phase for record in tracer.records if record.op == "aten.sqrt.default"]
    first = locate(tracer.records).first

    assert phases == ["forward", "recompute"]
    assert (first.phase, first.node) == ("backward", "SqrtBackward0")
    assert source_line(first.location) == "return torch.sqrt(hidden - hidden.detach())"


def test_a_compiled_function_is_located_in_eager_mode_and_says_so():
    """A compiled function runs eagerly under the tracer: the line is found, and `compiled` is set."""

    def squared(x):
        return x * x

    with Tracer() as tracer:
        torch.compile(squared, backend="eager")(torch.full((3,), 300.0, dtype=torch.float16))
    with Tracer() as plain:
        squared(torch.full((3,), 300.0, dtype=torch.float16))

    assert source_line(locate(tracer.records).first.location) == "return x * x"
    assert tracer.compiled
    assert not plain.compiled


def test_a_compiled_module_keeps_its_own_paths():
    """The wrapper's prefix is no part of a path."""
    model = torch.compile(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), backend="eager")
    x = torch.randn(2, 3)
    with Tracer(keep="all") as tracer:
        model(x)

    assert [record.location.module for record in tracer.records] == ["0", "1"]
    assert tracer.compiled


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad / torch.zeros_like(grad)


def test_a_custom_backward_is_its_own_line():
    """User code that runs inside the engine is named by its own line, not by that of its forward."""
    x = torch.ones(3, requires_grad=True)
    with Tracer() as tracer:
        Twice.apply(x).sum().backward()

    first = locate(tracer.records).first

    assert first.phase == "backward"
    assert source_line(first.location) == "return grad / torch.zeros_like(grad)"


def test_the_optimizers_phase_is_told_apart_with_its_constants():
    """Adam's eps of 0 in half: the op is in phase optimizer, at the line that steps, with its operands by name."""
    weight = nn.Parameter(torch.ones(3, dtype=torch.float16))
    optimizer = torch.optim.Adam([weight], eps=1e-8, foreach=False)
    with Tracer() as tracer:
        (weight.sum() * 1e-4).backward()
        optimizer.step()

    first = locate(tracer.records).first

    assert (first.phase, source_line(first.location)) == ("optimizer", "optimizer.step()")
    assert "addcdiv" in first.op
    assert first.inputs[first.names.index("tensor2")].zeros == 3


@pytest.mark.parametrize("foreach", [True, False])
def test_the_scalers_and_clippings_ops_are_the_optimizers(foreach):
    """Unscaling and clipping are phase optimizer and accuse nobody of what they are given."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=foreach)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    with Tracer(keep="all") as tracer:
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.ones(1, 2)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=foreach)
        scaler.step(optimizer)
        scaler.update()

    records = tracer.records
    unscale = next(record for record in records if "unscale" in record.op)

    assert {record.phase for record in records if record.index >= unscale.index} == {"optimizer"}
    assert locate(records).first.phase == "backward"


def test_hooks_threads_and_inference_are_no_trouble():
    """Ops of another thread are not seen, those under inference mode and in tensor hooks are."""
    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(lambda grad: grad * 3)
    with Tracer(keep="all") as tracer:
        thread = threading.Thread(target=lambda: torch.ones(2) + 1)
        thread.start()
        thread.join()
        with torch.inference_mode():
            torch.ones(2) * 2
        (weight * 2).sum().backward()

    ops = [record.op for record in tracer.records]

    assert "aten.add.Tensor" not in ops
    assert ops.count("aten.mul.Tensor") == 4


def test_the_op_that_raises_is_kept():
    """An op that raises leaves its record in `failed`, with the dtypes that did not go together."""
    x = torch.zeros(4)
    with Tracer() as tracer, pytest.raises(RuntimeError):
        x.scatter_add(0, torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.float16))

    assert tracer.failed.op == "aten.scatter_add.default"
    assert [stats.dtype for stats in tracer.failed.inputs] == ["float32", "int64", "float16"]


def test_torch_is_left_as_it_was():
    """After the block no hook and no mode is left, also when the block raised."""
    tracer = Tracer()
    with pytest.raises(ZeroDivisionError), tracer:
        raise ZeroDivisionError
    before = tracer.ops
    F.relu(nn.Linear(2, 2)(torch.ones(1, 2)))

    assert tracer.ops == before
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_autocast_regions_are_seen_where_they_are():
    """The region's dtype is recorded for ops in it and None for those outside or in an island."""
    linear = nn.Linear(2, 2)
    x = torch.ones(1, 2)
    with Tracer(keep="all") as tracer:
        linear(x)
        with torch.autocast("cpu", torch.bfloat16):
            linear(x)
            with torch.autocast("cpu", enabled=False):
                linear(x)

    assert [r.autocast for r in tracer.records if r.op == "aten.addmm.default"] == [None, "bfloat16", None]
    assert [r.cast for r in tracer.records if r.op == "aten._to_copy.default"] == [True] * 3


def test_what_a_monitor_looks_at_is_no_part_of_the_step():
    """A step that a monitor watches has the ops of the bare step, in forward, backward and optimizer."""
    from mixprec.monitor import Monitor

    def ops(watched):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        monitor = Monitor(model, optimizer, level="deep") if watched else None
        with Tracer(model, keep="all") as tracer:
            with torch.autocast("cpu", torch.float16):
                loss = model(torch.ones(2, 4)).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        if monitor is not None:
            monitor.close()
        return [(record.op, record.phase, record.location.line) for record in tracer.records]

    assert ops(watched=True) == ops(watched=False)


def test_the_backward_of_a_penalty_has_the_line_of_its_forward():
    """`create_graph` makes nodes in backward; what runs in theirs belongs to the line of the forward op."""
    model = nn.Linear(3, 1)
    x = torch.ones(2, 3, requires_grad=True)
    with Tracer(model, keep="all") as tracer:
        out = model(x).pow(3).sum()
        (slope,) = torch.autograd.grad(out, x, create_graph=True)
        slope.square().sum().backward()

    known = [record.location.line is not None for record in tracer.records if record.phase == "backward"]
    assert all(known)
    assert len(known) > 8
