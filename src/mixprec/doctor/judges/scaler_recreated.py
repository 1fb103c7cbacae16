"""MP016: one optimizer is stepped through scalers that are made again and again."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, ScalerRecord
from mixprec.doctor.judges._reading import courses, observed, scalers_in_use
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Two enabled scalers or more, made at one line, step the same optimizer, the later never restored."""
    arm = observed(examination)
    for steps in courses(arm) if arm is not None else ():
        assert arm is not None
        numbers = list(dict.fromkeys(step.scaler for step in steps if step.scaler is not None))
        made = [s for s in scalers_in_use(arm) if s.scaler in numbers and s.rank == steps[0].rank]
        restored = {e.scaler for e in arm.events if e.kind == "scaler_restored" and not e.data.get("empty")}
        again = [s for s in made[1:] if s.scaler not in restored and s.site == made[0].site]
        if again and steps[0].rank == 0:
            bursts = sum(_first_skips(steps, s.scaler) for s in again)
            return _say(examination, arm, made, again, bursts)
    return None


def _first_skips(steps: tuple[object, ...], scaler: int) -> int:
    mine = [step for step in steps if getattr(step, "scaler", None) == scaler]
    return next((n for n, step in enumerate(mine) if not getattr(step, "skipped", False)), len(mine))


def _say(
    examination: Examination, arm: Arm, made: list[ScalerRecord], again: list[ScalerRecord], skipped: int
) -> Verdict:
    return say(
        "MP016",
        "A new scaler is made again and again for the same optimizer, and each begins at its initial scale.",
        again[0].site,
        evidence=(
            Evidence("scalers that stepped this optimizer", len(made), arm=arm.name),
            Evidence("steps that the later ones skipped at their start", skipped, arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, "MP016"),
    )
