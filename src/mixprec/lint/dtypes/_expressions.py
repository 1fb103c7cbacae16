"""What an expression is worth. Names, attributes, arithmetic and comparisons are here; calls are in `_calls`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mixprec._policy import CastRule
from mixprec.lint._constants import UNKNOWN as OPEN_CONSTANT
from mixprec.lint._constants import evaluate
from mixprec.lint._view import FileView
from mixprec.lint.dtypes._bounds import Bounds
from mixprec.lint.dtypes._call import Call, as_tensor
from mixprec.lint.dtypes._comparing import compared, truth_of
from mixprec.lint.dtypes._displays import Displays
from mixprec.lint.dtypes._dtypes import FLOAT32, INTEGERS, one
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._given import Given
from mixprec.lint.dtypes._graph import with_graph
from mixprec.lint.dtypes._joins import element, join
from mixprec.lint.dtypes._region import rule_of
from mixprec.lint.dtypes._shift import subtracts_maximum
from mixprec.lint.dtypes._state import Event
from mixprec.lint.dtypes._values import (
    NONE,
    NUMBER,
    UNKNOWN,
    Const,
    Function,
    Instance,
    Items,
    Symbol,
    Tag,
    Tensor,
    Value,
    number_of,
)
from mixprec.lint.dtypes.ops import OPS, operate

__all__ = ["Expressions", "is_affected"]

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.MatMult: "matmul",
    ast.Mod: "remainder",
    ast.Mult: "mul",
    ast.Pow: "pow",
    ast.Sub: "sub",
}


class Expressions(Displays):
    """Evaluates expressions in a frame."""

    def __init__(self, view: FileView, device: str) -> None:
        super().__init__(view, device)
        self._table: dict[type[ast.expr], Callable[[Any, Frame], Value]] = {
            ast.Attribute: self._attribute,
            ast.Await: lambda node, frame: self.value(node.value, frame),
            ast.BinOp: self._binary,
            ast.BoolOp: self._boolean,
            ast.Call: self.call,
            ast.Compare: self._compare,
            ast.Constant: lambda node, frame: Const(node.value),
            ast.Dict: self._dict,
            ast.DictComp: self._dict_comprehension,
            ast.FormattedValue: lambda node, frame: self.value(node.value, frame),
            ast.GeneratorExp: self._comprehension,
            ast.IfExp: self._if,
            ast.JoinedStr: self._text,
            ast.Lambda: lambda node, frame: Function(node, frame.view, frame),
            ast.List: self._items,
            ast.ListComp: self._comprehension,
            ast.Name: self._name,
            ast.NamedExpr: self._named,
            ast.Set: self._items,
            ast.SetComp: self._comprehension,
            ast.Starred: lambda node, frame: self.value(node.value, frame),
            ast.Subscript: self._subscript,
            ast.Tuple: self._items,
            ast.UnaryOp: self._unary,
            ast.Yield: self._yield,
            ast.YieldFrom: self._yield,
        }

    def value(self, node: ast.expr | None, frame: Frame) -> Value:
        """The value of an expression."""
        if node is None:
            return NONE
        evaluate_node = self._table.get(type(node))
        return UNKNOWN if evaluate_node is None else evaluate_node(node, frame)

    def _binary(self, node: ast.BinOp, frame: Frame) -> Value:
        first, second = self.value(node.left, frame), self.value(node.right, frame)
        value = self.combine(node.op, first, second, node, frame)
        if isinstance(value, Tensor) and isinstance(node.op, ast.Sub) and subtracts_maximum(node, frame.view):
            return replace(value, bounds=Bounds(high=0.0))
        if isinstance(value, Tensor) and isinstance(first, Tensor) and _squares(node):
            return replace(value, bounds=first.bounds.squared())
        return value

    def combine(
        self, operator: ast.operator, first: Value, second: Value, node: ast.AST, frame: Frame, inplace: bool = False
    ) -> Value:
        """`first operator second`."""
        name = _OPERATORS.get(type(operator))
        if name is not None and (_may_be_tensor(first) or _may_be_tensor(second) or name == "matmul"):
            return self.op(Call(name, node, self.state.region, (first, second), inplace=inplace), frame)
        if isinstance(first, Const) and isinstance(second, Const):
            return _constant(operator, first, second)
        if isinstance(first, Items) and isinstance(second, Items) and isinstance(operator, ast.Add):
            if first.items is not None and second.items is not None:
                return Items((*first.items, *second.items))
            return Items(None, join(element(first), element(second)))
        if isinstance(first, Items) and isinstance(operator, ast.Mult) and not isinstance(second, (Items, Tensor)):
            return Items(None, element(first))
        if Symbol.LEAST in (first, second) and isinstance(operator, (ast.Mult, ast.Div)):
            return NUMBER
        numeric = all(value is NUMBER or number_of(value) is not None for value in (first, second))
        return NUMBER if numeric else UNKNOWN

    def op(self, call: Call, frame: Frame, module: Instance | None = None) -> Value:
        """Run an op on values and note that it ran."""
        self.state.step()
        value = with_graph(call, operate(call), self.state.no_grad)
        if self.state.region.enabled is False and call.name in _PRODUCTS:
            self.state.products += 1
            self.state.trained_products += any(Tag.PARAMETER in t.tags for t in call.operands() if t is not None)
        self.state.effects += is_affected(call)
        given = Given(call.node, frame, call.args, call.keywords)
        self.note(call.name, given, value, inplace=call.inplace, module=module)
        return value

    def note(
        self,
        op: str,
        given: Given,
        result: Value | None = None,
        *,
        inplace: bool = False,
        module: Instance | None = None,
    ) -> None:
        """Note an event."""
        state = self.state
        event = Event(
            op,
            given.node,
            state.region,
            given.args,
            given.keywords,
            result,
            inplace,
            state.no_grad,
            state.backward,
            module,
        )
        state.emit(event, given.frame.view)

    def _unary(self, node: ast.UnaryOp, frame: Frame) -> Value:
        value = self.value(node.operand, frame)
        if isinstance(node.op, ast.Not):
            known = truth_of(value)
            return UNKNOWN if known is None else Const(not known)
        if isinstance(node.op, ast.Invert):
            return value if isinstance(value, Tensor) else UNKNOWN
        if isinstance(value, Tensor):
            return (
                value
                if isinstance(node.op, ast.UAdd)
                else self.op(Call("neg", node, self.state.region, (value,)), frame)
            )
        if isinstance(value, Const) and isinstance(value.value, (int, float)):
            return Const(-value.value) if isinstance(node.op, ast.USub) else value
        return NUMBER if value is NUMBER else UNKNOWN

    def _boolean(self, node: ast.BoolOp, frame: Frame) -> Value:
        """`and` and `or`: the first value that decides, joined with those before it that may."""
        decides = isinstance(node.op, ast.Or)
        left: Value | None = None
        for part in node.values:
            value = self.value(part, frame)
            known = truth_of(value)
            if known is decides:
                return value if left is None else join(left, value)
            if known is None or part is node.values[-1]:
                left = value if left is None else join(left, value)
        return UNKNOWN if left is None else left

    def _compare(self, node: ast.Compare, frame: Frame) -> Value:
        values = [self.value(part, frame) for part in (node.left, *node.comparators)]
        if any(isinstance(value, Tensor) for value in values) and not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return Tensor(one("bool"), Bounds(0.0, 1.0))
        return compared(node.ops[0], values[0], values[1]) if len(node.ops) == 1 else UNKNOWN


_PLAIN = FLOAT32 | INTEGERS | {"bool"}
_PRODUCTS = frozenset({"addmm", "bmm", "conv1d", "conv2d", "conv3d", "einsum", "linear", "matmul", "mm"})


def _may_be_tensor(value: Value) -> bool:
    return as_tensor(value) is not None


def _constant(operator: ast.operator, first: Const, second: Const) -> Value:
    expression = ast.BinOp(ast.Constant(first.value), operator, ast.Constant(second.value))
    found = evaluate(expression, lambda node: OPEN_CONSTANT)
    numeric = number_of(first) is not None and number_of(second) is not None
    return Const(found) if found is not OPEN_CONSTANT else (NUMBER if numeric else UNKNOWN)


def _squares(node: ast.BinOp) -> bool:
    """`x * x`."""
    named = isinstance(node.op, ast.Mult) and isinstance(node.left, (ast.Name, ast.Attribute))
    return named and ast.unparse(node.left) == ast.unparse(node.right)


def is_affected(call: Call) -> bool:
    """Whether autocast may change what a call does: it casts, or what it is given is not known to need no cast."""
    rule = rule_of(call.name, call.region.device)
    if rule is CastRule.LOW or call.name not in OPS:
        return True
    if rule is CastRule.KEEP:
        return False
    return any(tensor is None or tensor.dtypes is None or not tensor.dtypes <= _PLAIN for tensor in call.operands())
