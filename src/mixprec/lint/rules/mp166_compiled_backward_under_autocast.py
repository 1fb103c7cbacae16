"""The backward of a compiled region runs under the autocast state of its caller, not under the island's."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Trace, held
from mixprec.records import Finding, Severity

SETTING = "backward_pass_autocast"


class CompiledBackwardUnderAutocast(Rule):
    """A compiled module with `autocast(enabled=False)` around one of its layers, called inside autocast."""

    code = "MP166"
    name = "compiled-backward-under-autocast"
    severity = Severity.WARNING
    title = "A compiled module turns autocast off around a layer, and is called inside autocast."
    why = "The compiled backward runs the layer's gradients in the caller's 16 bits, as if nothing had turned them off."
    bad = """\
import torch


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(8, 1)

    def forward(self, x):
        with torch.autocast("cuda", enabled=False):
            return self.out(x.float())


model = torch.compile(Head())
with torch.autocast("cuda", dtype=torch.float16):
    y = model(torch.ones(1, 8))
"""
    good = """\
import torch
import torch._functorch.config

torch._functorch.config.backward_pass_autocast = "off"


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(8, 1)

    def forward(self, x):
        with torch.autocast("cuda", enabled=False):
            return self.out(x.float())


model = torch.compile(Head())
with torch.autocast("cuda", dtype=torch.float16):
    y = model(torch.ones(1, 8))
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/pytorch/pytorch/issues/153044",
        "https://github.com/pytorch/pytorch/blob/main/torch/_functorch/config.py",
    )
    words = ("autocast",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call of a compiled module."""
        if SETTING in view.source:
            return
        for hit in held(view, _calls):
            advice = 'Set torch._functorch.config.backward_pass_autocast = "off", or enter autocast inside the module.'
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _calls(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("compile.islands"):
        yield Hit(
            event.node, "The compiled backward ignores the float32 part inside and runs it in the caller's 16 bits."
        )
