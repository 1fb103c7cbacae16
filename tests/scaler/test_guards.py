"""Each misuse is caught and named; beside each stands the nearest healthy use, which nothing is said about."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from mixprec import GradScaler
from mixprec._scaler import DEFAULT_GUARDS, Guard
from mixprec.errors import InvalidValueError, MisuseError, MisuseWarning

Loop = Callable[[Any, "Bench"], None]
FUSED = pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])


class Bench:
    """Two small networks with an optimizer each, in a GAN's arrangement."""

    def __init__(self, fused: bool = False) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.judge = nn.Linear(4, 1)
        self.optimizer = torch.optim.AdamW(self.model.named_parameters(), lr=1e-3, fused=fused)
        self.judge_optimizer = torch.optim.AdamW(self.judge.named_parameters(), lr=1e-3, fused=fused)

    def loss(self) -> torch.Tensor:
        return self.model(torch.randn(8, 4)).square().mean()

    def judged(self) -> torch.Tensor:
        return self.judge(self.model(torch.randn(8, 4))).square().mean()


def run(loop: Loop, fused: bool = False, **arguments: Any) -> None:
    loop(GradScaler("cpu", init_scale=2.0**12, growth_interval=2, **arguments), Bench(fused))


# Misuse --------------------------------------------------------------------------------------------------------------


def unscaled_backward(scaler: Any, b: Bench) -> None:
    for step in range(2):
        b.optimizer.zero_grad()
        (scaler.scale(b.loss()) if step == 0 else b.loss()).backward()
        scaler.step(b.optimizer)
        scaler.update()


def direct_first_step(scaler: Any, b: Bench) -> None:
    scaler.scale(b.loss()).backward()
    b.optimizer.step()


def direct_later_step(scaler: Any, b: Bench) -> None:
    for _ in range(4):
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scaler.step(b.optimizer)
        scaler.update()
    b.optimizer.zero_grad()
    scaler.scale(b.loss()).backward()
    b.optimizer.step()


def clip_norm_first(scaler: Any, b: Bench) -> None:
    for _ in range(3):
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        nn.utils.clip_grad_norm_(b.model.parameters(), 1.0)
        scaler.step(b.optimizer)
        scaler.update()


def clip_value_first(scaler: Any, b: Bench) -> None:
    for _ in range(3):
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        nn.utils.clip_grad_value_(b.model.parameters(), 0.5)
        scaler.unscale_(b.optimizer)
        scaler.step(b.optimizer)
        scaler.update()


def no_zero_grad(scaler: Any, b: Bench) -> None:
    for _ in range(2):
        scaler.scale(b.loss()).backward()
        scaler.step(b.optimizer)
        scaler.update()


def shared_parameter(scaler: Any, b: Bench) -> None:
    other = torch.optim.SGD(b.model[0].parameters(), lr=0.1)
    scaler.scale(b.loss()).backward()
    scaler.step(b.optimizer)
    scaler.step(other)


def shared_parameter_together(scaler: Any, b: Bench) -> None:
    other = torch.optim.SGD(b.model[0].parameters(), lr=0.1)
    scaler.scale(b.loss()).backward()
    scaler.step_together([b.optimizer, other])


def update_inside_the_window(scaler: Any, b: Bench) -> None:
    scaler.scale(b.loss()).backward()
    scaler.step(b.optimizer)
    scaler.update()
    b.optimizer.zero_grad()
    for micro_batch in range(2):
        scaler.scale(b.loss()).backward()
        if micro_batch == 0:
            scaler.update(2.0**6)
    scaler.step(b.optimizer)


def update_between_two_steps(scaler: Any, b: Bench) -> None:
    for _ in range(2):
        b.optimizer.zero_grad()
        b.judge_optimizer.zero_grad()
        scaler.scale(b.judged()).backward()
        scaler.step(b.judge_optimizer)
        scaler.update()
        scaler.step(b.optimizer)
        scaler.update()


