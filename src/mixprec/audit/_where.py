"""While a model runs, its modules form a stack; the innermost one says where an op stands.

Paths are looked up in the outermost module that is being called, once per such module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

__all__ = ["Modules"]


class Modules:
    """The stack of modules that are being called. `on_root` is told when an outermost module begins and ends."""

    def __init__(self, on_root: Callable[[nn.Module, bool], None]) -> None:
        self._on_root = on_root
        self._stack: list[tuple[nn.Module, str]] = []
        self._paths: weakref.WeakKeyDictionary[nn.Module, dict[nn.Module, str]] = weakref.WeakKeyDictionary()
        self._remove: list[Callable[[], None]] = []
        self.roots: list[weakref.ref[nn.Module]] = []

    @property
    def path(self) -> str:
        """Dotted path of the innermost module; "" in the root and outside."""
        return self._stack[-1][1] if self._stack else ""

    @property
    def cls(self) -> str:
        """Class of the innermost module; "" outside every module."""
        return type(self._stack[-1][0]).__name__ if self._stack else ""

    @property
    def depth(self) -> int:
        """How many modules are being called inside each other."""
        return len(self._stack)

    def begin_inside(self, module: nn.Module) -> None:
        """The call of `module` has begun already, and it is the outermost."""
        self._enter(module, ())

    def start(self) -> None:
        """Begin to follow every module call in the process."""
        self._remove = [
            register_module_forward_pre_hook(self._enter).remove,
            register_module_forward_hook(self._leave, always_call=True).remove,
        ]

    def stop(self) -> None:
        """Take the hooks out and forget the stack."""
        for remove in self._remove:
            remove()
        self._remove = []
        self._stack.clear()

    def add_root(self, model: nn.Module) -> None:
        """Learn the paths in `model` before it is called."""
        if model not in self._paths:
            self._paths[model] = {module: path for path, module in model.named_modules()}
            self.roots.append(weakref.ref(model))

    def _enter(self, module: nn.Module, args: Any) -> None:
        outermost = not self._stack
        if outermost and _is_library(module):
            return
        if outermost:
            self.add_root(module)
        root = module if outermost else self._stack[0][0]
        path = self._paths[root].get(module)
        if path is None:
            path = self._other_path(module) or self.path
        self._stack.append((module, path))
        if outermost and torch._C._current_autograd_node() is None:
            self._on_root(module, True)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        while self._stack:
            last, _ = self._stack.pop()
            if last is module:
                break
        if not self._stack and torch._C._current_autograd_node() is None:
            self._on_root(module, False)

    def _other_path(self, module: nn.Module) -> str | None:
        """The path in another model that was called before: a recompute calls blocks on their own."""
        for paths in self._paths.values():
            if module in paths:
                return paths[module]
        return None


def _is_library(module: nn.Module) -> bool:
    """Losses are modules too, and no model."""
    return isinstance(module, nn.modules.loss._Loss)
