"""What the front door does is what the same loop written by hand with torch does, bit for bit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mixprec import GradScaler, Precision
from mixprec.records import StepReason

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "fused-sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    "fused-adamw": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
}
DTYPES = {"fp32": torch.float32, "fp16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def by_hand(mode, model, make, batches, *, accumulate=1, max_norm=None):
    """The loop that torch's documentation teaches."""
    optimizer = make(model.parameters())
    scaler = torch.amp.GradScaler("cpu", enabled=mode == "fp16-mixed")
    for index, (x, y) in enumerate(batches):
        with torch.autocast("cpu", DTYPES[mode] if mode != "fp32" else None, enabled=mode != "fp32"):
            loss = F.mse_loss(model(x).float(), y)
        scaler.scale(loss / accumulate).backward()
        if index % accumulate == accumulate - 1:
            if max_norm is not None:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return weights(model)


def through_the_front_door(mode, model, make, batches, **options):
    precision = Precision(mode, make(model.parameters()), model=model, **options)
    for x, y in batches:
        with precision.autocast():
            loss = F.mse_loss(model(x).float(), y)
        precision.backward(loss)
        precision.step()
    return weights(model)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("mode", DTYPES)
@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_run_is_that_of_the_documented_loop(mode, accumulate, make, mlp, batches):
    """Same parameters, bit for bit, in every mode and with stock and fused optimizers."""
    mine = through_the_front_door(mode, mlp(), make, batches, accumulate=accumulate)
    torchs = by_hand(mode, mlp(), make, batches, accumulate=accumulate)
    for a, b in zip(mine, torchs, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(mine[0], weights(mlp())[0])


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("mode", DTYPES)
def test_a_clipped_run_is_that_of_the_documented_loop(mode, make, mlp, batches):
    """Clipping comes after unscaling; one combined multiply differs from torch's two only in the last bits."""
    mine = through_the_front_door(mode, mlp(), make, batches, max_norm=0.05)
    torchs = by_hand(mode, mlp(), make, batches, max_norm=0.05)
    unclipped = by_hand(mode, mlp(), make, batches)
    for a, b in zip(mine, torchs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    if make in (OPTIMIZERS["sgd"], OPTIMIZERS["fused-sgd"]):  # Adam hides the size of a gradient
        assert any((a - b).abs().max() > 1e-2 for a, b in zip(mine, unclipped, strict=True))


def test_a_step_that_found_inf_changes_nothing_but_the_scale(mlp, batches, overflow):
    """Skipped: parameters and optimizer state stay, the scale backs off, the report says so; then all goes on."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    precision = Precision("fp16-mixed", optimizer)
    before = weights(model)
    (x, y), *_ = batches
    precision.backward(overflow(F.mse_loss(model(x), y)))
    report = precision.step()
    assert (report.applied, report.reason, report.found_inf) == (False, StepReason.FOUND_INF, True)
    assert (report.scale_before, report.scale_after) == (65536.0, 32768.0)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))
    precision.backward(F.mse_loss(model(x), y))
    assert precision.step().applied


@pytest.mark.parametrize("mode", ["fp32", "bf16-mixed"])
def test_unscaled_modes_skip_what_is_not_finite_too(mode, mlp, batches, overflow):
    """Without a loss scale a non-finite gradient still spoils no parameter."""
    model = mlp()
    precision = Precision(mode, torch.optim.SGD(model.parameters(), 0.1), max_norm=1.0)
    before = weights(model)
    (x, y), *_ = batches
    precision.backward(overflow(F.mse_loss(model(x), y)))
    report = precision.step()
    assert (report.applied, report.scale_before, report.scale_after) == (False, 1.0, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))


def test_inside_a_window_step_is_a_no_op_that_says_so(mlp, batches):
    """ACCUMULATING reports do not move parameters, scale or schedule, and are not applied."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    precision = Precision("fp16-mixed", optimizer, accumulate=3, scheduler=schedule)
    before = weights(model)
    reasons = []
    for x, y in batches[:3]:
        precision.backward(F.mse_loss(model(x), y))
        report = precision.step()
        reasons.append(report.reason)
        if report.reason is StepReason.ACCUMULATING:
            assert not report.applied
            assert not report
            assert report.scale_before == 65536.0
            assert precision.accumulating
            assert schedule.last_epoch == 0
            assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))
    assert reasons == [StepReason.ACCUMULATING, StepReason.ACCUMULATING, StepReason.APPLIED]
    assert not precision.accumulating
    assert schedule.last_epoch == 1


