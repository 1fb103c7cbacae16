"""MP200: a scaler grows so often, or comes down so slowly, that a large part of all steps is skipped for it."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Examination, ScalerRecord
from mixprec.doctor.judges._reading import Skips, courses, observed, scalers_in_use, skips
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Verdict

SHARE = 0.2
"""Share of the steps after the first applied one that is skipped, and that the settings alone make one expect."""


def judge(examination: Examination) -> Verdict | None:
    """Skips that the interval and the factors explain: each growth costs as many as it takes to come down again."""
    arm = observed(examination)
    for steps in courses(arm) if arm is not None else ():
        assert arm is not None
        seen = skips(steps)
        scaler = next(
            (s for s in scalers_in_use(arm) if (s.scaler, s.rank) == (steps[-1].scaler, steps[-1].rank)), None
        )
        later = seen.attempts - seen.warm_up
        if scaler is None or later < 10 or seen.probes + len(seen.others) < SHARE * later or not seen.probes:
            continue
        if _down(scaler) >= SHARE * ((scaler.growth_interval or 2000) + _down(scaler)):
            return _say(examination, arm, scaler, seen)
    return None


def _down(scaler: ScalerRecord) -> int:
    """Overflows in a row that undo one growth."""
    growth, backoff = scaler.growth_factor or 2.0, scaler.backoff_factor or 0.5
    return math.ceil(math.log(growth) / -math.log(backoff) - 1e-9) if growth > 1 > backoff > 0 else 0


def _say(examination: Examination, arm: Arm, scaler: ScalerRecord, seen: Skips) -> Verdict:
    return say(
        "MP200",
        f"The scale grows every {scaler.growth_interval} clean steps and falls in {_down(scaler)} skipped ones.",
        scaler.site,
        evidence=(
            Evidence("skipped steps", seen.total, f"of {seen.attempts}", arm=arm.name),
            Evidence("growth interval", scaler.growth_interval, arm=arm.name),
            Evidence("growth factor", scaler.growth_factor, arm=arm.name),
            Evidence("backoff factor", scaler.backoff_factor, arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, "MP200"),
    )
