"""MP024: an optimizer that calls a closure several times is stepped through a scaler."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._crash import crash_says, described, here
from mixprec.doctor.judges._reading import event_run, observed, optimizer_of
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Confidence, Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """A keyword closure raises; a positional one runs backward inside the step, on the scaled loss."""
    found = crash_says(examination, r"Closure use is not currently supported if GradScaler is enabled")
    if found is not None:
        arm, crash = found
        return say(
            "MP024",
            "A closure is passed to scaler.step, which cannot unscale between its calls.",
            here(crash),
            evidence=(described(crash, arm),),
            confidence=Confidence.CONFIRMED,
        )
    return _positional(examination)


def _positional(examination: Examination) -> Verdict | None:
    arm = observed(examination)
    if arm is None:
        return None
    for event in event_run(arm):
        optimizer = optimizer_of(arm, event.optimizer)
        if event.kind == "scaler_step" and event.data.get("enabled") and optimizer and optimizer.kind == "LBFGS":
            return say(
                "MP024",
                "LBFGS is stepped through a scaler: its closure is called several times on the scaled loss.",
                event.site,
                evidence=(Evidence("optimizer of scaler.step", "LBFGS", arm=arm.name, step=event.iteration),),
                confidence=confidence_of_protocol(examination, "MP024"),
            )
    return None
