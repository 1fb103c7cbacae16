"""Autocast bans binary_cross_entropy on CUDA: it raises, whatever dtype its arguments have."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Trace, happened
from mixprec.records import Finding, Severity


class BceUnderAutocast(Rule):
    """`nn.BCELoss()(torch.sigmoid(x), y)` inside an autocast region."""

    code = "MP049"
    name = "bce-under-autocast"
    severity = Severity.ERROR
    title = "BCELoss is called inside an autocast region."
    why = "Autocast refuses binary_cross_entropy on CUDA and raises; on CPU it runs, so a test on CPU does not show it."
    bad = """\
import torch
import torch.nn.functional as F


def loss(model, x, y):
    with torch.autocast("cuda", dtype=torch.float16):
        return F.binary_cross_entropy(torch.sigmoid(model(x)), y)
"""
    good = """\
import torch
import torch.nn.functional as F


def loss(model, x, y):
    with torch.autocast("cuda", dtype=torch.float16):
        return F.binary_cross_entropy_with_logits(model(x), y)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/docs/stable/amp.html#prefer-binary-cross-entropy-with-logits-over-binary-cross-entropy",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call."""
        for hit in happened(view, _calls):
            advice = "Use BCEWithLogitsLoss on the logits, or leave autocast for this loss and pass it .float()."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _calls(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("binary_cross_entropy"):
        if event.region.enabled and event.region.device == "cuda":
            line = event.region.line
            yield Hit(event.node, f"binary_cross_entropy raises on CUDA inside autocast, which line {line} enters.")
