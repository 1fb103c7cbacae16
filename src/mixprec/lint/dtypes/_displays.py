"""Lists, dicts, comprehensions and what is taken out of them."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from mixprec.lint._defaults import default
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._joins import element, join, joined, table
from mixprec.lint.dtypes._names import Names
from mixprec.lint.dtypes._values import (
    NONE,
    UNKNOWN,
    Choice,
    Class,
    Const,
    Function,
    Instance,
    Items,
    Known,
    Table,
    Tensor,
    Value,
    options,
)

__all__ = ["Displays"]

_MOST_UNROLLED = 8


class Displays(Names):
    """Evaluates displays, comprehensions and subscripts."""

    def _items(self, node: ast.List | ast.Tuple | ast.Set, frame: Frame) -> Value:
        found: list[Value] = []
        for item in node.elts:
            value = self.value(item, frame)
            if isinstance(item, ast.Starred):
                if not isinstance(value, Items) or value.items is None:
                    rest = join(element(value), joined(found)) if isinstance(value, Items) and found else value
                    return Items(None, element(rest) if isinstance(rest, Items) else rest)
                found.extend(value.items)
            else:
                found.append(value)
        return Items(tuple(found))

    def _dict(self, node: ast.Dict, frame: Frame) -> Value:
        found: dict[Any, Value] = {}
        others: list[Value] = []
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, frame)
            name = self.value(key, frame) if key is not None else UNKNOWN
            if isinstance(name, Const) and isinstance(name.value, (str, int)):
                found[name.value] = value
            else:
                others.append(value)
        if not others:
            return table(found)
        return UNKNOWN if found else Table((), joined(others))

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Value:
        inner = Frame(frame.view, node, frame)
        sources = [
            self.value(generator.iter, frame if place == 0 else inner)
            for place, generator in enumerate(node.generators[:1])
        ]
        first = node.generators[0]
        source = self.iterated(sources[0])
        if (
            len(node.generators) == 1
            and not first.ifs
            and source.items is not None
            and len(source.items) <= _MOST_UNROLLED
        ):
            found = []
            for item in source.items:
                self.bind(first.target, item, inner)
                found.append(self.value(node.elt, inner))
            return Items(tuple(found))
        self._bind_generators(node.generators, source, inner)
        return Items(None, self.value(node.elt, inner))

    def _dict_comprehension(self, node: ast.DictComp, frame: Frame) -> Value:
        inner = Frame(frame.view, node, frame)
        self._bind_generators(node.generators, self.iterated(self.value(node.generators[0].iter, frame)), inner)
        return Table((), self.value(node.value, inner))

    def _bind_generators(self, generators: list[ast.comprehension], source: Items, inner: Frame) -> None:
        for place, generator in enumerate(generators):
            items = source if place == 0 else self.iterated(self.value(generator.iter, inner))
            self.bind(generator.target, element(items), inner)
            for test in generator.ifs:
                self.value(test, inner)

    def iterated(self, value: Value) -> Items:
        """What a loop over `value` goes through."""
        if isinstance(value, Items):
            return value
        if isinstance(value, Tensor):
            return Items(None, replace(value, rank0=None, shape=None))
        if isinstance(value, Instance) and value.children:
            return Items(value.children)
        if isinstance(value, Table):
            known = value.items or value.element is None
            return Items(tuple(Const(key) for key, _ in value.items)) if known else Items(None)
        if isinstance(value, Const) and isinstance(value.value, str):
            return Items(None)
        if isinstance(value, Choice):
            parts = [self.iterated(option) for option in value.values if option != NONE]
            joined = parts[0] if parts else Items(None)
            for part in parts[1:]:
                both = join(joined, part)
                joined = both if isinstance(both, Items) else Items(None)
            return joined
        return Items(None)

    def _text(self, node: ast.JoinedStr, frame: Frame) -> Value:
        for part in node.values:
            self.value(part, frame)
        return UNKNOWN

    def _named(self, node: ast.NamedExpr, frame: Frame) -> Value:
        value = self.value(node.value, frame)
        self.bind(node.target, value, frame)
        return value

    def _yield(self, node: ast.Yield | ast.YieldFrom, frame: Frame) -> Value:
        value = self.value(node.value, frame)
        self.state.effects += 1  # the caller's code runs here
        frame.yields.append(element(self.iterated(value)) if isinstance(node, ast.YieldFrom) else value)
        return UNKNOWN

    def _if(self, node: ast.IfExp, frame: Frame) -> Value:
        test = self.truth(node.test, frame)
        if test is not None:
            return self.value(node.body if test else node.orelse, frame)
        with self.state.open_branch():
            first = self.value(node.body, frame)
        with self.state.open_branch():
            second = self.value(node.orelse, frame)
        return join(first, second)

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        value = self.value(node.value, frame)
        place = UNKNOWN if isinstance(node.slice, ast.Slice) else self.value(node.slice, frame)
        if place is UNKNOWN and isinstance(value, Table) and _makers(value):
            usual = default(frame.view, node.slice)
            place = Const(usual) if isinstance(usual, str) else UNKNOWN
        return self.item(value, place, node)

    def item(self, value: Value, place: Value, node: ast.Subscript) -> Value:
        """`value[place]`."""
        if isinstance(value, Choice):
            return self._each(value, lambda option: self.item(option, place, node))
        if isinstance(value, Tensor):
            return replace(value, rank0=False if isinstance(node.slice, ast.Slice) else None, shape=None)
        if isinstance(value, Instance) and value.children:
            found = self.item(Items(value.children), place, node)
            return element(Items(value.children)) if found is UNKNOWN else found
        if isinstance(value, Items):
            return _item_of(value, place, node)
        if isinstance(value, Table):
            return _entry_of(value, place)
        return UNKNOWN


def _makers(entries: Table) -> bool:
    """Whether a dict holds classes and functions by name: what an option picks by default is what scripts run with."""
    return all(isinstance(value, (Class, Function, Known)) for _, value in entries.items)


def _item_of(items: Items, place: Value, node: ast.Subscript) -> Value:
    if isinstance(node.slice, ast.Slice):
        return _slice_of(items, node.slice)
    if items.items is not None and isinstance(place, Const) and isinstance(place.value, int):
        return items.items[place.value] if -len(items.items) <= place.value < len(items.items) else UNKNOWN
    return element(items)


def _slice_of(items: Items, part: ast.Slice) -> Value:
    ends = [part.lower, part.upper, part.step]
    if items.items is None or not all(end is None or isinstance(end, ast.Constant) for end in ends):
        return Items(None, element(items))
    places = [end.value if isinstance(end, ast.Constant) and isinstance(end.value, int) else None for end in ends]
    return Items(items.items[slice(*places)]) if places[2] != 0 else UNKNOWN


def _entry_of(entries: Table, place: Value) -> Value:
    if not entries.items and entries.element is not None:
        return entries.element
    found: Value | None = None
    if not all(isinstance(option, Const) for option in options(place)):
        return UNKNOWN
    for option in options(place):
        entry = entries.get(option.value) if isinstance(option, Const) else None
        if entry is None:
            return UNKNOWN
        found = entry if found is None else join(found, entry)
    return UNKNOWN if found is None else found
