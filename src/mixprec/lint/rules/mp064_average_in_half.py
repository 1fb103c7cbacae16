"""A running average in 16 bits stands still when what it adds is below its last bit."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from mixprec.lint._defaults import usual
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import FORMATS, Event, Hit, Tensor, Trace, Value, held, number_of, number_words, spoken
from mixprec.records import Finding, Severity


class AverageInHalf(Rule):
    """`ema.mul_(0.999).add_(p, alpha=0.001)` or `ema.lerp_(p, 0.001)` where `ema` has 16 bits."""

    code = "MP064"
    name = "average-in-half"
    severity = Severity.WARNING
    title = "An exponential moving average is kept in 16 bits, with a decay that its format cannot resolve."
    why = (
        "With a decay of 0.999 a step moves the average by at most 0.1 %, and bfloat16 steps are 0.8 %: it never moves."
    )
    bad = """\
import torch


@torch.no_grad()
def update(averages, model):
    for ema, p in zip(averages, model.parameters()):
        ema = ema.bfloat16()
        ema.mul_(0.999).add_(p, alpha=0.001)
"""
    good = """\
import torch


@torch.no_grad()
def update(averages, model):
    for ema, p in zip(averages, model.parameters()):
        ema = ema.float()
        ema.mul_(0.999).add_(p, alpha=0.001)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per update."""
        for hit in held(view, lambda trace: _updates(trace, view)):
            yield self.finding(view, hit.node, hit.message, fix=self.fix("Keep the average in float32."))


def _updates(trace: Trace, view: FileView) -> Iterator[Hit]:
    factors = {event.node: _factor(event) for event in trace.of("mul")}
    for event in trace.of("lerp"):
        weight = event.keywords.get("weight", event.value(2))
        yield from _judged(event, None if weight is None else _number(weight, event.node, 1, "weight", view))
    for event in trace.of("mul"):
        factor = event.value(1) if event.inplace else None
        decay = None if factor is None else _number(factor, event.node, 0, "other", view)
        if decay is not None and 0.5 < decay < 1 and _is_added_to(event.node, view):
            yield from _judged(event, 1 - decay)
    for event in trace.of("add"):
        yield from _judged(event, _share_of_sum(event.node, factors))
    summed = {event.node: event for event in trace.of("add")}
    for event in trace.of("copy"):
        source = event.node.args[0] if isinstance(event.node, ast.Call) and event.node.args else None
        made = summed.get(source) if source is not None else None
        if (
            made is not None
            and not (isinstance(made.result, Tensor) and made.result.low)
            and _holds(source, event.node)
        ):
            yield from _judged(event, _share_of_sum(made.node, factors))


def _number(value: Value, node: ast.AST, place: int, keyword: str, view: FileView) -> float | None:
    """The number that an argument of a method is, or is by default."""
    known = number_of(value)
    given = view.argument(node, place, keyword) if isinstance(node, ast.Call) and view.parent(node) else None
    if known is not None or given is None:
        return known
    number = usual(view, given)
    return float(number) if isinstance(number, (int, float)) and not isinstance(number, bool) else None


def _judged(event: Event, share: float | None) -> Iterator[Hit]:
    tensor = event.result
    if share is None or not isinstance(tensor, Tensor) or not tensor.low or share <= 0:
        return
    if any(share < FORMATS[name].eps for name in tensor.dtypes or ()):
        yield Hit(
            event.node, f"Each step adds {number_words(share)} of the new value, less than {spoken(tensor)} resolves."
        )


def _is_added_to(node: ast.AST, view: FileView) -> bool:
    """`x.mul_(decay).add_(...)`."""
    parent = view.parent(node)
    return isinstance(parent, ast.Attribute) and parent.attr in ("add_", "addcmul_")


def _share_of_sum(node: ast.AST, factors: Mapping[ast.AST, float | None]) -> float | None:
    """What `decay * average + (1 - decay) * value` takes from the value; `factors` are those of the products."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return None
    known = [factor for side in (node.left, node.right) if (factor := factors.get(side)) is not None]
    if len(known) == 2 and abs(sum(known) - 1) < 1e-9 and min(known) > 0:
        return min(known)
    return None


def _holds(total: ast.AST | None, copy: ast.AST) -> bool:
    """`average.copy_(decay * average + ...)`: whether what is written is made of what was there."""
    target = copy.func.value if isinstance(copy, ast.Call) and isinstance(copy.func, ast.Attribute) else None
    sides = [total.left, total.right] if isinstance(total, ast.BinOp) else []
    parts = [part for side in sides if isinstance(side, ast.BinOp) for part in (side.left, side.right)]
    return target is not None and any(ast.dump(part) == ast.dump(target) for part in parts)


def _factor(event: Event) -> float | None:
    """The number that a tensor is multiplied by."""
    first, second = event.number(0), event.number(1)
    return second if first is None else first
