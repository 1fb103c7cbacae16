"""Accelerate, Fabric and Lightning scale the loss themselves; a scaler of the script's own scales it twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import SCALERS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

SCALES = {"Accelerator": ("mixed_precision", ("fp16",)), "Fabric": ("precision", (16, "16", "16-mixed"))}
SCALES["Trainer"] = SCALES["Fabric"]
"""Who makes a scaler of its own, and the argument that says so."""
BACKWARD = ("backward", "manual_backward")


class FrameworkAndOwnScaler(Rule):
    """`accelerator.backward(scaler.scale(loss))`."""

    code = "MP210"
    name = "framework-and-own-scaler"
    severity = Severity.ERROR
    title = "A loss scaled by a GradScaler of the script's own is handed to a framework that scales it too."
    why = "The gradients are scaled twice and unscaled once: they overflow, or the updates are far too large."
    bad = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp16")
scaler = torch.amp.GradScaler("cuda")


def step(model, x):
    accelerator.backward(scaler.scale(model(x).mean()))
"""
    good = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp16")


def step(model, x):
    accelerator.backward(model(x).mean())
"""
    fix_safety = FixSafety.NONE
    sources = ("https://huggingface.co/docs/accelerate/package_reference/accelerator",)
    words = ("GradScaler",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per scaled loss."""
        if not any(True for _ in view.calls(*SCALERS)) or not any(_scales(view, call) for call in view.nodes(ast.Call)):
            return
        for call in view.nodes(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr in BACKWARD and len(call.args) == 1:
                scaled = call.args[0]
                if (
                    isinstance(scaled, ast.Call)
                    and isinstance(scaled.func, ast.Attribute)
                    and scaled.func.attr == "scale"
                ):
                    message = "The framework scales this loss once more."
                    fix = self.fix("Pass the loss as it is, and let the framework scale.")
                    yield self.finding(view, scaled, message, fix=fix)


def _scales(view: FileView, call: ast.Call) -> bool:
    """Whether a framework is told to train in float16, for which it scales the loss."""
    name = (view.dotted(call.func) or "").rpartition(".")[2]
    if name not in SCALES:
        return False
    argument, values = SCALES[name]
    return view.constant(view.argument(call, None, argument)) in values
