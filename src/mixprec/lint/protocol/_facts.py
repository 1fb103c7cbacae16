"""What a file says before it is walked: which names play which role, and which statements can matter at all.

A statement is *hot* when something in it, or in a function that it calls, can touch the protocol. Everything else is
stepped over, which is what makes the walk fast.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mixprec.lint._constants import DTYPES
from mixprec.lint._names import AUTOCASTS, SCALERS
from mixprec.lint.protocol._carried import Carried
from mixprec.lint.protocol._entering import bound_to, enters_stack, prepares_region
from mixprec.lint.protocol._last_name import assigned, is_super, last_name
from mixprec.lint.protocol._scaler_names import scaler_names

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["ACTIVE", "CLIPPERS", "Def", "Facts", "facts", "last_name"]

Def = ast.FunctionDef | ast.AsyncFunctionDef
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)

CLIPPERS = frozenset(
    {
        "adaptive_clip_grad",
        "clip_grad_norm",
        "clip_grad_norm_",
        "clip_grad_value_",
        "clip_grads_with_norm_",
        "dispatch_clip_grad",
    }
)
"""Last names of the functions that clip gradients where they stand."""

_EVENTS = CLIPPERS | {
    "backward",
    "first_step",
    "get_scale",
    "grad",
    "is_enabled",
    "second_step",
    "step",
    "unscale_",
    "zero_grad",
}
_EVALUATES = re.compile(r"forward$|__call__|eval|valid|test|infer|predict|generat|sampl|encode|decode", re.IGNORECASE)
ACTIVE = re.compile(
    r"scaler|step|backward|update|optimi|train|zero|clip|closure|apply|hook|callback|dispatch|fire|event|fit",
    re.IGNORECASE,
)
"""Names of functions that may take part in the protocol when they are handed an optimizer or a scaler."""

_CORE = frozenset({"backward", "load_state_dict", "scale", "unscale_", "update"})
_CONTEXTS = frozenset({"Join", "autocast", "inference_mode", "no_grad", "nullcontext", "suppress"})
_OPTIMIZER = re.compile(r"optim|^opts?(_|\d|$)|_opts?\d*$", re.IGNORECASE)
_PRECISION = re.compile(r"Scaler|^Amp|AMP|_amp|amp_|^amp$|Precision|precision")
"""Parts of the names of own classes and functions that make scalers and regions."""
_SCHEDULER = re.compile(r"sched|^lrs$|warmup", re.IGNORECASE)


class Facts:
    """The facts of one file."""

    def __init__(self, view: FileView) -> None:
        self.view = view
        self.functions: dict[str, list[Def]] = {}
        defined: list[Def] = [*view.nodes(ast.FunctionDef), *view.nodes(ast.AsyncFunctionDef)]
        for node in defined:
            self.functions.setdefault(node.name, []).append(node)
        self.classes = {node.name: node for node in view.nodes(ast.ClassDef)}
        self.members = _members(view)
        self.generators = {function for node in _yields(view) if (function := view.function(node)) is not None}
        self.called = {last_name(call.func) for call in view.nodes(ast.Call)}
        self.scalers = scaler_names(view)
        self.optimizers = set(self._optimizer_names())
        self.counters = set(self._counters())
        self.tested: set[str] = set()
        self.grown = {
            last_name(call.func.value)
            for call in view.nodes(ast.Call)
            if isinstance(call.func, ast.Attribute)
            and call.func.attr in ("append", "extend", "insert", "pop", "update")
        }
        self.hot: set[ast.AST] = set()
        self.carried = Carried(view)
        self.carried_names: set[str] = set()
        self.switches: set[ast.AST] = set()
        self.core = False
        self.exits: set[ast.AST] = set()
        self.entrusted: set[ast.AST] = set()
        self.holders = {name for name, value in assigned(view) if self._holds(value)}
        self.leaves = {last_name(node.value) for node in view.nodes(ast.Attribute) if node.attr == "grad"}
        self.leaves |= {last_name(item) for node in view.nodes(ast.List) for item in node.elts}
        self.keeps_scaled = any(self._keeps_scaled())
        self._warm()
        self._mark_exits()

    # --- roles

    def is_scaler(self, name: str) -> bool:
        """Whether what is called `name` plays the scaler in this file."""
        return name in self.scalers

    def is_optimizer(self, name: str) -> bool:
        """Whether what is called `name` plays an optimizer."""
        return name in self.optimizers or (bool(_OPTIMIZER.search(name)) and not _SCHEDULER.search(name))

    def is_scheduler(self, name: str) -> bool:
        """Whether what is called `name` plays a learning-rate scheduler."""
        return bool(_SCHEDULER.search(name)) and not self.is_scaler(name)

    def _optimizer_names(self) -> Iterator[str]:
        zeroed, stepped = set(), set()
        for call in self.view.nodes(ast.Call):
            func = call.func
            if not isinstance(func, ast.Attribute):
                continue
            if func.attr in ("step", "unscale_") and last_name(func.value) in self.scalers and call.args:
                yield last_name(call.args[0])
            elif func.attr == "zero_grad":
                zeroed.add(last_name(func.value))
            elif func.attr == "step":
                stepped.add(last_name(func.value))
        yield from zeroed & stepped
        for name, value in assigned(self.view):
            dotted = self.view.dotted(value.func) or "" if isinstance(value, ast.Call) else ""
            if dotted.startswith("torch.optim.") and "lr_scheduler" not in dotted:
                yield name

    def _keeps_scaled(self) -> Iterator[bool]:
        """Whether a scaled loss is kept for more than its backward."""
        for call in self.view.nodes(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "scale":
                yield not isinstance(self.view.parent(call), ast.Attribute) and self.is_scaler(
                    last_name(call.func.value)
                )

    def _counters(self) -> Iterator[str]:
        """Names that are counted up somewhere; what they hold is another thing in each iteration."""
        for node in self.view.nodes(ast.AugAssign):
            yield last_name(node.target)
        for assign in self.view.nodes(ast.Assign):
            if isinstance(assign.value, ast.BinOp) and len(assign.targets) == 1:
                name = last_name(assign.targets[0])
                if name and name == last_name(assign.value.left):
                    yield name

    def _tested(self) -> Iterator[str]:
        """Names in tests on which something hot depends, and in what switches scalers and regions."""
        choices: list[ast.If | ast.IfExp | ast.While] = [
            *self.view.nodes(ast.If),
            *self.view.nodes(ast.IfExp),
            *self.view.nodes(ast.While),
        ]
        tests = [node.test for node in choices if node in self.hot]
        enabled = [k.value for k in self.view.nodes(ast.keyword) if k.arg in ("enabled", "dtype")]
        for test in (*tests, *enabled):
            for node in ast.walk(test):
                if isinstance(node, (ast.Name, ast.Attribute)):
                    yield last_name(node)

    # --- heat

    def _warm(self) -> None:
        names, carried = self._hot_calls(), set[str]()
        while names or carried:
            fresh: set[tuple[str, bool]] = set()
            for call in self.view.nodes(ast.Call):
                name = last_name(call.func)
                if name in carried and (name, isinstance(call.func, ast.Attribute)) not in names:
                    self.carried.indirect.add(call)
                elif (name, isinstance(call.func, ast.Attribute)) not in names:
                    continue
                if call not in self.hot:
                    fresh |= self._heat(call)
            names, carried = self._pass_on(names, carried, fresh)
        self.tested = set(self._tested())
        for assign in self.view.nodes(ast.Assign):
            if self._sets_a_switch(assign):
                self.switches.add(assign)
                self.switches.update(_within_function(self.view, assign))

    def _pass_on(
        self, names: set[tuple[str, bool]], carried: set[str], fresh: set[tuple[str, bool]]
    ) -> tuple[set[tuple[str, bool]], set[str]]:
        """Names under which hot functions are called, directly and as what they were assigned to or given as."""
        onward: set[str] = set()
        hot = {name for name, _ in names | fresh}
        mentions = [*self.carried.functions(hot & set(self.functions)), *self.carried.objects(hot & set(self.classes))]
        mentions += self.carried.names(carried)
        for mention in mentions:
            fresh |= self._heat(mention)
            onward |= set(self.carried.onward(mention))
        onward |= set(self.carried.wrappers(f for name in hot for f in self.functions.get(name, ())))
        new = onward - self.carried_names
        self.carried_names |= new
        return fresh, new

    def _hot_calls(self) -> set[tuple[str, bool]]:
        names: set[tuple[str, bool]] = set()
        for attribute in self.view.nodes(ast.Attribute):
            if self._is_event(attribute) or (self.keeps_scaled and attribute.attr == "item"):
                names |= self._heat(attribute)
                self.core = self.core or attribute.attr in _CORE
        for call in self.view.nodes(ast.Call):
            if self._makes(call):
                names |= self._heat(call)
                made = self.view.dotted(call.func) or ""
                self.core = self.core or made in SCALERS or self._is_own(call, made)
            elif prepares_region(self.view, call):
                names |= self._heat(call) | bound_to(self.view, call)
            elif self._enters(call):
                self.switches.add(call)
                self.switches.update(_within_function(self.view, call))
                if self._returns_from_region(call):
                    names |= self._heat(call)
        return names

    def _is_event(self, node: ast.Attribute) -> bool:
        if node.attr in ("load_state_dict", "scale", "state_dict", "update"):
            return self.is_scaler(last_name(node.value))
        if node.attr == "step":
            name = last_name(node.value)
            return self.is_scaler(name) or self.is_optimizer(name) or self.is_scheduler(name)
        return node.attr in _EVENTS

    def _makes(self, call: ast.Call) -> bool:
        name = self.view.dotted(call.func) or ""
        tail = name.rpartition(".")[2]
        return (
            name in SCALERS
            or (name in AUTOCASTS and not self._enters(call))
            or name.startswith("torch.optim.")
            or tail in CLIPPERS
            or (self.is_scaler(last_name(call.func)) and bool(call.args))
            or bool(_PRECISION.search(tail))
            or self._hands_over(call)
        )

    def _is_own(self, call: ast.Call, name: str) -> bool:
        """Whether a class or function of another file of the project is called that is named after precision."""
        if not _PRECISION.search(name.rpartition(".")[2]) or last_name(call.func) not in self.view.imports:
            return False
        return self.view.project.definition(name, self.view.path) is not None

    def _enters(self, call: ast.Call) -> bool:
        """Whether a context is made, to be entered here."""
        tail = (self.view.dotted(call.func) or "").rpartition(".")[2]
        parent = self.view.parent(call)
        entered = isinstance(parent, (ast.withitem, ast.IfExp, *_DEFS))
        return tail in _CONTEXTS and (entered or (isinstance(parent, ast.Call) and enters_stack(self.view, parent)))

    def _returns_from_region(self, call: ast.Call) -> bool:
        """Whether a training function, not a module's forward or an evaluation, enters autocast."""
        function = self.view.function(call)
        if self.view.dotted(call.func) not in AUTOCASTS or not isinstance(function, _DEFS):
            return False
        return not _EVALUATES.search(function.name)

    def _hands_over(self, call: ast.Call) -> bool:
        """Whether code that is not here may take the step: it is given the optimizer, or is the own base class's."""
        name = last_name(call.func)
        if name in self.functions:
            return False
        if self._entrusts(call):
            self.entrusted.add(call)
            return True
        if not ACTIVE.search(name):
            return any(self.is_scaler(last_name(arg)) for arg in call.args if not isinstance(arg, ast.Call))
        if "backward" in name:
            return True
        own = isinstance(call.func, ast.Attribute) and (
            is_super(call.func.value) or (isinstance(call.func.value, ast.Name) and call.func.value.id == "self")
        )
        given = [
            last_name(arg) for arg in (*call.args, *(k.value for k in call.keywords)) if not isinstance(arg, ast.Call)
        ]
        return own or any(self.is_scaler(one) or self.is_optimizer(one) for one in given)

    def _entrusts(self, call: ast.Call) -> bool:
        """Whether code that is not here has an object that holds a scaler: `hook(self)`, `on_step(state)`."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        names = {arg.id for arg in given if isinstance(arg, ast.Name)}
        cls = self.view.class_of(call) if "self" in names else None
        if isinstance(call.func, ast.Attribute):
            names.add(last_name(call.func.value))
        if not names or (self.view.dotted(call.func) or "").startswith(("torch.", "functools.", "super")):
            return False
        own = self.members.get(cls, {}) if cls is not None else {}
        return bool(names & self.holders) or any(self.is_scaler(name) for name in own)

    def _holds(self, value: ast.expr) -> bool:
        """Whether a collection has a scaler in it, or an object of a class that is not here was given one."""
        items: list[ast.expr] = []
        if isinstance(value, (ast.List, ast.Tuple)):
            items = value.elts
        elif isinstance(value, ast.Dict):
            items = value.values
        elif isinstance(value, ast.Call) and last_name(value.func)[:1].isupper():
            name = self.view.dotted(value.func) or ""
            if last_name(value.func) not in self.classes and not name.startswith("torch."):
                items = [*value.args, *(keyword.value for keyword in value.keywords)]
        return any(not isinstance(item, ast.Call) and self.is_scaler(last_name(item)) for item in items)

    def _sets_a_switch(self, assign: ast.Assign) -> bool:
        """Whether a plain truth value, None or a dtype is put where a test may find it."""
        if not any(last_name(target) in self.tested for target in assign.targets):
            return False
        if isinstance(assign.value, ast.Constant):
            return assign.value.value is None or isinstance(assign.value.value, bool)
        name = last_name(assign.value) if isinstance(assign.value, (ast.Name, ast.Attribute)) else ""
        return name in DTYPES and name not in ("float", "double")

    def _heat(self, node: ast.AST) -> set[tuple[str, bool]]:
        """Mark `node` and what it stands in; how the functions and classes around it are called.

        That is their name and whether they are called through an attribute.
        """
        names: set[tuple[str, bool]] = set()
        current: ast.AST | None = node
        while current is not None and current not in self.hot:
            self.hot.add(current)
            if isinstance(current, ast.ClassDef):
                names |= {(current.name, False), (current.name, True)}
                names |= self._instances(current)
            elif isinstance(current, _DEFS):
                names.add((current.name, isinstance(self.view.parent(current), ast.ClassDef)))
            elif isinstance(current, ast.Lambda):
                parent = self.view.parent(current)
                for target in parent.targets if isinstance(parent, ast.Assign) else ():
                    names.add((last_name(target), isinstance(target, ast.Attribute)))
            current = self.view.parent(current)
        return names

    def _instances(self, cls: ast.ClassDef) -> set[tuple[str, bool]]:
        """Names that are given an object of `cls`, where those can be called."""
        if not any(isinstance(node, _DEFS) and node.name == "__call__" for node in cls.body):
            return set()
        made = [
            name for name, value in assigned(self.view) if isinstance(value, ast.Call) and last_name(value) == cls.name
        ]
        return {(name, attribute) for name in made for attribute in (False, True)}

    def _mark_exits(self) -> None:
        """Tests that end an iteration or a function early matter; those that end a loop or a run are not followed."""
        for node in self.view.nodes(ast.Continue):
            for ancestor in self.view.ancestors(node):
                if isinstance(ancestor, _LOOPS):
                    break
                self.exits.add(ancestor)
        leaving: list[ast.Return | ast.Raise] = [*self.view.nodes(ast.Return), *self.view.nodes(ast.Raise)]
        for leave in leaving:
            inside = list(_within_function(self.view, leave))
            if not any(isinstance(ancestor, _LOOPS) for ancestor in inside):
                self.exits.update(inside)

    def is_hot(self, node: ast.AST) -> bool:
        """Whether walking through `node` can matter."""
        return node in self.hot or node in self.switches


def _within_function(view: FileView, node: ast.AST) -> Iterator[ast.AST]:
    for ancestor in view.ancestors(node):
        if isinstance(ancestor, (*_DEFS, ast.ClassDef)):
            return
        yield ancestor


def _yields(view: FileView) -> list[ast.AST]:
    return [*view.nodes(ast.Yield), *view.nodes(ast.YieldFrom)]


def _members(view: FileView) -> dict[ast.ClassDef, dict[str, list[ast.expr]]]:
    """By class and attribute: what its methods assign to `self`; what is unpacked counts twice, as no one value."""
    found: dict[ast.ClassDef, dict[str, list[ast.expr]]] = {}
    for node in view.nodes(ast.Assign):
        for target in node.targets:
            unpacked = isinstance(target, (ast.Tuple, ast.List))
            for place in target.elts if isinstance(target, (ast.Tuple, ast.List)) else (target,):
                if not isinstance(place, ast.Attribute) or last_name(place.value) != "self":
                    continue
                cls = view.class_of(node)
                if cls is not None:
                    values = found.setdefault(cls, {}).setdefault(place.attr, [])
                    values += [node.value, node.value] if unpacked else [node.value]
    return found


def facts(view: FileView) -> Facts:
    """The facts of `view`; use through `view.memo`."""
    return Facts(view)
