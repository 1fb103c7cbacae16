"""Every refused input stands beside the nearest accepted one, and its error says what to do."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from mixprec import GradScaler, Precision
from mixprec._lowbit import KahanSum
from mixprec.errors import InvalidValueError, MisuseError, UnknownNameError


def linear(dtype=torch.float32):
    return nn.Linear(4, 2).to(dtype)


def sgd(model=None, **options):
    return torch.optim.SGD((model or linear()).parameters(), 0.1, **options)


def two_over_one_parameter():
    model = linear()
    return sgd(model), torch.optim.SGD([model.weight], 0.1)


def two_over_two():
    model = linear()
    return torch.optim.SGD([model.bias], 0.1), torch.optim.SGD([model.weight], 0.1)


def cosine(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)


def scheduled(make, other=False):
    optimizer = sgd()
    return Precision("fp32", optimizer, scheduler=make(sgd() if other else optimizer))


class Parallel(nn.Linear):
    """Stands in for a distributed wrapper, which is known by its no_sync."""

    def no_sync(self):
        raise NotImplementedError


def parallel(dtype):
    model = Parallel(4, 2).to(dtype)
    return Precision("bf16-master", sgd(model), model=model)


REFUSED = {
    "mode, misspelt": (
        lambda: Precision("fp16-mixd", sgd()),
        lambda: Precision("fp16-mixed", sgd()),
        UnknownNameError,
        "mode is 'fp16-mixd'; accepted is a known name; did you mean 'fp16-mixed'",
    ),
    "mode, forgotten": (
        lambda: Precision(sgd()),
        lambda: Precision("auto", sgd()),
        InvalidValueError,
        r"one of auto, fp32, .* The mode comes first, the optimizers follow: Precision\('auto', optimizer\)",
    ),
    "optimizer, no optimizer": (
        lambda: Precision("fp32", linear()),
        lambda: Precision("fp32", model=linear()),
        InvalidValueError,
        r"optimizer is 'Linear'; accepted is a torch.optim.Optimizer. Everything after the mode is an optimizer",
    ),
    "optimizer, with closure": (
        lambda: Precision("fp16-mixed", torch.optim.LBFGS(linear().parameters())),
        lambda: Precision("fp16-mixed", torch.optim.Rprop(linear().parameters())),
        InvalidValueError,
        r"optimizer is 'LBFGS'; accepted is an optimizer that steps without a closure. LBFGS evaluates the loss inside",
    ),
    "optimizers, one parameter in two": (
        lambda: Precision("fp32", *two_over_one_parameter()),
        lambda: Precision("fp32", *two_over_two()),
        MisuseError,
        r"optimizer 0, group 0, parameter 0 is held by two optimizers.*Give it to one of them. \[MP028\]|"
        r"optimizer 1, group 0, parameter 0 is held by two optimizers.*Give it to one of them. \[MP028\]",
    ),
    "masters without optimizer": (
        lambda: Precision("fp16-master", model=linear()),
        lambda: Precision("fp16-mixed", model=linear()),
        InvalidValueError,
        r"mode is 'fp16-master'; accepted is .* without an optimizer. For inference .* model.to\(torch.float16\)",
    ),
    "max_norm, zero": (
        lambda: Precision("fp32", sgd(), max_norm=0),
        lambda: Precision("fp32", sgd(), max_norm=1e-6),
        InvalidValueError,
        r"max_norm is 0; accepted is None or a positive number. float\('inf'\) measures the norm",
    ),
    "max_norm, NaN": (
        lambda: Precision("fp32", sgd(), max_norm=float("nan")),
        lambda: Precision("fp32", sgd(), max_norm=float("inf")),
        InvalidValueError,
        r"max_norm is nan; accepted is None or a positive number",
    ),
    "max_norm, bool": (
        lambda: Precision("fp32", sgd(), max_norm=True),
        lambda: Precision("fp32", sgd(), max_norm=1),
        InvalidValueError,
        r"max_norm is True",
    ),
    "accumulate, zero": (
        lambda: Precision("fp32", sgd(), accumulate=0),
        lambda: Precision("fp32", sgd(), accumulate=1),
        InvalidValueError,
        r"accumulate is 0; accepted is a whole number of micro-batches, 1 or more",
    ),
    "accumulate, no whole number": (
        lambda: Precision("fp32", sgd(), accumulate=2.0),
        lambda: Precision("fp32", sgd(), accumulate=2),
        InvalidValueError,
        r"accumulate is 2.0; accepted is a whole number",
    ),
    "drop_nonfinite, no bool": (
        lambda: Precision("fp32", sgd(), drop_nonfinite=1),
        lambda: Precision("fp32", sgd(), drop_nonfinite=True),
        InvalidValueError,
        r"drop_nonfinite is 1; accepted is True or False",
    ),
    "model, no module": (
        lambda: Precision("fp32", model="linear"),
        lambda: Precision("fp32", model=linear()),
        InvalidValueError,
        r"model is 'str'; accepted is a torch.nn.Module or None",
    ),
    "model, distributed and to be lowered": (
        lambda: parallel(torch.float32),
        lambda: parallel(torch.bfloat16),
        InvalidValueError,
        r"model is 'Parallel with float32 parameters'; accepted is a plain module.*Store the weights in bfloat16",
    ),
    "policy in fp32": (
        lambda: Precision("fp32", sgd(), policy="lean"),
        lambda: Precision("bf16-mixed", sgd(), policy="lean"),
        InvalidValueError,
        r"policy is 'lean'; accepted is None in mode 'fp32'",
    ),
    "policy, misspelt": (
        lambda: Precision("bf16-mixed", sgd(), policy="leen"),
        lambda: Precision("bf16-mixed", sgd(), policy="lean"),
        UnknownNameError,
        r"'leen'.*did you mean 'lean'",
    ),
    "scaler of torch": (
        lambda: Precision("fp16-mixed", sgd(), scaler=torch.amp.GradScaler("cpu")),
        lambda: Precision("fp16-mixed", sgd(), scaler=GradScaler("cpu")),
        InvalidValueError,
        r"scaler is 'GradScaler'; accepted is a mixprec.GradScaler. Make one and load the other's state",
    ),
    "scaler without fp16": (
        lambda: Precision("bf16-mixed", sgd(), scaler=GradScaler("cpu")),
        lambda: Precision("fp16-mixed", sgd(), scaler=GradScaler("cpu")),
        InvalidValueError,
        r"scaler is 'GradScaler'; accepted is None in mode 'bf16-mixed'",
    ),
    "scaler for inference": (
        lambda: Precision("fp16-mixed", scaler=GradScaler("cpu")),
        lambda: Precision("fp16-mixed"),
        InvalidValueError,
        r"scaler is 'GradScaler'; accepted is None without an optimizer. Inference has no gradients",
    ),
    "scaler, disabled": (
        lambda: Precision("fp16-mixed", sgd(), scaler=GradScaler("cpu", enabled=False)),
        lambda: Precision("fp16-mixed", sgd(), scaler=GradScaler("cpu", enabled=True)),
        InvalidValueError,
        r"scaler is 'a disabled GradScaler'; accepted is an enabled one.*choose 'fp32' or 'bf16-mixed'",
    ),
    "scheduler with metric": (
        lambda: scheduled(torch.optim.lr_scheduler.ReduceLROnPlateau),
        lambda: scheduled(cosine),
        InvalidValueError,
        r"scheduler is 'ReduceLROnPlateau'; .*Step it yourself after each validation: scheduler.step\(metric\)",
    ),
    "scheduler of another optimizer": (
        lambda: scheduled(cosine, other=True),
        lambda: scheduled(cosine),
        InvalidValueError,
        r"scheduler is 'CosineAnnealingLR'; accepted is a scheduler of one of the optimizers given",
    ),
    "scheduler, an optimizer": (
        lambda: scheduled(lambda optimizer: optimizer),
        lambda: scheduled(cosine),
        InvalidValueError,
        r"scheduler is 'SGD'; accepted is an object with step\(\)",
    ),
    "Kahan in fp16": (
        lambda: Precision("fp16-master", KahanSum(sgd())),
        lambda: Precision("bf16-master", KahanSum(sgd())),
        InvalidValueError,
        r"optimizer is 'KahanSum'; accepted is a plain optimizer in mode 'fp16-master'",
    ),
}


@pytest.mark.parametrize(("refused", "accepted", "error", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_stands_next_to_what_is_accepted(refused, accepted, error, text):
    """The error names the value and the way out; the nearest accepted input raises nothing."""
    with pytest.raises(error, match=text):
        refused()
    accepted()


@pytest.mark.parametrize(
    ("mode", "dtype", "code", "accepted"),
    [
        ("fp32", torch.float16, "MP084", torch.float64),
        ("fp32", torch.bfloat16, "MP061", torch.float32),
        ("fp16-mixed", torch.float16, "MP084", torch.float32),
        ("fp16-mixed", torch.bfloat16, "MP061", torch.float32),
        ("fp16-mixed", torch.float64, "MP163", torch.float32),
        ("bf16-mixed", torch.float16, "MP084", torch.float32),
        ("fp16-master", torch.bfloat16, "MP061", torch.float16),
        ("bf16-master", torch.float16, "MP084", torch.bfloat16),
        ("bf16-master", torch.float64, "MP163", torch.float32),
    ],
)
def test_parameters_of_another_dtype_are_named(mode, dtype, code, accepted):
    """The parameters that the mode cannot train are named as the model names them, with the dtype and the ways out."""
    model = nn.Sequential(linear(), linear(dtype), linear(dtype))
    with pytest.raises(MisuseError) as caught:
        Precision(mode, sgd(model), model=model)
    short = str(dtype).removeprefix("torch.")
    assert f"these are {short}: 1.weight, 1.bias, 2.weight and 1 more." in str(caught.value)
    assert (caught.value.code, caught.value.subject) == (code, "1.weight")
    fine = nn.Sequential(linear(), linear(accepted))
    Precision(mode, sgd(fine), model=fine)


def test_half_weights_in_a_mixed_mode_get_two_ways_out():
    """Both ways that the error shows work."""
    half = linear(torch.float16)
    with pytest.raises(MisuseError, match=r"Two ways out: keep the weights in float32 \(remove .half\(\)") as caught:
        Precision("fp16-mixed", sgd(half))
    assert "optimizer 0, group 0, parameter 0" in str(caught.value)
    assert "Precision('fp16-master', optimizer, model=model)" in str(caught.value)
    Precision("fp16-master", sgd(half), model=half)
    Precision("fp16-mixed", sgd(half.float()))


def test_frozen_half_weights_outside_the_optimizer_are_nobodys_business():
    """Only what is trained must be float32, so adapters over a 16-bit base are accepted."""
    model = nn.Sequential(linear(torch.bfloat16).requires_grad_(False), nn.Linear(2, 2))
    Precision("bf16-mixed", sgd(model[1]), model=model)


# ── while training ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_backward_needs_an_optimizer():
    """Without optimizer there is autocast only."""
    model = linear()
    loss = model(torch.ones(1, 4)).sum()
    with pytest.raises(MisuseError, match=re.escape("backward() needs an optimizer, and this Precision has none: ")):
        Precision("bf16-mixed").backward(loss)
    with pytest.raises(MisuseError, match=re.escape("step() needs an optimizer")):
        Precision("bf16-mixed").step()
    Precision("bf16-mixed", sgd(model)).backward(loss)


def test_a_loss_is_one_number():
    """Vectors and plain numbers are refused; one element is one number, whatever its shape."""
    model = linear()
    precision = Precision("fp32", sgd(model))
    output = model(torch.ones(1, 4))
    with pytest.raises(InvalidValueError, match=r"the loss's shape is \(1, 2\); .* Reduce it first: loss.mean\(\)"):
        precision.backward(output)
    with pytest.raises(InvalidValueError, match=r"loss is 'float'; accepted is a tensor with one element"):
        precision.backward(0.5)
    precision.backward(output.sum().reshape(1, 1))


@pytest.mark.parametrize(("context", "name"), [(torch.no_grad, "no_grad"), (torch.inference_mode, "inference_mode")])
def test_a_loss_without_graph_is_refused(context, name):
    """The error says under what the loss was computed, and the window stays as it was."""
    model = linear()
    precision = Precision("fp32", sgd(model))
    with context():
        loss = model(torch.ones(1, 4)).sum()
    with pytest.raises(MisuseError, match=rf"The loss has no graph.*torch.{name}\(\).*\[MP144\]"):
        precision.backward(loss)
    assert not precision.accumulating
    precision.backward(model(torch.ones(1, 4)).sum())


def test_step_comes_after_backward():
    """A step without a backward is refused in every micro-batch, not only in the first."""
    model = linear()
    precision = Precision("fp32", sgd(model), accumulate=2)
    for _ in range(2):
        with pytest.raises(MisuseError, match=r"step\(\) was called before backward\(loss\).*\[MP170\]"):
            precision.step()
        precision.backward(model(torch.ones(1, 4)).sum())
        precision.step()


def test_a_loss_that_does_not_reach_the_parameters_is_refused():
    """No gradient at all is an error that names the two reasons, where the optimizer is fused as where it is not."""
    for fused in (False, True):
        model, other = linear(), linear()
        precision = Precision("fp16-mixed", sgd(model, fused=fused))
        precision.backward(other(torch.ones(1, 4)).sum())
        with pytest.raises(MisuseError, match=r"No parameter of any optimizer has a gradient.*\[MP143\]"):
            precision.step()


def test_a_refused_weight_leaves_the_window_as_it_was():
    """What was summed before the refusal is still there and still steps."""
    model = linear()
    precision = Precision("fp32", sgd(model), accumulate=2)
    precision.backward(model(torch.ones(1, 4)).sum(), weight=1)
    precision.step()
    held = model.weight.grad.clone()
    with pytest.raises(InvalidValueError, match="weight is 0"):
        precision.backward(model(torch.ones(1, 4)).sum(), weight=0)
    assert torch.equal(model.weight.grad, held)
    precision.backward(model(torch.ones(1, 4)).sum(), weight=2)
    assert precision.step().applied
