"""Autocast leaves in-place and `out=` forms alone, so their operands meet as they are."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tensor, Trace, held, spoken
from mixprec.lint.rules.mp082_custom_function_without_custom_fwd import mixed_operands
from mixprec.records import Finding, Severity

IN_PLACE = ("addbmm", "addmm", "addmv", "baddbmm")
WITH_OUT = ("bmm", "einsum", "matmul", "mm", "mv")


class InPlaceOpUnderAutocast(Rule):
    """`y.addmm_(a, b)` or `torch.mm(a, b, out=c)` with operands of different dtypes, inside autocast."""

    code = "MP091"
    name = "in-place-op-under-autocast"
    severity = Severity.ERROR
    title = "An in-place or out= matrix product inside autocast gets a 16-bit and a float32 tensor."
    why = "Autocast casts only out-of-place calls; addmm_ and out= take tensors as they are and raise on mixed dtypes."
    bad = """\
import torch

down, up = torch.ones(8, 2), torch.ones(2, 8)


def adapt(x, base):
    with torch.autocast("cuda", dtype=torch.float16):
        y = x @ base
        return y.addmm_(x @ down, up)
"""
    good = """\
import torch

down, up = torch.ones(8, 2), torch.ones(2, 8)


def adapt(x, base):
    with torch.autocast("cuda", dtype=torch.float16):
        y = x @ base
        return torch.addmm(y, x @ down, up)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call."""
        for hit in held(view, _calls):
            yield self.finding(
                view, hit.node, hit.message, fix=self.fix("Use the out-of-place form, which autocast casts.")
            )


def _calls(trace: Trace) -> Iterator[Hit]:
    for event in trace.of(*IN_PLACE, *WITH_OUT):
        if not event.region.enabled:
            continue
        mixed = mixed_operands(event) if event.inplace else None
        out = event.keywords.get("out")
        if mixed is not None:
            yield Hit(
                event.node, f"{event.op}_ is not cast by autocast and gets float32 together with {spoken(mixed[0])}."
            )
        elif isinstance(out, Tensor) and out.only("float32") and event.region.dtypes is not None:
            yield Hit(
                event.node,
                f"out= is float32, and {event.op} gives 16 bits inside the region of line {event.region.line}.",
            )