ERRORS = [
    (unscaled_backward, "MP004", "bias (4,)", Guard.UNSCALED_BACKWARD),
    (direct_first_step, "MP003", "0.weight (4, 4)", Guard.SCALED_STEP),
    (direct_later_step, "MP003", "bias (4,)", Guard.SCALED_STEP),
    (shared_parameter, "MP028", "[0]['params'][0] (4, 4)", Guard.SHARED_PARAMETER),
    (shared_parameter_together, "MP028", "[0]['params'][0] (4, 4)", Guard.SHARED_PARAMETER),
]
WARNINGS = [
    (clip_norm_first, "MP002", "AdamW", Guard.CLIP_BEFORE_UNSCALE),
    (clip_value_first, "MP002", "AdamW", Guard.CLIP_BEFORE_UNSCALE),
    (no_zero_grad, "MP146", "bias (4,)", Guard.MISSING_ZERO_GRAD),
    (update_inside_the_window, "MP008", "bias (4,)", Guard.SCALE_CHANGED),
    (update_between_two_steps, "MP008", "bias (4,)", Guard.SCALE_CHANGED),
]


@FUSED
@pytest.mark.parametrize(("loop", "code", "subject", "guard"), ERRORS)
def test_a_misuse_that_ruins_the_step_raises(loop: Loop, code: str, subject: str, guard: Guard, fused: bool) -> None:
    """The error carries the cause's code and names the parameter."""
    with pytest.raises(MisuseError, match=re.escape(subject)) as caught:
        run(loop, fused)
    assert caught.value.code == code
    assert f"[{code}]" in str(caught.value)


@FUSED
@pytest.mark.parametrize(("loop", "code", "subject", "guard"), WARNINGS)
def test_a_misuse_that_may_be_meant_warns_once(loop: Loop, code: str, subject: str, guard: Guard, fused: bool) -> None:
    """The warning carries the cause's code, names the parameter or the call, and points at the caller's line."""
    with pytest.warns(MisuseWarning, match=re.escape(subject)) as caught:
        run(loop, fused)
    (warning,) = [w for w in caught if w.message.code == code]  # type: ignore[union-attr] # a MisuseWarning
    assert warning.filename == __file__


@pytest.mark.parametrize(("loop", "code", "subject", "guard"), ERRORS + WARNINGS)
def test_each_guard_can_be_switched_off_alone(loop: Loop, code: str, subject: str, guard: Guard) -> None:
    """Without its guard the misuse passes, as it does with torch's scaler."""
    run(loop, guards=DEFAULT_GUARDS - {guard})


@pytest.mark.parametrize(("loop", "code", "subject", "guard"), ERRORS + WARNINGS)
def test_one_guard_alone_catches_its_misuse(loop: Loop, code: str, subject: str, guard: Guard) -> None:
    """No guard leans on another."""
    with pytest.warns(MisuseWarning) if (loop, code, subject, guard) in WARNINGS else pytest.raises(MisuseError):
        run(loop, guards={guard.value})


# Healthy -------------------------------------------------------------------------------------------------------------


def plain(scaler: Any, b: Bench) -> None:
    for set_to_none in (True, False, True, False, False):
        b.optimizer.zero_grad(set_to_none=set_to_none)
        scaler.scale(b.loss()).backward()
        scaler.step(b.optimizer)
        scaler.update()


def accumulation(scaler: Any, b: Bench) -> None:
    for _ in range(4):
        for _ in range(3):
            scaler.scale(b.loss() / 3).backward()
        scaler.unscale_(b.optimizer)
        nn.utils.clip_grad_norm_(b.model.parameters(), 1.0)
        scaler.step(b.optimizer)
        scaler.update()
        b.optimizer.zero_grad(set_to_none=False)


def averaging_by_hand(scaler: Any, b: Bench) -> None:
    for _ in range(8):
        b.optimizer.zero_grad()
        for _ in range(3):
            scaler.scale(b.loss()).backward()
        for param in b.model.parameters():
            param.grad /= 3
        scaler.step(b.optimizer)
        scaler.update()


