"""What `step` does not take is refused before anything is read or written."""

from __future__ import annotations

from typing import Any

import torch

from mixprec._scaler._contract import Contract
from mixprec._scaler._phase import Turn
from mixprec.errors import InvalidValueError

SCALER_CONTRACT = (
    "GradScaler is going to stop passing itself as a keyword argument to the passed "
    "optimizer. In the near future GradScaler registers `grad_scale: Tensor` and "
    "`found_inf: Tensor` to the passed optimizer and let the optimizer use them directly."
)
"""torch's warning for its older contract, word for word."""


CUDA_MISSING = "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling."
"""torch's warning for a scaler that disables itself, word for word."""


def cuda_is_missing(device: str) -> bool:
    """Whether a scaler for `device` has to disable itself, as torch's does."""
    return device == "cuda" and bool(torch.cuda.amp.common.amp_definitely_not_available())  # type: ignore[no-untyped-call] # torch's own


def check_max_norm(max_norm: float | None) -> None:
    """Raises InvalidValueError unless `max_norm` is None or a positive number."""
    if max_norm is None:
        return
    if isinstance(max_norm, bool) or not isinstance(max_norm, (int, float)) or not max_norm > 0.0:
        raise InvalidValueError("max_norm", max_norm, "a number above 0, infinity to measure only, or None")


def refuse_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises RuntimeError, as torch does, for a closure by name, and also for one by position."""
    if "closure" in kwargs or (args and callable(args[0])):
        raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")


def refuse_scaler_contract(turn: Turn, max_norm: float | None) -> None:
    """Raises InvalidValueError for an optimizer that does everything itself where we would have to do a part."""
    if turn.contract is Contract.SCALER:
        raise InvalidValueError(
            "optimizer",
            type(turn.optimizer).__name__,
            "one whose step takes no grad_scaler, where it is clipped here or stepped with others",
            f"Clip by hand between unscale_ and step instead of max_norm={max_norm!r}.",
        )
