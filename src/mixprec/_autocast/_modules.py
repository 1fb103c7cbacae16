"""Inside a module that a rule speaks of, what holds is what the policy says there; outside, nothing changes.

A model is bound to a plan: its modules are walked, and hooks are put on those that a rule names, for as long as a
region, or a recomputation of what ran in one, is active. Which model that is, is learnt from the first module called
in the region that belongs to none bound before: that module is the root, and its path is `""`. `region.rooted(model)`
names it instead, which is needed where the caller starts below the root.

Paths are those of `named_modules`, without the segments that wrappers add: `_orig_mod` of torch.compile, `module` of
`DistributedDataParallel` and `DataParallel`, `_fsdp_wrapped_module`, `_checkpoint_wrapped_module`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from mixprec._autocast._interceptor import Interceptor, active_interceptors
from mixprec._autocast._plan import Plan, Stay
from mixprec._autocast._rules import cast_all
from mixprec._policy import CastRule, Kind, Place
from mixprec._policy.selector import class_names
from mixprec.errors import UnknownNameError

__all__ = ["Binding", "Roots", "bind", "refuse_unmatched"]


class Binding:
    """One model under one plan: which of its modules have rules. Their hooks are there while somebody uses it."""

    def __init__(self, plan: Plan, root: nn.Module) -> None:
        self.ids = frozenset(map(id, root.modules()))
        self.places = tuple((weakref.ref(module), places) for module, places in _walk(root, "", (), set()))
        self._stays = tuple((ref, plan.inside(places)) for ref, places in self.places if _spoken_of(plan, places[-1]))
        self._device_type = plan.device_type
        self._users = 0
        self._handles: list[Any] = []
        self._lock = threading.Lock()

    def use(self, change: int) -> None:
        """One user more (+1) or less (-1). **Cost**: two hooks per module with rules, for the first and the last."""
        with self._lock:
            self._users += change
            if self._users and not self._handles:
                self._handles = [handle for ref, stay in self._stays for handle in self._hooks(ref(), stay)]
            elif not self._users:
                for handle in self._handles:
                    handle.remove()
                self._handles = []

    def stay_in(self, module: nn.Module) -> Stay | None:
        """What holds inside `module`, where a rule names it."""
        return next((stay for ref, stay in self._stays if ref() is module), None)

    def _hooks(self, module: nn.Module | None, stay: Stay) -> Iterator[Any]:
        if module is None:
            return
        device_type = self._device_type

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            return arrive(device_type, stay, args, kwargs)

        def after(module: nn.Module, args: Any, output: Any) -> None:
            leave(device_type)

        yield module.register_forward_pre_hook(before, with_kwargs=True)
        yield module.register_forward_hook(after, always_call=True)


class Roots:
    """The models that a region's module rules are in force for: the one named, or each outermost one as it is called.

    **Cost**: for a named model a walk over its modules; for learning, 1 us per call of any module.
    """

    def __init__(self, mode: Interceptor, named: nn.Module | None) -> None:
        self._mode = mode
        self._handle: Any = None
        if named is not None:
            self._add(named)
        else:
            self._handle = register_module_forward_pre_hook(self._learn)

    def release(self) -> None:
        """Take every hook away."""
        if self._handle is not None:
            self._handle.remove()
        for binding in self._mode.bindings:
            binding.use(-1)

    def _add(self, root: nn.Module) -> Binding:
        binding = bind(self._mode.plan, root)
        binding.use(+1)
        self._mode.bindings.append(binding)
        return binding

    def _learn(self, module: nn.Module, args: Any) -> Any:
        if self._mode not in active_interceptors() or any(id(module) in b.ids for b in self._mode.bindings):
            return None
        stay = self._add(module).stay_in(module)
        if stay is None:
            return None
        arrived = arrive(self._mode.device_type, stay, args, {})  # its own hook is too new to be called this time
        return None if arrived is None else arrived[0]


def refuse_unmatched(plan: Plan, root: nn.Module) -> None:
    """Raise `UnknownNameError` for a path in the policy, without wildcards, that no module of `root` has."""
    paths = [places[-1].path for _, places in bind(plan, root).places]
    for rule in plan.policy.module_rules:
        where = rule.where
        if (
            where is not None
            and where.kind is Kind.PATH
            and not any(c in where.pattern for c in "*?[")
            and where.pattern not in paths
        ):
            raise UnknownNameError("module path", where.pattern, paths)


def bind(plan: Plan, root: nn.Module) -> Binding:
    """The binding of `root`, made again when its modules have changed. **Cost**: a walk over the modules."""
    found = plan.bindings.get(root)
    if found is None or found.ids != frozenset(map(id, root.modules())):
        found = plan.bindings[root] = Binding(plan, root)
    return found


def arrive(device_type: str, stay: Stay, args: Any, kwargs: Any) -> Any:
    """Begin `stay` in this thread, if a region is active in it: the module's inputs, cast as the stay demands."""
    modes = active_interceptors(device_type)
    if not modes:
        return None
    mode = modes[-1]
    if stay.inputs is not None and mode.acts():
        dtype = torch.float32 if stay.inputs is CastRule.FP32 else torch.get_autocast_dtype(device_type)
        args, kwargs = cast_all(mode, args, kwargs, dtype)
    mode.arrive(stay)
    return args, kwargs


def leave(device_type: str) -> None:
    """End the innermost stay."""
    modes = active_interceptors(device_type)
    if modes:
        modes[-1].leave()


def _spoken_of(plan: Plan, place: Place) -> bool:
    return any(r.where is not None and r.where.closeness(place) is not None for r in plan.policy.module_rules)


def _walk(
    module: nn.Module, path: str, above: tuple[Place, ...], seen: set[nn.Module]
) -> Iterator[tuple[nn.Module, tuple[Place, ...]]]:
    """Each module once, with the places on the way to it, outermost first."""
    seen.add(module)
    places = (*above, Place(path, class_names(type(module))))
    yield module, places
    for name, child in module.named_children():
        if child not in seen:
            yield from _walk(child, _joined(path, name, module), places, seen)


_WRAPPED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def _joined(path: str, name: str, owner: nn.Module) -> str:
    if name in _WRAPPED or (name == "module" and isinstance(owner, _PARALLEL)):
        return path
    return f"{path}.{name}" if path else name
