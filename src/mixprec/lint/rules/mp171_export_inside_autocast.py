"""Tracing records autocast's casts, and the cache hands it tensors that it cannot record."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Known, Tensor, Trace, Value, held, parameters
from mixprec.lint.rules.mp061_updates_round_away import freezes
from mixprec.records import Finding, Severity


class ExportInsideAutocast(Rule):
    """`torch.jit.trace(model, x)` inside `with torch.autocast(...)`."""

    code = "MP171"
    name = "export-inside-autocast"
    severity = Severity.ERROR
    title = "A model is traced inside an autocast region whose cache is on."
    why = 'torch.jit.trace raises "Cannot insert a Tensor that requires grad as a constant": it meets cached casts.'
    bad = """\
import torch

model = torch.nn.Linear(8, 8)
with torch.autocast("cuda", dtype=torch.float16):
    traced = torch.jit.trace(model, torch.ones(1, 8))
"""
    good = """\
import torch

model = torch.nn.Linear(8, 8)
with torch.autocast("cuda", dtype=torch.float16, cache_enabled=False):
    traced = torch.jit.trace(model, torch.ones(1, 8))
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/pytorch/pytorch/pull/63552",
        "https://github.com/pytorch/pytorch/issues/50231",
    )
    words = ("jit.trace", "import trace")

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call."""
        if freezes(view):
            return
        for hit in held(view, _traced):
            if isinstance(hit.node, ast.Call) and view.constant(view.argument(hit.node, 3, "check_trace")) is False:
                continue  # it is the second trace, the check, that meets the casts cached by the first
            advice = "Pass cache_enabled=False to this autocast, or trace outside it."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _traced(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("call"):
        known, region = event.value(), event.region
        traces = isinstance(known, Known) and known.name == "torch.jit.trace"
        if traces and region.enabled and region.cache is not False and _needs_casts(event.value(1)):
            yield Hit(event.node, f"Tracing raises in the autocast region of line {region.line}: its cache is on.")


def _needs_casts(model: Value | None) -> bool:
    """Whether a module has float32 parameters, which autocast casts and caches."""
    weight = None if model is None else parameters(model)
    return isinstance(weight, Tensor) and weight.only("float32")
