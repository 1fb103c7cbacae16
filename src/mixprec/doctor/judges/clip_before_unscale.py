"""MP002: gradients are clipped while they carry the loss scale, by torch or by hand.

A clip by hand leaves a trace: every gradient that reaches the scaler has the same norm, scale included.
"""

from __future__ import annotations

import math
import re

from mixprec.doctor._arm import Arm, Event, Examination, StepRecord
from mixprec.doctor.judges._protocol import on_ranks
from mixprec.doctor.judges._reading import courses, observed, text_of
from mixprec.doctor.judges._say import confidence_of_protocol, lint_finding, say
from mixprec.records import Evidence, Location, Verdict

ENOUGH = 6
"""Steps whose norms must agree."""
ALIKE = 1e-3
"""Relative difference of norms that are one number, rounded."""
LENGTH = 5.0
"""Up to here it is a length that somebody chose."""
WRITES = re.compile(r"\bg(?:rad)?s?\b.*(?:mul_|div_|copy_|[*/]=|grad\s*=)|\.grad\b.*(?:mul_|div_|[*/]=|=)")


def judge(examination: Examination) -> Verdict | None:
    """A clip of gradients in state `scaled`, at a scale other than 1."""
    arm = observed(examination)
    if arm is None:
        return None
    for events in on_ranks(arm):
        for event in events:
            if event.kind == "clip" and event.data.get("state") == "scaled" and _scale_at(arm, event) != 1.0:
                return say(
                    "MP002",
                    "Gradients are clipped while they still carry the loss scale: nearly nothing is left of them.",
                    event.site,
                    evidence=_evidence(arm, event),
                    confidence=confidence_of_protocol(examination, "MP002"),
                )
    return next((_by_hand(examination, arm, *found) for steps in courses(arm) if (found := _same_norms(steps))), None)


def _same_norms(steps: tuple[StepRecord, ...]) -> tuple[StepRecord, float] | None:
    """(a step, norm) where all scaled gradients of an optimizer have next to the same norm; that of an FP32 training
    wanders.
    """
    applied = [s for s in steps if s.scale is not None and s.scale > 1.0 and s.carries and s.grad_norm is not None]
    norms = [(s.grad_norm or 0.0) * (s.scale or 0.0) for s in applied if math.isfinite(s.grad_norm or 0.0)]
    if len(norms) < ENOUGH or not min(norms) > 0 or max(norms) > (1 + ALIKE) * min(norms):
        return None
    if norms[-1] > LENGTH and len({step.scale for step in applied}) == 1:
        return None  # a constant slope at a constant scale
    return applied[-1], norms[-1]


def _by_hand(examination: Examination, arm: Arm, step: StepRecord, norm: float) -> Verdict:
    lint = lint_finding(examination, "MP002")
    return say(
        "MP002",
        "Gradients are cut to one length by hand while they carry the loss scale: nearly nothing is left of them.",
        _line_with_gradients(arm, step) if lint is None else lint.location,
        evidence=(
            Evidence("norm of the scaled gradients, the same at every step", norm, arm=arm.name, step=step.iteration),
            Evidence("norm that is left without the scale", step.grad_norm, arm=arm.name, step=step.iteration),
            Evidence("loss scale", step.scale, arm=arm.name, step=step.iteration),
        ),
        confidence=confidence_of_protocol(examination, "MP002"),
    )


def _line_with_gradients(arm: Arm, step: StepRecord) -> Location:
    """The last line between backward and step that writes to gradients, where both stand in one file; else the step."""
    backward = next((event.site for event in arm.events if event.kind == "backward"), Location())
    if backward.file != step.site.file or backward.line is None or step.site.line is None:
        return step.site
    between = [Location(file=backward.file, line=line) for line in range(backward.line + 1, step.site.line)]
    return next((site for site in reversed(between) if WRITES.search(text_of(site))), step.site)


def _scale_at(arm: Arm, clip: Event) -> float | None:
    mine = [s for s in arm.steps if s.rank == clip.rank and s.optimizer == clip.optimizer and s.scale is not None]
    return next((step.scale for step in mine if step.iteration >= clip.iteration), None)


def _evidence(arm: Arm, clip: Event) -> list[Evidence]:
    step = next((s for s in arm.steps if s.optimizer == clip.optimizer and s.iteration >= clip.iteration), None)
    facts = [
        ("limit of the clip", clip.data.get("limit")),
        ("norm that the clip saw", clip.data.get("norm")),
        ("true norm of the gradients", step.grad_norm if step else None),
        ("loss scale", step.scale if step else None),
    ]
    return [Evidence(what, value, arm=arm.name, step=clip.iteration) for what, value in facts if value is not None]
