"""Without autocast a layer takes only the dtype of its weights."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Event, Hit, Tag, Trace, held, spoken
from mixprec.lint.rules.mp082_custom_function_without_custom_fwd import mixed_operands
from mixprec.records import Finding, Severity

PRODUCTS = ("addmm", "bmm", "conv1d", "conv2d", "conv3d", "linear", "matmul", "mm", "mv", "lstm", "gru", "rnn")
TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
NORMS = ("batch_norm", "group_norm", "instance_norm", "layer_norm")


class HalfWeightsFp32Input(Rule):
    """`model.half()(image)` with a float32 image, and no autocast around it."""

    code = "MP163"
    name = "half-weights-fp32-input"
    severity = Severity.ERROR
    title = "A layer with 16-bit weights gets a float32 input, or the reverse, with autocast off."
    why = "Linear, convolution and normalisation layers raise on mixed dtypes; only autocast converts for them."
    bad = """\
import torch

model = torch.nn.Linear(8, 8).half().eval()
output = model(torch.ones(1, 8))
"""
    good = """\
import torch

model = torch.nn.Linear(8, 8).half().eval()
output = model(torch.ones(1, 8).half())
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/DepthAnything/Depth-Anything-V2/issues/264",
        "https://docs.pytorch.org/docs/stable/amp.html",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per place in which the dtypes part."""
        for hit in held(view, _calls):
            advice = (
                "Convert the input to the dtype of the weights: x.to(model_dtype); or keep float32 and use autocast."
            )
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _calls(trace: Trace) -> Iterator[Hit]:
    for event in trace.of(*PRODUCTS, *TRANSPOSED, *NORMS):
        if event.region.enabled is not False or event.backward:
            continue
        mixed = mixed_operands(event)
        if mixed is not None and not (event.op in NORMS and _weights_are_wide(event)):
            low, wide = mixed
            message = f"{event.op} gets {spoken(low)} together with float32, and autocast is off."
            yield Hit(event.node, message, wide.origin if Tag.PROMOTED in wide.tags else None)


def _weights_are_wide(event: Event) -> bool:
    """A normalisation with float32 weights takes 16-bit inputs."""
    weight = event.tensor(1)
    return weight is None or not weight.low
