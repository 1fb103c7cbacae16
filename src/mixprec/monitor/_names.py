"""Parameters are called what the model calls them; those of no model, by their optimizer and place."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from mixprec.monitor._modules import path_of

__all__ = ["names_in_model", "names_in_optimizer"]


def names_in_model(model: nn.Module, prefix: str = "") -> dict[int, str]:
    """Id of each parameter to its path; one that is shared has its first."""
    return {id(p): ".".join(part for part in (prefix, path_of(name)) if part) for name, p in model.named_parameters()}


def names_in_optimizer(optimizer: Optimizer, name: str) -> dict[int, str]:
    """Id of each parameter to `name.group.place`."""
    return {
        id(p): f"{name}.{number}.{place}"
        for number, group in enumerate(optimizer.param_groups)
        for place, p in enumerate(group["params"])
    }
