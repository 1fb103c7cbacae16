"""Inside a module that a rule speaks of, what holds is what the policy says there; outside, nothing changes.

A model is bound to a plan: its modules are walked, and hooks are put on those that a rule names, for as long as a
region, or a recomputation of what ran in one, is active. Which model that is, is learnt from the first module called
in the region that belongs to none bound before: that module is the root, and its path is `""`. `region.rooted(model)`
names it instead, which is needed where the caller starts below the root or compiles a function around the model.

Paths are those of `named_modules`, without the segments that wrappers add: `_orig_mod` of torch.compile, `module` of
`DistributedDataParallel` and `DataParallel`, `_fsdp_wrapped_module`, `_checkpoint_wrapped_module`.

Hooks come back under the ids that they had first: torch.compile guards the ids, and would compile again every step.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as nn_module

from mixprec._autocast._interceptor import Interceptor, active_interceptors
from mixprec._autocast._plan import Plan, Stay
from mixprec._autocast._rules import cast_all
from mixprec._policy import CastRule, Kind, Place
from mixprec._policy.selector import class_names
from mixprec.errors import UnknownNameError

__all__ = ["Binding", "arrive", "bind", "follow_modules", "leave", "refuse_unmatched", "unfollow_modules"]


class Binding:
    """One model under one plan: which of its modules have rules. Their hooks are there while somebody uses it."""

    def __init__(self, plan: Plan, root: nn.Module) -> None:
        self.ids = frozenset(map(id, root.modules()))
        self.places = tuple((weakref.ref(module), places) for module, places in _walk(root, "", (), set()))
        ruled = [(ref, plan.inside(places)) for ref, places in self.places if _spoken_of(plan, places[-1])]
        self._gates = tuple((ref, _Gate(plan, stay)) for ref, stay in ruled)
        self._users = 0
        self._lock = threading.Lock()

    def use(self, change: int) -> None:
        """One user more (+1) or less (-1). **Cost**: two hooks per module with rules, for the first and the last."""
        with self._lock:
            self._users += change
            if self._users == (1 if change > 0 else 0):
                for ref, gate in self._gates:
                    if (module := ref()) is not None:
                        gate.open(module) if change > 0 else gate.close(module)

    def stay_in(self, module: nn.Module) -> Stay | None:
        """What holds inside `module`, where a rule names it."""
        return next((gate.stay for ref, gate in self._gates if ref() is module), None)


class _Gate:
    """The two hooks of one module, always the same two under the same ids."""

    def __init__(self, plan: Plan, stay: Stay) -> None:
        self.stay = stay
        self._ids: tuple[int, int] | None = None

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            return arrive(plan, stay, args, kwargs)

        def after(module: nn.Module, args: Any, output: Any) -> Any:
            return leave(plan, output)

        self._before, self._after = before, after

    def open(self, module: nn.Module) -> None:
        if self._ids is None:
            first = module.register_forward_pre_hook(self._before, with_kwargs=True)
            self._ids = first.id, module.register_forward_hook(self._after, always_call=True).id
            return
        before, after = self._ids
        module._forward_pre_hooks[before] = self._before
        module._forward_pre_hooks_with_kwargs[before] = True
        module._forward_hooks[after] = self._after
        module._forward_hooks_always_called[after] = True

    def close(self, module: nn.Module) -> None:
        before, after = self._ids or (-1, -1)
        for hooks in (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs):
            hooks.pop(before, None)
        for hooks in (module._forward_hooks, module._forward_hooks_always_called):
            hooks.pop(after, None)


def bind(plan: Plan, root: nn.Module) -> Binding:
    """The binding of `root`, made again when its modules have changed. **Cost**: a walk over the modules."""
    found: Binding | None = plan.bindings.get(root)
    if found is None or found.ids != frozenset(map(id, root.modules())):
        found = plan.bindings[root] = Binding(plan, root)
    return found


def follow_modules(mode: Interceptor, root: nn.Module | None) -> None:
    """Put the module rules of `mode` in force: for `root`, or for each outermost module as it is called.

    **Cost**: for a named root a walk over its modules; for learning, 1 us per call of any module.
    Raises `RuntimeError` while compiling, where hooks cannot be registered.
    """
    if torch.compiler.is_compiling():
        raise RuntimeError(  # no error of ours: Dynamo shows the text of built-in ones only
            "A region with module rules cannot be entered inside a compiled function, because it puts hooks on modules."
            " Enter it outside: with autocast(...): compiled(x)."
        )
    mode.learning = root is None
    if root is not None:
        _follow(mode, root)
    else:
        _learn_roots(+1)


def unfollow_modules(mode: Interceptor) -> None:
    """Take the hooks of `mode` away."""
    if mode.learning:
        _learn_roots(-1)
    for binding in mode.bindings:
        binding.use(-1)


def refuse_unmatched(plan: Plan, root: nn.Module) -> None:
    """Raise `UnknownNameError` for a path in the policy, without wildcards, that no module of `root` has."""
    paths = {places[-1].path for _, places in bind(plan, root).places}
    named = {r.where.pattern for r in plan.policy.module_rules if r.where is not None and r.where.kind is Kind.PATH}
    for pattern in sorted(named - paths):
        if not any(c in pattern for c in "*?["):
            raise UnknownNameError("module path", pattern, paths - {""}, "Paths are those of model.named_modules().")


def arrive(plan: Plan, stay: Stay, args: Any, kwargs: Any) -> Any:
    """Begin `stay` in this thread, if `plan` is in force in it: the module's inputs, cast as the stay demands."""
    mode = _following(plan)
    if mode is None:
        return None
    if stay.inputs is not None and mode.acts():
        dtype = torch.float32 if stay.inputs is CastRule.FP32 else torch.get_autocast_dtype(plan.device_type)
        args, kwargs = cast_all(mode, args, kwargs, dtype)
    mode.arrive(stay)
    return args, kwargs