def gan(scaler: Any, b: Bench) -> None:
    for set_to_none in (True, False) * 3:
        b.judge_optimizer.zero_grad(set_to_none=set_to_none)
        scaler.scale(b.judge(torch.randn(8, 4)).square().mean()).backward()
        scaler.scale(b.judged()).backward()
        scaler.step(b.judge_optimizer)
        b.optimizer.zero_grad(set_to_none=set_to_none)
        scaler.scale(-b.judged()).backward()
        scaler.step(b.optimizer)
        scaler.update()


def gan_with_an_unscaled_judge(scaler: Any, b: Bench) -> None:
    for _ in range(4):
        b.optimizer.zero_grad()
        scaler.scale(b.judged()).backward()
        b.judge_optimizer.zero_grad()
        b.judge(torch.randn(8, 4)).square().mean().backward()
        b.judge_optimizer.step()
        scaler.step(b.optimizer)
        scaler.update()


def gan_that_updates_twice(scaler: Any, b: Bench) -> None:
    for _ in range(4):
        b.judge_optimizer.zero_grad()
        scaler.scale(b.judged()).backward()
        scaler.step(b.judge_optimizer)
        scaler.update()
        b.optimizer.zero_grad()
        scaler.scale(-b.judged()).backward()
        scaler.step(b.optimizer)
        scaler.update()


def gradient_penalty(scaler: Any, b: Bench) -> None:
    for _ in range(4):
        b.optimizer.zero_grad()
        loss = b.loss()
        params = list(b.model.parameters())
        scaled = torch.autograd.grad(scaler.scale(loss), params, create_graph=True)
        penalty = sum((g / scaler.get_scale()).square().sum() for g in scaled)
        scaler.scale(loss + penalty).backward()
        scaler.step(b.optimizer)
        scaler.update()


def two_losses_over_one_graph(scaler: Any, b: Bench) -> None:
    for _ in range(4):
        b.optimizer.zero_grad()
        b.judge_optimizer.zero_grad()
        hidden = b.model(torch.randn(8, 4))
        scaler.scale(hidden.square().mean()).backward(retain_graph=True)
        scaler.scale(b.judge(hidden).square().mean()).backward()
        scaler.step(b.optimizer)
        scaler.step(b.judge_optimizer)
        scaler.update()


def frozen(scaler: Any, b: Bench) -> None:
    for step in range(4):
        b.model[0].requires_grad_(step % 2 == 0)
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scaler.step(b.optimizer)
        scaler.update()


def edits_after_unscale(scaler: Any, b: Bench) -> None:
    for _ in range(4):
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scaler.unscale_(b.optimizer)
        for param in b.model.parameters():
            param.grad.add_(1e-3).clamp_(-1, 1)
        scaler.step(b.optimizer)
        scaler.update()


def unscaled_by_hand(scaler: Any, b: Bench) -> None:
    for _ in range(4):
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scale = scaler.get_scale()
        for param in b.model.parameters():
            param.grad /= scale
        b.optimizer.step()


def unscale_then_direct_step(scaler: Any, b: Bench) -> None:
    for _ in range(3):
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scaler.unscale_(b.optimizer)
        b.optimizer.step()
        scaler.update()


def scaled_by_hand(scaler: Any, b: Bench) -> None:
    scaler.scale(torch.zeros(()))
    for _ in range(3):
        b.optimizer.zero_grad()
        (b.loss() * scaler.get_scale()).backward()
        scaler.step(b.optimizer)
        scaler.update()


def overflow(scaler: Any, b: Bench) -> None:
    for step in range(5):
        b.optimizer.zero_grad()
        scaler.scale(b.loss() * (float("inf") if step in (0, 2, 3) else 1.0)).backward()
        scaler.step(b.optimizer)
        scaler.update()


def shared_parameters_in_turn(scaler: Any, b: Bench) -> None:
    other = torch.optim.SGD(b.model.parameters(), lr=0.1)
    for optimizer in (b.optimizer, other) * 2:
        optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scaler.step(optimizer)
        scaler.update()
    for optimizer in (b.optimizer, other):
        optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scaler.step(optimizer)
    scaler.update()


