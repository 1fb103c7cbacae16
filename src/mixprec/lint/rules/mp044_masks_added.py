"""Two masks that each hold the most negative number add up to minus infinity where both mask."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tag, Tensor, Trace, held, spoken
from mixprec.records import Finding, Severity


class MasksAdded(Rule):
    """`causal_mask + padding_mask`, both made with `torch.finfo(dtype).min`."""

    code = "MP044"
    name = "masks-added"
    severity = Severity.WARNING
    title = "Two masks that hold finfo.min are added and overflow to minus infinity."
    why = "finfo.min + finfo.min is -inf. A row in which both masks mask everything becomes NaN in the softmax."
    bad = """\
import torch


def masks(causal, padding, dtype=torch.float16):
    zeros = torch.zeros(1, 1, 128, 128).half()
    first = zeros.masked_fill(causal, torch.finfo(torch.float16).min)
    second = zeros.masked_fill(padding, torch.finfo(torch.float16).min)
    return first + second
"""
    good = """\
import torch


def masks(causal, padding, dtype=torch.float16):
    zeros = torch.zeros(1, 1, 128, 128).half()
    return zeros.masked_fill(causal | padding, torch.finfo(torch.float16).min)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/pytorch/pytorch/issues/103749",
        "https://docs.pytorch.org/docs/stable/type_info.html#torch.torch.finfo",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per sum."""
        for hit in held(view, _sums):
            advice = "Combine the boolean masks with | and fill once."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _sums(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("add"):
        masks = [value for value in event.args if isinstance(value, Tensor) and Tag.MIN_MASK in value.tags]
        if len(masks) == 2 and isinstance(event.result, Tensor) and event.result.low:
            yield Hit(
                event.node, f"Both masks hold finfo.min, and the sum is {spoken(event.result)}: -inf where both mask."
            )
