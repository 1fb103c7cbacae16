"""Which module an op runs in: a stack of our own, pushed and popped by torch's global module hooks.

Each thread has its own stack, because autograd threads recompute checkpointed modules. Paths are those of
`named_modules` from the outermost module that was called (or from `model`), without the wrappers' own parts.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

__all__ = ["Here", "ModuleStack", "unwarned"]

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_ROOT_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def unwarned() -> Callable[[], None]:
    """Keeps `torch.compile` from warning that hooks on all modules fire for its wrapper too; returns what undoes it.

    They do, and whoever uses this passes over the wrapper
    (https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_dynamo/eval_frame.py, `OptimizedModule.__call__`).
    """
    before = list(warnings.filters)
    warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
    added = [entry for entry in warnings.filters if entry not in before]

    def undo() -> None:
        for entry in added:
            with contextlib.suppress(ValueError):  # somebody reset the filters
                warnings.filters.remove(entry)  # type: ignore[attr-defined] # a list, which typeshed calls a Sequence

    return undo


class Here(NamedTuple):
    """A module as a place: path from its root (empty for the root itself) and class name; None outside modules."""

    path: str | None
    kind: str | None


_OUTSIDE = Here(None, None)


class ModuleStack:
    """The modules being called, per thread. **Cost** two Python hooks per module call while started."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self._here: weakref.WeakKeyDictionary[nn.Module, Here] = weakref.WeakKeyDictionary()
        self._parameters: dict[int, str] = {}
        self._local = threading.local()
        self._hooks: tuple[Any, ...] = ()
        self._undo: Callable[[], None] = lambda: None
        if model is not None:
            self._learn(model)

    def start(self) -> None:
        """Begin to listen to every module call."""
        self._hooks = (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        )
        self._undo = unwarned()

    def stop(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()
        self._undo()

    def here(self) -> Here:
        """The innermost module that is being called in this thread."""
        stack = self._stack()
        return self._here.get(stack[-1], _OUTSIDE) if stack else _OUTSIDE

    def owner(self, parameter: object) -> str | None:
        """The path of a known model's parameter."""
        return self._parameters.get(id(parameter))

    def _stack(self) -> list[nn.Module]:
        try:
            stack: list[nn.Module] = self._local.stack
        except AttributeError:
            stack = self._local.stack = []
        return stack

    def _enter(self, module: nn.Module, args: Any) -> None:
        if module not in self._here:
            self._learn(module)
        self._stack().append(module)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        stack = self._stack()
        while stack and stack.pop() is not module:
            pass

    def _learn(self, root: nn.Module) -> None:
        """Paths of all modules and parameters below `root`, where nothing is known of them yet."""
        strip = type(root).__name__ in _ROOT_WRAPPERS
        for path, module in root.named_modules():
            if module not in self._here:
                self._here[module] = Here(_users(path, strip), type(module).__name__)
        for path, parameter in root.named_parameters():
            self._parameters.setdefault(id(parameter), _users(path, strip))


def _users(path: str, strip: bool) -> str:
    """`path` as the user's own model has it."""
    parts = [part for part in path.split(".") if part not in _WRAPPERS]
    return ".".join(parts[1:] if strip and parts[:1] == ["module"] else parts)
