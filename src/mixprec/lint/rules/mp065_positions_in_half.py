"""Whole numbers above 256 do not fit bfloat16, nor above 2048 float16: positions must stay integer or float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import FORMATS, Event, Hit, Tag, Tensor, Trace, held, spoken
from mixprec.records import Finding, Severity

CASTS = ("half", "bfloat16", "to", "type", "type_as")
PRODUCTS = ("matmul", "mm", "bmm", "einsum", "linear", "mul", "outer")


class PositionsInHalf(Rule):
    """`torch.arange(n).to(x.dtype)`, or positions multiplied by frequencies as matrices inside autocast."""

    code = "MP065"
    name = "positions-in-half"
    severity = Severity.WARNING
    title = "Positions are counted in 16 bits, which hold whole numbers up to 256 (bfloat16) or 2048 (float16)."
    why = "Beyond that neighbouring positions become equal, so rotary and sinusoidal embeddings repeat."
    bad = """\
import torch


def angles(frequencies):
    positions = torch.arange(4096).bfloat16()
    return torch.outer(positions, frequencies)
"""
    good = """\
import torch


def angles(frequencies):
    positions = torch.arange(4096).float()
    return torch.outer(positions, frequencies)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/huggingface/transformers/pull/29285",
        "https://docs.pytorch.org/docs/stable/type_info.html#torch.torch.finfo",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per place in which positions get 16 bits; worth knowing only, where nothing says how many."""
        counted = held(view, lambda trace: _positions(trace, _is_beyond))
        seen = {id(hit.node) for hit in counted}
        others = [hit for hit in held(view, lambda trace: _positions(trace, _is_open)) if id(hit.node) not in seen]
        for hits, severity in ((counted, Severity.WARNING), (others, Severity.INFO)):
            for hit in hits:
                advice = "Count and build the tables in float32 outside autocast's reach, then convert sin and cos."
                yield self.finding(view, hit.node, hit.message, fix=self.fix(advice), severity=severity)


def _positions(trace: Trace, wrong: Callable[[Tensor, Tensor], bool]) -> Iterator[Hit]:
    for event in trace.of(*CASTS, *PRODUCTS, "arange"):
        result = event.out
        if result is None or not result.low:
            continue
        source = result if event.op == "arange" else _counted(event)
        if source is not None and wrong(source, result):
            yield Hit(event.node, f"Whole numbers become {spoken(result)} here and lose their last digits.")


def _counted(event: Event) -> Tensor | None:
    """The operand that counts and still has all of its digits."""
    for value in event.args:
        if isinstance(value, Tensor) and Tag.POSITION in value.tags and value.dtypes is not None and not value.low:
            return value
    return None


def _is_beyond(positions: Tensor, result: Tensor) -> bool:
    """Whether they are known to exceed what a possible format holds."""
    largest = positions.bounds.magnitude
    return math.isfinite(largest) and any(largest > FORMATS[name].max_exact_integer for name in result.dtypes or ())


def _is_open(positions: Tensor, result: Tensor) -> bool:
    """Whether nothing says how far they count, and the format ends at 256."""
    return not math.isfinite(positions.bounds.magnitude) and "bfloat16" in (result.dtypes or ())