def leave(plan: Plan, output: Any) -> Any:
    """End the innermost stay: the module's output, cast up where it comes out into a module that is in float32."""
    mode = _following(plan)
    if mode is None:
        return None
    mode.leave()
    if mode.stay.inputs is CastRule.FP32 and mode.acts():
        (output,), _ = cast_all(mode, (output,), {}, torch.float32)
    return output


def _following(plan: Plan) -> Interceptor | None:
    """The interceptor of `plan` in this thread; None where no region or one of another policy is the innermost."""
    modes = active_interceptors(plan.device_type)
    return modes[-1] if modes and modes[-1].plan is plan else None


def _follow(mode: Interceptor, root: nn.Module) -> Binding:
    binding = bind(mode.plan, root)
    binding.use(+1)
    mode.bindings.append(binding)
    return binding


_learners = 0
_learning_id: int | None = None
_learning_lock = threading.Lock()


def _learn_roots(change: int) -> None:
    """One region more (+1) or less (-1) that learns its roots."""
    global _learners, _learning_id
    with _learning_lock:
        _learners += change
        if _learning_id is None:
            _learning_id = nn_module.register_module_forward_pre_hook(_learn).id
        elif _learners:
            nn_module._global_forward_pre_hooks[_learning_id] = _learn
        else:
            nn_module._global_forward_pre_hooks.pop(_learning_id, None)


def _learn(module: nn.Module, args: Any) -> Any:
    for mode in active_interceptors():
        if mode.learning and not any(id(module) in binding.ids for binding in mode.bindings):
            args = _learnt(mode, module, args)
    return args


def _learnt(mode: Interceptor, root: nn.Module, args: Any) -> Any:
    if torch.compiler.is_compiling():
        raise RuntimeError(  # no error of ours: Dynamo shows the text of built-in ones only
            "The model that the policy's module rules speak of was met inside a compiled function."
            " Name it where the region is entered: autocast(..., policy=policy).rooted(model)."
        )
    stay = _follow(mode, root).stay_in(root)
    if stay is None:
        return args
    arrived = arrive(mode.plan, stay, args, {})  # the root's own hook is too new to be called this time
    return args if arrived is None else arrived[0]


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