def evaluation_in_between(scaler: Any, b: Bench) -> None:
    for _ in range(3):
        with torch.no_grad():
            scaler.scale(b.loss())
        b.optimizer.zero_grad()
        scaler.scale([b.loss()])[0].backward()
        scaler.step(b.optimizer)
        scaler.update()


def changed_scale_between_steps(scaler: Any, b: Bench) -> None:
    for new_scale in (None, 8.0, None, 64.0):
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scaler.step(b.optimizer)
        scaler.update(new_scale)


def judge_reached_but_zeroed_later(scaler: Any, b: Bench) -> None:
    for step in range(6):
        b.optimizer.zero_grad()
        scaler.scale(b.judged()).backward()
        scaler.step(b.optimizer)
        scaler.update()
        if step % 2:
            b.judge_optimizer.zero_grad(set_to_none=False)
            scaler.scale(b.judged()).backward()
            scaler.step(b.judge_optimizer)
            scaler.update()


def another_scaler_beside(scaler: Any, b: Bench) -> None:
    theirs = torch.amp.GradScaler("cpu", init_scale=64.0)
    for _ in range(3):
        b.optimizer.zero_grad()
        b.judge_optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        theirs.scale(b.judge(torch.randn(8, 4)).square().mean()).backward()
        theirs.step(b.judge_optimizer)
        theirs.update()
        scaler.step(b.optimizer)
        scaler.update()


def gradients_by_hand(scaler: Any, b: Bench) -> None:
    other = torch.optim.SGD(b.model.parameters(), lr=0.1)
    for step in range(4):
        if step == 0:
            scaler.scale(b.loss()).backward()
        for optimizer in (b.optimizer, other):
            for param in b.model.parameters():
                param.grad = torch.full_like(param, 64.0 if step != 2 else float("inf"))
            scaler.step(optimizer)
        scaler.update()


def contract_by_hand(scaler: Any, b: Bench) -> None:
    if b.optimizer.defaults["fused"]:
        for _ in range(3):
            b.optimizer.zero_grad()
            scaler.scale(b.loss()).backward()
            b.optimizer.grad_scale = torch.tensor(scaler.get_scale())
            b.optimizer.step()


def validation_backward(scaler: Any, b: Bench) -> None:
    for _ in range(3):
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scaler.step(b.optimizer)
        scaler.update()
        b.optimizer.zero_grad()
        b.loss().backward()  # gradients looked at, then thrown away
        b.optimizer.zero_grad()
        for param in b.model.parameters():
            param.grad = torch.ones_like(param)
        scaler.step(b.optimizer)
        scaler.update()


def a_scaler_for_each_network(scaler: Any, b: Bench) -> None:
    other = GradScaler("cpu", init_scale=2.0**8)
    for set_to_none in (True, False) * 3:
        b.judge_optimizer.zero_grad(set_to_none=set_to_none)
        scaler.scale(b.judged()).backward()
        scaler.step(b.judge_optimizer)
        scaler.update()
        b.optimizer.zero_grad(set_to_none=set_to_none)
        other.scale(-b.judged()).backward()
        other.step(b.optimizer)
        other.update()


def zeroed_at_the_end(scaler: Any, b: Bench) -> None:
    for set_to_none in (True, False, False, True):
        scaler.scale(b.loss()).backward()
        scaler.step(b.optimizer, max_norm=1.0)
        scaler.update()
        b.model.zero_grad(set_to_none=set_to_none)


HEALTHY = [
    a_scaler_for_each_network,
    zeroed_at_the_end,
    gradients_by_hand,
    contract_by_hand,
    validation_backward,
    plain,
    accumulation,
    averaging_by_hand,
    gan,
    gan_with_an_unscaled_judge,
    gan_that_updates_twice,
    gradient_penalty,
    two_losses_over_one_graph,
    frozen,
    edits_after_unscale,
    unscaled_by_hand,
    unscale_then_direct_step,
    scaled_by_hand,
    overflow,
    shared_parameters_in_turn,
    evaluation_in_between,
    changed_scale_between_steps,
    judge_reached_but_zeroed_later,
    another_scaler_beside,
]


