"""What a monitor records is what happened."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mixprec
from mixprec.monitor import Monitor, read_run

SCALERS = {
    "none": lambda: None,
    "torch": lambda: torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=4),
    "mixprec": lambda: mixprec.GradScaler("cpu", init_scale=2.0**24, growth_interval=4),
}


def total_norm(model) -> float:
    """The 2-norm of all gradients as they are."""
    return nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()


@pytest.fixture(
    params=itertools.product(SCALERS, [False, True]), ids=lambda p: f"{p[0]}-{'fused' if p[1] else 'plain'}"
)
def watched(request, training):
    """A training of 30 steps, its records, and what an observer in the loop saw: scale before, applied, norm."""
    name, fused = request.param
    scaler = SCALERS[name]()
    run = training(scaler, None if scaler is None else torch.float16, fused=fused)
    seen = []
    with run.monitor as monitor:
        for _ in range(30):
            before = [p.detach().clone() for p in run.model.parameters()]
            scale = None if scaler is None else scaler.get_scale()
            norms = []
            run.step(spoil=lambda model, norms=norms: norms.append(total_norm(model)))
            moved = any(not torch.equal(a, b) for a, b in zip(before, run.model.parameters(), strict=True))
            seen.append((scale, moved, norms[0] / (scale or 1.0)))
    return run, list(monitor.records), seen


def test_every_step_has_its_loss_scale_norm_and_outcome(watched):
    """Loss, scale, norm and whether the step was applied are those that the loop itself saw, skipped steps included."""
    run, records, seen = watched

    assert [record.step for record in records] == list(range(30))
    assert [record.loss for record in records] == pytest.approx(run.losses)
    assert [record.scale for record in records] == [scale for scale, _, _ in seen]
    assert [record.applied for record in records] == [moved for _, moved, _ in seen]
    for record, (_, moved, norm) in zip(records, seen, strict=True):
        assert math.isfinite(record.grad_norm) is math.isfinite(norm) is moved
        assert not moved or record.grad_norm == pytest.approx(norm, rel=1e-4)


def test_events_are_the_scales_moves(watched):
    """The event of a step is how its scale went to the next one's; without a scaler there is none."""
    run, records, _ = watched
    if run.scaler is None:
        assert {(r.event, r.scale, r.scale_after) for r in records} == {(None, None, None)}
        return

    assert {"back_off", "grow", "hold"} <= {record.event for record in records}
    for before, after in itertools.pairwise(records):
        assert before.scale_after == after.scale
        assert before.event == ("grow" if after.scale > before.scale else "back_off" if before.skipped else "hold")


def test_a_skip_after_a_growth_is_benign(watched):
    """Every skip of a sound model is explained: by the search for the first scale or by a growth."""
    _, records, _ = watched

    assert all(record.benign and record.why for record in records if record.skipped)
    assert all(record.benign is None for record in records if not record.skipped)


def test_watching_changes_nothing(training):
    """With and without a monitor the weights are bit-identical after 30 steps."""
    watched, alone = training(SCALERS["torch"](), torch.float16), training(SCALERS["torch"](), torch.float16)
    alone.monitor.close()
    torch.manual_seed(1)
    watched.run(30)
    torch.manual_seed(1)
    for _ in range(30):
        alone.step()

    for a, b in zip(watched.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_clipping_is_recorded_before_and_after(training):
    """Torch's own clipping, and mixprec's inside the step, give the norm before and the norm after."""
    for scaler in (torch.amp.GradScaler("cpu"), mixprec.GradScaler("cpu")):
        run = training(scaler, torch.float16)
        with run.monitor as monitor:
            for _ in range(3):
                scaler.scale(run.loss()).backward()
                if isinstance(scaler, mixprec.GradScaler):
                    scaler.step(run.optimizer, max_norm=0.05)
                else:
                    scaler.unscale_(run.optimizer)
                    nn.utils.clip_grad_norm_(run.model.parameters(), 0.05)
                    scaler.step(run.optimizer)
                scaler.update()
                run.optimizer.zero_grad()
        for record in monitor.records:
            assert record.grad_norm > 0.05
            assert record.clipped_norm == pytest.approx(0.05, rel=1e-3)


def test_accumulated_losses_are_summed(training):
    """A step of four micro-batches has the loss that its gradients are of: their mean, as the loop divides."""
    run = training(torch.amp.GradScaler("cpu"), torch.float16)
    with run.monitor as monitor:
        losses = [run.loss() / 4 for _ in range(4)]
        for loss in losses:
            run.scaler.scale(loss).backward()
        run.scaler.step(run.optimizer)
        run.scaler.update()

    (record,) = monitor.records
    assert record.loss == pytest.approx(sum(loss.item() for loss in losses))


def test_headroom_and_shares_are_those_of_the_tensors(training):
    """Headroom of outputs and gradients, and shares of small elements, are what the tensors themselves give."""
    run = training(torch.amp.GradScaler("cpu", init_scale=2.0), torch.float16)
    seen = {}
    run.model[2].register_forward_hook(lambda module, args, output: seen.update(out=output.detach()))
    with run.monitor as monitor:
        loss = run.loss()
        run.scaler.scale(loss).backward()
        gradient = run.model[0].weight.grad.clone()
        run.scaler.step(run.optimizer)
        run.scaler.update()

    (record,) = monitor.records
    assert record.format == "fp16"
    assert record.modules["2"].headroom == pytest.approx(math.log2(65504 / seen["out"].abs().max().item()))
    assert record.logit == pytest.approx(seen["out"].abs().max().item())
    small = (gradient.abs() < 2.0**-14) & (gradient != 0)
    first = record.modules["0"]
    counted = gradient.numel() + run.model[0].bias.numel()
    assert first.weight_subnormal * counted >= small.sum().item()
    assert first.weight_headroom == pytest.approx(
        math.log2(65504 / max(gradient.abs().max(), run.model[0].bias.grad.abs().max() * 2).item()), abs=1.0
    )


def test_updates_are_measured():
    """In pure bfloat16 at a small learning rate most elements do not change, in float32 all do."""
    shares = {}
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        layer = nn.Linear(64, 64).to(dtype)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-5)
        with Monitor(layer, optimizer, level="deep") as monitor:
            for _ in range(3):
                layer(torch.randn(8, 64, dtype=dtype)).float().square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        shares[dtype] = monitor.records[-1]

    assert shares[torch.bfloat16].unchanged > 0.8
    assert shares[torch.float32].unchanged is None
    assert shares[torch.float32].unchanged_all < 0.02
    assert 1e-6 < shares[torch.float32].update_ratio < 1e-3