@pytest.mark.parametrize("split", [(16,), (8, 8), (4, 4, 4, 4), (13, 1, 2), (1, 1, 1, 13)])
@pytest.mark.parametrize("known", [False, True])
def test_unequal_micro_batches_give_the_full_batch_gradient(split, known, mlp, batches):
    """With the sample counts as weights the step is that of the whole batch, however it is cut."""
    (x, y), *_ = batches
    x, y = x.double(), y.double()

    def step(parts, accumulate):
        model = mlp().double()
        precision = Precision("fp32", torch.optim.SGD(model.parameters(), 1.0), accumulate=accumulate)
        for a, b in zip(x.split(parts), y.split(parts), strict=True):
            total = 16.0 if known else None
            precision.backward(F.mse_loss(model(a), b), weight=len(a), total=total)
            precision.step()
        return weights(model)

    for a, b in zip(step(list(split), len(split)), step([16], 1), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_without_weights_unequal_micro_batches_count_alike(mlp, batches):
    """What the weights are for: a cut of 13, 1 and 2 samples is far from the full batch if each counts a third."""
    (x, y), *_ = batches
    model = mlp()
    precision = Precision("fp32", torch.optim.SGD(model.parameters(), 1.0), accumulate=3)
    whole = mlp()
    F.mse_loss(whole(x), y).backward()
    for a, b in zip(x.split([13, 1, 2]), y.split([13, 1, 2]), strict=True):
        precision.backward(F.mse_loss(model(a), b))
        precision.step()
    moved = [a - b for a, b in zip(weights(mlp()), weights(model), strict=True)]
    error = sum((m - p.grad).norm() for m, p in zip(moved, whole.parameters(), strict=True))
    assert error > 0.1 * sum(p.grad.norm() for p in whole.parameters())


def test_finish_takes_the_mean_over_an_incomplete_window(mlp, batches):
    """Two of four micro-batches give the step of a window of two; with nothing pending there is no step."""
    models = [mlp(), mlp()]
    for model, accumulate in zip(models, (4, 2), strict=True):
        precision = Precision("fp16-mixed", torch.optim.SGD(model.parameters(), 1.0), accumulate=accumulate)
        assert precision.finish() is None
        for x, y in batches[:2]:
            precision.backward(F.mse_loss(model(x), y))
            precision.step()
        report = precision.finish()
        assert (report is not None and report.applied) == (accumulate == 4)
        assert precision.finish() is None
    for a, b in zip(*map(weights, models), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_two_losses_before_a_step_are_one_micro_batch(mlp, batches):
    """Their gradients add up, as in a discriminator's real and fake halves."""
    (x, y), *_ = batches
    apart, joint = mlp(), mlp()
    one = Precision("fp32", torch.optim.SGD(apart.parameters(), 0.1))
    one.backward(F.mse_loss(apart(x), y))
    one.backward(apart(x).abs().mean())
    assert one.step().applied
    other = Precision("fp32", torch.optim.SGD(joint.parameters(), 0.1))
    other.backward(F.mse_loss(joint(x), y) + joint(x).abs().mean())
    assert other.step().applied
    for a, b in zip(weights(apart), weights(joint), strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_belong_to_their_window(mlp, batches):
    """What others left in .grad is not stepped with, and a finished window leaves nothing behind."""
    (x, y), *_ = batches
    clean, polluted = mlp(), mlp()
    for model in (clean, polluted):
        precision = Precision("fp32", torch.optim.SGD(model.parameters(), 0.1))
        if model is polluted:
            model(x).square().sum().backward()
        precision.backward(F.mse_loss(model(x), y))
        precision.step()
        assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(weights(clean), weights(polluted), strict=True))


def test_several_optimizers_step_all_or_none(mlp, batches, overflow):
    """An infinity in one optimizer's gradients keeps every other from stepping, fused or not."""
    model = mlp()
    first = torch.optim.AdamW(model[0].parameters(), fused=True)
    second = torch.optim.SGD(model[2].parameters(), 0.1)
    precision = Precision("fp16-mixed", first, second)
    (x, y), *_ = batches
    before = weights(model)
    hidden = overflow(model[1](model[0](x)))  # the second layer's gradients stay finite
    precision.backward(F.mse_loss(model[2](hidden), y))
    assert not precision.step().applied
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))
    precision.backward(F.mse_loss(model(x), y))
    assert precision.step().applied
    assert not any(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))


def test_several_optimizers_are_clipped_as_one_vector(mlp, batches):
    """The norm is that of all gradients, and both optimizers' are multiplied by the same coefficient."""
    (x, y), *_ = batches
    reports = []
    for split in (False, True):
        model = mlp()
        parts = [model[0].parameters(), model[2].parameters()] if split else [model.parameters()]
        precision = Precision("fp32", *(torch.optim.SGD(p, 0.1) for p in parts), max_norm=0.01)
        precision.backward(F.mse_loss(model(x), y))
        reports.append(precision.step())
    assert reports[0].grad_norm == pytest.approx(reports[1].grad_norm, rel=1e-6)
    assert reports[0].clip_coefficient == pytest.approx(reports[1].clip_coefficient, rel=1e-6)
    assert reports[0].clip_coefficient < 1.0


def test_a_schedule_moves_only_with_applied_steps(mlp, batches, overflow):
    """Skipped steps leave the learning rate where it is, also with a fused optimizer that was called on the skip."""
    (x, y), *_ = batches
    for fused in (False, True):
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), 1.0, fused=fused)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
        precision = Precision("fp16-mixed", optimizer, scheduler=[schedule])
        rates = []
        for bad in (True, False, True, False):
            loss = F.mse_loss(model(x), y)
            precision.backward(overflow(loss) if bad else loss)
            precision.step()
            rates.append(schedule.get_last_lr()[0])
        assert rates == [1.0, 0.5, 0.5, 0.25]


