"""MP080, MP081, MP090: autocast is asked for and nothing runs in 16 bits.

Because the device is not there, because the models run in threads that the region does not reach, or because the
region is never entered or does not hold the model.
"""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, WarningRecord
from mixprec.doctor.judges._located import traced
from mixprec.doctor.judges._reading import LOW, low_regions, observed, scalers_in_use
from mixprec.doctor.judges._say import lint_finding, say
from mixprec.records import Confidence, Evidence, Location, Verdict

LAYERS = ("Linear", "Conv", "Bilinear", "MultiheadAttention", "LSTM", "GRU")


def judge(examination: Examination) -> Verdict | None:
    """Layers with matrix products ran and none gave 16 bits, though a region or a scaler was there."""
    arm = observed(examination)
    if arm is None or arm.crash is not None:
        return None
    layers = [m for m in arm.modules if m.calls and m.kind.startswith(LAYERS)]
    if not layers or any(dtype in LOW for m in arm.modules for dtype in (*m.output_dtypes, *m.parameter_dtypes)):
        return None
    warning = _disabled(arm)
    if warning is not None:
        return _say(
            examination, "MP081", "Autocast is disabled: its device or dtype is not available here.", warning.site, arm
        )
    if any(region.low_ops for region in arm.regions) or any(traced(examination, "largest")):
        return None  # functions that no module calls computed in 16 bits
    regions = low_regions(arm)
    if arm.facts.get("threads_with_modules") and regions:
        at = _thread_site(arm) or regions[0].site
        return _say(examination, "MP090", "Models run in other threads than the one that entered autocast.", at, arm)
    if regions:
        return _say(
            examination,
            "MP080",
            "No layer runs inside the autocast region: all of them run in FP32.",
            regions[0].site,
            arm,
        )
    lint = lint_finding(examination, "MP080")
    if scalers_in_use(arm) and (lint is not None or not any(region.entered for region in arm.regions)):
        at = lint.location if lint is not None else _first_forward(arm)
        return _say(examination, "MP080", "No autocast region is ever entered, and everything runs in FP32.", at, arm)
    return None


def _disabled(arm: Arm) -> WarningRecord | None:
    words = (
        "CUDA is not available",
        "is not available.  Disabling",
        "Disabling autocast",
        "is not supported. Disabling",
    )
    return next((w for w in arm.warnings if any(word.lower() in w.message.lower() for word in words)), None)


def _thread_site(arm: Arm) -> Location | None:
    made = arm.facts.get("thread_site")
    return Location(file=made.get("file"), line=made.get("line")) if isinstance(made, dict) else None


def _first_forward(arm: Arm) -> Location:
    return next((e.site for e in arm.events if e.kind == "forward_begin"), Location())


def _say(examination: Examination, code: str, words: str, at: Location, arm: Arm) -> Verdict:
    return say(
        code,
        words,
        at,
        evidence=(
            Evidence("layers that gave 16-bit results", 0, arm=arm.name),
            Evidence("autocast regions entered", sum(region.entered for region in arm.regions), arm=arm.name),
            Evidence("layers called inside them", sum(region.modules for region in arm.regions), arm=arm.name),
        ),
        confidence=Confidence.CONFIRMED,
    )
