"""A front door that steps masters on 16-bit gradients trains as one that copies them to float32 first."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from mixprec import Precision
from mixprec._kernels import MasterSteps
from mixprec._kernels._pieces import Pieces

MODES = ("fp16-master", "bf16-master")


@pytest.fixture
def calls(monkeypatch):
    """How many parameters each step by pieces had."""
    counts: list[int] = []
    call = Pieces.__call__

    def counted(self, parts, grad_scale, found_inf):
        counts.append(sum(len(part.held.weights) for part in parts))
        call(self, parts, grad_scale, found_inf)

    monkeypatch.setattr(Pieces, "__call__", counted)
    return counts


class Net(nn.Module):
    """Linear layers, a convolution in channels last, and batch normalisation, which has no masters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(16, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).flatten(1))


class Run:
    """A model in training; `step` takes one micro-batch."""

    def __init__(self, mode, kernels, *, optimizers=1, **settings) -> None:
        torch.manual_seed(0)
        self.model = Net()
        held = [list(self.model.conv.parameters()) + list(self.model.norm.parameters())]
        held.append(list(self.model.head.parameters()) + list(self.model.unused.parameters()))
        groups = [{"params": held[0], "lr": 1e-2}, {"params": held[1], "weight_decay": 0.0}]
        split = [groups] if optimizers == 1 else [[group] for group in groups]
        self.optimizers = [torch.optim.AdamW(each, lr=1e-3, fused=True) for each in split]
        self.schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 2) for optimizer in self.optimizers]
        self.precision = Precision(
            mode, *self.optimizers, model=self.model, kernels=kernels, scheduler=self.schedulers, **settings
        )
        self.generator = torch.Generator().manual_seed(1)

    def step(self, factor=1.0):
        x = torch.randn(4, 2, 4, 4, generator=self.generator)
        with self.precision.autocast():
            loss = self.model(x).float().square().mean()
        self.precision.backward(loss * factor)
        return self.precision.step()

    def tensors(self):
        """Weights, masters, moments and counts."""
        states = [optimizer.state_dict()["state"] for optimizer in self.optimizers]
        moments = [t for state in states for index in sorted(state) for _, t in sorted(state[index].items())]
        return [*self.model.state_dict().values(), *self.precision.state_dict()["masters"].values(), *moments]


def same(run, other):
    mine, theirs = run.tensors(), other.tensors()
    return len(mine) == len(theirs) and all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("optimizers", [1, 2])
def test_training_is_the_same_to_the_bit(mode, optimizers, calls):
    """Weights, masters, moments, counts, learning rates and verdicts, with one step that is skipped."""
    runs = [Run(mode, kernels, optimizers=optimizers) for kernels in ("pieces", "foreach")]
    for step in range(7):
        reports = [run.step(math.inf if step == 3 else 1.0) for run in runs]
        assert reports[0].applied == reports[1].applied == (step != 3)
        assert reports[0].scale_after == reports[1].scale_after
        assert same(*runs)
    assert [s.get_last_lr() for s in runs[0].schedulers] == [s.get_last_lr() for s in runs[1].schedulers]
    assert calls == ([4] * 7 if optimizers == 1 else [2] * 14)


def test_clipping_differs_only_in_how_the_norm_is_added_up():
    """The norm of 16-bit gradients is added up apart from that of float32 ones: 1e-6 apart at most."""
    runs = [Run("bf16-master", kernels, max_norm=0.05) for kernels in ("pieces", "foreach")]
    for _ in range(4):
        mine, theirs = (run.step() for run in runs)
        assert mine.clip_coefficient < 1.0
        assert mine.grad_norm == pytest.approx(theirs.grad_norm, rel=1e-6)
    for mine, theirs in zip(*(run.precision._masters.masters for run in runs), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("settings", [{"accumulate": 2}, {"drop_nonfinite": True}], ids=str)
def test_sums_are_kept_in_float32_as_ever(settings, calls):
    """Windows of several micro-batches, and those that may be dropped, take the other way, to the same bits."""
    runs = [Run("bf16-master", kernels, **settings) for kernels in ("pieces", "foreach")]
    for _ in range(4):
        for run in runs:
            run.step()
    assert same(*runs)
    assert calls == []


def test_a_window_that_ends_early_is_taken_the_other_way(calls):
    """Its gradients are still to be multiplied, which float32 ones are."""
    runs = [Run("bf16-master", kernels, accumulate=3) for kernels in ("pieces", "foreach")]
    for run in runs:
        run.step()
        run.precision.finish()
    assert same(*runs)
    assert calls == []


def test_weights_set_from_outside_are_followed(calls):
    """A state that was loaded into the model reaches the masters before the next step."""
    runs = [Run("bf16-master", kernels) for kernels in ("pieces", "foreach")]
    for run in runs:
        run.step()
        run.model.load_state_dict({k: v + 1 if v.is_floating_point() else v for k, v in run.model.state_dict().items()})
        run.step()
    assert same(*runs)
    assert len(calls) == 2


def test_a_checkpoint_of_one_resumes_the_other():
    """Optimizer, model and precision states are interchangeable, and the run goes on to the same bits."""
    saved, resumed = Run("fp16-master", "pieces"), Run("fp16-master", "foreach")
    for _ in range(3):
        saved.step()
    resumed.model.load_state_dict(saved.model.state_dict())
    resumed.optimizers[0].load_state_dict(copy.deepcopy(saved.optimizers[0].state_dict()))
    resumed.precision.load_state_dict(saved.precision.state_dict())
    resumed.schedulers[0].load_state_dict(saved.schedulers[0].state_dict())
    resumed.generator.set_state(saved.generator.get_state())
    for _ in range(2):
        saved.step()
        resumed.step()

    assert same(saved, resumed)


def test_hooks_of_the_optimizer_see_every_step():
    """Step hooks run once per step, with the optimizer's own groups."""
    run, seen = Run("bf16-master", "pieces"), []
    run.optimizers[0].register_step_post_hook(lambda optimizer, args, kwargs: seen.append(optimizer))

    for _ in range(3):
        run.step()

    assert seen == run.optimizers * 3


def test_no_float32_gradient_is_made():
    """After backward and step masters have none, and weights have none either."""
    run = Run("bf16-master", "pieces")
    seen = []
    run.optimizers[0].register_step_pre_hook(
        lambda *_: seen.extend(master.grad for master in run.precision._masters.masters)
    )

    run.step()

    assert seen
    assert all(gradient is None for gradient in seen)
    assert all(parameter.grad is None for parameter in run.model.parameters())


class Table(nn.Module):
    """An embedding, whose gradient may be sparse, and a layer."""

    def __init__(self, sparse) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4, sparse=sparse)
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(self.embedding(x))


@pytest.mark.parametrize("sparse", [False, True])
def test_what_does_not_fit_is_not_ready(sparse):
    """A sparse gradient is turned away, the dense one beside it is taken."""
    torch.manual_seed(0)
    model = Table(sparse)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    precision = Precision("bf16-master", optimizer, model=model, kernels="pieces")
    with precision.autocast():
        loss = model(torch.tensor([1, 2, 3])).float().square().mean()
    precision.backward(loss)

    assert isinstance(precision._master_steps, MasterSteps)
    assert precision._master_steps.ready() is not sparse


def test_settings_that_change_later_are_followed(calls):
    """A learning rate that became a tensor, or another flag, is stepped by PyTorch from then on."""
    run = Run("bf16-master", "pieces")
    run.step()
    for group in run.optimizers[0].param_groups:
        group["maximize"] = True
    run.step()

    assert len(calls) == 1
