"""Inside an autocast region the ops convert their own inputs; a conversion by hand does it again, or undoes it."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tag, Trace, dtype_words, held
from mixprec.records import Finding, Severity


class CastsFightAutocast(Rule):
    """`x = x.half()` inside `with torch.autocast(...)`."""

    code = "MP085"
    name = "casts-fight-autocast"
    severity = Severity.INFO
    title = "A float32 tensor is converted to 16 bits by hand inside an autocast region."
    why = (
        "Autocast converts what gains by it and leaves the rest in float32; converting all of it loses precision there."
    )
    bad = """\
import torch


def run(model, image):
    with torch.autocast("cuda", dtype=torch.float16):
        x = torch.zeros(1, 3, 8, 8) + image.float()
        return model(x.half())
"""
    good = """\
import torch


def run(model, image):
    with torch.autocast("cuda", dtype=torch.float16):
        x = torch.zeros(1, 3, 8, 8) + image.float()
        return model(x)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per conversion."""
        for hit in held(view, _conversions):
            yield self.finding(view, hit.node, hit.message, fix=self.fix("Remove the conversion."))


def _conversions(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("half", "bfloat16", "to", "type"):
        tensor, result = event.tensor(), event.out
        if tensor is None or result is None or not event.region.enabled:
            continue
        if tensor.only("float32") and result.low and event.no_grad is not True and Tag.PARAMETER not in tensor.tags:
            words = dtype_words(result.dtypes)
            yield Hit(
                event.node, f"This converts float32 to {words} inside the autocast region of line {event.region.line}."
            )
