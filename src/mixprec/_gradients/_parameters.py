"""The parameters of an optimizer, in the order of its groups, and what to call one of them."""

from __future__ import annotations

import torch
from torch import Tensor


def parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Every parameter of `optimizer`, in the order of its groups.

    Raises: AssertionError, as torch's scaler does, for a parameter that is not a tensor.
    """
    found = [param for group in optimizer.param_groups for param in group["params"]]
    for param in found:
        if not isinstance(param, Tensor):
            raise AssertionError(f"expected param to be torch.Tensor, got {type(param).__name__}")
    return found


def parameter_name(optimizer: torch.optim.Optimizer, param: Tensor) -> str:
    """What to call `param` in a message: its name if the optimizer was given names, else its place and shape."""
    for index, group in enumerate(optimizer.param_groups):
        for place, candidate in enumerate(group["params"]):
            if candidate is param:
                names = group.get("param_names")
                where = names[place] if names else f"param_groups[{index}]['params'][{place}]"
                return f"{where} {tuple(param.shape)}"
    return f"a parameter of shape {tuple(param.shape)}"
