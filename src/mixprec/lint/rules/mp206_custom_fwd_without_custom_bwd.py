"""custom_fwd stores the state that custom_bwd restores: one without the other does half of the work."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Edit, Finding, Severity

DECORATORS = ("torch.amp.custom_bwd", "torch.amp.custom_fwd")
FUNCTIONS = ("torch.autograd.Function", "torch.autograd.function.Function")


class CustomFwdWithoutCustomBwd(Rule):
    """A `torch.autograd.Function` whose forward has custom_fwd and whose backward has not custom_bwd."""

    code = "MP206"
    name = "custom-fwd-without-custom-bwd"
    severity = Severity.ERROR
    title = "forward has custom_fwd and backward has no custom_bwd, or one of them lacks its device_type."
    why = "backward then runs in whatever autocast state its caller has, not in that of forward."
    bad = """\
import torch


class Scale(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad
"""
    good = """\
import torch


class Scale(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        return 2 * grad
"""
    fix_safety = FixSafety.SAFE
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#autocast-and-custom-autograd-functions",
        "https://docs.pytorch.org/docs/stable/amp.html#torch.amp.custom_bwd",
    )
    words = ("custom_fwd",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per class, at backward, and one per decorator that lacks its device."""
        yield from self._without_device(view)
        for node in view.nodes(ast.ClassDef):
            if not any(view.dotted(base) in FUNCTIONS for base in node.bases):
                continue
            methods = {stmt.name: stmt for stmt in node.body if isinstance(stmt, ast.FunctionDef)}
            forward, backward = methods.get("forward"), methods.get("backward")
            if forward is None or backward is None or _decorator(backward, "custom_bwd") is not None:
                continue
            first = _decorator(forward, "custom_fwd")
            if first is not None:
                message = f"{node.name}.forward has custom_fwd, but its backward has no custom_bwd."
                fix = self.fix("Decorate backward with custom_bwd.", _decorated(view, first, backward))
                yield self.finding(view, backward, message, fix=fix)

    def _without_device(self, view: FileView) -> Iterator[Finding]:
        """torch.amp's decorators need a device_type, which those of torch.cuda.amp did not have."""
        for function in view.nodes(ast.FunctionDef):
            for node in function.decorator_list:
                call = node if isinstance(node, ast.Call) else None
                name = view.dotted(node if call is None else call.func)
                if name in DECORATORS and (call is None or not any(k.arg == "device_type" for k in call.keywords)):
                    advice = f'Write @{(name or "").rpartition(".")[2]}(device_type="cuda").'
                    yield self.finding(
                        view, node, "device_type is missing, and the decorator raises.", fix=self.fix(advice)
                    )


def _decorator(function: ast.FunctionDef, name: str) -> ast.expr | None:
    return next((node for node in function.decorator_list if name in ast.unparse(node)), None)


def _decorated(view: FileView, first: ast.expr, backward: ast.FunctionDef) -> Edit | None:
    """custom_bwd written as custom_fwd is, without cast_inputs; None where its name is not at hand."""
    name = ast.unparse(first.func if isinstance(first, ast.Call) else first).replace("custom_fwd", "custom_bwd")
    if "." not in name and name not in view.imports:
        return None
    device = view.argument(first, 0, "device_type") if isinstance(first, ast.Call) else None
    if isinstance(first, ast.Call):
        text = f"@{name}(device_type={view.text(device)})" if device is not None else f"@{name}"
    else:
        text = f"@{name}"
    line = backward.lineno
    indent = view.edit.indent(backward)
    return Edit(line, 1, line, 1, f"{indent}{text}\n")
