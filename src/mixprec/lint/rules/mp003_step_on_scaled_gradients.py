"""The optimizer steps on gradients that carry the loss scale, past the scaler."""

from __future__ import annotations

import ast

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, call_statement, receiver
from mixprec.records import Finding, Fix, Severity


class StepOnScaledGradients(OrderRule):
    """`optimizer.step()` after `scaler.scale(loss).backward()`."""

    code = "MP003"
    name = "step-on-scaled-gradients"
    severity = Severity.ERROR
    title = "optimizer.step() is called although the gradients went through a scaler."
    why = (
        "Scaled gradients are thousands of times too large: one such step throws the weights away. Even unscaled ones "
        "must be stepped by the scaler, which leaves the step out when they hold an infinity or NaN; optimizer.step() "
        "writes it into the weights."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    optimizer.step()
    scaler.update()
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
    fix_safety = FixSafety.SAFE
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    kinds = ("step-on-scaled", "step-past-scaler", "step-twice")

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """What is wrong depends on whether the gradients were unscaled and whether the scaler stepped as well."""
        call = conclusion.fault.anchor
        optimizer = receiver(view, call)
        if conclusion.kind == "step-twice":
            text = f"{optimizer}.step() steps again after scaler.step({optimizer}){conclusion.when}."
            stmt = call_statement(view, call) if conclusion.always else None
            edit = None if stmt is None else view.edit.delete(stmt)
            return self.finding(view, call, text, fix=self.fix("Remove it: the scaler has taken the step.", edit))
        if conclusion.kind == "step-past-scaler":
            if _checked_by_hand(view, call, conclusion.fault.others):
                return None
            text = f"{optimizer}.step() steps past the scaler{conclusion.when}: infinite gradients reach the weights."
        else:
            text = f"{optimizer}.step() steps on gradients that carry the loss scale{conclusion.when}."
        return self.finding(view, call, text, fix=self._fix(view, conclusion, optimizer))

    def _fix(self, view: FileView, conclusion: Conclusion, optimizer: str) -> Fix:
        call = conclusion.fault.anchor
        scalers = {_scaler(view, node) for node in conclusion.fault.others}
        scaler = scalers.pop() if len(scalers) == 1 else ""
        text = f"Write {scaler or 'scaler'}.step({optimizer})."
        scope = view.function(call)
        near = all(view.function(node) is scope for node in conclusion.fault.others)
        updated = any(
            receiver(view, other) == scaler and view.function(other) is scope
            for other in view.nodes(ast.Call)
            if isinstance(other.func, ast.Attribute) and other.func.attr == "update"
        )
        if not scaler or not near or not updated or not conclusion.always:
            return self.fix(text)
        return self.fix(text, view.edit.replace(call, f"{scaler}.step({optimizer})"))


def _scaler(view: FileView, backward: ast.AST) -> str:
    """The text of the scaler in `scaler.scale(loss).backward()`."""
    scale = backward.func.value if isinstance(backward, ast.Call) and isinstance(backward.func, ast.Attribute) else None
    return receiver(view, scale) if scale is not None else ""


def _checked_by_hand(view: FileView, call: ast.AST, backwards: tuple[ast.AST, ...]) -> bool:
    """Whether the step stands under a test that unscale_, or else the backward pass, does not stand under."""
    scope = view.function(call)
    unscaled = [
        node
        for node in view.nodes(ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "unscale_" and view.function(node) is scope
    ]
    around = {ancestor for node in unscaled or backwards for ancestor in view.ancestors(node)}
    return any(isinstance(ancestor, ast.If) and ancestor not in around for ancestor in view.ancestors(call))
