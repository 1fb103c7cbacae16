"""Whole numbers above 256 do not fit bfloat16, nor above 2048 float16: positions must stay integer or float32."""

from __future__ import annotations

from collections.abc import Iterator

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


def angles(length, frequencies):
    positions = torch.arange(length).bfloat16()
    return torch.outer(positions, frequencies)
"""
    good = """\
import torch


def angles(length, frequencies):
    positions = torch.arange(length).float()
    return torch.outer(positions, frequencies)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/huggingface/transformers/pull/29285",
        "https://docs.pytorch.org/docs/stable/type_info.html#torch.torch.finfo",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per place in which positions get 16 bits."""
        for hit in held(view, _positions):
            advice = "Count and build the tables in float32 outside autocast's reach, then convert sin and cos."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _positions(trace: Trace) -> Iterator[Hit]:
    for event in trace.of(*CASTS, *PRODUCTS, "arange"):
        result = event.result
        if not isinstance(result, Tensor) or not result.low:
            continue
        source = result if event.op == "arange" else _counted(event)
        if source is not None and _is_beyond(source, result):
            yield Hit(event.node, f"Whole numbers become {spoken(result)} here and lose their last digits.")


def _counted(event: Event) -> Tensor | None:
    """The operand that counts and still has all of its digits."""
    for value in event.args:
        if isinstance(value, Tensor) and Tag.POSITION in value.tags and value.dtypes is not None and not value.low:
            return value
    return None


def _is_beyond(positions: Tensor, result: Tensor) -> bool:
    """Whether they can exceed what every possible format holds; where nothing bounds them, bfloat16 decides."""
    limits = [FORMATS[name].max_exact_integer for name in result.dtypes or ()]
    if positions.bounds.high == float("inf"):
        return "bfloat16" in (result.dtypes or ())
    return positions.bounds.magnitude > min(limits)
