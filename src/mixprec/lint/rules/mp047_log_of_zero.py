"""In 16 bits a probability reaches 0 and a small constant is 0: the logarithm of either is minus infinity."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tag, Trace, held, number_words
from mixprec.records import Finding, Severity


class LogOfZero(Rule):
    """`torch.log(torch.sigmoid(x))`, `torch.log(1 - p)`, `torch.log(p + 1e-8)` on 16-bit values."""

    code = "MP047"
    name = "log-of-zero"
    severity = Severity.WARNING
    title = "The logarithm is taken of a 16-bit value that can be exactly 0."
    why = (
        "A float16 sigmoid or softmax rounds to exactly 0 or 1 for ordinary logits, and eps below 3e-8 rounds to 0, so "
        "log gives -inf. Autocast's float32 log does not help: the value is 0 before it."
    )
    bad = """\
import torch


def loss(x, weight):
    with torch.autocast("cuda", dtype=torch.float16):
        p = torch.sigmoid(x @ weight)
        return -torch.log(p).mean()
"""
    good = """\
import torch
import torch.nn.functional as F


def loss(x, weight):
    with torch.autocast("cuda", dtype=torch.float16):
        return -F.logsigmoid((x @ weight).float()).mean()
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.logsigmoid.html",
        "https://docs.pytorch.org/docs/stable/amp.html#prefer-binary-cross-entropy-with-logits-over-binary-cross-entropy",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per logarithm."""
        for hit in held(view, _logarithms):
            advice = "Use logsigmoid or log_softmax of the logits in float32, or an eps that float16 can hold (1e-4)."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _logarithms(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("log", "log2", "log10"):
        tensor = event.tensor()
        if tensor is None:
            continue
        if Tag.VANISHED in tensor.tags and tensor.constant is not None:
            yield Hit(event.node, f"{number_words(tensor.constant)} is 0 in float16, so this is the logarithm of 0.")
        elif Tag.REACHES_ZERO in tensor.tags:
            yield Hit(event.node, "A probability with 16 bits can be exactly 0 here, and its logarithm is -inf.")
