"""A dry run sees what a real run would do, on tensors that have no values."""

from __future__ import annotations

import gc
import sys

import pytest
import torch
import torch.nn.functional as F

from mixprec.audit import audit, dry_run


def saved(report):
    return sum(row.bytes for row in report.memory.saved)


def test_a_dry_run_counts_what_a_real_run_counts(tasks):
    """FLOPs, casts and saved bytes of the same step on the same kind of device."""

    def build():
        task = tasks["mlp"]()
        optimizer = torch.optim.AdamW(task.model.parameters())
        batch = task.batch()

        def step():
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = task.loss(task.model, batch)
            loss.backward()
            optimizer.step()

        build.model = task.model
        return step

    real = build()
    wet = audit(build.model, real, timed=0)
    dry = dry_run(build, device_type="cpu", dtype=None)

    assert dry.products.flops == wet.products.flops
    assert dry.casts.count == wet.casts.count
    assert saved(dry) == pytest.approx(saved(wet), rel=0.002)  # fake kernels keep a norm's statistics in bfloat16
    assert dry.timing.steps == ()


def test_a_device_that_is_not_there_has_its_own_list(tasks):
    """layer_norm runs in float32 on CUDA and keeps bfloat16 on a CPU."""

    def build():
        task = tasks["mlp"]()
        batch = task.batch()
        return lambda: task.loss(task.model, batch).backward()

    def norm(device):
        report = dry_run(build, device_type=device, dtype=torch.bfloat16)
        return next(row for row in report.ops if row.op == "layer_norm")

    assert norm("cuda").out == ("float32",)
    assert "bfloat16" in norm("cpu").out


def test_a_scaler_and_reads_of_values_get_through(tasks):
    """A value that the step reads is 0: no infinity is found, and the step is taken."""

    def build():
        task = tasks["mlp"]()
        optimizer = torch.optim.AdamW(task.model.parameters())
        scaler = torch.amp.GradScaler("cpu")
        batch = task.batch()

        def step():
            optimizer.zero_grad()
            loss = task.loss(task.model, batch)
            if torch.isnan(loss):
                raise AssertionError
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            loss.item()

        return step

    report = dry_run(build, dtype=torch.float16)

    assert report.precision == "float16"
    assert any(row.phase == "optimizer" for row in report.ops)


def test_real_weights_are_left_as_they_were(tasks):
    """A model that exists already takes part as a fake."""
    task = tasks["mlp"]()
    before = [p.detach().clone() for p in task.model.parameters()]
    data = torch.randn(8, 64)

    report = dry_run(lambda: lambda: F.relu(task.model(data)), dtype=torch.bfloat16)

    assert all(torch.equal(old, new) for old, new in zip(before, task.model.parameters(), strict=True))
    assert report.products.low_share == 1.0
    assert not report.trains


def test_nothing_is_watched_afterwards():
    """The casts of weights that the forecast made are let go of, and with them the hook on optimizer steps."""
    hooks = sys.modules[torch.optim.Optimizer.__module__]._global_optimizer_post_hooks
    before = len(hooks)

    def build():
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step():
            model(torch.randn(4, 8)).float().mean().backward()
            optimizer.step()

        return step

    dry_run(build, device_type="cuda", dtype=torch.bfloat16)
    gc.collect()

    assert len(hooks) == before
