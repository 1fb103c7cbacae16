"""The island arm: the failing step's model call is captured and called again, each time with other modules in float32.

A call is what the outermost module was given, its buffers, the random state and, once backward has run, the gradients
of its outputs: enough to run its forward and backward again in the same process, as often as the bisection asks. Where
that does not show the fault again, nothing is concluded. The process ends after the search.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mixprec._script import child
from mixprec._taps import Listener
from mixprec._trace import Origin, Tracer, locate
from mixprec.doctor._island import smallest
from mixprec.doctor._names import ModuleNames
from mixprec.doctor._recorder._captured import (
    Call,
    all_finite,
    captured,
    held,
    keep_gradient,
    random_state,
    set_random_state,
)
from mixprec.doctor._recorder._holders import holders
from mixprec.doctor._recorder._numbers import first_tensors
from mixprec.doctor._recorder._scene import Scene
from mixprec.doctor.interventions.fp32_modules import LOW, in_float32
from mixprec.records import OpRecord

__all__ = ["IslandSearch", "searched"]

MOST_CALLS = 32
"""Calls of one iteration that are captured."""
UNREPEATABLE = ("FullyShardedDataParallel", "DataParallel", "SyncBatchNorm", "ScriptModule", "RecursiveScriptModule")


def searched(options: dict[str, Any]) -> list[int]:
    """The iterations in which `options` ask to search."""
    return [int(number) for number in (options.get("trace") or {}).get("search", ())]


class IslandSearch(Listener):
    """Captures the calls of each of `iterations`; where calling one again fails again, searches. Calls `enough` when
    modules are found that cure it, and after the last iteration. Gradients that come bad are no fault of modules.

    **Cost** nothing outside these iterations; there each call runs once more under the tracer. A search runs the
    call about 5 to 40 times, for at most `seconds`.
    """

    def __init__(self, scene: Scene, iterations: Iterable[int], seconds: float, enough: Callable[[], None]) -> None:
        self._scene = scene
        self._wanted = frozenset(iterations)
        self._seconds = seconds
        self._enough = enough
        self._regions: list[torch.autocast] = []
        self._running: tuple[nn.Module, Call] | None = None
        self._calls: list[Call] = []
        self._iteration = -1
        self._watched: _Nesting | None = None
        self._busy = False

    def region_entered(self, region: torch.autocast) -> None:
        if not self._busy:
            self._regions.append(region)

    def region_left(self, region: torch.autocast) -> None:
        if not self._busy and region in self._regions:
            self._regions.remove(region)

    def before_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._watched is not None:
            self._watched.enter(module)
        if self._deaf():
            return
        self._turn()
        if self._iteration not in self._wanted or len(self._calls) >= MOST_CALLS:
            return
        if self._running is not None and module is not self._running[0] and _part_of(self._running[1].root, module):
            return
        self._running = None
        if not any(type(part).__name__ in UNREPEATABLE for part in module.modules()):
            self._running = module, captured(module, args, tuple(self._regions))

    def forward_done(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._watched is not None:
            self._watched.leave(module)
        if self._deaf() or self._running is None or module is not self._running[0]:
            return
        call, self._running = self._running[1], None
        call.kwargs = held(kwargs)
        self._calls.append(call)
        self._try(call, backward=False)
        for number, tensor in enumerate(first_tensors(output)):
            if tensor.requires_grad:
                keep_gradient(call, number, tensor)

    def before_scaler_step(self, scaler: Any, optimizer: Any) -> None:
        self._try_backward()

    def before_unscale(self, scaler: Any, optimizer: Any, by_step: bool) -> None:
        self._try_backward()

    def before_step(self, optimizer: Any) -> None:
        self._try_backward()

    def _deaf(self) -> bool:
        recomputes = torch._C._current_autograd_node() is not None
        return self._busy or recomputes or torch.compiler.is_compiling() or child.in_worker()

    def _turn(self) -> None:
        """Forgets the calls of an iteration that is over; after the last iteration there is nothing to search."""
        if self._scene.iteration == self._iteration:
            return
        self._iteration, self._calls = self._scene.iteration, []
        if self._iteration > max(self._wanted):
            self._enough()

    def _try_backward(self) -> None:
        if self._busy or self._scene.iteration != self._iteration or self._iteration not in self._wanted:
            return
        for call in self._calls:
            if call.gradients and all_finite(call.gradients.values()):
                self._try(call, backward=True)
        self._calls = []

    def _try(self, call: Call, backward: bool) -> None:
        """Calls again; where that fails again, searches and ends."""
        self._busy = True
        began, random = time.monotonic(), random_state()
        try:
            found = _Search(call, backward, self._watching, began + self._seconds).found()
        except Exception as error:  # a call that cannot be made twice, of which nothing can be said
            self._scene.writer.fact("island_failed", f"{type(error).__name__}: {error}"[:500])
            found = None
        finally:
            set_random_state(random)
            self._busy = False
        if found is None:
            return
        took = round(time.monotonic() - began, 2)
        self._scene.writer.fact("island", {**found, "iteration": self._iteration, "seconds": took})
        if found["modules"]:
            self._enough()

    @contextlib.contextmanager
    def _watching(self, nesting: _Nesting) -> Iterator[None]:
        self._watched = nesting
        try:
            yield
        finally:
            self._watched = None


class _Nesting:
    """Which module was called directly in which, in order."""

    def __init__(self, paths: dict[nn.Module, str]) -> None:
        self.tree: dict[str, list[str]] = {}
        self._paths = paths
        self._stack: list[str] = []

    def enter(self, module: nn.Module) -> None:
        path = self._paths.get(module)
        if path is None:
            return
        if self._stack and path not in self.tree.setdefault(self._stack[-1], []):
            self.tree[self._stack[-1]].append(path)
        self._stack.append(path)

    def leave(self, module: nn.Module) -> None:
        path = self._paths.get(module)
        while path is not None and self._stack and self._stack.pop() != path:
            pass


class _OutOfTimeError(Exception):
    """The search ends with what it has."""


class _Search:
    """The bisection over the modules of one captured call."""

    def __init__(
        self,
        call: Call,
        backward: bool,
        watching: Callable[[_Nesting], contextlib.AbstractContextManager[None]],
        deadline: float,
    ) -> None:
        names = ModuleNames()
        self._paths = {module: path for path, module in names.learn(call.root)}
        self._modules = {path: module for module, path in self._paths.items()}
        self._call = call
        self._backward = backward
        self._watching = watching
        self._deadline = deadline
        self._known: dict[tuple[str, ...], bool] = {}
        self._best: tuple[str, ...] | None = None
        self._only_hidden = False

    def found(self) -> dict[str, Any] | None:
        """What the search came to; None where the call made again is healthy."""
        nesting = _Nesting(self._paths)
        with self._watching(nesting):
            origin = self._origin(())
        first = origin.first or next(iter(origin.hidden), None)
        if first is None:
            return None
        self._only_hidden = origin.clean
        complete = True
        try:
            island = smallest(nesting.tree, first.location.module or "", self._passes)
        except _OutOfTimeError:
            island, complete = self._best, False
        return {**_told(first), "probes": len(self._known), "complete": complete, **self._parts(island or ())}

    def _passes(self, island: tuple[str, ...]) -> bool:
        if island not in self._known:
            if time.monotonic() > self._deadline:
                raise _OutOfTimeError
            self._known[island] = self._healthy(island)
            if self._known[island]:
                self._best = island
        return self._known[island]

    def _healthy(self, island: tuple[str, ...]) -> bool:
        try:
            origin = self._origin(island)
        except Exception:  # float32 does not fit there: weights or partners are in 16 bits
            return False
        return origin.clean and not (self._only_hidden and origin.hidden)

    def _origin(self, island: tuple[str, ...], given: dict[str, _Given] | None = None) -> Origin:
        with (
            _in_float32({path: self._modules[path] for path in island}, {} if given is None else given),
            Tracer(self._call.root) as tracer,
        ):
            self._call.again(self._backward)
        return locate(tracer.records)

    def _parts(self, island: tuple[str, ...]) -> dict[str, Any]:
        """What a patch of the script has to know of each module of the island."""
        given: dict[str, _Given] = {}
        if island:
            self._origin(island, given)
        parts = [
            {"path": path, "kind": type(self._modules[path]).__name__, **given.get(path, _Given()).told()}
            for path in island
        ]
        held = list(holders([self._modules[path] for path in island])) if island else []
        return {"modules": list(island), "parts": parts, "holders": held}


@dataclass
class _Given:
    """What a module of the island is called with."""

    device: str = "cpu"
    low: set[str] = field(default_factory=set)
    others: bool = False
    keywords: bool = False
    nested: bool = False

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Notes one call."""
        tensors = [item for item in (*args, *kwargs.values()) if isinstance(item, Tensor)]
        self.device = next((tensor.device.type for tensor in tensors), self.device)
        self.low |= {str(item.dtype).removeprefix("torch.") for item in args if _is_low(item)}
        self.others = self.others or not all(isinstance(a, Tensor) and a.is_floating_point() for a in args)
        self.keywords = self.keywords or any(map(_is_low, kwargs.values()))
        inner = [item for item in (*args, *kwargs.values()) if isinstance(item, (list, tuple, dict))]
        self.nested = self.nested or any(map(_is_low, first_tensors(inner)))

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "device": self.device,
            "low": sorted(self.low),
            "others": self.others,
            "keywords": self.keywords,
            "nested": self.nested,
        }


def _is_low(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dtype in LOW


@contextlib.contextmanager
def _in_float32(modules: dict[str, nn.Module], given: dict[str, _Given]) -> Iterator[None]:
    """The modules compute in float32; what they are called with is noted."""
    with contextlib.ExitStack() as stack:
        for path, module in modules.items():
            stack.callback(_put_back, module, vars(module).get("forward"))
            module.forward = _noting(in_float32(module.forward), given.setdefault(path, _Given()))
        yield


def _noting(forward: Callable[..., Any], given: _Given) -> Callable[..., Any]:
    def noted(*args: Any, **kwargs: Any) -> Any:
        given.add(args, kwargs)
        return forward(*args, **kwargs)

    return noted


def _put_back(module: nn.Module, forward: Any) -> None:
    if forward is None:
        vars(module).pop("forward", None)
    else:
        module.forward = forward


def _told(first: OpRecord) -> dict[str, Any]:
    return {"phase": first.phase, "op": first.op, "at": first.location.module or ""}


def _part_of(root: nn.Module, module: nn.Module) -> bool:
    return any(part is module for part in root.modules())
