"""Accelerate scales the loss in fp16, and divides the gradients again before its own clipping only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.protocol import last_name
from mixprec.records import Edit, Finding, Severity

ACCELERATOR = "accelerate.Accelerator"
CLIPPERS = {
    "clip_grad_norm_": ("parameters", "max_norm", "norm_type"),
    "clip_grad_value_": ("parameters", "clip_value"),
}
"""What torch.nn.utils clips with, and the arguments that the accelerator's method of that name takes."""


class ClipPastAccelerator(Rule):
    """`torch.nn.utils.clip_grad_norm_` on what an `Accelerator(mixed_precision="fp16")` has prepared."""

    code = "MP002"
    name = "clip-past-accelerator"
    severity = Severity.ERROR
    title = "Gradients that Accelerate has scaled are clipped by torch."
    why = (
        "In fp16, accelerator.backward multiplies the loss by the loss scale, often 65536, and the prepared optimizer "
        "divides the gradients again when it steps. accelerator.clip_grad_norm_ divides them before it clips; torch's "
        "function cuts the scaled gradients down to almost nothing."
    )
    bad = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp16")
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""
    good = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp16")
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""
    fix_safety = FixSafety.SAFE
    sources = (
        "https://huggingface.co/docs/accelerate/concept_guides/gradient_synchronization",
        "https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.clip_grad_norm_",
    )
    words = ("Accelerator",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per clip, unless the script has the accelerator unscale."""
        made = list(view.calls(ACCELERATOR))
        given = [view.constant(view.argument(call, None, "mixed_precision")) for call in made]
        if not made or any(value != "fp16" for value in given) or "unscale_gradients" in view.source:
            return
        prepared = set(_prepared(view))
        for call in view.nodes(ast.Call):
            name = (view.dotted(call.func) or "").removeprefix("torch.nn.utils.")
            if name.removeprefix("clip_grad.") in CLIPPERS and _owner(view, call) in prepared:
                accelerator = _accelerator(view, call)
                message = "Gradients are clipped while they still carry the loss scale of Accelerate."
                text = f"Call {accelerator or 'accelerator'}.{name.removeprefix('clip_grad.')} instead."
                yield self.finding(view, call, message, fix=self.fix(text, _edit(view, call, accelerator)))


def _prepared(view: FileView) -> Iterator[str]:
    """The names of what the accelerator prepares, before and after."""
    for call in view.nodes(ast.Call):
        if last_name(call.func) != "prepare" or not _is_accelerator(view, call.func):
            continue
        yield from (last_name(arg) for arg in call.args)
        parent = view.parent(call)
        for target in parent.targets if isinstance(parent, ast.Assign) else ():
            items = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            yield from (last_name(item) for item in items)


def _is_accelerator(view: FileView, func: ast.expr) -> bool:
    """Whether a method of an accelerator that this file makes is called."""
    if not isinstance(func, ast.Attribute):
        return False
    names = {
        last_name(target)
        for node in view.nodes(ast.Assign)
        for target in node.targets
        if isinstance(node.value, ast.Call) and view.dotted(node.value.func) == ACCELERATOR
    }
    return last_name(func.value) in names


def _owner(view: FileView, call: ast.Call) -> str:
    """Whose parameters are clipped: `model` of `model.parameters()`; empty where that cannot be told."""
    given = view.argument(call, 0, "parameters")
    if isinstance(given, ast.Name):
        values = view.assignments(view.function(call) or view.tree).get(given.id, ())
        given = values[0] if len(values) == 1 else None
    if not isinstance(given, ast.Call) or last_name(given) != "parameters" or not isinstance(given.func, ast.Attribute):
        return ""
    return last_name(given.func.value)


def _accelerator(view: FileView, call: ast.Call) -> str | None:
    """How the function around `call` writes the accelerator that runs backward there."""
    scope = view.function(call)
    texts = {
        view.text(other.func.value)
        for other in view.nodes(ast.Call)
        if isinstance(other.func, ast.Attribute)
        and other.func.attr == "backward"
        and view.function(other) is scope
        and _is_accelerator(view, other.func)
    }
    return texts.pop() if len(texts) == 1 else None


def _edit(view: FileView, call: ast.Call, accelerator: str | None) -> Edit | None:
    """The accelerator's method in place of torch's, where it takes all that is given."""
    name = last_name(call.func)
    taken = CLIPPERS.get(name, ())
    if accelerator is None or len(call.args) > len(taken) or any(key.arg not in taken for key in call.keywords):
        return None
    return view.edit.replace(call.func, f"{accelerator}.{name}")
