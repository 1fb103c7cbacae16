"""Every kind of model is watched, and none is disturbed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from mixprec.monitor import Monitor


def records_of(model, *inputs, steps=3, lr=0.1, loss=None, dtype=torch.float16, before=None, **kwargs):
    """The records of `steps` steps in float16 under torch's scaler."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    with Monitor(before or model, optimizer, level="deep") as monitor:
        for _ in range(steps):
            with torch.autocast("cpu", dtype):
                output = model(*inputs, **kwargs)
            value = loss(output) if loss is not None else output.float().square().mean()
            optimizer.zero_grad()
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
    assert monitor.records, "nothing was recorded"
    return list(monitor.records)


@dataclass
class Answer:
    logits: torch.Tensor
    count: int


class Boxed(nn.Module):
    """Returns its linear layer's output in a container of a kind."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.kind = nn.Linear(4, 4), kind

    def forward(self, inputs=None, mask=None):
        out = self.layer(inputs)
        if mask is not None:
            out = out.masked_fill(mask, 0.0)
        return {
            "dict": lambda: {"logits": out, "mask": mask, "empty": out[:0]},
            "dataclass": lambda: Answer(out, 3),
            "tuple": lambda: (mask, [out, None]),
        }[self.kind]()


UNBOX = {"dict": lambda o: o["logits"], "dataclass": lambda o: o.logits, "tuple": lambda o: o[1][0]}


@pytest.mark.parametrize("kind", UNBOX)
def test_outputs_in_containers_are_found(kind):
    """Dicts, dataclasses and nested tuples with bool masks, empty tensors and None; inputs by keyword."""
    mask = torch.tensor([True, False, False, False])

    records = records_of(
        Boxed(kind), loss=lambda o: UNBOX[kind](o).float().square().mean(), inputs=torch.randn(2, 4), mask=mask
    )

    module = records[-1].modules["(model)"]
    assert module.headroom is not None
    assert module.grad_headroom is not None
    assert records[-1].logit == max(abs(module.low), abs(module.high))


def test_in_place_activations_do_not_break():
    """`ReLU(inplace=True)` writes into the layer's output: values are read before, gradients still come."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))

    last = records_of(model, torch.randn(16, 4))[-1]

    assert last.modules["0"].low < 0
    assert last.modules["1"].low == 0
    assert all(last.modules[path].grad_headroom is not None for path in ("0", "1", "2"))


def test_frozen_and_shared_parameters():
    """A frozen layer has outputs and no gradients; a weight that two layers share has one name."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    model[2].weight = model[1].weight

    last = records_of(model, torch.randn(2, 4))[-1]

    assert last.modules["0"].headroom is not None
    assert last.modules["0"].grad_headroom is None
    assert last.modules["0"].weight_headroom is None
    assert last.modules["1"].weight_headroom is not None


def test_empty_batches():
    """A batch of no elements has nothing to measure, and the next one is measured."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, level="deep") as monitor:
        for rows in (0, 3):
            model(torch.randn(rows, 4)).sum().backward()
            optimizer.step()

    assert monitor.records[0].logit is None
    assert monitor.records[1].logit > 0


