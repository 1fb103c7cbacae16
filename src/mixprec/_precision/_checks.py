"""What cannot train is refused before the first step, with the names of what is at fault and the way out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from mixprec._kernels import Kernels
from mixprec._lowbit import LowBit
from mixprec._precision._mode import Mode
from mixprec._precision._sync import alone
from mixprec._scaler import GradScaler
from mixprec._schedule import check_schedule
from mixprec.errors import InvalidValueError, MisuseError

__all__ = [
    "check_accumulate",
    "check_dropping",
    "check_kernels",
    "check_loss",
    "check_lowering",
    "check_max_norm",
    "check_model",
    "check_optimizers",
    "check_parameters",
    "check_policy",
    "check_scaler",
    "check_schedules",
    "names_of",
]

_SHOWN = 3


def check_optimizers(mode: Mode, optimizers: Sequence[object]) -> None:
    """Raises `InvalidValueError` for what cannot be stepped without a closure, or for masters without optimizer."""
    for optimizer in optimizers:
        if not isinstance(optimizer, Optimizer):
            advice = "Everything after the mode is an optimizer; give the rest by name (model=, scheduler=, scaler=)."
            raise InvalidValueError("optimizer", type(optimizer).__name__, "a torch.optim.Optimizer", advice)
        if isinstance(optimizer, LBFGS):
            advice = "LBFGS evaluates the loss inside its step, where it cannot be scaled or skipped as a whole."
            raise InvalidValueError("optimizer", "LBFGS", "an optimizer that steps without a closure", advice)
        if isinstance(optimizer, LowBit) and mode.weights is torch.float16:
            raise InvalidValueError("optimizer", type(optimizer).__name__, f"a plain optimizer in mode {mode.name!r}")
    if mode.masters and not optimizers:
        half = str(mode.weights).removeprefix("torch.")
        advice = f"For inference in 16 bits no masters are needed: model.to(torch.{half})."
        raise InvalidValueError("mode", mode.name, "'fp32', 'fp16-mixed' or 'bf16-mixed' without an optimizer", advice)


def check_parameters(mode: Mode, optimizers: Sequence[Optimizer], names: Mapping[Tensor, str]) -> None:
    """Raises `MisuseError` for parameters that two optimizers hold, or of a dtype that `mode` does not train."""
    seen: set[Tensor] = set()
    wrong: list[Tensor] = []
    for parameter in (p for optimizer in optimizers for p in _parameters(optimizer)):
        if parameter in seen:
            raise MisuseError(
                "MP028",
                names[parameter],
                f"{names[parameter]} is held by two optimizers, so it would be unscaled and updated twice. "
                "Give it to one of them.",
            )
        seen.add(parameter)
        if parameter.dtype not in mode.trainable:
            wrong.append(parameter)
    if wrong:
        raise _wrong_dtype(mode, wrong, names)


def check_kernels(kernels: Kernels, mode: Mode, device: torch.device) -> None:
    """Raises `InvalidValueError` for pieces where there are no masters to be cut, or no cache to cut them for."""
    if kernels is Kernels.PIECES and not (mode.masters and device.type == "cpu"):
        accepted = "'foreach', or 'pieces' on CPU in the modes 'fp16-master' and 'bf16-master'"
        raise InvalidValueError("kernels", kernels.value, accepted, f"This is {mode.name!r} on {device.type!r}.")


def check_model(model: object) -> None:
    """Raises `InvalidValueError` for what is no module."""
    if model is not None and not isinstance(model, nn.Module):
        raise InvalidValueError("model", type(model).__name__, "a torch.nn.Module or None")


def check_lowering(mode: Mode, model: nn.Module | None) -> None:
    """Raises `InvalidValueError` for a model whose weights are to be lowered and can no longer be, in place."""
    if model is None or not mode.masters:
        return
    if _is_distributed(model) and any(p.dtype is torch.float32 for p in model.parameters()):
        advice = (
            f"Its buckets and shards are laid out for float32. Store the weights in {_short(mode.weights)} before it "
            "is wrapped, and make the optimizer after."
        )
        raise InvalidValueError("model", f"{type(model).__name__} with float32 parameters", "a plain module", advice)


def check_policy(mode: Mode, policy: object) -> None:
    """Raises `InvalidValueError` for a policy in a mode that casts nothing."""
    if policy is not None and not mode.lowered:
        advice = "A policy says what runs in 16 bits, and fp32 runs nothing in 16 bits: leave it out."
        raise InvalidValueError("policy", policy, "None in mode 'fp32'", advice)


def check_scaler(mode: Mode, scaler: object, optimizers: Sequence[object]) -> None:
    """Raises `InvalidValueError` for a scaler that is not ours, is off, belongs to no loss scale, or to inference."""
    if scaler is None:
        return
    if not optimizers:
        advice = "Inference has no gradients, so nothing is scaled: leave the scaler out."
        raise InvalidValueError("scaler", type(scaler).__name__, "None without an optimizer", advice)
    if not isinstance(scaler, GradScaler):
        advice = "Make one and load the other's state: GradScaler(device).load_state_dict(old.state_dict())."
        raise InvalidValueError("scaler", type(scaler).__name__, "a mixprec.GradScaler", advice)
    if not mode.scaled:
        advice = "fp16 alone needs a loss scale: leave the scaler out."
        raise InvalidValueError("scaler", "GradScaler", f"None in mode {mode.name!r}", advice)
    if not scaler.is_enabled():
        advice = "To train without a loss scale choose 'fp32' or 'bf16-mixed'."
        raise InvalidValueError("scaler", "a disabled GradScaler", f"an enabled one in mode {mode.name!r}", advice)


def check_schedules(schedulers: Sequence[object], optimizers: Sequence[Optimizer]) -> None:
    """Raises `InvalidValueError` for a scheduler that needs a metric or drives another optimizer."""
    driven = {id(o) for o in optimizers} | {id(o.optimizer) for o in optimizers if isinstance(o, LowBit)}
    for scheduler in schedulers:
        check_schedule(scheduler)
        optimizer = getattr(scheduler, "optimizer", None)
        if optimizer is not None and id(optimizer) not in driven:
            accepted = "a scheduler of one of the optimizers given"
            raise InvalidValueError("scheduler", type(scheduler).__name__, accepted, "This one drives another.")


def names_of(model: nn.Module | None, optimizers: Sequence[Optimizer]) -> dict[Tensor, str]:
    """How an error calls each parameter: its name in the model, else its place in the optimizer."""
    places: dict[Tensor, str] = {
        parameter: f"optimizer {i}, group {j}, parameter {k}"
        for i, optimizer in enumerate(optimizers)
        for j, group in enumerate(optimizer.param_groups)
        for k, parameter in enumerate(group["params"])
    }
    if model is not None:
        places.update((parameter, name) for name, parameter in model.named_parameters())
    return places


def check_loss(loss: object) -> None:
    """Raises `InvalidValueError` for what is no scalar, `MisuseError` for a loss that has no graph."""
    if not isinstance(loss, Tensor):
        raise InvalidValueError("loss", type(loss).__name__, "a tensor with one element")
    if loss.numel() != 1:
        accepted = "a tensor with one element"
        raise InvalidValueError("the loss's shape", tuple(loss.shape), accepted, "Reduce it first: loss.mean().")
    if not loss.requires_grad:
        where = "inference_mode" if loss.is_inference() else "no_grad"
        raise MisuseError(
            "MP144",
            "backward",
            f"The loss has no graph, so there is nothing to go back through: it was computed under torch.{where}(), "
            "from detached tensors, or from parameters that do not require gradients.",
        )


def check_max_norm(value: object) -> None:
    """Raises `InvalidValueError` for what is no positive number. Infinity measures the norm and clips nothing."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value <= 0:
        advice = "float('inf') measures the norm and clips nothing."
        raise InvalidValueError("max_norm", value, "None or a positive number", advice)


