"""Walks through statements in the order in which they run; where the run decides, both ways are walked and joined."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from mixprec.lint._names import AUTOCASTS
from mixprec.lint._view import FileView
from mixprec.lint.dtypes._call import as_tensor
from mixprec.lint.dtypes._calls import Calls, is_module
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._methods import Arguments, Keywords
from mixprec.lint.dtypes._region import OFF, OPEN, entered
from mixprec.lint.dtypes._values import (
    NONE,
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
    Tensor,
    Value,
    Wrapped,
    element,
    join,
    options,
    table,
)
from mixprec.lint.dtypes.ops import CASTS

__all__ = ["Walker"]

DEEPEST = 14
"""Functions inside each other; deeper ones are not walked."""
MOST_WALKS = 40
"""Of one function; after that its result is unknown."""
MOST_MODULES = 12
"""Files of the project that one walk looks into; what is beyond them is unknown."""
MOST_UNROLLED = 8

_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
_GOES_ON = ""
_HARMLESS = re.compile(
    r"open|profil|record|tqdm|progress|suppress|warn|tim(er|e)|no_sync|no_grad|device|stream|lock|pool|executor|temp|"
    r"join|grad|seed|rng|summary|writer|run|span|status|anomaly|swap|zip|file|raises|patch|sdp|backend|subprocess|"
    r"measure|log|catch|session|pbar|track",
    re.IGNORECASE,
)


class Walker(Calls):
    """Walks one file, with what the script leaves open about devices taken as `device`."""

    def __init__(self, view: FileView, device: str) -> None:
        super().__init__(view, device)
        self.depth = 0
        self.loops = 0
        self.walks: dict[ast.AST, int] = {}
        self.stack: list[ast.AST] = []
        self.entered: set[ast.AST] = set()
        self.memo: dict[Any, Value] = {}
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

    # --- entries

    def module_frame(self, view: FileView) -> Frame:
        """The names of a file after its statements ran; only once per file, and of few files."""
        if view.path not in self._modules and len(self._modules) >= MOST_MODULES:
            return Frame(view, view.tree)
        if view.path not in self._modules:
            frame = self._modules[view.path] = Frame(view, view.tree)
            self._builtin_names(frame, view is self.state.view)
            with self.state.inside(OFF(self.state.device)), self.state.grad_mode(False):
                self.block(view.tree.body, frame)
        return self._modules[view.path]

    def _builtin_names(self, frame: Frame, is_main: bool) -> None:
        frame.values["__name__"] = Const("__main__" if is_main else "module")

    def rest(self, frame: Frame) -> None:
        """Walk into every function and class of the file that nothing has called, with arguments that are open."""
        for node in frame.view.nodes(ast.ClassDef):
            if frame.view.function(node) is None and node not in self.entered:
                self._unused_class(node, frame)
        functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [*frame.view.nodes(ast.FunctionDef)]
        for function in [*functions, *frame.view.nodes(ast.AsyncFunctionDef)]:
            if (
                function not in self.entered
                and frame.view.function(function) is None
                and frame.view.class_of(function) is None
            ):
                value = frame.values.get(function.name)
                if isinstance(value, Function) and value.node is function:
                    self._open_call(value)

    def _unused_class(self, node: ast.ClassDef, frame: Frame) -> None:
        cls = frame.values.get(node.name)
        if not isinstance(cls, Class) or cls.node is not node:
            return
        methods = [stmt for stmt in node.body if isinstance(stmt, _DEFS) and stmt not in self.entered]
        if not methods:
            return
        instance = self._open_instance(cls)
        for method in methods:
            bound = self._of_class(cls, method.name, instance) if isinstance(method, _DEFS) else None
            if method not in self.entered and isinstance(bound, Function) and bound.node is method:
                self._open_call(bound)

    def _open_instance(self, cls: Class) -> Instance:
        """An instance made with arguments that are open."""
        instance = Instance(cls, None, ())
        init = self._of_class(cls, "__init__", instance)
        if isinstance(init, Function) and init.view is self.state.view:
            self._open_call(init)
        return instance

    def _open_call(self, function: Function) -> None:
        """Walk into a function that nothing here calls. One that has a region of its own is called outside of one."""
        device = self.state.device
        region = OFF(device) if self._is_outermost(function) else OPEN(device)
        with self.state.inside(region), self.state.grad_mode(None):
            self.walk(function, (), {}, function.node, open_arguments=True)

    def _is_outermost(self, function: Function) -> bool:
        """Whether a function enters autocast or runs backward itself, and is not what a module's caller calls."""
        bound = function.bound
        if isinstance(bound, Instance) and bound.cls is not None and is_module(bound):
            return False
        return any(_enters_or_steps(node, function.view) for node in ast.walk(function.node))

    # --- functions

    def walk(
        self, function: Function, args: Arguments, keywords: Keywords, node: ast.AST, open_arguments: bool = False
    ) -> Value:
        """Walk into a function and give back what it returns."""
        if function.node in self.stack or self.depth >= DEEPEST or self.walks.get(function.node, 0) >= MOST_WALKS:
            self.entered.add(function.node)
            return UNKNOWN
        key = (
            function,
            args,
            tuple(keywords.items()),
            self.state.region,
            self.state.no_grad,
            self.state.version,
            open_arguments,
        )
        if key in self.memo:
            return self.memo[key]
        self.entered.add(function.node)
        self.walks[function.node] = self.walks.get(function.node, 0) + 1
        frame = Frame(function.view, function.node, function.frame)
        self._bind_parameters(function, frame, args, keywords, open_arguments)
        value = self._walked(function, frame)
        self.memo[key] = value
        return value

    def _walked(self, function: Function, frame: Frame) -> Value:
        self.depth += 1
        self.stack.append(function.node)
        loops, self.loops = self.loops, 0
        try:
            with self._decorated(function):
                if isinstance(function.node, ast.Lambda):
                    return self.value(function.node.body, frame)
                self.block(function.node.body, frame)
        finally:
            self.depth -= 1
            self.stack.pop()
            self.loops = loops
        if frame.yields:
            return Items(None, _joined(frame.yields))
        return _joined(frame.results) if frame.results else NONE

    @contextmanager
    def _decorated(self, function: Function) -> Iterator[None]:
        """Inside what the function's decorators enter."""
        with ExitStack() as stack:
            for node in getattr(function.node, "decorator_list", []):
                text = ast.unparse(node)
                if "custom_fwd" in text and "cast_inputs" in text:
                    stack.enter_context(self.state.inside(OFF(self.state.device)))
                    continue
                self._enter(self.value(node, function.frame), node, stack)
            yield

    def _bind_parameters(
        self, function: Function, frame: Frame, args: Arguments, keywords: Keywords, open_arguments: bool
    ) -> None:
        """Arguments by place and by name, then defaults; what is open stays so, but for numbers by default."""
        spec = function.node.args
        places = [*spec.posonlyargs, *spec.args]
        given = ((function.bound, *args)) if function.bound is not None else args
        for parameter in (*places, *spec.kwonlyargs):
            frame.values[parameter.arg] = self._annotated(parameter)
        self._bind_defaults(function, frame, open_arguments)
        for parameter, value in zip(places, given, strict=False):
            frame.values[parameter.arg] = value
        if spec.vararg is not None:
            frame.values[spec.vararg.arg] = Items(None) if open_arguments else Items(tuple(given[len(places) :]))
        names = {parameter.arg for parameter in (*places, *spec.kwonlyargs)}
        for name, value in keywords.items():
            if name in names:
                frame.values[name] = value
        if spec.kwarg is not None:
            rest = {name: value for name, value in keywords.items() if name not in names}
            frame.values[spec.kwarg.arg] = UNKNOWN if open_arguments else table(rest)

    def _annotated(self, parameter: ast.arg) -> Value:
        """What an argument that is not given is: unknown, but for the bucket of a communication hook."""
        if parameter.annotation is not None and ast.unparse(parameter.annotation).endswith("GradBucket"):
            return Instance(None, "bucket", ())
        return UNKNOWN

    def _bind_defaults(self, function: Function, frame: Frame, open_arguments: bool) -> None:
        spec = function.node.args
        places = [*spec.posonlyargs, *spec.args]
        defaults = list(zip(places[len(places) - len(spec.defaults) :], spec.defaults, strict=True))
        defaults += [(p, d) for p, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None]
        for parameter, default in defaults:
            value = self.value(default, function.frame)
            if not open_arguments or (isinstance(value, Const) and type(value.value) in (int, float)):
                frame.values[parameter.arg] = value

    # --- statements

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
                if known is UNKNOWN or (isinstance(known, Tensor) and known.tags & value.tags):
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
            self.note("setitem", target, (owner, place, value), frame, inplace=True)
            written = as_tensor(value)
            bounds = type(owner.bounds)() if written is None else owner.bounds.hull(written.bounds)
            self.rebind(target.value, replace(owner, bounds=bounds, tags=frozenset()), frame)
        elif isinstance(owner, Table) and isinstance(place, Const):
            self.rebind(target.value, table({**dict(owner.items), place.value: value}), frame)
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
        if items.items is not None and len(items.items) <= MOST_UNROLLED:
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
            return self.block(node.body, frame)

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
        frame = self._modules.get(self.state.view.path)
        if frame is not None and autocast.node is not None:
            self.note("region", autocast.node, (autocast,), frame)

    # --- threads and functions of autograd

    def in_thread(self, args: Arguments, node: ast.AST, frame: Frame) -> Value:
        """A function that runs in another thread, where no autocast of this one is on."""
        if not args:
            return UNKNOWN
        state = self.state
        region, before = state.region, state.products
        items = tuple(element(self.iterated(arg)) if _is_map(node) else arg for arg in args[1:])
        with state.inside(OFF(state.device)), state.grad_mode(False):
            value = self.apply(args[0], items, {}, node, frame)
        if region.enabled:
            self.note("thread", node, (Const(state.products > before),), frame)
        return Items(None, value) if _is_map(node) else UNKNOWN


def _enters_or_steps(node: ast.AST, view: FileView) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
        return True
    if view.dotted(node.func) not in AUTOCASTS:
        return False
    return view.constant(view.argument(node, None, "enabled")) is not False


def _is_map(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("map", "imap")


def _joined(values: Sequence[Value]) -> Value:
    found: Value | None = None
    for value in values:
        found = value if found is None else join(found, value)
    return UNKNOWN if found is None else found


def _globals_of(node: ast.AST) -> frozenset[str]:
    body = getattr(node, "body", None)
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or not isinstance(body, list):
        return frozenset()
    return frozenset(name for stmt in body if isinstance(stmt, (ast.Global, ast.Nonlocal)) for name in stmt.names)
