"""The slope of the square root at 0 is infinite, and what stands before it gives 0: the gradient is NaN."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tag, Tensor, Trace, held
from mixprec.lint.rules.mp061_updates_round_away import freezes
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
        sure = {id(hit.node): hit for hit in held(view, lambda trace: _pairs(trace, view))} if not freezes(view) else {}
        grave = {*sure, *(id(hit.node) for hit in held(view, _low_roots))}
        for hit in (sure.get(id(each.node), each) for each in held(view, _roots)):
            severity = Severity.WARNING if id(hit.node) in grave else Severity.INFO
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


def _pairs(trace: Trace, view: FileView) -> Iterator[Hit]:
    """Roots of the squared differences of all pairs, each one with itself among them, of something learned."""
    roots = {id(hit.node) for hit in _roots(trace)}
    for event in trace.of("sqrt", "pow"):
        tensor = event.tensor()
        if tensor is None or id(event.node) not in roots or Tag.LEARNED not in tensor.tags:
            continue
        inside = _inside(event.node)
        base = None if inside is None else _all_pairs(inside, view, 0)
        if base is not None:
            yield Hit(event.node, f"The pairs of {base} hold each one with itself: there this is 0 and its slope NaN.")


def _inside(node: ast.AST) -> ast.expr | None:
    """What the root is taken of."""
    if isinstance(node, ast.BinOp):
        return node.left
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    of_torch = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
    return (node.args[0] if node.args else None) if of_torch else node.func.value


_TRANSPARENT = frozenset({"abs", "contiguous", "double", "float", "half", "mean", "pow", "square", "sum", "to"})


def _all_pairs(node: ast.expr, view: FileView, depth: int) -> str | None:
    """`x` in sums of squares of `x[:, None] - x[None]`, however they are written; None for anything else."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Name):
        value = _value(node, view)
        return None if value is None else _all_pairs(value, view, depth + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TRANSPARENT:
        inner = node.func.value
        if isinstance(inner, ast.Name) and inner.id == "torch":
            return _all_pairs(node.args[0], view, depth + 1) if node.args else None
        return _all_pairs(inner, view, depth + 1)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow):
            return _all_pairs(node.left, view, depth + 1)
        if isinstance(node.op, ast.Mult) and ast.dump(node.left) == ast.dump(node.right):
            return _all_pairs(node.left, view, depth + 1)
        if isinstance(node.op, ast.Sub):
            first, second = _spread(node.left), _spread(node.right)
            differ = ast.dump(node.left) != ast.dump(node.right)
            return first if first is not None and first == second and differ else None
    return None


_DEEPEST = 12


def _value(node: ast.Name, view: FileView) -> ast.expr | None:
    """What a name was assigned, where that is one thing."""
    values = view.assignments(view.function(node) or view.tree).get(node.id, ())
    return values[0] if len(values) == 1 else None


def _spread(node: ast.expr) -> str | None:
    """`x` in `x[:, None]`, `x[None]` and `x.unsqueeze(1)`."""
    if isinstance(node, ast.Subscript):
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        new = [isinstance(i, ast.Constant) and i.value is None for i in indices]
        rest = [isinstance(i, ast.Slice) and i.lower is i.upper is i.step is None for i in indices]
        whole = all(a or b or _is_ellipsis(i) for a, b, i in zip(new, rest, indices, strict=True))
        return ast.unparse(node.value) if any(new) and whole else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unsqueeze":
        return ast.unparse(node.func.value)
    return None


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _roots(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("sqrt", "pow"):
        tensor = event.tensor()
        power = event.number(1) if event.op == "pow" else 0.5
        if power is None or not 0 < power < 1 or not isinstance(tensor, Tensor) or event.no_grad is not False:
            continue
        if tensor.bounds.low == 0.0 and tensor.bounds.high > 1.0:
            yield Hit(event.node, "Where this is exactly 0, the gradient is NaN.")
