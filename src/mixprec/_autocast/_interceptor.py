"""While a region with a policy of its own is active, calls of the ops in its table go through their rules.

The interceptor is a `TorchFunctionMode`. The stack of such modes is per thread, PyTorch's engine hands it on to the
threads of a backward pass, and torch.compile traces it to nothing, so this stack is the only place where it is
recorded which policy is active. Whether it acts is PyTorch's own autocast flag, read at every call that concerns it:
`torch.autocast(enabled=False)` anywhere switches it off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from mixprec._autocast._cache import CastCache
from mixprec._autocast._composites import opened
from mixprec._autocast._plan import Plan, Stay
from mixprec._autocast._rules import Call, Opening, keep

__all__ = ["Exchange", "Interceptor", "active_interceptors", "exchange", "undo"]


class Interceptor(TorchFunctionMode):
    """One plan in force in one thread. `stay` is where the program is: outside of modules, or inside one with rules.

    **Cost**: about 2 us per call of any PyTorch function, and what its rule does for those in the table.
    """

    def __init__(self, plan: Plan, cache: CastCache, stay: Stay | None = None) -> None:
        super().__init__()
        self.plan = plan
        self.cache = cache
        self.stay = plan.outside if stay is None else stay
        self.device_type = plan.device_type
        self.sharing = plan.sharing
        self.faithful = plan.faithful
        self.whole = plan.whole
        self.muted = False
        self.bindings: list[Any] = []
        self.learning = False
        self._left: list[tuple[Stay, bool, bool]] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        call = self.stay.table.get(func) if type(func) is not FunctionType else _python_call(self, func)
        if call is not None:
            return call(self, func, args, kwargs)
        if self.whole and getattr(func, "namespace", "aten") == "aten":
            return keep(self, func, args, kwargs)
        return func(*args, **kwargs)

    def acts(self) -> bool:
        """Whether autocast is on here, or off only because a module's rule keeps it off."""
        return self.muted or torch.is_autocast_enabled(self.device_type)

    def arrive(self, stay: Stay) -> None:
        """Go inside: `stay` holds until `leave`. Nothing changes while autocast is switched off by the program."""
        enabled = torch.is_autocast_enabled(self.device_type)
        self._left.append((self.stay, self.muted, enabled))
        if enabled or self.muted:
            self.stay, self.muted = stay, stay.quiet
            torch.set_autocast_enabled(self.device_type, not stay.quiet)

    def leave(self) -> None:
        """Go back to where the program was before the innermost `arrive`."""
        self.stay, self.muted, enabled = self._left.pop()
        torch.set_autocast_enabled(self.device_type, enabled)

    def again(self, cache: CastCache) -> Interceptor:
        """An interceptor for running again, anywhere, what runs here now: same plan, same stay, its own cache."""
        copy = Interceptor(self.plan, cache, self.stay)
        copy.muted = self.muted
        copy.bindings = self.bindings  # one list: a root may be learnt after this
        return copy


def active_interceptors(device_type: str | None = None) -> list[Interceptor]:
    """The interceptors in this thread, innermost last: those for `device_type`, or all."""
    if not torch._C._len_torch_function_stack():
        return []
    modes = [mode for mode in _stack() if isinstance(mode, Interceptor)]
    return [mode for mode in modes if device_type is None or mode.device_type == device_type]


def exchange(entering: Sequence[Interceptor], device_type: str | None = None) -> Exchange:
    """Put `entering` in the place of the active interceptors for `device_type`, or of all."""
    leaving = active_interceptors(device_type)
    before = _stack() if leaving else None
    if before is not None:
        _replace_stack([mode for mode in before if mode not in leaving])
    for mode in entering:
        torch._C._push_on_torch_function_stack(mode)
    return before, len(entering)


def undo(exchange: Exchange) -> None:
    """Put the stack of function modes back as it was before `exchange`."""
    before, entered = exchange
    if before is not None:
        _replace_stack(before)
        return
    for _ in range(entered):
        torch._C._pop_torch_function_stack()


Exchange = tuple[list[TorchFunctionMode] | None, int]
"""The stack as it was, if it had to be rebuilt, and how many modes were put on top."""


def _stack() -> list[TorchFunctionMode]:
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def _replace_stack(stack: Sequence[TorchFunctionMode]) -> None:
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    for mode in stack:
        torch._C._push_on_torch_function_stack(mode)


def _python_call(mode: Interceptor, func: Any) -> Call | None:
    """What to do with a call of a Python function: as the table says, or opened, where the table has never seen it.

    While compiling it is found by its name, because Dynamo (torch 2.13) cannot look a method of `Tensor` up by itself.
    """
    if torch.compiler.is_compiling():
        named = mode.stay.named.get(f"{func.__module__}.{func.__name__}")
        return named if named is not None else mode.stay.table.get(func)
    call = mode.stay.table.get(func)
    if call is None and not mode.stay.quiet and (copy := opened(func)) is not None:
        return Opening(copy)
    return call
