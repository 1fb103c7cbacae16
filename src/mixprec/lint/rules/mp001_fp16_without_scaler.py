"""float16 autocast without a scaler: small gradients become zero."""

from __future__ import annotations

import ast
import re

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, last_name
from mixprec.records import Finding, Severity

_SCALES = re.compile(r"scaler|loss_?scal|scale_loss|scaled_loss", re.IGNORECASE)
_DIVIDES = re.compile(r"\b(g|grads?|gradients?)(\.data)?(\.(div|mul)_\(|\s*[/*]=)|_foreach_(div|mul)_\(")
"""What brings gradients back to size after a backward of a multiple of the loss."""

_RUNS = {
    "chosen-fp16-without-scaler": "This region can run in float16",
    "default-fp16-without-scaler": "This region runs in float16, the default on CUDA,",
    "fp16-without-scaler": "This region runs in float16",
}


class Fp16WithoutScaler(OrderRule):
    """A loss from a float16 region goes to `backward` as it is, and nothing in the file scales."""

    code = "MP001"
    name = "fp16-without-scaler"
    severity = Severity.ERROR
    title = "float16 autocast is trained without a gradient scaler."
    why = (
        "Gradients below 6e-8 are zero in float16 and those below 6e-5 lose precision. Without a loss scale large "
        "parts of the gradients vanish, training slows down or stops, and nothing is raised."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://docs.pytorch.org/docs/stable/amp.html",
    )
    kinds = ("chosen-fp16-without-scaler", "default-fp16-without-scaler", "fp16-without-scaler")

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """An error where float16 is written down, a warning where it is CUDA's default or an option's."""
        if _SCALES.search(view.source) and not (conclusion.always and _none_is_given(view, conclusion)):
            return None
        if _DIVIDES.search(view.source) and any(map(_is_multiple, view.nodes(ast.Call))):
            return None
        if conclusion.kind == "chosen-fp16-without-scaler" and _imports_own(view):
            return None
        explicit = conclusion.kind == "fp16-without-scaler"
        unscaled = f"its loss goes to backward() unscaled{conclusion.when}"
        return self.finding(
            view,
            conclusion.fault.anchor,
            f"{_RUNS[conclusion.kind]} and {unscaled}: small gradients become zero.",
            fix=self.fix("Scale the loss with a torch.amp.GradScaler, or use dtype=torch.bfloat16."),
            severity=Severity.ERROR if explicit else Severity.WARNING,
        )


def _imports_own(view: FileView) -> bool:
    """Whether the file imports from its own project, where a scaler may be chosen along with the dtype."""
    names = view.imports.values()
    return any(name.startswith(".") or view.project.definition(name, view.path) is not None for name in names)


def _is_multiple(call: ast.Call) -> bool:
    """`(loss * factor).backward()`."""
    func = call.func
    product = func.value if isinstance(func, ast.Attribute) and func.attr == "backward" else None
    return isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult)


def _none_is_given(view: FileView, conclusion: Conclusion) -> bool:
    """Whether all that speaks of a scaler are parameters, None by default, that nothing here is given for.

    Another file may give one; so the module itself must call the function, or the function make no use of it.
    """
    parameters = {arg for arg in view.nodes(ast.arg) if _SCALES.search(arg.arg)}
    if not all(_is_none(view, arg) for arg in parameters) or not _only(view, {arg.arg for arg in parameters}):
        return False
    used = any(name.id in {arg.arg for arg in parameters} for name in view.nodes(ast.Name))
    return not used or view.tree in conclusion.within


def _only(view: FileView, names: set[str]) -> bool:
    """Whether nothing but names in `names` speaks of scaling, apart from comments and docstrings."""
    words = [name.id for name in view.nodes(ast.Name) if name.id not in names]
    words += [node.attr for node in view.nodes(ast.Attribute)]
    words += [node.arg for node in view.nodes(ast.keyword) if node.arg is not None]
    words += [node.name for node in view.nodes(ast.FunctionDef)] + [node.name for node in view.nodes(ast.ClassDef)]
    words += [node.name for node in view.nodes(ast.alias)]
    words += [
        node.value
        for node in view.nodes(ast.Constant)
        if isinstance(node.value, str) and not isinstance(view.parent(node), ast.Expr)
    ]
    return not any(_SCALES.search(word) for word in words)


def _is_none(view: FileView, arg: ast.arg) -> bool:
    """Whether a parameter is None by default and no call in this file reaches it by its place."""
    spec = view.parent(arg)
    function = view.parent(spec) if spec is not None else None
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not isinstance(spec, ast.arguments):
        return False
    places = [*spec.posonlyargs, *spec.args]
    defaults: dict[ast.arg, ast.expr | None] = dict(zip(reversed(places), reversed(spec.defaults), strict=False))
    defaults |= dict(zip(spec.kwonlyargs, spec.kw_defaults, strict=True))
    default = defaults.get(arg)
    if not isinstance(default, ast.Constant) or default.value is not None:
        return False
    place = places.index(arg) if arg in places else len(places)
    calls = [
        call for call in view.nodes(ast.Call) if last_name(call.func) in (function.name, _class_name(view, function))
    ]
    return not any(
        len(call.args) > place or any(isinstance(given, ast.Starred) for given in call.args) or _spreads(call)
        for call in calls
    )


def _spreads(call: ast.Call) -> bool:
    return any(keyword.arg is None for keyword in call.keywords)


def _class_name(view: FileView, function: ast.AST) -> str | None:
    cls = view.parent(function)
    return cls.name if isinstance(cls, ast.ClassDef) else None
