"""Stopping anywhere and resuming gives the same bits as not stopping."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F

from mixprec import Precision
from mixprec._lowbit import KahanSum, StochasticRounding
from mixprec.errors import CheckpointError
from mixprec.records import StepReason

MODES = ("fp32", "fp16-mixed", "bf16-mixed", "fp16-master", "bf16-master")


class Run:
    """A model, an optimizer and a Precision that are saved and loaded as a user would."""

    def __init__(self, mode, make, accumulate, wrap=lambda optimizer: optimizer, **options):
        self.model = make()
        self.optimizer = wrap(torch.optim.AdamW(self.model.parameters(), 0.01))
        self.precision = Precision(
            mode, self.optimizer, model=self.model, accumulate=accumulate, max_norm=0.5, **options
        )

    def backward(self, x, y):
        with self.precision.autocast():
            loss = F.mse_loss(self.model(x).float(), y)
        self.precision.backward(loss, weight=len(x))

    def train(self, batches):
        for x, y in batches:
            self.backward(x, y)
            self.precision.step()

    def save(self):
        file = io.BytesIO()
        torch.save([part.state_dict() for part in (self.model, self.optimizer, self.precision)], file)
        return file.getvalue()

    def load(self, saved):
        states = torch.load(io.BytesIO(saved), weights_only=True)
        for part, state in zip((self.model, self.optimizer, self.precision), states, strict=True):
            part.load_state_dict(state)

    def bits(self):
        masters = self.precision.state_dict()["masters"] or {}
        return [p.detach().clone() for p in self.model.parameters()] + [m.clone() for m in masters.values()]


def assert_equal(one, other):
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_run_resumed_anywhere_is_the_run_that_was_not_stopped(mode, accumulate, mlp, batches):
    """Bit for bit, whatever micro-batch it was stopped after: parameters, masters, scale."""
    straight = Run(mode, mlp, accumulate)
    straight.train(batches)
    for stop in range(len(batches)):
        first = Run(mode, mlp, accumulate)
        first.train(batches[:stop])
        second = Run(mode, mlp, accumulate)
        second.load(first.save())
        second.train(batches[stop:])
        assert_equal(straight.bits(), second.bits())
        assert straight.precision.scaler.state_dict() == second.precision.scaler.state_dict()


@pytest.mark.parametrize("mode", MODES)
def test_a_run_resumed_between_backward_and_step_is_exact_too(mode, mlp, batches):
    """The gradients of the micro-batch that was not finished are in the checkpoint."""
    straight = Run(mode, mlp, 2)
    straight.train(batches)
    first = Run(mode, mlp, 2)
    first.train(batches[:5])
    first.backward(*batches[5])
    second = Run(mode, mlp, 2)
    second.load(first.save())
    second.precision.step()
    second.train(batches[6:])
    assert_equal(straight.bits(), second.bits())


@pytest.mark.parametrize("mode", ["fp16-mixed", "bf16-master"])
def test_a_run_that_drops_micro_batches_resumes_exactly(mode, mlp, batches):
    """What was summed of the finite ones, and the weight of the dropped ones, is in the checkpoint."""
    batches = [(x * 1e30 if index in (1, 6, 7, 8) else x, y) for index, (x, y) in enumerate(batches)]
    straight = Run(mode, mlp, 3, drop_nonfinite=True)
    straight.train(batches)
    for stop in range(len(batches)):
        first = Run(mode, mlp, 3, drop_nonfinite=True)
        first.train(batches[:stop])
        second = Run(mode, mlp, 3, drop_nonfinite=True)
        second.load(first.save())
        second.train(batches[stop:])
        assert_equal(straight.bits(), second.bits())
    with pytest.raises(CheckpointError, match=r"sums is list in the checkpoint. Resume with the same drop_nonfinite"):
        Run(mode, mlp, 3).load(first.save())


@pytest.mark.parametrize("wrap", [KahanSum, StochasticRounding])
def test_bf16_without_masters_resumes_exactly(wrap, mlp, batches):
    """Compensation and random state are in the optimizer's state, and its float32 state stays float32."""
    straight = Run("bf16-master", mlp, 1, wrap)
    straight.train(batches)
    for stop in (0, 1, 7):
        first = Run("bf16-master", mlp, 1, wrap)
        first.train(batches[:stop])
        second = Run("bf16-master", mlp, 1, wrap)
        second.load(first.save())
        second.train(batches[stop:])
        assert_equal(straight.bits(), second.bits())


def test_the_order_of_loading_model_and_masters_does_not_matter(mlp, batches):
    """Weights that are the roundings of the masters leave them alone, so the model may be loaded after."""
    first = Run("bf16-master", mlp, 1)
    first.train(batches[:4])
    second = Run("bf16-master", mlp, 1)
    second.precision.load_state_dict(copy.deepcopy(first.precision.state_dict()))
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    second.model.load_state_dict(copy.deepcopy(first.model.state_dict()))
    for run in (first, second):
        run.train(batches[4:])
    assert_equal(first.bits(), second.bits())


