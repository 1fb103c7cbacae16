"""An eps below 3e-8 is 0 in float16, and what it guards divides by zero."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.formats import FP16
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Event, Hit, Tag, Tensor, Trace, held, number_of, number_words, spoken
from mixprec.records import Finding, Severity

DEFAULTS = {"cosine_similarity": (3, 1e-8), "normalize": (3, 1e-12)}
"""Functions that guard a division by an eps of their own: its place and its default."""


class EpsRoundsToZero(Rule):
    """`x / (norm + 1e-8)`, `F.normalize(x)`, `torch.rsqrt(v + 1e-8)` where the tensor is float16."""

    code = "MP048"
    name = "eps-rounds-to-zero"
    severity = Severity.WARNING
    title = "The small constant that guards a division is 0 in float16."
    why = "Half the smallest float16 number is 3e-8: an eps of 1e-8 or 1e-12 rounds to 0, and 0/0 is NaN."
    bad = """\
import torch


def scale(x, weight):
    with torch.autocast("cuda", dtype=torch.float16):
        y = x @ weight
        return y / (y.abs().amax(-1, keepdim=True) + 1e-8)
"""
    good = """\
import torch


def scale(x, weight):
    with torch.autocast("cuda", dtype=torch.float16):
        y = (x @ weight).float()
        return y / (y.abs().amax(-1, keepdim=True) + 1e-8)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/pytorch/pytorch/issues/32137",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.normalize.html",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per constant."""
        for hit in held(view, _guards):
            advice = "Divide in float32 (x.float()), or use an eps that float16 can hold, such as 1e-4."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _guards(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("div", "rsqrt", "reciprocal", "sqrt", "pow"):
        tensor = _divisor(event)
        if tensor is not None and Tag.VANISHED in tensor.tags and tensor.constant is not None:
            message = f"{number_words(tensor.constant)} is 0 in float16, so it does not guard this {_words(event)}."
            yield Hit(event.node, message, tensor.origin)
    for event in trace.of(*DEFAULTS):
        yield from _with_default(event)


def _divisor(event: Event) -> Tensor | None:
    """What must not be 0."""
    place = 1 if event.op == "div" else 0
    if event.op == "pow":
        power = event.number(1)
        place = 0 if power is not None and power < 0 else len(event.args)
    if event.op == "sqrt" and event.no_grad:
        return None
    value = event.args[place] if place < len(event.args) else None
    return value if isinstance(value, Tensor) else None


def _words(event: Event) -> str:
    return "square root's gradient" if event.op == "sqrt" else "division"


def _with_default(event: Event) -> Iterator[Hit]:
    place, default = DEFAULTS[event.op]
    given = event.keywords.get("eps", event.args[place] if place < len(event.args) else None)
    eps = default if given is None else number_of(given)
    tensor = event.tensor()
    if eps is None or eps == 0 or FP16.round(eps) != 0 or not isinstance(tensor, Tensor):
        return
    if tensor.half and isinstance(event.result, Tensor) and event.result.half:
        yield Hit(
            event.node,
            f"The input is {spoken(tensor)}, in which {event.op}'s eps of {number_words(eps)} is 0: "
            "a vector of zeros gives 0/0.",
        )