def test_without_optimizer_there_is_autocast(mlp, batches):
    """Inference needs no optimizer and gets the mode's region."""
    model = mlp()
    (x, _), *_ = batches
    for mode, dtype in DTYPES.items():
        with Precision(mode, model=model).autocast(), torch.no_grad():
            assert model(x).dtype is dtype


def test_fp32_is_fp32_inside_somebody_elses_region(mlp, batches):
    """The fp32 mode switches autocast off rather than leaving it as it is."""
    model = mlp()
    (x, _), *_ = batches
    with torch.autocast("cpu", torch.bfloat16), Precision("fp32").autocast():
        assert model(x).dtype is torch.float32


def test_a_policy_decides_what_is_cast(mlp, batches):
    """A policy is obeyed, by name and by rule, with module paths counted from the model."""
    from mixprec import Policy
    from mixprec._policy import CastRule

    model = mlp()
    (x, _), *_ = batches
    policy = Policy.torch("cpu").with_module("2", CastRule.FP32)
    with Precision("bf16-mixed", model=model, policy=policy).autocast():
        assert model(x).dtype is torch.float32
        assert model[0](x).dtype is torch.bfloat16
    with Precision("bf16-mixed", policy="uniform").autocast():
        assert torch.softmax(model(x), 1).dtype is torch.float32


def test_a_scaler_of_ones_own_is_used(mlp, batches):
    """Its settings hold, and its scale is in the report."""
    model = mlp()
    scaler = GradScaler("cpu", init_scale=8.0)
    precision = Precision("fp16-mixed", torch.optim.SGD(model.parameters(), 0.1), scaler=scaler)
    (x, y), *_ = batches
    precision.backward(F.mse_loss(model(x), y))
    assert precision.step().scale_before == 8.0
    assert precision.scaler is scaler


def test_retained_graphs_can_be_gone_through_twice(mlp, batches):
    """retain_graph is passed on."""
    model = mlp()
    precision = Precision("fp32", torch.optim.SGD(model.parameters(), 0.1))
    (x, y), *_ = batches
    loss = F.mse_loss(model(x), y)
    precision.backward(loss, retain_graph=True)
    precision.backward(loss)
    assert precision.step().applied


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("bad", [{0}, {2}, {1, 3}, {3}, set()])
def test_a_bad_micro_batch_can_be_left_out(bad, known, mlp, batches, overflow):
    """The step is that of the mean over the finite ones; each dropped one is reported, and the scale backs off once."""
    sizes = [3, 1, 5, 7]
    (x, y), *_ = batches
    model = mlp()
    precision = Precision(
        "fp16-mixed", torch.optim.SGD(model.parameters(), 1.0), accumulate=4, drop_nonfinite=True, model=model
    )
    total = 16.0 if known else None
    reports = []
    for index, (a, b) in enumerate(zip(x.split(sizes), y.split(sizes), strict=True)):
        loss = F.mse_loss(model(a), b)
        precision.backward(overflow(loss) if index in bad else loss, weight=len(a), total=total)
        reports.append(precision.step())
    reference = mlp()
    good = [index for index in range(4) if index not in bad]
    rows = torch.cat([torch.arange(16).split(sizes)[index] for index in good])
    F.mse_loss(reference(x[rows]), y[rows]).backward()
    for mine, start, p in zip(weights(model), weights(mlp()), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, start - p.grad, rtol=1e-4, atol=1e-5)
    assert reports[-1].applied
    assert [r.reason is StepReason.DROPPED for r in reports[:-1]] == [index in bad for index in range(3)]
    assert reports[-1].scale_after == (32768.0 if bad else 65536.0)
    assert precision.scaler.get_scale() == reports[-1].scale_after


def test_a_window_of_nothing_but_bad_micro_batches_is_skipped(mlp, batches, overflow):
    """No weight moves and the scale backs off, as without dropping; the next window trains."""
    model = mlp()
    precision = Precision("fp16-mixed", torch.optim.SGD(model.parameters(), 1.0), accumulate=2, drop_nonfinite=True)
    before = weights(model)
    for x, y in batches[:2]:
        precision.backward(overflow(F.mse_loss(model(x), y)))
        report = precision.step()
    assert (report.reason, report.scale_after) == (StepReason.FOUND_INF, 32768.0)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))
    for x, y in batches[:2]:
        precision.backward(F.mse_loss(model(x), y))
        report = precision.step()
    assert report.applied


def test_without_asking_one_bad_micro_batch_skips_its_window(mlp, batches, overflow):
    """The default is all or nothing."""
    model = mlp()
    precision = Precision("fp16-mixed", torch.optim.SGD(model.parameters(), 1.0), accumulate=2)
    for index, (x, y) in enumerate(batches[:2]):
        loss = F.mse_loss(model(x), y)
        precision.backward(overflow(loss) if index == 0 else loss)
        report = precision.step()
    assert report.reason is StepReason.FOUND_INF
