"""What an arm records is what happened, in unscaled terms, and recording changes nothing."""

from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.slow


def test_an_ordinary_run_is_told_step_by_step(arm):
    """Protocol, lines, scale, loss, norms, change of weights, dtypes and regions, as the script's own numbers say."""
    seen = arm(
        """
        import json
        told = []
        for _ in range(4):
            loss = step()
            norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
            told.append((loss.item(), norm.item()))
        print(json.dumps(told))
        """
    )

    import json

    told = json.loads(seen.output_tail.splitlines()[-1])
    assert [s.loss for s in seen.steps] == pytest.approx([loss for loss, _ in told], rel=1e-6)
    assert [s.grad_norm for s in seen.steps] == pytest.approx([norm for _, norm in told], rel=1e-4)
    assert [(s.scale, s.scale_after, s.skipped) for s in seen.steps] == [(1024.0, 1024.0, False)] * 4
    assert all(0 < s.update_ratio < 1 and s.unchanged_share == 0 and s.stale_grad_norm == 0 for s in seen.steps)
    kinds = [e.kind for e in seen.events if e.iteration == 1]
    assert kinds == [
        "update",
        "region_entered",
        "forward_begin",
        "zero_grad",
        "scale",
        "backward",
        "scaler_step",
        "unscale",
        "step",
    ]
    assert all(e.data["of_scale"] for e in seen.events if e.kind == "backward")
    (region,) = seen.regions
    assert (region.dtype, region.entered, region.low_ops) == ("float16", 4, 12)
    layer = next(m for m in seen.modules if m.path == "0")
    assert (layer.kind, layer.calls, layer.input_dtypes, layer.output_dtypes) == (
        "Linear",
        4,
        ("float32",),
        ("float16",),
    )
    (optimizer,) = seen.optimizers
    assert (optimizer.kind, optimizer.parameters, optimizer.parameters_of_model) == ("AdamW", 4, 4)
    assert optimizer.parameters_with_grad_ever == 4


@pytest.mark.parametrize("fused", [False, True])
def test_a_skipped_step_is_told_as_skipped(arm, fused):
    """Also where a fused optimizer skips by itself and its hooks run all the same."""
    seen = arm(
        f"""
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused={fused})
        for i in range(4):
            loss = model(torch.randn(4, 8)).sum() * (float("inf") if i == 1 else 1.0)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """
    )

    assert [s.skipped for s in seen.steps] == [False, True, False, False]
    assert [s.scale_after for s in seen.steps] == [1024.0, 512.0, 512.0, 512.0]
    assert not math.isfinite(seen.steps[1].grad_norm)
    assert all(s.weights_finite for s in seen.steps)


def test_what_breaks_is_located_in_the_iteration_asked_for(arm):
    """The first op that made an Inf, with its line and module; a NaN of a later iteration is not looked for."""
    seen = arm(
        """
        for i in range(9):
            if i == 3:
                with torch.no_grad():
                    model[2].weight.mul_(1e7)
            step()
        """,
        trace={"iterations": [3]},
    )

    (first,) = [one for one in seen.ops if one.role == "first_inf"]
    assert seen.ended == "stopped"
    assert (first.iteration, first.op.phase, first.op.location.module) == (3, "forward", "2")
    assert first.source == "loss = F.mse_loss(model(x), x[:, :1])"


def test_arms_of_a_script_that_does_not_seed_itself_are_alike(arm):
    """The doctor seeds Python, NumPy and torch; recording draws no random number, and later iterations are not lost."""
    source = """
    import random, numpy, torch
    from torch import nn
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(40):
        loss = model(torch.randn(8, 4)).square().mean() * random.random() * numpy.random.rand()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
    """
    one, other = arm(source, training=False), arm(source, training=False)

    assert one.output_tail == other.output_tail
    assert [s.loss for s in one.steps] == [s.loss for s in other.steps]
    assert len(one.steps) == 40
    assert {e.iteration for e in one.events} == {*range(24), 39}  # one that ran as an earlier one did is told no more
