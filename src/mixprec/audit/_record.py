"""A recording is a watch that also knows where a step begins and ends, and who owns which memory.

Weights come from the modules that were called and from the optimizers; a float32 parameter that an optimizer holds and
no model does is the master copy of a 16-bit weight.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec._taps import Listener
from mixprec._trace import user_site
from mixprec.audit._flags import Flags, flags_now
from mixprec.audit._log import Held, Kind
from mixprec.audit._nesting import Nesting
from mixprec.audit._storages import dtype_name, parts_of
from mixprec.audit._watch import Watch

__all__ = ["Recording", "existing_optimizers"]


class Recording(Listener):
    """Marks regions, backward passes and optimizer steps in a `Watch`, with what is held at each step."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.optimizers: list[weakref.ref[Optimizer]] = []
        self.problems: list[str] = []
        self.scaling = False
        self.nesting = Nesting()
        self.flags: Flags | None = None

    def failed(self, event: str, error: Exception) -> None:
        """Kept for the report: what could not be recorded."""
        self.problems.append(f"{event}: {type(error).__name__}: {error}")

    def region_entered(self, region: torch.autocast) -> None:
        """A region of a 16-bit dtype, with the line that entered it."""
        dtype = dtype_name(region.fast_dtype) if region._enabled and region.fast_dtype is not None else ""
        if self.watch.on:
            self.watch.regions += 1
            dtype = "island" if not dtype and getattr(region, "prev", False) else dtype
            self.watch.mark("region", location=user_site(), dtype=dtype)

    def backward_done(self, outputs: tuple[Tensor, ...]) -> None:
        """The end of a backward pass."""
        if self.watch.on:
            self.watch.mark("backward")

    def before_backward(self, outputs: tuple[Tensor, ...]) -> None:
        """Switches may be on for a part of the script only."""
        if self.watch.on:
            self.flags = flags_now()

    def before_scaler_step(self, scaler: Any, optimizer: Optimizer) -> None:
        """The step is over when the scaler says so, also where it skips."""
        self.scaling = True

    def scaler_stepped(self, scaler: Any, optimizer: Optimizer, result: Any) -> None:
        """A step under a scaler, applied or skipped."""
        self.scaling = False
        self._end_step(optimizer)

    def before_step(self, optimizer: Optimizer) -> None:
        """Gradients exist here for the last time."""
        if not self.nesting.begin(optimizer):
            self.watch.mark("inner step")
            return
        self.watch.optimizing = True
        number = self.number(optimizer)
        if self.watch.on:
            self.watch.mark("before step", held=list(self.owned(optimizer)), dtype=str(number))

    def stepped(self, optimizer: Optimizer) -> None:
        """State exists here for the first time."""
        if not self.nesting.end(optimizer):
            self.watch.mark("inner stepped")
            return
        self.watch.optimizing = False
        if not self.scaling:
            self._end_step(optimizer)

    def _end_step(self, optimizer: Optimizer) -> None:
        number = self.number(optimizer)
        if self.watch.on:
            self.watch.mark("step", held=list(self.owned(optimizer)), dtype=str(number))

    def number(self, optimizer: Optimizer) -> int:
        """Which optimizer it is, in the order of their first steps."""
        for index, known in enumerate(self.optimizers):
            if known() is optimizer:
                return index
        self.optimizers.append(weakref.ref(optimizer))
        return len(self.optimizers) - 1

    def owned(self, *optimizers: Optimizer) -> Iterator[Held]:
        """Weights, gradients, buffers and state that exist now. **Cost**: Python, in the number of tensors."""
        hold, roots = self.watch.hold, self._models()
        names: dict[Tensor, str] = {p: name for model in roots for name, p in model.named_parameters()}
        halves = {tuple(p.shape) for p in names if p.dtype in (torch.float16, torch.bfloat16)}
        for parameter, name in names.items():
            yield from (hold(Kind.WEIGHT, name, part) for part in parts_of(parameter))
            yield from _gradient(hold, name, parameter)
        for model in roots:
            for name, buffer in model.named_buffers():
                yield hold(Kind.BUFFER, name, buffer)
        for optimizer in optimizers:
            for index, parameter in enumerate(_parameters(optimizer)):
                name = names.get(parameter, f"optimizer parameter {index}")
                if parameter not in names:
                    master = parameter.dtype is torch.float32 and tuple(parameter.shape) in halves
                    yield hold(Kind.MASTER if master else Kind.WEIGHT, name, parameter)
                    yield from _gradient(hold, name, parameter)
                yield from _state(hold, name, optimizer.state.get(parameter, {}))

    def _models(self) -> list[nn.Module]:
        roots = [model for ref in self.watch.modules.roots if (model := ref()) is not None]
        inner = {module for model in roots for module in model.modules() if module is not model}
        return [model for model in roots if model not in inner]

    def all_owned(self) -> tuple[Held, ...]:
        """As `owned`, for every optimizer that stepped, or that exists where none stepped."""
        alive = [optimizer for ref in self.optimizers if (optimizer := ref()) is not None]
        return tuple(self.owned(*alive))


def existing_optimizers(parameters: Iterable[nn.Parameter]) -> list[Optimizer]:
    """The optimizers in this process that hold one of `parameters`. **Cost**: a walk over all Python objects."""
    wanted = set(parameters)
    found = [o for o in gc.get_objects() if issubclass(type(o), Optimizer)]  # isinstance would wake lazy objects
    return [o for o in found if any(p in wanted for p in _parameters(o))]


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _gradient(hold: Any, name: str, parameter: Tensor) -> Iterator[Held]:
    gradient = parameter.grad if parameter.is_leaf else None
    if gradient is not None and gradient.layout is torch.strided:
        yield from (hold(Kind.GRADIENT, name, part) for part in parts_of(gradient))


def _state(hold: Any, name: str, state: Any) -> Iterator[Held]:
    """Tensors in the state of one parameter, at whatever depth; wrappers are taken apart into what they hold."""
    values = state.items() if isinstance(state, dict) else ()
    for key, value in values:
        for tensor in _inside(value):
            yield hold(Kind.STATE, f"{name}.{key}", tensor)


def _inside(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield from parts_of(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _inside(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _inside(item)
