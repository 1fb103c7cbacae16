"""MP005: scaler.update() is never called after a step."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._crash import crash_says, described
from mixprec.doctor.judges._protocol import between, last
from mixprec.doctor.judges._reading import event_run
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """The scaler refuses a second step, or to unscale after one, and no update lies between."""
    found = crash_says(
        examination,
        r"step\(\) has already been called since the last update",
        r"unscale_\(\) is being called after step\(\)",
    )
    if found is None:
        return None
    arm, crash = found
    events = event_run(arm, crash.rank)
    refused = last(events, "scaler_step", "unscale")
    if refused is None:
        return None
    earlier = [e for e in events if e.kind == "scaler_step" and e.optimizer == refused.optimizer and e is not refused]
    if not earlier:
        return None
    if any(event.kind == "update" for event in between(events, earlier[-1], refused)):
        return None
    same_iteration = not any(event.kind in ("backward", "zero_grad") for event in between(events, earlier[-1], refused))
    code = "MP005" if not same_iteration else "MP025" if crash.message.startswith("step") else "MP005"
    return say(
        code,
        "scaler.update() is missing after scaler.step(): the scaler refuses the next one.",
        earlier[-1].site,
        evidence=(
            described(crash, arm),
            Evidence("calls of update", sum(e.kind == "update" for e in events), arm=arm.name),
            Evidence("calls of scaler.step", sum(e.kind == "scaler_step" for e in events), arm=arm.name),
        ),
        confidence=Confidence.CONFIRMED,
    )