class Checkpointed(nn.Module):
    """Two blocks whose activations are recomputed in backward."""

    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(4, 4), nn.Linear(4, 4), reentrant

    def forward(self, inputs):
        hidden = checkpoint(self.first, inputs, use_reentrant=self.reentrant)
        return checkpoint(self.second, hidden, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputed_forward_is_not_counted_again(reentrant, monkeypatch):
    """Under activation checkpointing each module is looked at once per step, and the loss once per backward."""
    from mixprec.monitor import _modules

    calls = []
    original = _modules.ModuleWatch._look
    monkeypatch.setattr(
        _modules.ModuleWatch, "_look", lambda s, cell, out: (calls.append(cell.path), original(s, cell, out))
    )
    model = Checkpointed(reentrant)

    records = records_of(model, torch.randn(2, 4, requires_grad=True), steps=2)

    assert sorted(calls) == sorted(["(model)", "first", "second"] * 2)
    assert all(0 < record.loss < 10 for record in records)


def test_a_recurrent_cell_is_looked_at_a_few_times():
    """A module that is called a hundred times in a step costs no more than its first calls."""

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def forward(self, x):
            for _ in range(100):
                x = self.cell(x).tanh()
            return x

    last = records_of(Loop(), torch.randn(2, 4))[-1]

    assert last.modules["cell"].headroom is not None


def test_light_keeps_one_graph():
    """A compiled model has one graph and no recompilation over steps that are looked at and steps that are not."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    from mixprec.monitor._level import Level

    with Monitor(compiled, optimizer, level=Level("sparse", every=3, elements=16)) as monitor:
        for _ in range(7):
            compiled(torch.randn(4, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert len(graphs) == 1
    assert [record.looked for record in monitor.records] == [True, True, True, True, False, False, True]
    assert all(record.logit > 0 for record in monitor.records)
    assert math.isfinite(monitor.records[0].modules["0"].headroom)


def test_a_compiled_model_records_what_the_eager_one_does():
    """Loss, logit and headroom of a compiled model equal those of the same model in eager mode."""
    torch._dynamo.reset()
    kept = {}
    for kind in ("eager", "compiled"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        run = torch.compile(model, backend="aot_eager") if kind == "compiled" else model
        kept[kind] = records_of(run, torch.ones(2, 4))
    for eager, compiled in zip(kept["eager"], kept["compiled"], strict=True):
        assert compiled.loss == pytest.approx(eager.loss, rel=1e-3)
        assert compiled.logit == pytest.approx(eager.logit, rel=1e-2)
        assert compiled.modules["0"].headroom == pytest.approx(eager.modules["0"].headroom, abs=1e-2)
        assert compiled.modules["0"].weight_headroom == pytest.approx(eager.modules["0"].weight_headroom, abs=1e-2)
        assert compiled.modules["(model)"].grad_headroom == pytest.approx(
            eager.modules["(model)"].grad_headroom, abs=0.1
        )


def test_wrappers_leave_no_trace_in_paths():
    """The names of DDP-like wrappers and of torch.compile are not part of a module's path."""
    model = nn.Sequential()
    model.add_module("module", nn.Sequential(nn.Linear(4, 4)))

    records = records_of(model, torch.randn(2, 4))

    assert set(records[-1].modules) == {"(model)", "0"}


def test_an_overflowing_module_is_named():
    """A float16 output beyond 65504 has minus infinity bits of headroom, and its step is no benign skip."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with torch.no_grad():
        model[0].weight.fill_(30000.0)

    record = records_of(model, torch.ones(2, 4))[0]

    assert record.modules["0"].headroom == -math.inf
    assert record.skipped
    assert record.benign is False


def test_a_mask_buffer_of_minus_infinity_is_no_fault():
    """Buffers that are not finite from the start are left alone; one that becomes so is named."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
            self.register_buffer("mask", torch.tensor([0.0, -math.inf]))

        def forward(self, x):
            return self.norm(self.layer(x))

    model = Masked()
    assert records_of(model, torch.randn(8, 4))[-1].bad_buffers == ()

    model.norm.running_mean.fill_(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, level="deep") as monitor:
        for factor in (1.0, math.inf):
            model(torch.randn(8, 4) * factor).sum().backward()
            optimizer.step()
    assert "norm.running_mean" in monitor.records[-1].bad_buffers
    assert "MP038" in {finding.code for finding in monitor.findings}


def test_a_closure_is_one_step():
    """LBFGS calls backward inside its step: one record, with the loss of all its evaluations and a norm."""
    layer = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=3)
    inputs = torch.randn(8, 4)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(layer(inputs), torch.ones(8, 1))
        loss.backward()
        return loss

    with Monitor(layer, optimizer, level="deep") as monitor:
        for _ in range(3):
            optimizer.step(closure)

    assert len(monitor.records) == 3
    assert all(record.loss > 0 and record.grad_norm >= 0 for record in monitor.records)
