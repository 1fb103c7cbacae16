"""Random numbers drawn in 16 bits are other numbers than those drawn in float32, and coarser."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Trace, held, spoken
from mixprec.lint.rules.mp045_gradient_at_zero import differentiates
from mixprec.records import Finding, Severity


class NoiseInHalf(Rule):
    """`torch.randn(shape, dtype=torch.float16)`, `torch.randn_like(half)`."""

    code = "MP069"
    name = "noise-in-half"
    severity = Severity.INFO
    title = "Random numbers are drawn in 16 bits."
    why = "The same seed gives other numbers than in float32, so runs cannot be compared; their tails are coarse."
    bad = """\
import torch


def step(model, latents):
    noise = torch.randn(latents.shape, dtype=torch.float16)
    model(latents, noise).mean().backward()
"""
    good = """\
import torch


def step(model, latents):
    noise = torch.randn(latents.shape).half()
    model(latents, noise).mean().backward()
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/notes/randomness.html",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call, in a file that trains."""
        if not differentiates(view):
            return
        for hit in held(view, _draws):
            yield self.finding(view, hit.node, hit.message, fix=self.fix("Draw in float32 and convert the result."))


def _draws(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("rand", "rand_like", "randn", "randn_like"):
        if event.out is not None and event.out.low:
            yield Hit(event.node, f"These random numbers are drawn in {spoken(event.out)}.")