def saved(mode="fp16-mixed", accumulate=2, done=0):
    """A state as a Precision of this kind writes it, by a model of one layer."""
    run = Run(mode, lambda: torch.nn.Linear(2, 1), accumulate)
    run.train([(torch.ones(1, 2), torch.ones(1, 1))] * done)
    return copy.deepcopy(run.precision.state_dict()), run


def changed(state, path, value):
    *parents, last = path
    inner = state
    for key in parents:
        inner = inner[key]
    inner[last] = value
    return state


BROKEN = {
    "version": (("version",), 2, r"version is 2; this mixprec reads version 1"),
    "mode": (("mode",), "fp32", r"mode is 'fp32' in the checkpoint and 'fp16-mixed' here.*leave this state out"),
    "masters": (("masters",), {}, r"masters is \{\} in the checkpoint"),
    "sums": (("sums",), [None], r"sums is list in the checkpoint. Resume with the same drop_nonfinite"),
    "window": (("window",), None, r"window is None in the checkpoint; accepted are the keys"),
    "scaler": (("scaler",), {}, r"scaler cannot be restored: The source state dict is empty"),
    "scaler.scale": (("scaler", "scale"), float("nan"), r"scaler.scale cannot be restored: scale is nan"),
    "gradients": (("gradients",), [None], r"gradients has 1 entries in the checkpoint; the optimizers hold 2 param"),
    "gradients[1]": (("gradients",), [None, torch.ones(3)], r"gradients\[1\] is \(3,\) torch.float32, the parameter"),
}


@pytest.mark.parametrize(("path", "value", "text"), BROKEN.values(), ids=BROKEN)
def test_a_broken_state_is_refused_by_key_and_changes_nothing(path, value, text, request):
    """The error carries the key; the state as it was saved is accepted."""
    state, run = saved(done=1)
    before = run.save()
    with pytest.raises(CheckpointError, match=text) as caught:
        run.precision.load_state_dict(changed(copy.deepcopy(state), path, value))
    assert caught.value.key == request.node.callspec.id
    assert run.save() == before
    run.precision.load_state_dict(state)


@pytest.mark.parametrize("key", ["version", "mode", "scaler", "window", "gradients", "sums", "masters"])
def test_a_missing_key_is_named(key):
    """No key may be missing."""
    state, run = saved()
    del state[key]
    with pytest.raises(CheckpointError, match=f"{key} is missing") as caught:
        run.precision.load_state_dict(state)
    assert caught.value.key == key


def test_a_window_of_another_length_is_refused_inside_and_accepted_between():
    """The length may change between windows only, and the error says which one to resume with."""
    inside, _ = saved(done=1, accumulate=2)
    between, _ = saved(done=2, accumulate=2)
    _, run = saved(accumulate=3)
    with pytest.raises(CheckpointError, match=r"after micro-batch 1 of a window of 2.*Resume with accumulate=2"):
        run.precision.load_state_dict(inside)
    run.precision.load_state_dict(between)
    assert not run.precision.accumulating


def test_masters_that_do_not_fit_are_named():
    """Missing, extra, misshapen and half masters are refused by name before anything is written."""
    state, run = saved("bf16-master")
    before = run.bits()
    name, extra = "weight", "head.weight"
    for masters, text in [
        ({}, "it is missing"),
        ({**state["masters"], name: torch.ones(3, 3)}, r"its shape is \(3, 3\) in the checkpoint and \(1, 2\) here"),
        ({**state["masters"], name: torch.ones(1, 2).bfloat16()}, "it is bfloat16 in the checkpoint, not float32"),
        ({**state["masters"], extra: torch.ones(1)}, "the model has no such weight"),
    ]:
        with pytest.raises(CheckpointError, match=text) as caught:
            run.precision.load_state_dict({**state, "masters": masters})
        assert caught.value.key == (extra if extra in masters else name)
        assert_equal(before, run.bits())
    run.precision.load_state_dict(state)


def test_a_report_after_loading_knows_the_loaded_scale():
    """The scale in an accumulating report is the restored one."""
    state, run = saved(done=0)
    state["scaler"]["scale"] = 128.0
    run.precision.load_state_dict(state)
    run.backward(torch.ones(1, 2), torch.ones(1, 1))
    report = run.precision.step()
    assert (report.reason, report.scale_before) == (StepReason.ACCUMULATING, 128.0)


def test_a_broken_scaler_leaves_masters_as_they_were():
    """Everything is checked before anything is written, so a refused state is no half-loaded one."""
    state, _ = saved("fp16-master", done=3)
    _, run = saved("fp16-master")
    before = run.bits()
    with pytest.raises(CheckpointError, match=r"scaler.scale cannot be restored"):
        run.precision.load_state_dict(changed(copy.deepcopy(state), ("scaler", "scale"), -1.0))
    assert_equal(before, run.bits())
    run.precision.load_state_dict(state)
    assert not torch.equal(before[-1], run.bits()[-1])
