"""What cannot train is refused before the first step, with the names of what is at fault and the way out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec._precision._mode import Mode
from mixprec.errors import InvalidValueError, MisuseError

__all__ = ["check_accumulate", "check_loss", "check_max_norm", "check_optimizers", "check_parameters", "names_of"]

_SHOWN = 3


def check_optimizers(optimizers: Sequence[object]) -> None:
    """Raises `InvalidValueError` for what is no optimizer, `MisuseError` for a parameter that two would update."""
    for optimizer in optimizers:
        if not isinstance(optimizer, Optimizer):
            advice = "Everything after the mode is an optimizer; give the rest by name (model=, scheduler=, scaler=)."
            raise InvalidValueError("optimizer", type(optimizer).__name__, "a torch.optim.Optimizer", advice)


def check_parameters(mode: Mode, optimizers: Sequence[Optimizer], names: Mapping[Tensor, str]) -> None:
    """Raises `MisuseError` for parameters that two optimizers hold, or of a dtype that `mode` does not train."""
    seen: set[Tensor] = set()
    wrong: list[Tensor] = []
    for optimizer in optimizers:
        for parameter in _parameters(optimizer):
            if parameter in seen:
                raise MisuseError(
                    "MP028",
                    names.get(parameter, "parameter"),
                    f"{names.get(parameter, 'A parameter')} is held by two optimizers; it would be unscaled and "
                    "updated twice. Give it to one of them.",
                )
            seen.add(parameter)
            if parameter.dtype not in mode.trainable:
                wrong.append(parameter)
    if wrong:
        raise _wrong_dtype(mode, wrong, names)


def names_of(model: nn.Module | None, optimizers: Sequence[Optimizer]) -> dict[Tensor, str]:
    """How an error calls each parameter: its name in the model, else its place in the optimizer."""
    places = {
        parameter: f"optimizer {i}, group {j}, parameter {k}"
        for i, optimizer in enumerate(optimizers)
        for j, group in enumerate(optimizer.param_groups)
        for k, parameter in enumerate(group["params"])
    }
    return places | ({p: name for name, p in model.named_parameters()} if model is not None else {})


def check_loss(loss: object) -> None:
    """Raises `InvalidValueError` for what is no scalar, `MisuseError` for a loss that has no graph."""
    if not isinstance(loss, Tensor):
        raise InvalidValueError("loss", type(loss).__name__, "a tensor with one element")
    if loss.numel() != 1:
        accepted = "a tensor with one element"
        raise InvalidValueError("loss of shape", tuple(loss.shape), accepted, "Reduce it first: loss.mean().")
    if not loss.requires_grad:
        where = "inference_mode" if loss.is_inference() else "no_grad"
        raise MisuseError(
            "MP144",
            "backward",
            f"The loss has no graph, so there is nothing to go back through: it was computed under torch.{where}(), "
            "from detached tensors, or from parameters that do not require gradients.",
        )


def check_max_norm(value: object) -> None:
    """Raises `InvalidValueError` for a bound that is no positive number; infinity measures the norm and clips nothing."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (number and not math.isnan(value) and value > 0):  # type: ignore[arg-type,operator] # a number by then
        advice = "float('inf') measures the norm and clips nothing."
        raise InvalidValueError("max_norm", value, "None or a positive number", advice)


def check_accumulate(value: object) -> None:
    """Raises `InvalidValueError` for a window that is not a whole number of micro-batches."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidValueError("accumulate", value, "a whole number of micro-batches, 1 or more")


def _parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _wrong_dtype(mode: Mode, wrong: list[Tensor], names: Mapping[Tensor, str]) -> MisuseError:
    dtype = wrong[0].dtype
    named = ", ".join(names[p] for p in wrong[:_SHOWN]) + (f" and {len(wrong) - _SHOWN} more" if wrong[_SHOWN:] else "")
    code, advice = _way_out(mode, dtype)
    accepted = " or ".join(str(d).removeprefix("torch.") for d in mode.trainable)
    return MisuseError(
        code,
        names[wrong[0]],
        f"{mode.name} trains parameters in {accepted}, but these are {str(dtype).removeprefix('torch.')}: {named}. {advice}",
    )


def _way_out(mode: Mode, dtype: torch.dtype) -> tuple[str, str]:
    if dtype not in (torch.float16, torch.bfloat16):
        return "MP163", "Autocast leaves this dtype alone: call model.float() before the optimizer is made, or use 'fp32'."
    code = "MP084" if dtype is torch.float16 else "MP061"
    master = "fp16-master" if dtype is torch.float16 else "bf16-master"
    if mode.masters:
        return code, f"Use {master!r} for this model, or build it in float32."
    return code, (
        "Two ways out: keep the weights in float32 (remove .half(), .bfloat16() or torch_dtype=; autocast lowers what "
        f"profits), or keep them in 16 bits with float32 masters: Precision({master!r}, optimizer, model=model)."
    )
