"""A policy is compiled, once, to tables from function objects to what is done with their calls.

What is not in a table is not touched. For a policy that equals PyTorch's list for the device there is no plan at all.
There is one table for outside of modules, and one for every module that a rule speaks of.
"""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from mixprec._autocast._composites import opened
from mixprec._autocast._dynamo import teach_dynamo
from mixprec._autocast._functions import aten_functions, foreign_functions, functions_by_op, python_functions
from mixprec._autocast._parts import parts
from mixprec._autocast._reach import reach
from mixprec._autocast._rules import AsMethod, Call, Opening, plain, rule_for
from mixprec._policy import CastRule, Decision, Level, Place, Policy, Sharing, differs, module_rule, resolve_at
from mixprec._policy.base import table
from mixprec._policy.names import KNOWN

__all__ = ["Plan", "Stay", "native_policy", "plan_for", "plan_key", "plan_named", "plan_of"]

Table = Mapping[Any, Call]


@dataclass(frozen=True, eq=False)
class Stay:
    """What holds while a place is in force: outside of modules, or inside one that a rule speaks of.

    `quiet`: autocast is off there. `inputs`: what the module's floating-point inputs are cast to on the way in.
    `named`: the Python functions of the table by module and name, as torch.compile finds and can trace them.
    """

    table: Table = field(repr=False)
    named: Mapping[str, Call] = field(repr=False)
    quiet: bool = False
    inputs: CastRule | None = None


class Plan:
    """What a region intercepts. `whole`: PyTorch's own casts are kept out of everything, also of what is not listed.

    `share`: casts go through our cache even where the rule is PyTorch's. `faithful`: the quirks of PyTorch's promotion
    are kept, for its own lists, so that they can be compared. `bindings`: root module -> its modules under this plan.
    Every attribute is there from the start, because torch.compile reads them and could not compute them.
    """

    def __init__(self, policy: Policy, device_type: str, whole: bool = False, share: bool = False) -> None:
        self.policy = policy
        self.device_type = device_type
        self.on_device = f"is_{device_type}" if hasattr(torch.Tensor, f"is_{device_type}") else ""
        self.whole = whole
        self.sharing = policy.sharing
        self.share = share or policy.sharing is Sharing.EVERYTHING
        self.faithful = policy.base.name == "torch"
        self.per_module = bool(policy.module_rules)
        self.bindings: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.outside = self.inside(())

    @property
    def needed(self) -> bool:
        """Whether PyTorch's own autocast would not do exactly that already."""
        return self.whole or self.per_module or bool(_intercepted(self, _decisions(self, ())))

    def inside(self, places: tuple[Place, ...]) -> Stay:
        """What holds inside `places`, outermost first. Cost: milliseconds; callers keep the result."""
        ruling = module_rule(self.policy, places)
        decisions = _decisions(self, places)
        quiet = ruling in _QUIET and all(d.level is Level.MODULE for d in decisions.values())
        calls = {op: rule_for(d) for op, d in _intercepted(self, decisions).items()}
        table = {} if quiet else _table(calls)
        return Stay(table, _named_functions(table, calls), quiet, ruling if ruling in _CAST_IN else None)


def _name(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__name__}"  # __qualname__ is not traced rightly by torch 2.13


_QUIET = (CastRule.FP32, CastRule.KEEP)
_CAST_IN = (CastRule.FP32, CastRule.LOW)


@functools.lru_cache(maxsize=256)
def plan_for(policy: Policy, device_type: str, whole: bool = False, share: bool = False) -> Plan | None:
    """The plan of `policy` on `device_type`; None where PyTorch's own autocast does exactly that already.

    `share`: casts go through our cache even where the rule is PyTorch's, because the cache outlives the region.

    **Cost**: milliseconds, once per policy and device.
    """
    plan = Plan(policy, device_type, whole, share)
    return plan if plan.needed else None


@functools.lru_cache(maxsize=256)
def plan_of(policy: Policy | str | None, device_type: str, whole: bool, share: bool) -> Plan | None:
    """The plan of a policy, its name or its text; `policy` None is PyTorch's own list.

    Raises `UnknownNameError` and `PolicySyntaxError`.
    """
    meant = _meant(policy, device_type)
    return None if meant is None else plan_for(meant, device_type, whole, share)


_named: dict[str, Plan | None] = {}


def plan_key(policy: Policy | str | None, device_type: str, whole: bool, share: bool) -> str:
    """A name under which `plan_named` finds the plan. A constant for torch.compile, which could not trace a lookup."""
    teach_dynamo()  # here, because a region inside a compiled function asks for its plan while it is being traced
    plan = plan_of(policy, device_type, whole, share)
    key = f"{device_type} {whole} {share} {_meant(policy, device_type)}"
    _named[key] = plan
    return key


plan_key._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compiler.assume_constant_result sets this, but importing it loads torch._dynamo


def plan_named(key: str) -> Plan | None:
    """The plan that `plan_key` named."""
    return _named[key]


