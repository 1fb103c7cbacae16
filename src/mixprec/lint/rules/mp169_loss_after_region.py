"""A loss of a region's output, taken after the region has ended, is computed in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Trace, dtype_words, held
from mixprec.records import Finding, Severity

LOSSES = (
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
)


class LossAfterRegion(Rule):
    """`F.cross_entropy(logits, y)` after `with torch.autocast(...)`, on the region's 16-bit `logits`."""

    code = "MP169"
    name = "loss-after-region"
    severity = Severity.WARNING
    title = "A loss is computed in 16 bits, because the autocast region that made its input has ended."
    why = "Inside the region autocast runs losses in float32. Outside, a 16-bit loss has three digits and can overflow."
    bad = """\
import torch
import torch.nn.functional as F

model = torch.nn.Linear(8, 8)


def loss(x, y):
    with torch.autocast("cuda", dtype=torch.float16):
        logits = model(x)
    return F.cross_entropy(logits, y)
"""
    good = """\
import torch
import torch.nn.functional as F

model = torch.nn.Linear(8, 8)


def loss(x, y):
    with torch.autocast("cuda", dtype=torch.float16):
        logits = model(x)
    return F.cross_entropy(logits.float(), y)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/huggingface/pytorch-image-models/issues/1586",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#typical-mixed-precision-training",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per loss."""
        for hit in held(view, _losses):
            advice = "Compute the loss inside the region, or of the output's .float()."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _losses(trace: Trace) -> Iterator[Hit]:
    for event in trace.of(*LOSSES):
        tensor, result = event.tensor(), event.out
        if tensor is None or result is None or event.region.enabled is not False:
            continue
        if tensor.low and result.low and "autocast" in tensor.why:
            words = dtype_words(result.dtypes)
            yield Hit(event.node, f"{event.op} runs in {words}: its input comes out of {tensor.why}, which has ended.")
