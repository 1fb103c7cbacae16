"""What a name or an attribute is worth on a path: looked up in frames, the module, classes, other modules."""

from __future__ import annotations

import abc
import ast
import builtins
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from mixprec.lint._constants import DTYPES, Dtype
from mixprec.lint.protocol._facts import Facts, facts
from mixprec.lint.protocol._last_name import is_super
from mixprec.lint.protocol._machine import Machine
from mixprec.lint.protocol._path import Path
from mixprec.lint.protocol._values import (
    Class,
    Const,
    Function,
    Instance,
    Known,
    Mark,
    Opaque,
    Scaler,
    Value,
)

if TYPE_CHECKING:
    from mixprec.lint._view import FileView
from mixprec.lint.protocol._taint import is_number, short

__all__ = ["Lookup"]

_SAME = {
    "contiguous",
    "cpu",
    "cuda",
    "data",
    "double",
    "float",
    "half",
    "mean",
    "requires_grad_",
    "reshape",
    "squeeze",
    "sum",
    "to",
    "type",
    "view",
}
"""Methods whose result is the same tensor as far as its scale and its graph go."""
_COUNTERS = frozenset({"cur_iter", "epoch", "global_step", "it", "iter", "iteration", "num_updates", "step"})
_FOLLOWED = re.compile(
    r"scal|optim|amp|autocast|train|step|backward|clip|grad|fit|epoch|loop|engine|update|precision", re.IGNORECASE
)


