"""Before PyTorch 2.11 a pass without gradients left casts in autocast's cache that the training pass then used."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Event, Hit, Trace, held
from mixprec.records import Finding, Severity

FIXED = (2, 10)
"""A project that accepts older releases surely has the fault; the repair was merged in December 2025."""
LAYERS = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d")


class NoGradPassFillsCache(Rule):
    """A forward pass under no_grad, and one with gradients, of the same model in the same region."""

    code = "MP087"
    name = "no-grad-pass-fills-cache"
    severity = Severity.WARNING
    title = "A model runs without and then with gradients in one autocast region, on a PyTorch that mixes up the casts."
    why = "The cast weights of the first pass have no gradient, and the second pass takes them from the cache."
    bad = """\
import torch

model = torch.nn.Linear(8, 8)
x = torch.ones(1, 8)
with torch.autocast("cuda", dtype=torch.bfloat16):
    with torch.no_grad():
        guess = model(x)
    loss = model(x - guess).float().mean()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 8)
x = torch.ones(1, 8)
with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
    with torch.no_grad():
        guess = model(x)
    loss = model(x - guess).float().mean()
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/pytorch/pytorch/issues/112583",
        "https://github.com/pytorch/pytorch/pull/165068",
    )
    requirements = ("torch>=2.1",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per model, at its pass with gradients."""
        if not view.project.may_run_below(FIXED):
            return
        for hit in held(view, _passes):
            advice = "Use two regions, cache_enabled=False, or a newer PyTorch."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _passes(trace: Trace) -> Iterator[Hit]:
    without: dict[tuple[int, int], Event] = {}
    for event in trace.of(*LAYERS):
        if event.module is None or not event.region.enabled or event.region.cache is False:
            continue
        key = (id(event.module), id(event.region.node))
        if event.no_grad:
            without.setdefault(key, event)
        elif event.no_grad is False and key in without:
            line = getattr(without[key].node, "lineno", 0)
            yield Hit(event.node, f"These weights were cast without gradients in line {line}, in the same region.")
