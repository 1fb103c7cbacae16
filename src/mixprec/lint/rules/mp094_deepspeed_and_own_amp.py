"""DeepSpeed scales the loss and keeps the master weights: a second scaler around it scales twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import SCALERS
from mixprec.lint._owners import Owner
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Scaler, Trace, held
from mixprec.records import Finding, Severity


class DeepSpeedAndOwnAmp(Rule):
    """`engine.backward(scaler.scale(loss))`."""

    code = "MP094"
    name = "deepspeed-and-own-amp"
    severity = Severity.ERROR
    title = "A script under DeepSpeed scales the loss with a GradScaler of its own."
    why = "The engine scales and unscales itself, so the gradients are scaled twice and unscaled once."
    bad = """\
import deepspeed
import torch

engine, optimizer, _, _ = deepspeed.initialize(model=torch.nn.Linear(8, 8), config="ds.json")
scaler = torch.amp.GradScaler("cuda")
loss = engine(torch.ones(1, 8)).mean()
engine.backward(scaler.scale(loss))
engine.step()
"""
    good = """\
import deepspeed
import torch

engine, optimizer, _, _ = deepspeed.initialize(model=torch.nn.Linear(8, 8), config="ds.json")
loss = engine(torch.ones(1, 8)).mean()
engine.backward(loss)
engine.step()
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://www.deepspeed.ai/docs/config-json/#fp16-training-options",
        "https://github.com/deepspeedai/DeepSpeed/issues/5426",
    )
    words = ("deepspeed",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per scaled loss that an engine's backward gets."""
        if Owner.DEEPSPEED not in view.owners or not any(True for _ in view.calls(*SCALERS)):
            return
        for hit in held(view, lambda trace: _scaled(trace, view)):
            yield self.finding(
                view, hit.node, hit.message, fix=self.fix("Pass the loss as it is, and drop the scaler.")
            )


def _scaled(trace: Trace, view: FileView) -> Iterator[Hit]:
    for event in trace.of("scaler.scale"):
        scaler = event.args[0]
        if isinstance(scaler, Scaler) and scaler.enabled is not False and _reaches_engine(event.node, view):
            yield Hit(event.node, "The engine scales this loss once more.")


def _reaches_engine(node: ast.AST, view: FileView) -> bool:
    """`engine.backward(scaler.scale(loss))`."""
    parent = view.parent(node)
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "backward"
