"""A float16 square overflows from 256 on; hand-written norms and pixel losses square what is larger."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Event, Hit, Tag, Tensor, Trace, held, spoken
from mixprec.records import Finding, Severity

LARGEST = 255.9
"""The root of 65504: what is smaller can be squared."""
HARMLESS = frozenset({Tag.NORMALISED, Tag.NOISE, Tag.PARAMETER, Tag.GRADIENT})


class SquareOverflow(Rule):
    """`x.pow(2)`, `x ** 2`, `x * x`, `x.square()` of float16 values that nothing bounds."""

    code = "MP031"
    name = "square-overflow"
    severity = Severity.WARNING
    title = "Float16 values that nothing bounds are squared."
    why = "256 squared is 65536, which is infinite in float16. Activations, pixels and differences of them exceed 256."
    bad = """\
import torch


def norm(x, weight):
    x = x.half()
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight
"""
    good = """\
import torch


def norm(x, weight):
    x = x.half()
    y = x.float()
    return (y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/neuroneural/brainchop/issues/56",
        "https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per square."""
        for hit in held(view, lambda trace: _squares(trace, view)):
            advice = "Square in float32 (x.float().pow(2)), or use the built-in norm or loss."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _squares(trace: Trace, view: FileView) -> Iterator[Hit]:
    for event in trace.of("pow", "square", "mul"):
        tensor = _squared(event, view)
        if tensor is None or not tensor.half or not isinstance(event.result, Tensor) or not event.result.half:
            continue
        if tensor.bounds.magnitude > LARGEST and not tensor.tags & HARMLESS:
            yield Hit(event.node, f"This squares {spoken(tensor)} values, which overflows from 256 on.")


def _squared(event: Event, view: FileView) -> Tensor | None:
    value = event.tensor()
    if value is None:
        return None
    if event.op == "square":
        return value
    if event.op == "pow":
        power = event.number(1)
        return value if power is not None and power >= 2 else None
    return value if _multiplies_itself(event.node) else None


def _multiplies_itself(node: ast.AST) -> bool:
    """`x * x`, `x.mul(x)`, `torch.mul(x, x)`."""
    if isinstance(node, ast.BinOp):
        factors: list[ast.expr] = [node.left, node.right]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        factors = list(node.args) if len(node.args) == 2 else [node.func.value, *node.args]
    else:
        return False
    return len(factors) == 2 and ast.dump(factors[0]) == ast.dump(factors[1])
