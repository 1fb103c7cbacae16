"""A mode is a row: which dtype computes, which dtype stores the weights, and whether the loss is scaled."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mixprec.errors import InvalidValueError, UnknownNameError

__all__ = ["AUTO", "MODES", "Mode", "mode_named"]

AUTO = "auto"


@dataclass(frozen=True)
class Mode:
    """One way to train. `trainable` are the dtypes that the optimizer's parameters may have on arrival."""

    name: str
    compute: torch.dtype
    weights: torch.dtype
    scaled: bool
    trainable: tuple[torch.dtype, ...]

    @property
    def lowered(self) -> bool:
        """Whether ops run in a 16-bit dtype."""
        return self.compute is not torch.float32

    @property
    def masters(self) -> bool:
        """Whether the weights are 16-bit and the optimizer holds float32 masters of them."""
        return self.weights is not torch.float32


_FULL = (torch.float32,)
_ANY = (torch.float32, torch.float64, torch.complex64, torch.complex128)

MODES: tuple[Mode, ...] = (
    Mode("fp32", torch.float32, torch.float32, False, _ANY),
    Mode("fp16-mixed", torch.float16, torch.float32, True, _FULL),
    Mode("bf16-mixed", torch.bfloat16, torch.float32, False, _FULL),
    Mode("fp16-master", torch.float16, torch.float16, True, (torch.float16, *_FULL)),
    Mode("bf16-master", torch.bfloat16, torch.bfloat16, False, (torch.bfloat16, *_FULL)),
)


def mode_named(name: object) -> Mode:
    """The row called `name`. Raises `UnknownNameError`, `InvalidValueError` where it is no text."""
    names = [mode.name for mode in MODES]
    if not isinstance(name, str):
        advice = "The mode comes first, the optimizers follow: Precision('auto', optimizer)."
        raise InvalidValueError("mode", name, "one of " + ", ".join([AUTO, *names]), advice)
    for mode in MODES:
        if mode.name == name:
            return mode
    raise UnknownNameError("mode", name, [AUTO, *names])
