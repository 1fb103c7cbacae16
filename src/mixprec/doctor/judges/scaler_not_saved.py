"""MP017: a resume brings back model and optimizer and starts with a new scaler, or with an empty state."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Event, Examination
from mixprec.doctor.judges._crash import crash_says, described, here
from mixprec.doctor.judges._reading import event_run, observed, skips
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Confidence, Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """An empty state is refused; a missing one shows as a burst of skips after the resume."""
    found = crash_says(examination, r"source state dict is empty, possibly because it was saved from a disabled")
    if found is not None:
        arm, crash = found
        return say(
            "MP017",
            "The empty state of a disabled scaler is loaded into an enabled one.",
            here(crash),
            evidence=(described(crash, arm),),
            confidence=Confidence.CONFIRMED,
        )
    watched = observed(examination)
    return None if watched is None else _resumed(examination, watched)


def _resumed(examination: Examination, arm: Arm) -> Verdict | None:
    events = event_run(arm)
    restored = [e for e in events if e.kind == "optimizer_restored"]
    for restore in restored:
        used = next((e for e in events if _steps(e, restore)), None)
        if used is None or used.scaler is None or not _scaled_before(events, restore, used):
            continue
        if any(e.kind == "scaler_restored" and e.scaler == used.scaler and e.index < used.index for e in events):
            continue
        saved = [e for e in events if e.kind == "file_saved" and e.index < restore.index]
        mine = [s for s in arm.of(restore.optimizer or 0) if s.finished]
        return say(
            "MP017",
            "The resume restores the optimizer and not the scaler, which begins at its initial scale again.",
            (saved[-1] if saved else restore).site,
            evidence=(
                Evidence("steps skipped right after the resume", skips(mine).warm_up, arm=arm.name),
                Evidence("scale before the checkpoint", _scale_before(events, restore), arm=arm.name),
                Evidence("line that restores the optimizer", restore.site.line, arm=arm.name),
            ),
            confidence=confidence_of_protocol(examination, "MP017"),
        )
    return None


def _steps(event: Event, restore: Event) -> bool:
    through = event.kind == "scaler_step" and event.data.get("enabled")
    return bool(through) and event.optimizer == restore.optimizer and event.index > restore.index


def _scaled_before(events: tuple[Event, ...], restore: Event, used: Event) -> bool:
    """Whether the run that was saved scaled its loss too, and with another scaler."""
    before = [e for e in events if e.kind == "update" and e.data.get("enabled") and e.index < restore.index]
    return bool(before) and all(e.scaler != used.scaler for e in before)


def _scale_before(events: tuple[Event, ...], restore: Event) -> float | None:
    scales = [e.data.get("scale") for e in events if e.kind == "update" and e.index < restore.index]
    return scales[-1] if scales else None