def check_accumulate(value: object) -> None:
    """Raises `InvalidValueError` for a window that is not a whole number of micro-batches."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidValueError("accumulate", value, "a whole number of micro-batches, 1 or more")


def check_dropping(value: object) -> None:
    """Raises `InvalidValueError` where ranks would drop different micro-batches and average what is left."""
    if not isinstance(value, bool):
        raise InvalidValueError("drop_nonfinite", value, "True or False")
    if value and not alone():
        advice = "Ranks would drop different micro-batches. Without it a window that is not finite is skipped by all."
        raise InvalidValueError("drop_nonfinite", value, "False among several ranks", advice)


def _is_distributed(model: nn.Module) -> bool:
    sharded = any(hasattr(p, "device_mesh") for p in model.parameters())
    return sharded or any(hasattr(module, "no_sync") for module in model.modules())


def _parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _wrong_dtype(mode: Mode, wrong: list[Tensor], names: Mapping[Tensor, str]) -> MisuseError:
    dtype = wrong[0].dtype
    named = ", ".join(names[p] for p in wrong[:_SHOWN]) + (f" and {len(wrong) - _SHOWN} more" if wrong[_SHOWN:] else "")
    code, advice = _way_out(mode, dtype)
    accepted = " or ".join(_short(d) for d in mode.trainable)
    message = f"{mode.name} trains {accepted} parameters, but these are {_short(dtype)}: {named}. {advice}"
    return MisuseError(code, names[wrong[0]], message)


def _way_out(mode: Mode, dtype: torch.dtype) -> tuple[str, str]:
    if dtype not in (torch.float16, torch.bfloat16):
        return (
            "MP163",
            "Autocast leaves this dtype alone: call model.float() before the optimizer is made, or use 'fp32'.",
        )
    code, master = ("MP084", "fp16-master") if dtype is torch.float16 else ("MP061", "bf16-master")
    if mode.masters:
        return code, f"Use {master!r} for this model, or build it in float32."
    return code, (
        "Two ways out: keep the weights in float32 (remove .half(), .bfloat16() or torch_dtype=; autocast lowers what "
        f"profits), or keep them in 16 bits with float32 masters: Precision({master!r}, optimizer, model=model)."
    )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
