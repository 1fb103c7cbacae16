"""Walks through statements in the order in which they run; where the run decides, both ways are walked and joined."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from mixprec.lint._names import AUTOCASTS
from mixprec.lint._view import FileView
from mixprec.lint.dtypes._call import dtypes_of
from mixprec.lint.dtypes._dtypes import FLOATS, Dtypes
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._given import Given
from mixprec.lint.dtypes._joins import element, joined, table
from mixprec.lint.dtypes._layers import is_module
from mixprec.lint.dtypes._region import OFF, OPEN
from mixprec.lint.dtypes._statements import Statements
from mixprec.lint.dtypes._values import (
    NONE,
    UNKNOWN,
    Class,
    Const,
    Function,
    Instance,
    Items,
    Tensor,
    Value,
    settled,
)

__all__ = ["Walker"]

DEEPEST = 14
"""Functions inside each other; deeper ones are not walked."""
MOST_WALKS = 40
"""Of one function; after that its result is unknown."""
MOST_MODULES = 12
"""Files of the project that one walk looks into; what is beyond them is unknown."""

_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Walker(Statements):
    """Walks one file, with what the script leaves open about devices taken as `device`."""

    def __init__(self, view: FileView, device: str) -> None:
        super().__init__(view, device)
        self.depth = 0
        self.walks: dict[ast.AST, int] = {}
        self.stack: list[tuple[ast.AST, Instance | None]] = []
        self.entered: set[ast.AST] = set()
        self.memo: dict[Any, tuple[Value, int]] = {}

    # --- entries

    def module_frame(self, view: FileView) -> Frame:
        """The names of a file after its statements ran; only once per file, and of few files."""
        if view.path not in self.modules and len(self.modules) >= MOST_MODULES:
            return Frame(view, view.tree)
        if view.path not in self.modules:
            frame = self.modules[view.path] = Frame(view, view.tree)
            self._builtin_names(frame, view is self.state.view)
            with self.state.inside(OFF(self.state.device)), self.state.grad_mode(False):
                self.block(view.tree.body, frame)
        return self.modules[view.path]

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
            self.walk(function, Given(function.node, function.frame), open_arguments=True)

    def _is_outermost(self, function: Function) -> bool:
        """Whether a function enters autocast or runs backward itself, and is not what a module's caller calls."""
        bound = function.bound
        if isinstance(bound, Instance) and bound.cls is not None and is_module(bound):
            return False
        return any(_enters_or_steps(node, function.view) for node in ast.walk(function.node))

    # --- functions

    def walk(self, function: Function, given: Given, open_arguments: bool = False) -> Value:
        """Walk into a function and give back what it returns."""
        if self._circles(function, given) or self.depth >= DEEPEST or self.walks.get(function.node, 0) >= MOST_WALKS:
            self.entered.add(function.node)
            self.state.effects += 1
            return UNKNOWN
        state = self.state
        keywords = {name: settled(value) for name, value in given.keywords.items()}
        given = replace(given, args=tuple(map(settled, given.args)), keywords=keywords)
        arguments = (given.args, tuple(given.keywords.items()), open_arguments)
        key = (function, arguments, state.region, state.no_grad, state.version)
        if key in self.memo:
            value, effects = self.memo[key]
            state.effects += effects
            return value
        self.entered.add(function.node)
        self.walks[function.node] = self.walks.get(function.node, 0) + 1
        given = self._cast_inputs(function, given)
        frame = Frame(function.view, function.node, function.frame)
        self._bind_parameters(function, frame, given, open_arguments)
        before = state.effects
        with self._leading(given, function):
            value = self._walked(function, frame, given.args[0] if given.args else None)
        self.memo[key] = value, state.effects - before
        return value

    def _circles(self, function: Function, given: Given) -> bool:
        """Whether a function is called by itself; with one module after the other it goes down a tree, which ends."""
        first = given.args[0] if given.args else None
        if not isinstance(first, Instance) or not is_module(first):
            return any(node is function.node for node, _ in self.stack)
        return any(node is function.node and (module is None or module is first) for node, module in self.stack)

    def _walked(self, function: Function, frame: Frame, first: Value | None) -> Value:
        self.depth += 1
        module = first if isinstance(first, Instance) and is_module(first) else None
        self.stack.append((function.node, module))
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
            return Items(None, joined(frame.yields))
        return joined(frame.results) if frame.results else NONE

    @contextmanager
    def _leading(self, given: Given, function: Function) -> Iterator[None]:
        """Inside a call, remembering where it left the linted file and forgetting it where it comes back."""
        state, before = self.state, self.state.site
        if function.view is state.view:
            state.site = None
        elif given.frame.view is state.view:
            state.site = given.node
        try:
            yield
        finally:
            state.site = before

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

    def _cast_inputs(self, function: Function, given: Given) -> Given:
        """What `custom_fwd(cast_inputs=…)` makes of the arguments: inside a region it converts tensors first."""
        for node in getattr(function.node, "decorator_list", []):
            asked = function.view.argument(node, None, "cast_inputs") if isinstance(node, ast.Call) else None
            if asked is None or "custom_fwd" not in ast.unparse(node) or self.state.region.enabled is False:
                continue
            dtypes = dtypes_of(self.value(asked, function.frame)) if self.state.region.enabled else None
            return given.with_args(*(_converted(value, dtypes) for value in given.args), **given.keywords)
        return given

    def _bind_parameters(self, function: Function, frame: Frame, given: Given, open_arguments: bool) -> None:
        """Arguments by place and by name, then defaults; what is open stays so, but for numbers by default."""
        spec = function.node.args
        places = [*spec.posonlyargs, *spec.args]
        values = (function.bound, *given.args) if function.bound is not None else given.args
        for parameter in (*places, *spec.kwonlyargs):
            frame.values[parameter.arg] = self._annotated(parameter)
        self._bind_defaults(function, frame, open_arguments)
        for parameter, value in zip(places, values, strict=False):
            frame.values[parameter.arg] = value
        if spec.vararg is not None:
            frame.values[spec.vararg.arg] = Items(None) if open_arguments else Items(tuple(values[len(places) :]))
        names = {parameter.arg for parameter in (*places, *spec.kwonlyargs)}
        frame.values |= {name: value for name, value in given.keywords.items() if name in names}
        if spec.kwarg is not None:
            rest = {name: value for name, value in given.keywords.items() if name not in names}
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

    # --- threads and functions of autograd

    def in_thread(self, given: Given) -> Value:
        """A function, the first argument, that runs in another thread, where no autocast of this one is on."""
        state, maps = self.state, _is_map(given.node)
        region, before = state.region, state.products
        items = tuple(element(self.iterated(arg)) if maps else arg for arg in given.args[1:])
        with state.inside(OFF(state.device)), state.grad_mode(False):
            value = self.apply(given.get(0), given.with_args(*items))
        if region.enabled:
            self.note("thread", given.with_args(Const(state.products > before)))
        return Items(None, value) if maps else UNKNOWN


def _converted(value: Value, dtypes: Dtypes) -> Value:
    """A floating-point tensor in another dtype; anything else as it is."""
    if not isinstance(value, Tensor) or (value.dtypes is not None and not value.dtypes & FLOATS):
        return value
    return replace(value, dtypes=dtypes, why="")


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
