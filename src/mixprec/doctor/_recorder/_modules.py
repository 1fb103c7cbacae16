"""What goes through modules: dtypes always, magnitudes where they are looked at, and the first that is not finite."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mixprec._trace import user_site
from mixprec.doctor._arm import ModuleRecord
from mixprec.doctor._names import ModuleNames
from mixprec.doctor._recorder._numbers import TINY, dtype_name, extents, fingerprint, first_tensors, floats, sample
from mixprec.doctor._recorder._quiet import quiet
from mixprec.doctor._recorder._regions import Regions
from mixprec.doctor._recorder._scene import Scene, region_dtype

__all__ = ["Flows", "Modules"]

TREND = 24
"""Magnitudes kept per module, about evenly spread over the iterations."""
LIMIT = 2000
"""Modules that are recorded."""


@dataclass
class _Seen:
    """What is known of one module."""

    path: str
    kind: str
    leaf: bool
    calls: int = 0
    inputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    buffers: set[str] = field(default_factory=set)
    input_amax: float | None = None
    output_amax: float | None = None
    bad: int | None = None
    site: Any = None
    trend: list[tuple[int, float]] = field(default_factory=list)

    def grew(self, iteration: int, amax: float) -> None:
        """Notes a magnitude; of too many, every other one is forgotten."""
        if self.trend and self.trend[-1][0] == iteration:
            self.trend[-1] = (iteration, max(self.trend[-1][1], amax))
            return
        self.trend.append((iteration, amax))
        if len(self.trend) > 2 * TREND:
            del self.trend[1::2]


@dataclass
class Flows:
    """What one iteration let through: its batch and the first module that turned finite into not finite."""

    batch: str | None = None
    batch_finite: bool = True
    batch_amax: float | None = None
    bad_module: str | None = None
    zero_shares: list[float] = field(default_factory=list)
    tiny_shares: list[float] = field(default_factory=list)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.stack: list[nn.Module] = []


class Modules:
    """Watches every module call. **Cost** one reduction and one host sync per module call on the CPU."""

    def __init__(self, scene: Scene, regions: Regions, began: Callable[..., None]) -> None:
        self.names = ModuleNames()
        self.flows = Flows()
        self._scene = scene
        self._regions = regions
        self._began = began
        self._thread = _Thread()
        self._seen: weakref.WeakKeyDictionary[nn.Module, _Seen] = weakref.WeakKeyDictionary()
        self._records: dict[tuple[str, str], _Seen] = {}

    def before(self, module: nn.Module, args: Any) -> None:
        """`module` is about to compute."""
        stack = self._thread.stack
        while stack and not self.names.below(stack[-1], module):
            stack.pop()  # left by an exception, or a module that another merely calls
        if not stack and torch._C._current_autograd_node() is None:
            self._root(module, args)
        stack.append(module)

    def _root(self, module: nn.Module, args: Any) -> None:
        """The outermost module is called: a forward pass, or a loss, begins."""
        self.names.learn(module)
        kind = type(module).__name__
        self._began(kind, training=module.training, grad=torch.is_grad_enabled(), in_region=region_dtype())
        if self.flows.batch is not None:
            return
        given = first_tensors(args)
        if given:
            with quiet():
                self.flows.batch = fingerprint(given)
                amax = extents(list(floats(given)))
            if amax:
                self.flows.batch_finite = all(map(math.isfinite, amax))
                self.flows.batch_amax = max(filter(math.isfinite, amax), default=None)

    def done(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """`module` returned `output`."""
        stack = self._thread.stack
        while stack and stack.pop() is not module:
            pass
        if torch._C._current_autograd_node() is not None:  # a checkpoint's recompute
            return
        seen = self._of(module)
        if seen is None:
            return
        given, made = list(floats(first_tensors((args, kwargs)))), list(floats(first_tensors(output)))
        seen.calls += 1
        seen.inputs.update(dtype_name(t.dtype) for t in given)
        seen.outputs.update(dtype_name(t.dtype) for t in made)
        if seen.leaf:
            self._regions.used(module)
            self._regions.ran(any(t.dtype in (torch.float16, torch.bfloat16) for t in made))
        self._measure(seen, given, made)

    def _of(self, module: nn.Module) -> _Seen | None:
        seen = self._seen.get(module)
        if seen is None:
            key = (self.names.path(module), type(module).__name__)
            if key not in self._records and len(self._records) >= LIMIT:
                return None
            seen = self._records.setdefault(key, _Seen(*key, leaf=next(module.children(), None) is None))
            seen.parameters.update(dtype_name(p.dtype) for p in module.parameters(recurse=seen.leaf is False))
            seen.buffers.update(dtype_name(b.dtype) for b in module.buffers(recurse=False) if b.is_floating_point())
            seen.site = user_site(1)
            self._seen[module] = seen
        return seen

    def _measure(self, seen: _Seen, given: list[Tensor], made: list[Tensor]) -> None:
        iteration = self._scene.iteration
        look = iteration < 3 or iteration % 10 == 0
        with quiet():
            amax = _largest(extents(made))
            entered = _largest(extents(given)) if look or not math.isfinite(amax) else None
        if math.isfinite(amax):
            seen.output_amax = max(seen.output_amax or 0.0, amax)
            seen.grew(iteration, amax)
        elif entered is None or math.isfinite(entered):
            seen.bad = iteration if seen.bad is None else seen.bad
            seen.output_amax = math.inf if seen.output_amax is None else seen.output_amax
            self.flows.bad_module = self.flows.bad_module or seen.path or seen.kind
        if entered is not None and math.isfinite(entered):
            seen.input_amax = max(seen.input_amax or 0.0, entered)
        if look and seen.leaf:
            for tensor in made:
                self._watch_gradient(tensor)

    def _watch_gradient(self, tensor: Tensor) -> None:
        """The gradient of an activation says, when it arrives, how much of it is 0 or too small for float16."""
        if not tensor.requires_grad or tensor.is_leaf:
            return
        flows = self.flows

        def look(gradient: Tensor) -> None:
            with quiet():
                small = sample(gradient, 4096).abs().float()
                tiny = TINY[torch.float16]
                zero = small == 0
                zeros, tinies = torch.stack([zero.float().mean(), ((small < tiny) & ~zero).float().mean()]).tolist()
            flows.zero_shares.append(zeros)
            flows.tiny_shares.append(tinies)

        tensor.register_hook(look)  # type: ignore[no-untyped-call] # torch leaves it untyped

    def turn(self) -> Flows:
        """What the iteration that is over let through."""
        over, self.flows = self.flows, Flows()
        return over

    def buffers(self) -> Iterator[Tensor]:
        """Floating-point buffers of all models seen."""
        for root in self.names.roots():
            yield from (buffer for buffer in root.buffers() if buffer.is_floating_point())

    def owned(self) -> set[int]:
        """`id`s of the parameters of all modules that ran forward and still exist."""
        return {id(p) for root in self.names.roots() for p in root.parameters()}

    def close(self) -> None:
        """Writes a record for every module."""
        for seen in self._records.values():
            self._scene.writer.record(
                ModuleRecord(
                    path=seen.path,
                    kind=seen.kind,
                    calls=seen.calls,
                    input_dtypes=tuple(sorted(seen.inputs)),
                    output_dtypes=tuple(sorted(seen.outputs)),
                    parameter_dtypes=tuple(sorted(seen.parameters)),
                    buffer_dtypes=tuple(sorted(seen.buffers)),
                    input_amax=seen.input_amax,
                    output_amax=seen.output_amax,
                    first_bad_iteration=seen.bad,
                    amax_by_iteration=tuple(amax for _, amax in seen.trend),
                    site=seen.site,
                    rank=self._scene.writer.rank,
                )
            )


def _largest(amax: list[float]) -> float:
    """The largest of some magnitudes, nan where one is; 0 of none."""
    return math.nan if any(map(math.isnan, amax)) else max(amax, default=0.0)
