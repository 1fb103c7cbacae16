"""`module.compile()` compiles the hooks of its call away: such a module's calls are heard by a wrapper of their own.

`nn.Module.compile` puts a compiled call on the module, which is never copied or pickled with it
(https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/module.py, `_compiled_call_impl`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn

from mixprec._taps._calls import Taps

__all__ = ["CompiledCalls"]

Heard = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]


class CompiledCalls:
    """Tells `heard` of each call of a module on which `compile` was called since; its inner calls are its own."""

    def __init__(self, heard: Heard) -> None:
        self._heard: Heard | None = heard
        self._taps = Taps()
        self._taps.call(nn.Module, "compile", after=self._compiled)
        self.inside: set[int] = set()

    def remove(self) -> None:
        """Nothing is told any more."""
        self._heard = None
        self._taps.remove()

    def _compiled(self, result: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        original = module._compiled_call_impl
        if original is None:
            return

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._heard is None or id(module) in self.inside:
                return original(*args, **kwargs)
            self._heard(module, args, kwargs)
            self.inside.add(id(module))
            try:
                return original(*args, **kwargs)
            finally:
                self.inside.discard(id(module))

        module._compiled_call_impl = call
