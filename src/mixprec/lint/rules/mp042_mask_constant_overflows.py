"""Added, multiplied, chosen or assigned, a number that float16 cannot hold becomes infinity without a word."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import FORMATS, Event, Hit, Tag, Tensor, Trace, Value, held, number_of, number_words, spoken
from mixprec.records import Finding, Severity

ADDING = ("add", "sub", "where")
CASTING = ("half", "bfloat16", "to", "type", "type_as")


class MaskConstantOverflows(Rule):
    """`scores + mask * -1e9`, `torch.where(mask, scores, -1e9)`, `scores[i] = 1e9` where `scores` is float16."""

    code = "MP042"
    name = "mask-constant-overflows"
    severity = Severity.WARNING
    title = "A constant beyond the range of a 16-bit tensor becomes infinity in silence."
    why = (
        "Added, chosen by where or assigned, a number beyond 65504 becomes infinite in float16 without an error. A row "
        "that is masked whole, or an infinity that meets another, then gives NaN."
    )
    bad = """\
import torch


def attend(scores, mask):
    with torch.autocast("cuda", dtype=torch.float16):
        weights = scores @ scores.transpose(-2, -1)
        return torch.where(mask, weights, -1e9).softmax(-1)
"""
    good = """\
import torch


def attend(scores, mask):
    with torch.autocast("cuda", dtype=torch.float16):
        weights = scores @ scores.transpose(-2, -1)
        return torch.where(mask, weights, torch.finfo(weights.dtype).min).softmax(-1)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/docs/stable/type_info.html#torch.torch.finfo",
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per expression."""
        for hit in held(view, _overflows):
            advice = "Take the constant from torch.finfo(x.dtype), x being the tensor, or compute this in float32."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _overflows(trace: Trace) -> Iterator[Hit]:
    for event in trace.of(*ADDING, *CASTING, "mul", "setitem", "tensor"):
        tensor, number = _tensor(event), _number(event)
        if tensor is not None and tensor.low and number is not None and _is_beyond(number, tensor):
            yield Hit(event.node, f"{number_words(number)} becomes infinite: the tensor is {spoken(tensor)} here.")


def _tensor(event: Event) -> Tensor | None:
    """What receives the number."""
    if event.op == "setitem":
        value: Value | None = event.args[0]
    else:
        value = event.result
    return value if isinstance(value, Tensor) else None


def _number(event: Event) -> float | None:
    if event.op == "setitem":
        return _constant(event.args[2])
    if event.op == "tensor":
        return _constant(event.args[0]) if event.args else None
    if event.op in CASTING:
        filled = _held(event.args[0]) if event.args else None
        return _mask_factor(event.node) if filled is None else filled
    numbers = [_constant(value) for value in event.args[event.op == "where" :]]
    known = [number for number in numbers if number is not None]
    if event.op == "mul":
        return next((number for number in known if number < 0), None)  # what an additive mask is multiplied by
    return known[0] if len(known) == 1 else None


def _mask_factor(node: ast.AST) -> float | None:
    """The number in `((1 - mask) * number).to(dtype)` and its kin: what is masked gets it."""
    inner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.Mult):
        return None
    for mask, factor in ((inner.left, inner.right), (inner.right, inner.left)):
        if _turns(mask) and isinstance(factor, ast.UnaryOp) and isinstance(factor.op, ast.USub):
            number = factor.operand.value if isinstance(factor.operand, ast.Constant) else None
            return -float(number) if isinstance(number, (int, float)) else None
    return None


def _turns(node: ast.expr) -> bool:
    """Whether this is `1 - mask` or `~mask`, perhaps converted."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant) and node.left.value == 1
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)


def _constant(value: Value) -> float | None:
    number = number_of(value)
    return number if number is not None else _filled(value)


def _filled(value: Value) -> float | None:
    """The number that a tensor holds in every element."""
    if isinstance(value, Tensor) and value.bounds.low == value.bounds.high:
        return value.bounds.low
    return None


def _held(value: Value) -> float | None:
    """The number that a tensor holds in every element, or wherever it masks."""
    if isinstance(value, Tensor) and Tag.MIN_MASK in value.tags and math.isfinite(value.bounds.low):
        return value.bounds.low
    return _filled(value)


def _is_beyond(number: float, tensor: Tensor) -> bool:
    return any(abs(number) >= FORMATS[name].overflow_threshold for name in tensor.dtypes or ())
