"""MP019, MP147: a scaler is on and the region computes in bfloat16, by intent or because nobody named a dtype."""

from __future__ import annotations

import re

from mixprec.doctor._arm import Arm, Examination, RegionRecord, ScalerRecord
from mixprec.doctor.judges._protocol import on_ranks, scaling_is_on
from mixprec.doctor.judges._reading import low_regions, observed, scalers_in_use, text_of
from mixprec.doctor.judges._say import lint_finding, say
from mixprec.records import Confidence, Evidence, Finding, Location, Severity, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Every 16-bit region is bfloat16, something ran in it, and an enabled scaler scaled the loss."""
    arm = observed(examination)
    if arm is None or low_regions(arm, "float16"):
        return None
    regions = [region for region in low_regions(arm, "bfloat16") if region.modules or region.low_ops]
    scalers = scalers_in_use(arm)
    if not regions or not scalers or not any(scaling_is_on(events) for events in on_ranks(arm)):
        return None
    silent = lint_finding(examination, "MP147")
    if silent is not None or _names_no_dtype(regions[0]):
        return _default(arm, regions[0], scalers[0], silent)
    return _superfluous(examination, arm, regions[0], scalers[0])


def _names_no_dtype(region: RegionRecord) -> bool:
    """Whether the line that enters the region makes it as well, and names no dtype."""
    made_here = re.search(r"autocast\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text_of(region.site))
    return made_here is not None and not re.search(r"dtype|float16|half|,", made_here.group(1))


def _evidence(arm: Arm, region: RegionRecord, scaler: ScalerRecord) -> list[Evidence]:
    return [
        Evidence("dtype of the region", region.dtype, arm=arm.name),
        Evidence("line of the region", region.site.line, arm=arm.name),
        Evidence("scaler enabled", scaler.enabled, arm=arm.name),
        Evidence("skipped steps", sum(step.skipped for step in arm.steps), arm=arm.name),
    ]


def _default(arm: Arm, region: RegionRecord, scaler: ScalerRecord, silent: Finding | None) -> Verdict:
    return say(
        "MP147",
        "autocast is given no dtype and takes bfloat16 on this device, while the scaler is meant for FP16.",
        silent.location if silent is not None else region.site,
        evidence=_evidence(arm, region, scaler),
        confidence=Confidence.CONFIRMED if silent is not None else Confidence.CONSISTENT,
        severity=Severity.WARNING,
    )


def _superfluous(examination: Examination, arm: Arm, region: RegionRecord, scaler: ScalerRecord) -> Verdict:
    return say(
        "MP019",
        "A scaler is on although the region computes in bfloat16, which has the range of FP32.",
        scaler.site if scaler.site != Location() else region.site,
        evidence=_evidence(arm, region, scaler),
        confidence=Confidence.CONFIRMED if lint_finding(examination, "MP019") else Confidence.CONSISTENT,
        severity=Severity.WARNING,
    )
