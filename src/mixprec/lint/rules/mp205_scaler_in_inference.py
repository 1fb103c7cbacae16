"""Where nothing is differentiated there is no gradient to scale."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Trace, held
from mixprec.records import Finding, Severity


class ScalerInInference(Rule):
    """`scaler.scale(loss)` under `torch.no_grad()`."""

    code = "MP205"
    name = "scaler-in-inference"
    severity = Severity.WARNING
    title = "A loss is scaled where gradients are off."
    why = "The scaled loss is never differentiated; what is logged or compared is 65536 times too large."
    bad = """\
import torch

model = torch.nn.Linear(8, 8)
scaler = torch.amp.GradScaler("cuda")
with torch.no_grad():
    loss = scaler.scale(model(torch.ones(1, 8)).mean())
"""
    good = """\
import torch

model = torch.nn.Linear(8, 8)
scaler = torch.amp.GradScaler("cuda")
with torch.no_grad():
    loss = model(torch.ones(1, 8)).mean()
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call."""
        for hit in held(view, _scales):
            yield self.finding(view, hit.node, hit.message, fix=self.fix("Use the loss as it is."))


def _scales(trace: Trace) -> Iterator[Hit]:
    """Calls that only ever run without gradients; a step shared by training and validation is left alone."""
    events = list(trace.of("scaler.scale"))
    trained = {id(event.node) for event in events if not event.no_grad}
    for event in events:
        if id(event.node) not in trained:
            yield Hit(event.node, "Gradients are off here, so there is nothing that the scale could protect.")
