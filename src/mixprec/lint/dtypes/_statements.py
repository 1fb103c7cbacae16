"""Runs statements in the order in which they stand; where the run decides, both ways are walked and joined."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from mixprec.lint._view import FileView
from mixprec.lint.dtypes._call import as_tensor
from mixprec.lint.dtypes._calls import Calls
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._given import Given
from mixprec.lint.dtypes._joins import element, join, table
from mixprec.lint.dtypes._region import OPEN, entered
from mixprec.lint.dtypes._values import (
    UNKNOWN,
    Autocast,
    Choice,
    Class,
    Const,
    Context,
    Function,
    Instance,
    Items,
    Table,
    Tag,
    Tensor,
    Value,
    Wrapped,
    options,
)
from mixprec.lint.dtypes.ops import CASTS

__all__ = ["Statements"]

MOST_UNROLLED = 8
MOST_CONVERTED = 64
"""Items that a loop is walked for one by one where it converts some of them, as with the layers of a network."""

_GOES_ON = ""
_HARMLESS = re.compile(
    r"open|profil|record|tqdm|progress|suppress|warn|tim(er|e)|no_sync|no_grad|device|stream|lock|pool|executor|temp|"
    r"join|grad|seed|rng|summary|writer|run|span|status|anomaly|swap|zip|file|raises|patch|sdp|backend|subprocess|"
    r"measure|log|catch|session|pbar|track",
    re.IGNORECASE,
)


class Statements(Calls):
    """Runs blocks of statements in a frame."""

    def __init__(self, view: FileView, device: str) -> None:
        super().__init__(view, device)
        self.loops = 0
        self._statements: dict[type[ast.stmt], Callable[[Any, Frame], str]] = {
            ast.AnnAssign: self._ann_assign,
            ast.Assert: self._assert,
            ast.Assign: self._assign,
            ast.AsyncFor: self._for,
            ast.AsyncFunctionDef: self._def,
            ast.AsyncWith: self._with,
            ast.AugAssign: self._aug_assign,
            ast.Break: lambda node, frame: self._leave_loop(frame, "break"),
            ast.ClassDef: self._class,
            ast.Continue: lambda node, frame: self._leave_loop(frame, "continue"),
            ast.Expr: self._expr,
            ast.For: self._for,
            ast.FunctionDef: self._def,
            ast.If: self._branch,
            ast.Raise: lambda node, frame: "raise",
            ast.Return: self._return,
            ast.Try: self._try,
            ast.While: self._while,
            ast.With: self._with,
        }

    def block(self, body: Sequence[ast.stmt], frame: Frame) -> str:
        """Walk through a block; how it ends: by going on, or by leaving."""
        for stmt in body:
            self.state.step()
            walk = self._statements.get(type(stmt))
            ended = _GOES_ON if walk is None else walk(stmt, frame)
            if ended:
                return ended
        return _GOES_ON

    def _def(self, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> str:
        frame.values[node.name] = Function(node, frame.view, frame)
        return _GOES_ON

    def _class(self, node: ast.ClassDef, frame: Frame) -> str:
        inner = Frame(frame.view, node, frame)
        bases = tuple(self.value(base, frame) for base in node.bases)
        frame.values[node.name] = Class(node, frame.view, inner, bases)
        self.block(node.body, inner)
        return _GOES_ON

    def _expr(self, node: ast.Expr, frame: Frame) -> str:
        value = self.value(node.value, frame)
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in CASTS:
            inner = call.func.value
            if isinstance(value, Tensor) and isinstance(inner, (ast.Name, ast.Attribute)):
                known = self.value(inner, frame)
                if known is UNKNOWN or (
                    isinstance(known, Tensor) and known.tags & value.tags - {Tag.LEARNED, Tag.ZEROED}
                ):
                    self.bind(inner, value, frame)
        return _GOES_ON

    def _assert(self, node: ast.Assert, frame: Frame) -> str:
        self.value(node.test, frame)
        return _GOES_ON

    def _assign(self, node: ast.Assign, frame: Frame) -> str:
        value = self.value(node.value, frame)
        for target in node.targets:
            self.bind(target, value, frame)
        return _GOES_ON

    def _ann_assign(self, node: ast.AnnAssign, frame: Frame) -> str:
        if node.value is not None:
            self.bind(node.target, self.value(node.value, frame), frame)
        return _GOES_ON

    def _aug_assign(self, node: ast.AugAssign, frame: Frame) -> str:
        old, value = self.value(node.target, frame), self.value(node.value, frame)
        inplace = as_tensor(old) is not None
        self.bind(node.target, self.combine(node.op, old, value, node, frame, inplace), frame)
        return _GOES_ON

    def _return(self, node: ast.Return, frame: Frame) -> str:
        frame.results.append(self.value(node.value, frame))
        return "return"

    def _leave_loop(self, frame: Frame, how: str) -> str:
        frame.exits.append(dict(frame.values))
        return how

    def bind(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """`target = value`."""
        if isinstance(target, ast.Name):
            self._bind_name(target.id, value, frame)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target.elts, value, frame)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, Items(None, element(self.iterated(value))), frame)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, frame)
            if isinstance(owner, Wrapped) and isinstance(owner.inner, Instance):
                owner = owner.inner
            if isinstance(owner, Instance):
                self.state.assign(owner, target.attr, value)
        elif isinstance(target, ast.Subscript):
            self._bind_item(target, value, frame)

    def _bind_name(self, name: str, value: Value, frame: Frame) -> None:
        owner = frame
        if name in _globals_of(frame.node):
            owner = frame.holder(name) or frame
        if (owner is not frame or isinstance(owner.node, ast.Module)) and owner.values.get(name) != value:
            self.state.version += 1
        owner.values[name] = value

    def _unpack(self, targets: list[ast.expr], value: Value, frame: Frame) -> None:
        items = self.iterated(value) if not isinstance(value, Choice) else Items(None)
        exact = items.items is not None and len(items.items) == len(targets)
        for place, target in enumerate(targets):
            self.bind(target, items.items[place] if exact and items.items is not None else element(items), frame)

    def _bind_item(self, target: ast.Subscript, value: Value, frame: Frame) -> None:
        owner = self.value(target.value, frame)
        place = UNKNOWN if isinstance(target.slice, ast.Slice) else self.value(target.slice, frame)
        if isinstance(owner, Tensor):
            self.note("setitem", Given(target, frame, (owner, place, value)), inplace=True)
            written = as_tensor(value)
            bounds = type(owner.bounds)() if written is None else owner.bounds.hull(written.bounds)
            self.rebind(target.value, replace(owner, bounds=bounds, tags=frozenset()), frame)
        elif isinstance(owner, Table) and isinstance(place, Const) and owner.element is None:
            self.rebind(target.value, table({**dict(owner.items), place.value: value}), frame)
        elif isinstance(owner, Table) and not owner.items:
            held = value if owner.element is None else join(owner.element, value)
            self.rebind(target.value, Table((), held), frame)
        elif isinstance(owner, Items):
            self.rebind(target.value, Items(None, join(element(owner), value)), frame)

    # --- branches

    def _branch(self, node: ast.If, frame: Frame) -> str:
        test = self.truth(node.test, frame)
        if test is not None:
            return self.block(node.body if test else node.orelse, frame)
        return self._either((node.body, node.orelse), frame)

    def _either(self, bodies: Sequence[Sequence[ast.stmt]], frame: Frame) -> str:
        """One of several blocks runs."""
        before, after, ends = dict(frame.values), [], []
        for body in bodies:
            frame.values = dict(before)
            with self.state.open_branch():
                ended = self.block(body, frame)
            ends.append(ended)
            if not ended:
                after.append(frame.values)
        if not after:
            return ends[0]
        frame.merge(*after)
        return _GOES_ON

    def _try(self, node: ast.Try, frame: Frame) -> str:
        before = dict(frame.values)
        ended = self.block([*node.body, *node.orelse], frame)
        ways = [] if ended else [frame.values]
        for handler in node.handlers:
            frame.values = dict(before)
            if handler.name:
                frame.values[handler.name] = UNKNOWN
            with self.state.open_branch():
                if not self.block(handler.body, frame):
                    ways.append(frame.values)
        if ways:
            frame.merge(*ways)
        last = self.block(node.finalbody, frame)
        return last or (_GOES_ON if ways else ended or "raise")

    # --- loops

    @property
    def looping(self) -> bool:
        """Whether the walk is inside a loop whose length is open."""
        return self.loops > 0

    def _for(self, node: ast.For | ast.AsyncFor, frame: Frame) -> str:
        items = self.iterated(self.value(node.iter, frame))
        if items.items is not None and len(items.items) <= (MOST_CONVERTED if _converts(node) else MOST_UNROLLED):
            for item in items.items:
                self.bind(node.target, item, frame)
                ended = self._iteration(node.body, frame)
                if ended in ("return", "raise"):
                    return ended
                if ended == "break":
                    break
            return self.block(node.orelse, frame)
        one = element(items)
        return self._loop(node, frame, lambda: self.bind(node.target, one, frame))

    def _while(self, node: ast.While, frame: Frame) -> str:
        if self.truth(node.test, frame) is False:
            return _GOES_ON
        return self._loop(node, frame, lambda: None)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, frame: Frame, begin: Callable[[], None]) -> str:
        """Any number of iterations: two are walked, so that the second sees what the first left."""
        before = dict(frame.values)
        self.loops += 1
        for _ in range(2):
            begin()
            ended = self._iteration(node.body, frame)
            if ended in ("return", "raise", "break"):
                break
        self.loops -= 1
        frame.merge(frame.values, before)
        self.block(node.orelse, frame)
        return _GOES_ON

    def _iteration(self, body: Sequence[ast.stmt], frame: Frame) -> str:
        outer, frame.exits = frame.exits, []
        ended = self.block(body, frame)
        ways = frame.exits + ([frame.values] if not ended else [])
        if ways:
            frame.merge(*ways)
        frame.exits = outer
        return _GOES_ON if ended == "continue" else ended

    # --- contexts

    def _with(self, node: ast.With | ast.AsyncWith, frame: Frame) -> str:
        with ExitStack() as stack:
            for item in node.items:
                value = self.value(item.context_expr, frame)
                if item.optional_vars is not None:
                    self.bind(item.optional_vars, value, frame)
                self._enter(value, item.context_expr, stack)
            region, before = self.state.region, self.state.effects
            ended = self.block(node.body, frame)
            if region.node is not None and region.enabled:
                kind = "region.busy" if self.state.effects > before else "region.idle"
                self.note(kind, Given(region.node, frame))
            return ended

    def _enter(self, value: Value, node: ast.expr, stack: ExitStack) -> None:
        """Enter a context: a region, a grad mode, or one that may be anything."""
        state = self.state
        choices = options(value)
        autocast = next((option for option in choices if isinstance(option, Autocast)), None)
        context = next((option for option in choices if isinstance(option, Context)), None)
        if autocast is not None:
            if autocast.device is None:
                state.open_device = True
            self.note_region(autocast, node)
            stack.enter_context(state.inside(entered(autocast, state.region, state.device)))
        elif context is not None:
            modes = {"no_grad": True, "grad": False, "open": None}
            if context.kind in modes:
                stack.enter_context(state.grad_mode(modes[context.kind]))
        elif value is UNKNOWN and not _HARMLESS.search(ast.unparse(node)):
            stack.enter_context(state.inside(OPEN(state.device)))

    def note_region(self, autocast: Autocast, node: ast.AST) -> None:
        """Note that a region was entered."""
        frame = self.modules.get(self.state.view.path)
        if frame is not None and autocast.node is not None:
            self.note("region", Given(autocast.node, frame, (autocast,)))


def _converts(loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop converts what it goes through, in place: `for layer in net.modules(): layer.half()`."""
    target = loop.target.elts[-1] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
    calls = (node.value for stmt in loop.body for node in ast.walk(stmt) if isinstance(node, ast.Expr))
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in CASTS
        and ast.unparse(call.func.value) == ast.unparse(target)
        for call in calls
    )


def _globals_of(node: ast.AST) -> frozenset[str]:
    body = getattr(node, "body", None)
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or not isinstance(body, list):
        return frozenset()
    return frozenset(name for stmt in body if isinstance(stmt, (ast.Global, ast.Nonlocal)) for name in stmt.names)