@FUSED
@pytest.mark.parametrize("loop", HEALTHY)
def test_healthy_loops_are_left_alone(loop: Loop, fused: bool) -> None:
    """All guards on, and not a word."""
    run(loop, fused)


def test_a_set_that_is_no_guard_is_refused_and_its_name_accepted() -> None:
    """`guards` takes members or their values, and says which there are."""
    with pytest.raises(InvalidValueError, match="clip_before_unscale"):
        GradScaler("cpu", guards={"clipping"})
    assert GradScaler("cpu", guards={"clip_before_unscale"})._guards == {Guard.CLIP_BEFORE_UNSCALE}


_HOOKS_OVER_TIME = """
import gc
from torch.optim import optimizer
from mixprec import GradScaler

def count():
    gc.collect()
    return len(optimizer._global_optimizer_pre_hooks)

counts = [count()]
first, second, third = GradScaler("cpu"), GradScaler("cpu"), GradScaler("cpu", guards=())
counts.append(count())
del first, third
counts.append(count())
del second
counts.append(count())
print(*counts)
"""


def test_the_global_step_hook_lives_no_longer_than_the_scalers_that_need_it() -> None:
    """The process has our hook only while a scaler with the guard is alive. A process of its own has no other."""
    done = subprocess.run([sys.executable, "-c", _HOOKS_OVER_TIME], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1", "1", "0"]


def test_the_hook_on_a_parameter_goes_with_the_scaler() -> None:
    """Nothing is left on the model when the scaler is gone, and the model can be copied while it is not."""
    import copy

    b = Bench()
    scaler = GradScaler("cpu")
    for _ in range(2):
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scaler.step(b.optimizer)
        scaler.update()
    hooked = [p for p in b.model.parameters() if getattr(p, "_post_accumulate_grad_hooks", None)]
    assert len(hooked) == 1
    assert not any(getattr(p, "_post_accumulate_grad_hooks", None) for p in copy.deepcopy(b.model).parameters())
    del scaler
    gc.collect()
    assert not any(getattr(p, "_post_accumulate_grad_hooks", None) for p in b.model.parameters())


def test_marks_keep_no_gradient_alive() -> None:
    """The watch holds gradients weakly, so zero_grad frees their memory."""
    import weakref

    scaler, b = GradScaler("cpu"), Bench()
    for _ in range(2):
        b.optimizer.zero_grad()
        scaler.scale(b.loss()).backward()
        scaler.step(b.optimizer)
        scaler.update()
    grads = [weakref.ref(param.grad) for param in b.model.parameters()]
    b.optimizer.zero_grad()
    assert all(grad() is None for grad in grads)


@pytest.mark.parametrize("guards", [DEFAULT_GUARDS, frozenset(Guard)], ids=["default", "recheck"])
@pytest.mark.parametrize("max_norm", [None, 1.0])
@FUSED
def test_gradients_broken_after_unscale_are_judged_again_only_on_request(
    guards: frozenset[Guard], max_norm: float | None, fused: bool
) -> None:
    """By default the step is taken and the parameters are not finite, as with torch; with the guard it is skipped."""
    scaler, b = GradScaler("cpu", guards=guards), Bench(fused)
    scaler.scale(b.loss()).backward()
    scaler.unscale_(b.optimizer)
    b.model[0].weight.grad[0, 0] = float("inf")
    scaler.step(b.optimizer, max_norm=max_norm)
    rechecked = Guard.BROKEN_AFTER_UNSCALE in guards
    assert bool(b.model[0].weight.isfinite().all()) is rechecked
    assert scaler.report(b.optimizer).applied is not rechecked
    scale = scaler.get_scale()
    scaler.update()
    assert scaler.get_scale() == (scale / 2 if rechecked else scale)