class Lookup(abc.ABC):
    """Looks names up. `view` is the file whose findings are wanted."""

    def __init__(self, view: FileView, machine: Machine) -> None:
        self.view = view
        self.machine = machine
        self.views: dict[int, FileView] = {0: view}
        self.globals: dict[tuple[int, str], Value] = {}
        self.looking_up: set[tuple[int, str]] = set()
        self._texts: dict[ast.AST, str] = {}

    def file(self, path: Path) -> FileView:
        """The file whose code runs on `path`."""
        return self.views[path.chain[-1]]

    def facts(self, path: Path) -> Facts:
        """The facts of the file whose code runs on `path`."""
        return self.file(path).memo(facts)

    def place(self, path: Path) -> str:
        """Which call and iteration runs: what is made there is another thing each time."""
        where = self.machine.where
        return f"{path.token}^{hash(where) % 100_003}" if where else path.token

    def text(self, node: ast.AST, path: Path) -> str:
        """The source of `node` on one line."""
        if node not in self._texts:
            self._texts[node] = " ".join(self.file(path).text(node).split())
        return self._texts[node]

    def opaque(self, value: Value) -> Opaque:
        """`value` seen as something whose taints count."""
        return value if isinstance(value, Opaque) else Opaque(value.key)

    @abc.abstractmethod
    def value(self, node: ast.expr, path: Path) -> Value:
        """What `node` is worth on `path`."""

    def _name(self, node: ast.Name, path: Path) -> Value:
        for frame in path.chain:
            value = path.env.get((frame, node.id))
            if value is not None:
                return self._counted(value, node.id, path)
        return self._counted(self.global_value(path.chain[-1], node.id), node.id, path)

    def _counted(self, value: Value, name: str, path: Path) -> Value:
        """A number that is counted up is another one in each iteration."""
        counted = isinstance(value, Const) and path.loops and name in self.facts(path).counters
        if not counted or not is_number(value):
            return value
        key = f"{name}{self.place(path)}"
        return Opaque(key, volatile=True, bases=frozenset((key,)))

    def global_value(self, frame: int, name: str) -> Value:
        """What `name` is at module level, where the module itself has not been walked."""
        place = (frame, name)
        if place in self.globals:
            return self.globals[place]
        if place in self.looking_up:
            return Opaque(f"g:{name}")
        self.looking_up.add(place)
        try:
            self.globals[place] = self._global(frame, name)
        finally:
            self.looking_up.discard(place)
        return self.globals[place]

    def _global(self, frame: int, name: str) -> Value:
        view = self.views[frame]
        known = view.memo(facts)
        defined = [node for node in known.functions.get(name, ()) if view.parent(node) is view.tree]
        if defined:
            return Function(defined[-1], view, (frame,))
        if name in known.classes:
            return Class(known.classes[name], view, (frame,))
        if name in view.imports:
            return self._imported(view, view.imports[name])
        assigned = view.assignments(view.tree).get(name, ())
        if len(assigned) == 1 and assigned[0] is not None:
            return self.quiet(assigned[0], Path(chain=(frame,)))
        return Known(name) if not assigned and hasattr(builtins, name) else Opaque(f"g:{name}")

    def _imported(self, view: FileView, dotted: str) -> Value:
        if dotted.startswith("torch.") and dotted[6:] in DTYPES:
            return Const(Dtype(DTYPES[dotted[6:]]))
        found = self.elsewhere(view, dotted)
        return Known(dotted) if found is None else found

    def elsewhere(self, view: FileView, dotted: str) -> Value | None:
        """A function or class of another module of the project."""
        if not _FOLLOWED.search(dotted.rpartition(".")[2]):
            return None
        found = view.project.definition(dotted, view.path)
        if found is None:
            return None
        module, name = found
        if module.path == self.view.path:
            return None
        frame = next((number for number, known in self.views.items() if known is module), None)
        if frame is None:
            frame = -len(self.views)
            self.views[frame] = module
        value = self.global_value(frame, name)
        return value if isinstance(value, (Function, Class)) else None

    def quiet(self, node: ast.expr, path: Path) -> Value:
        """What `node` is worth, without anything happening."""
        machine, self.machine = self.machine, Machine(type(self.machine.ledger)())
        try:
            return self.value(node, path)
        finally:
            self.machine = machine

    def _named(self, node: ast.NamedExpr, path: Path) -> Value:
        value = self.value(node.value, path)
        path.env[(path.chain[0], node.target.id)] = value
        return value

    def _attribute(self, node: ast.Attribute, path: Path) -> Value:
        if is_super(node.value):
            return self._of_super(node, path)
        return self.attribute(self.value(node.value, path), node.attr, path)

    def _of_super(self, node: ast.Attribute, path: Path) -> Value:
        """`super().name`: what the bases of the class around it have, as far as they are here."""
        owner, me = self.file(path).class_of(node), self._own_object(path)
        bases = self.bases(me.cls) if me is not None else []
        place = next((place for place, cls in enumerate(bases) if cls.node is owner), None)
        for cls in bases[place + 1 :] if place is not None else ():
            for found in cls.node.body:
                if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)) and found.name == node.attr:
                    return Function(found, cls.view, cls.chain, me)
        return Opaque(f"super.{node.attr}{self.place(path)}", volatile=bool(path.loops))

    def _own_object(self, path: Path) -> Instance | None:
        for frame in path.chain:
            value = path.env.get((frame, "self"))
            if value is not None:
                return value if isinstance(value, Instance) else None
        return None

    def attribute(self, base: Value, attr: str, path: Path) -> Value:
        """`base.attr`."""
        if isinstance(base, Known):
            dotted = f"{base.name}.{attr}"
            if base.name == "torch" and attr in DTYPES:
                return Const(Dtype(DTYPES[attr]))
            return self.elsewhere(self.file(path), dotted) or Known(dotted)
        stored = path.heap.get((base.key, attr))
        if stored is not None:
            return self._counted(stored, attr, path)
        if isinstance(base, Instance):
            return self.member(base, attr, path)
        if isinstance(base, Scaler):
            if attr in ("_scale", "_init_scale"):
                return Opaque(f"{base.key}.scale", True, scale=self.mark(path, base))
            return Opaque(f"{base.key}.{attr}", volatile=True)
        return self._attribute_of(self.opaque(base), attr, path)

    def _attribute_of(self, base: Opaque, attr: str, path: Path) -> Opaque:
        moving = path.loops and (attr in self.facts(path).counters or attr in _COUNTERS)
        key = short(f"{base.key}.{attr}{self.place(path) if moving else ''}")
        if attr in _SAME:
            return replace(base, key=key, cut="data" if attr == "data" and base.mark is None else base.cut)
        volatile = base.volatile or bool(moving)
        return Opaque(key, volatile, gradient=attr == "grad" or base.gradient, outside=base.outside)

    def mark(self, path: Path, scaler: Scaler) -> Mark:
        """The scale of `scaler` as it stands."""
        protocol = path.scalers.get(scaler.key)
        return Mark(scaler.key, 0 if protocol is None else protocol.version)

    def member(self, instance: Instance, attr: str, path: Path) -> Value:
        """An attribute or method of an object of the project, looked up in its class and the bases that are here."""
        for cls in self.bases(instance.cls):
            for node in cls.node.body:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == attr:
                    return Function(node, cls.view, cls.chain, instance)
        value = None if instance.made else self._assigned_member(instance, attr)
        if value is not None:
            path.heap[(instance.key, attr)] = value
            return value
        moving = path.loops and (attr in self.facts(path).counters or attr in _COUNTERS)
        return Opaque(f"{instance.key}.{attr}{self.place(path) if moving else ''}", volatile=bool(moving))

    def bases(self, cls: Class) -> list[Class]:
        """`cls` and its bases as far as they are in the project, in order of lookup."""
        found, queue = [cls], [*cls.node.bases]
        view = cls.view
        while queue and len(found) < 8:
            base = queue.pop(0)
            value = self.quiet(base, Path(chain=(cls.chain[-1],)))
            if isinstance(value, Class) and value not in found:
                found.append(value)
                view = value.view
                queue += value.node.bases if view is cls.view else []
        return found

    def _assigned_member(self, instance: Instance, attr: str) -> Value | None:
        """What the class's methods put into `self.attr`, where they all put the same."""
        found = [
            (value, cls, cls.view.function(value))
            for cls in self.bases(instance.cls)
            for value in cls.view.memo(facts).members.get(cls.node, {}).get(attr, ())
        ]
        if len(found) != 1:
            return None
        node_value, cls, function = found[0]
        place = (-1, f"{instance.key}.{attr}")
        if place in self.looking_up:
            return None
        self.looking_up.add(place)
        try:
            path = Path(chain=(cls.chain[-1],))
            frame = self.new_frame()
            path.chain = (frame, cls.chain[-1])
            self.bind_outside(function, path, instance)
            value = self.quiet(node_value, path)
            return None if isinstance(value, Const) and value.value is None else value
        finally:
            self.looking_up.discard(place)

    @abc.abstractmethod
    def new_frame(self) -> int:
        """A number that no other frame has."""

    @abc.abstractmethod
    def bind_outside(self, function: ast.AST | None, path: Path, instance: Instance | None) -> None:
        """Bind the parameters of `function` to what only a caller knows."""
