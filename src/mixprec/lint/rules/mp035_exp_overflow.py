"""exp overflows in float16 from 11.1 on; in autocast it runs in float32 on CUDA, outside it does not."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tag, Trace, held, spoken
from mixprec.records import Finding, Severity

LARGEST = 11.08
"""The logarithm of 65504."""


class ExpOverflow(Rule):
    """`torch.exp(logvar)` where `logvar` is float16 and nothing bounds it."""

    code = "MP035"
    name = "exp-overflow"
    severity = Severity.WARNING
    title = "exp is taken of float16 values that nothing bounds."
    why = "exp(11.1) is beyond 65504, so it is infinite in float16; in float32 the limit is 88.7."
    bad = """\
import torch


def sample(encode, x):
    with torch.autocast("cuda", dtype=torch.float16):
        logvar = x @ x.T
    return torch.exp(0.5 * logvar)
"""
    good = """\
import torch


def sample(encode, x):
    with torch.autocast("cuda", dtype=torch.float16):
        logvar = x @ x.T
    return torch.exp(0.5 * logvar.float().clamp(-20, 10))
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32",
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per exp."""
        for hit in held(view, _exponentials):
            advice = "Clamp the argument, or take exp in float32: torch.exp(x.float())."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _exponentials(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("exp", "expm1", "sinh", "cosh"):
        tensor, result = event.tensor(), event.out
        if tensor is None or result is None:
            continue
        if tensor.half and result.half and tensor.bounds.high > LARGEST and Tag.PARAMETER not in tensor.tags:
            yield Hit(
                event.node, f"The argument is {spoken(tensor)} and nothing bounds it; beyond 11.1 exp is infinite."
            )
