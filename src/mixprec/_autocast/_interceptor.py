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
from mixprec._autocast._dynamo import teach_dynamo
from mixprec._autocast._plan import Plan, Stay
from mixprec._autocast._rules import Opening, plain, reentered

__all__ = ["Exchange", "Interceptor", "active_interceptors", "exchange", "undo"]


class Interceptor(TorchFunctionMode):
    """One plan in force in one thread. `stay` is where the program is: outside of modules, or inside one with rules.

    **Cost**: 2 to 4 us per call of any PyTorch function, and what its rule does for those in the table.
    """

    def __init__(self, plan: Plan, cache: CastCache, stay: Stay | None = None) -> None:
        super().__init__()
        self.plan = plan
        self.cache = cache
        self.stay = plan.outside if stay is None else stay
        self.device_type = plan.device_type
        self.on_device = plan.on_device
        self.sharing = plan.sharing
        self.faithful = plan.faithful
        self.whole = plan.whole
        self.muted = False
        self.bindings: list[Any] = []
        self.learning = False
        self._left: list[tuple[Stay, bool, bool]] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        if torch.compiler.is_compiling():
            return _traced(self, func, args, kwargs)
        call = self.stay.table.get(func)
        if call is None and type(func) is FunctionType and (copy := opened(func)) is not None:
            call = Opening(copy)  # a function of another library
        if call is None and not self.whole:
            return func(*args, **kwargs)
        return (call or _unlisted)(self, func, args, kwargs)

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


def _traced(mode: Interceptor, func: Any, args: Any, kwargs: Any) -> Any:
    """The same while compiling, as far as Dynamo (torch 2.13) can see what function it has in hand.

    A method of `Tensor` written in Python is not found in a dictionary, but by its name; a checkpoint, which is one op
    there, cannot even be a key in one.
    """
    teach_dynamo()
    if func.__name__ == "tag_activation_checkpoint":
        return reentered(mode, func, args, kwargs)
    call = None
    if type(func) is FunctionType:
        call = mode.stay.named.get(f"{func.__module__}.{func.__name__}")
    if call is None:
        call = mode.stay.table.get(func)
    return (call or _unlisted)(mode, func, args, kwargs)


def _unlisted(mode: Interceptor, func: Any, args: Any, kwargs: Any) -> Any:
    """A function that the table does not have; ops of other libraries keep the casts that they have registered."""
    own = mode.whole and getattr(func, "namespace", "aten") == "aten"
    return plain(mode, func, args, kwargs) if own else func(*args, **kwargs)
