"""acos and its kin have infinite slope at 1, and 16-bit values round to 1 and beyond."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import FORMATS, Hit, Tensor, Trace, held, spoken
from mixprec.records import Finding, Severity


class InverseTrigonometryEdge(Rule):
    """`torch.acos(a @ b)` where the product has 16 bits."""

    code = "MP050"
    name = "inverse-trigonometry-edge"
    severity = Severity.WARNING
    title = "acos, asin, atanh or erfinv is taken of 16-bit values that can be 1 or more."
    why = (
        "A cosine in 16 bits rounds to 1 or just above: the result is NaN, or its gradient infinite. A clamp to "
        "1 - 1e-7 does not help, because that is 1 in 16 bits."
    )
    bad = """\
import torch


def angle(a, b):
    with torch.autocast("cuda", dtype=torch.float16):
        return torch.acos((a @ b).clamp(-1 + 1e-7, 1 - 1e-7))
"""
    good = """\
import torch


def angle(a, b):
    with torch.autocast("cuda", dtype=torch.float16):
        return torch.acos((a @ b).float().clamp(-1 + 1e-6, 1 - 1e-6))
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/generated/torch.acos.html",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call."""
        for hit in held(view, _calls):
            advice = "Convert to float32 before the clamp: x.float().clamp(-1 + 1e-6, 1 - 1e-6)."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _calls(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("acos", "asin", "atanh", "erfinv", "arccos", "arcsin", "arctanh"):
        tensor = event.tensor()
        if tensor is None or not tensor.low:
            continue
        inside = tensor.bounds.low >= -1 and tensor.bounds.high <= 1
        if not (inside and event.no_grad) and _reaches_one(tensor):
            yield Hit(event.node, f"The argument is {spoken(tensor)} and can round to 1 or beyond.")


def _reaches_one(tensor: Tensor) -> bool:
    return any(FORMATS[name].round(tensor.bounds.magnitude) >= 1 for name in tensor.dtypes or ())
