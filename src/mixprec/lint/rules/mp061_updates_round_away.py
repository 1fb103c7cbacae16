"""Parameters of 16 bits without a float32 copy lose every update that is smaller than half of their last bit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mixprec.lint._owners import Owner
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Optimizer, Tag, Tensor, Trace, held, spoken
from mixprec.records import Finding, Severity

OWNERS = frozenset({Owner.APEX, Owner.COMPOSER, Owner.DEEPSPEED, Owner.FABRIC, Owner.LIGHTNING, Owner.MIXPREC})
"""Libraries that may keep float32 copies of the weights themselves."""


class UpdatesRoundAway(Rule):
    """`model.bfloat16()` or `model.half()`, whose parameters an optimizer then updates."""

    code = "MP061"
    name = "updates-round-away"
    severity = Severity.WARNING
    title = "An optimizer is given 16-bit parameters, and nothing keeps float32 copies."
    why = (
        "bfloat16 keeps 8 bits: at a learning rate of 1e-5 AdamW leaves 93 % of bfloat16 weights unchanged in each "
        "step, because the update is below half of their last bit."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 8).bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
model(torch.ones(1, 8).bfloat16()).sum().backward()
optimizer.step()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = model(torch.ones(1, 8)).sum()
loss.backward()
optimizer.step()
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://arxiv.org/abs/2010.06192",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per place in which the weights become 16-bit."""
        if OWNERS & view.owners or freezes(view):
            return
        for hit in held(view, _optimizers):
            advice = "Keep float32 parameters and run the forward pass in torch.autocast."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


_COPY = re.compile(r"ema|averag|teacher|target|shadow|momentum_(enc|model)|swa", re.IGNORECASE)


def freezes(view: FileView) -> bool:
    """Whether the file turns off the gradients of some parameters: which ones are trained is then open.

    Those of a copy that follows the model, and those of an input, are others.
    """
    return any(
        node.attr in ("requires_grad", "requires_grad_") and not _is_other(node, view)
        for node in view.nodes(ast.Attribute)
    )


def _is_other(node: ast.Attribute, view: FileView) -> bool:
    """Whether gradients are turned off for a copy, or on for an input: `deepcopy(model).requires_grad_(False)`."""
    call = view.parent(node)
    if node.attr == "requires_grad_" and isinstance(call, ast.Call):
        given = view.argument(call, 0, "requires_grad")
        if given is None or view.constant(given) is True:
            return True
    inner: ast.AST = node.value
    while isinstance(inner, (ast.Attribute, ast.Call)):
        if isinstance(inner, ast.Call) and view.dotted(inner.func) == "copy.deepcopy":
            return True
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    loops = [loop for loop in view.loops(node) if isinstance(loop, ast.For)]
    return bool(_COPY.search(ast.unparse(node.value))) or any(_COPY.search(ast.unparse(loop.iter)) for loop in loops)


def _optimizers(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("optimizer.step"):
        optimizer, trained = event.args[0], event.args[1]
        if not isinstance(optimizer, Optimizer) or not isinstance(trained, Tensor):
            continue
        if trained.low and Tag.PARAMETER in trained.tags:
            name = optimizer.name if optimizer.own else f"torch.optim.{optimizer.name}"
            yield Hit(
                event.node,
                f"{name} updates {spoken(trained)} parameters; small updates round away without float32 copies.",
                trained.origin or optimizer.node,
            )