def _meant(policy: Policy | str | None, device_type: str) -> Policy | None:
    if policy is None:
        return native_policy(device_type)
    if isinstance(policy, Policy):
        return policy
    if policy.split()[:1] == ["base"] or len(policy.splitlines()) > 1:
        return Policy.parse(policy)
    return Policy.named(policy, device_type)


@functools.lru_cache(maxsize=16)
def native_policy(device_type: str) -> Policy | None:
    """PyTorch's own list for the device; None for devices that mixprec has no list of."""
    try:
        return Policy.torch(device_type)
    except ValueError:
        return None


def _decisions(plan: Plan, places: tuple[Place, ...]) -> Mapping[str, Decision]:
    ops = _ops_at_stake(plan, module_rule(plan.policy, places))
    return {op: resolve_at(plan.policy, op, places) for op in ops}


def _ops_at_stake(plan: Plan, ruling: CastRule | None) -> frozenset[str]:
    """The ops for which something can differ from PyTorch's own."""
    if ruling is CastRule.LOW:
        return KNOWN
    native = native_policy(plan.device_type)
    listed = plan.policy.ops.keys() | (native.ops.keys() if native else set())
    named = {rule.op for rule in plan.policy.rules if rule.op is not None}
    return frozenset(listed | named)


def _intercepted(plan: Plan, decisions: Mapping[str, Decision]) -> Mapping[str, Decision]:
    """The decisions that PyTorch would not carry out by itself, or whose casts are to be shared."""
    if plan.whole:
        return {op: d for op, d in decisions.items() if d.rule is not CastRule.KEEP}
    return {op: d for op, d in decisions.items() if _differs(plan, op, d)}


def _differs(plan: Plan, op: str, decision: Decision) -> bool:
    """Whether PyTorch's own list does something else with `op`.

    A row of that list that only sums up what an op's parts do is not exact, so it is trusted for that list alone. An
    op that the device cannot run in 16 bits is left alone, unless the policy itself speaks of it.
    """
    native = native_policy(plan.device_type)
    if native is None:
        return decision.rule is not CastRule.KEEP
    group = table(native.base).get(op)
    summed_up = group is not None and bool(group.parts) and plan.policy.base != native.base
    if differs(decision, native) or (summed_up and decision.rule is not CastRule.KEEP):
        return True
    same = decision.rule is native.ops.get(op, CastRule.KEEP)
    return plan.share and same and decision.rule in _CASTING and op not in _REPACKED


_REPACKED = ("_cudnn_rnn",)
"""Ops for which PyTorch's cast does more than ours would: it packs the weights anew into one chunk."""

_CASTING = (CastRule.LOW, CastRule.FP32, CastRule.WIDEST)


def _table(calls: Mapping[str, Call]) -> Table:
    """Function objects -> what to do with their calls."""
    every = {**parts(calls), **calls}
    rules = {function: call for op, call in every.items() for function in _functions(op)}
    names = {*every, *(function.__name__ for function in rules)}
    spelled = names | {n.partition("_")[2] for n in names if n.startswith(("linalg_", "fft_", "special_"))}
    openings = {f: call if _may_hide(f, spelled) else plain for f, call in _openings().items()}
    return {**openings, torch.Tensor.unflatten: AsMethod(), **rules}


def _may_hide(function: FunctionType, names: Set[str]) -> bool:
    """Whether one of the ops named may be inside. Outside of `torch.nn.functional`, `Tensor.backward` say, and where
    a function is handed in, anything may.
    """
    pure = function.__module__ == torch.nn.functional.__name__ and function.__name__ not in _CALLS_BACK
    return not pure or bool(names & reach(function))


_CALLS_BACK = frozenset({"triplet_margin_with_distance_loss"})


def _named_functions(table: Table, calls: Mapping[str, Call]) -> Mapping[str, Call]:
    """The Python functions of the table by name, where a name is one function's alone.

    Those of `torch.functional` are ops to Dynamo, which cannot trace their insides: they are called, not opened.
    """
    python = [f for f in table if isinstance(f, FunctionType)]
    names = Counter(map(_name, python))
    named = {_name(f): table[f] for f in python if names[_name(f)] == 1}
    ops = {f: op or "" for f, op in python_functions().items() if f.__module__ == torch.functional.__name__}
    return {**named, **{f"{f.__module__}.{f.__name__}": calls.get(op, plain) for f, op in ops.items()}}


@functools.lru_cache(maxsize=1)
def _openings() -> Mapping[FunctionType, Call]:
    """Every Python function of PyTorch that hides other ops -> the call that opens it."""
    return {f: Opening(copy) for f in python_functions() if (copy := opened(f)) is not None}


def _functions(op: str) -> Iterable[Any]:
    """What is called when `op` is; a Python function only where no builtin does the work inside."""
    if "::" in op:
        return foreign_functions(op)
    builtins = functions_by_op().get(op, ())
    python = [f for f, name in python_functions().items() if name == op and (not builtins or f.__name__ in _THIN)]
    return (*builtins, *python, *aten_functions(op))


_THIN = frozenset({"cross_entropy", "group_norm", "layer_norm", "log_softmax", "rms_norm", "softmax"})
"""Python functions that only hand their arguments to the builtin of the same op: cast outside, one hop is saved."""
