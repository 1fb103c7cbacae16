"""A sharded model that casts its own parameters casts them to what the mode computes in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from mixprec._precision._mode import Mode
from mixprec.errors import InvalidValueError

__all__ = ["check_sharding"]


def check_sharding(mode: Mode, model: nn.Module | None) -> None:
    """Raises `InvalidValueError` where FSDP's mixed precision computes in another dtype than `mode`.

    It would, whatever autocast says: a float16 parameter stays float16 in a bfloat16 region, and in fp32 its gradients
    would have no loss scale.
    """
    if model is None:
        return
    for path, dtype in _casts(model):
        if dtype is not mode.compute:
            accepted = f"param_dtype={mode.compute} or None in mode {mode.name!r}"
            advice = "Leave FSDP's param_dtype out, and the mode casts; or choose the mode that computes in it."
            raise InvalidValueError(f"the mixed precision of {path or 'the model'}", dtype, accepted, advice)


def _casts(model: nn.Module) -> Iterator[tuple[str, torch.dtype]]:
    """(path, dtype) of each FSDP module, of either kind, that casts its parameters."""
    for path, module in model.named_modules():
        dtype = getattr(_policy(module), "param_dtype", None)
        if isinstance(dtype, torch.dtype):
            yield path, dtype


def _policy(module: Any) -> Any:
    """FSDP2 keeps its policy in a state, FSDP1 in the wrapper."""
    if hasattr(module, "_get_fsdp_state"):
        return getattr(module._get_fsdp_state(), "_mp_policy", None)
    return getattr(module, "mixed_precision", None) if hasattr(module, "sharding_strategy") else None
