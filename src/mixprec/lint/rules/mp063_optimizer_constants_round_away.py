"""Adam's eps of 1e-8 is 0 in float16, and so is the square of a small gradient: the first step divides by zero."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.formats import FP16
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Optimizer, Tag, Tensor, Trace, held, number_of, number_words, spoken
from mixprec.lint.rules.mp061_updates_round_away import OWNERS, freezes
from mixprec.records import Finding, Severity

DEFAULTS = {
    "Adagrad": 1e-10,
    "Adam": 1e-8,
    "AdamW": 1e-8,
    "Adamax": 1e-8,
    "NAdam": 1e-8,
    "RAdam": 1e-8,
    "RMSprop": 1e-8,
}
"""Optimizers that divide by the root of an average of squares, and the eps that guards it."""


class OptimizerConstantsRoundAway(Rule):
    """`torch.optim.Adam(model.half().parameters())` with an eps that float16 cannot hold."""

    code = "MP063"
    name = "optimizer-constants-round-away"
    severity = Severity.ERROR
    title = "Adam updates float16 parameters with an eps that is 0 in float16."
    why = (
        "The state is float16 as the parameters are. Squares of gradients below 2e-4 and eps are 0, so it divides by 0."
    )
    bad = """\
import torch


def build(layer):
    model = layer.half()
    return torch.optim.Adam(model.parameters(), lr=1e-3)
"""
    good = """\
import torch


def build(layer):
    model = layer.float()
    return torch.optim.Adam(model.parameters(), lr=1e-3)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/pytorch/pytorch/issues/147437",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per optimizer."""
        if OWNERS & view.owners or freezes(view):
            return
        for hit in held(view, _optimizers):
            advice = "Keep float32 parameters and use autocast; where that cannot be, eps=1e-4 or more."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _optimizers(trace: Trace) -> Iterator[Hit]:
    scaled = {event.args[1] for event in trace.of("scaler.step", "scaler.unscale_") if len(event.args) > 1}
    for event in trace.of("optimizer", "optimizer.step"):
        optimizer, trained = event.args[0], event.args[1]
        if optimizer in scaled:  # a scaler refuses float16 gradients before the optimizer sees them
            continue
        if not isinstance(optimizer, Optimizer) or not isinstance(trained, Tensor):
            continue
        if optimizer.own or optimizer.name not in DEFAULTS:
            continue
        given = optimizer.option("eps")
        eps = DEFAULTS[optimizer.name] if given is None else number_of(given)
        if eps is not None and FP16.round(eps) == 0 and trained.half and Tag.PARAMETER in trained.tags:
            message = f"eps={number_words(eps)} is 0 in float16, and the parameters are {spoken(trained)}."
            yield Hit(event.node, message, optimizer.node)