def test_what_is_kept_elsewhere_is_not_lost():
    """Under KahanSum bfloat16 weights rest as often, and no share of lost updates is recorded; plain AdamW has one."""
    for wrap in (lambda optimizer: optimizer, mixprec.KahanSum):
        layer = nn.Linear(64, 64).to(torch.bfloat16)
        optimizer = wrap(torch.optim.AdamW(layer.parameters(), lr=1e-5))
        with Monitor(layer, optimizer, level="deep") as monitor:
            for _ in range(3):
                layer(torch.randn(8, 64, dtype=torch.bfloat16)).float().square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert len(monitor.records) == 3
        assert monitor.records[-1].unchanged_all > 0.8
        assert (monitor.records[-1].unchanged is None) is (wrap is mixprec.KahanSum)


def test_the_front_door_is_heard(training, tmp_path):
    """`Precision` hands its model and optimizers over; windows are one step each, skipped ones included."""
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = mixprec.GradScaler("cpu", init_scale=2.0**24)
    precision = mixprec.Precision("fp16-mixed", optimizer, model=model, accumulate=2, max_norm=0.1, scaler=scaler)
    reports = []
    with Monitor(precision=precision, level="deep") as monitor:
        for _ in range(20):
            inputs = torch.randn(16, 8)
            with precision.autocast():
                loss = F.cross_entropy(model(inputs), inputs[:, :4].argmax(1))
            precision.backward(loss)
            report = precision.step()
            if report.reason.value != "accumulating":
                reports.append(report)

    assert [r.applied for r in monitor.records] == [r.applied for r in reports]
    assert not all(r.applied for r in reports)
    assert [r.scale for r in monitor.records] == [r.scale_before for r in reports]
    assert [r.grad_norm for r in monitor.records] == [pytest.approx(r.grad_norm, nan_ok=True) for r in reports]


def test_two_optimizers_are_one_step():
    """Without a scaler a step closes when both have stepped; one that steps twice begins a new one."""
    one, other = nn.Linear(4, 4), nn.Linear(4, 4)
    first, second = (torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (one, other))
    with Monitor({"one": one, "other": other}, first, second, level="deep") as monitor:
        for optimizer in (first, second, first, first, second):
            other(one(torch.randn(2, 4))).sum().backward()
            optimizer.step()

    assert [len(record.lrs) for record in monitor.records] == [2, 0, 2]
    assert {path.partition(".")[0] for path in monitor.records[0].modules} == {"one", "other"}


def test_a_record_survives_json(watched, tmp_path):
    """What is written to a folder is read back as it was, to six digits; non-finite numbers too."""
    _, records, _ = watched
    torch.manual_seed(0)
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with Monitor(layer, optimizer, folder=tmp_path, level="deep") as monitor:
        for factor in (1.0, math.nan, math.inf):
            (layer(torch.ones(1, 2)).sum() * factor).backward()
            optimizer.step()
    read = read_run(tmp_path).steps

    assert len(read) == 3
    for before, after in zip(monitor.records, read, strict=True):
        assert after.loss == pytest.approx(before.loss, rel=1e-5, nan_ok=True)
        assert after.modules.keys() == before.modules.keys()
        assert after.bad_weights == before.bad_weights
    assert records
