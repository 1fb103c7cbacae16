"""A call is made with changed arguments, or an optimizer steps with changed settings; nothing else differs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

__all__ = ["arguments", "during_step", "subclasses"]


def arguments(owner: Any, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """`owner.name` is called with its arguments, by name and with their defaults, after `change` had its way."""
    original = vars(owner)[name]
    signature = inspect.signature(original)

    @functools.wraps(original)
    def changed(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)  # which raises the script's own error
        bound.apply_defaults()
        change(bound.arguments)
        return original(*bound.args, **bound.kwargs)

    setattr(owner, name, changed)


def during_step(change: Callable[[Optimizer, dict[str, Any]], None]) -> None:
    """While an optimizer steps, its parameter groups are as `change(optimizer, group)` leaves them; then as before.

    So schedulers, which read and write the groups between steps, neither notice nor undo it.
    """
    kept: dict[int, list[dict[str, Any]]] = {}

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        kept[id(optimizer)] = [dict(group) for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            change(optimizer, group)

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for group, old in zip(optimizer.param_groups, kept.pop(id(optimizer), ()), strict=False):
            group.update(old)

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def subclasses(base: type) -> list[type]:
    """`base` and all that derive from it now."""
    found: list[Any] = [base]
    for cls in found:
        found.extend(sub for sub in cls.__subclasses__() if sub not in found)
    return found
