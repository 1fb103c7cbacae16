"""The slope of the square root at 0 is infinite, and what stands before it gives 0: the gradient is NaN."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tensor, Trace, held
from mixprec.records import Finding, Severity


class GradientAtZero(Rule):
    """`torch.sqrt(((a - b) ** 2).sum())` without anything that keeps it from 0."""

    code = "MP045"
    name = "gradient-at-zero"
    severity = Severity.INFO
    title = "A square root is taken of something that can be exactly 0, where gradients flow."
    why = "Its gradient is infinite at 0 and meets a 0 from the square: NaN. In 16 bits small squares become 0 sooner."
    bad = """\
import torch

model = torch.nn.Linear(8, 8)
x = torch.ones(4, 8)
with torch.autocast("cuda", dtype=torch.float16):
    y = model(x)
distance = torch.sqrt((y.float() - x).square().sum(-1)).mean()
distance.backward()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 8)
x = torch.ones(4, 8)
with torch.autocast("cuda", dtype=torch.float16):
    y = model(x)
distance = torch.sqrt((y.float() - x).square().sum(-1) + 1e-6).mean()
distance.backward()
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/notes/autograd.html#gradients-for-non-differentiable-functions",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per square root, in a file that runs backward."""
        if not differentiates(view):
            return
        low = {id(hit.node) for hit in held(view, _low_roots)}
        for hit in held(view, _roots):
            severity = Severity.WARNING if id(hit.node) in low else Severity.INFO
            advice = "Add an eps inside the root, or use torch.linalg.vector_norm, whose gradient at 0 is 0."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice), severity=severity)


def differentiates(view: FileView) -> bool:
    """Whether the file runs a backward pass."""
    return any(node.attr in ("backward", "manual_backward") for node in view.nodes(ast.Attribute))


def _low_roots(trace: Trace) -> Iterator[Hit]:
    """Roots of float16 values, in which every square below 6e-8 is 0."""
    roots = {id(hit.node) for hit in _roots(trace)}
    for event in trace.of("sqrt", "pow"):
        tensor = event.tensor()
        if tensor is not None and tensor.half and id(event.node) in roots:
            yield Hit(event.node, "")


def _roots(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("sqrt", "pow"):
        tensor = event.tensor()
        power = event.number(1) if event.op == "pow" else 0.5
        if power is None or not 0 < power < 1 or not isinstance(tensor, Tensor) or event.no_grad is not False:
            continue
        if tensor.bounds.low == 0.0 and tensor.bounds.high > 1.0:
            yield Hit(event.node, "Where this is exactly 0, the gradient is NaN.")
