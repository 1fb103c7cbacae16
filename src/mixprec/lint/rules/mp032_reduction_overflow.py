"""A float16 sum overflows when there are many elements, however small each one is."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tag, Trace, held, spoken
from mixprec.records import Finding, Severity


class ReductionOverflow(Rule):
    """`probs.sum()` where `probs` is float16."""

    code = "MP032"
    name = "reduction-overflow"
    severity = Severity.INFO
    title = "A float16 tensor is summed over all of its elements."
    why = "The sum is stored in float16, which ends at 65504: 70,000 ones add up to infinity."
    bad = """\
import torch


def dice(model, x, target):
    with torch.autocast("cuda", dtype=torch.float16):
        probs = torch.sigmoid(x @ model.weight)
    return 1 - 2 * (probs * target).sum() / (probs.sum() + target.sum())
"""
    good = """\
import torch


def dice(model, x, target):
    with torch.autocast("cuda", dtype=torch.float16):
        probs = torch.sigmoid((x @ model.weight).float())
    return 1 - 2 * (probs * target).sum() / (probs.sum() + target.sum())
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per sum."""
        for hit in held(view, _sums):
            yield self.finding(view, hit.node, hit.message, fix=self.fix("Sum in float32: x.float().sum()."))


def _sums(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("sum", "nansum", "cumsum"):
        tensor, result = event.tensor(), event.out
        if tensor is None or result is None:
            continue
        if tensor.half and result.half and (result.rank0 or event.op == "cumsum") and Tag.NORMALISED not in tensor.tags:
            yield Hit(event.node, f"This sums {spoken(tensor)} values in float16.")
