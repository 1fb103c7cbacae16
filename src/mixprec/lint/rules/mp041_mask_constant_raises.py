"""A fill value that float16 cannot hold makes PyTorch raise; which ops check it, and which do not, is measured."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import FORMATS, Event, Hit, Tensor, Trace, held, number_of, number_words, spoken
from mixprec.records import Finding, Severity

VALUES: dict[str, tuple[tuple[int, str], ...]] = {
    "clamp": ((1, "min"), (2, "max")),
    "clamp_max": ((1, "max"),),
    "clamp_min": ((1, "min"),),
    "fill": ((1, "value"),),
    "full": ((1, "fill_value"),),
    "full_like": ((1, "fill_value"),),
    "index_fill": ((3, "value"),),
    "masked_fill": ((2, "value"),),
    "new_full": ((2, "fill_value"),),
    "pad": ((3, "value"),),
    "scatter": ((3, "value"),),
    "threshold": ((2, "value"),),
}
"""Ops that check their number, and where it stands (measured on PyTorch 2.13)."""


class MaskConstantRaises(Rule):
    """`scores.masked_fill(mask, -1e9)` where `scores` is float16."""

    code = "MP041"
    name = "mask-constant-raises"
    severity = Severity.ERROR
    title = "A constant beyond 65504 is filled into a float16 tensor, and PyTorch raises."
    why = (
        "float16 ends at 65504: masked_fill, full, clamp and pad raise for a larger number instead of storing infinity."
    )
    bad = """\
import torch


def attend(scores, mask):
    with torch.autocast("cuda", dtype=torch.float16):
        weights = scores @ scores.transpose(-2, -1)
        return weights.masked_fill(mask, -1e9).softmax(-1)
"""
    good = """\
import torch


def attend(scores, mask):
    with torch.autocast("cuda", dtype=torch.float16):
        weights = scores @ scores.transpose(-2, -1)
        return weights.masked_fill(mask, torch.finfo(weights.dtype).min).softmax(-1)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/docs/stable/type_info.html#torch.torch.finfo",
        "https://github.com/pytorch/pytorch/blob/main/c10/util/TypeCast.h",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call."""
        for hit in held(view, _fills):
            advice = "Write torch.finfo(x.dtype).min, x being the tensor, or -torch.inf where no row is masked whole."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _fills(trace: Trace) -> Iterator[Hit]:
    for event in trace.of(*VALUES):
        tensor = event.out if event.op in ("full", "new_full") else event.tensor()
        number = _too_large(event, tensor) if tensor is not None and tensor.low else None
        if number is not None and tensor is not None:
            ends = "65504" if tensor.half else "3.39e38"
            words = f"the tensor is {spoken(tensor)} here, which ends at {ends}"
            yield Hit(event.node, f"{number_words(number)} does not fit: {words}.")


def _too_large(event: Event, tensor: Tensor) -> float | None:
    largest = min(FORMATS[name].max for name in tensor.dtypes or ())
    for place, keyword in VALUES[event.op]:
        value = event.keywords.get(keyword, event.args[place] if place < len(event.args) else None)
        number = None if value is None else number_of(value)
        if number is not None and abs(number) > largest:
            return number
    return None
