"""MP003, MP006, MP008: update() comes where a window of gradients is still open.

Between the steps of two optimizers that share a backward it is MP006; before any step of a window MP008; after a step
that the scaler did not make MP003.
"""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.doctor._arm import Arm, Crash, Event, Examination
from mixprec.doctor.judges._crash import crash_says, described
from mixprec.doctor.judges._protocol import between, enabled, last, on_ranks
from mixprec.doctor.judges._reading import event_run, observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Confidence, Evidence, Location, Verdict

WORDS = {
    "MP003": "The optimizer is stepped directly, not through the scaler, which then has nothing to judge the scale by.",
    "MP006": "update() runs between the steps of two optimizers: the second is unscaled by another scale than its own.",
    "MP008": "update() runs inside an accumulation window: the scale may change between micro-batches.",
}


def judge(examination: Examination) -> Verdict | None:
    """The update that is refused, or one that comes between a backward and its step."""
    found = crash_says(examination, r"No inf checks were recorded prior to update")
    if found is not None:
        return _refused(*found)
    arm = observed(examination)
    for events in on_ranks(arm) if arm is not None else ():
        crossings = list(_crossings(events))
        if crossings:
            telling = next((one for one in crossings if one[1].data.get("changed")), crossings[0])
            return _say(examination, arm, *telling)
    return None


def _refused(arm: Arm, crash: Crash) -> Verdict | None:
    events = event_run(arm, crash.rank)
    previous = last(events, "update")
    window = between(events, previous, None)
    direct = [e for e in window if e.kind == "step" and e.data.get("by_scaler") is False]
    through = [e for e in window if e.kind == "scaler_step"]
    if direct:
        return _say_refused(arm, crash, "MP003", direct[-1].site)
    if through:
        return None  # a step without gradients: another judge's
    return _say_refused(arm, crash, "MP008", crash.frames[-1] if crash.frames else window[-1].site)


def _say_refused(arm: Arm, crash: Crash, code: str, at: Location) -> Verdict:
    return say(code, WORDS[code], at, evidence=(described(crash, arm),), confidence=Confidence.CONFIRMED)


def _crossings(events: tuple[Event, ...]) -> Iterator[tuple[str, Event, Event]]:
    """(code, update, step after it) of every update in an open window."""
    for step in events:
        if step.kind != "scaler_step" or not enabled(step):
            continue
        before = [e for e in events if e.index < step.index]
        own = last(before, "scaler_step", optimizer=step.optimizer)
        window = between(before, own, None)
        updates = [e for e in window if e.kind == "update" and e.scaler == step.scaler]
        backwards = [e for e in window if e.kind == "backward" and e.data.get("of_scale") and e.scaler == step.scaler]
        others = [e for e in window if e.kind == "scaler_step" and e.optimizer != step.optimizer]
        if own is not None:
            updates = updates[1:] if _ends(updates, own, events) else updates
        if not updates or not backwards or not others:
            continue
        late = updates[-1]
        if backwards[-1].index < late.index and any(others[-1].index < u.index for u in (late,)):
            yield "MP006", late, step
        elif _accumulates(step, backwards, updates, window):
            yield "MP008", late, step


def _ends(updates: list[Event], own: Event, events: tuple[Event, ...]) -> bool:
    """Whether the first update after the optimizer's own step closes that step's window."""
    return bool(updates) and not any(e.kind == "backward" for e in between(events, own, updates[0]))


def _accumulates(step: Event, backwards: list[Event], updates: list[Event], window: list[Event]) -> bool:
    """Whether this optimizer gathered gradients across an update: it was not cleared, and others stepped meanwhile."""
    cleared = [e for e in window if e.kind == "zero_grad" and e.optimizer in (None, step.optimizer)]
    kept_from = cleared[-1].index if cleared else -1
    crossed = [u for u in updates if kept_from < u.index < step.index]
    return any(b.index < u.index for u in crossed for b in backwards if b.index > kept_from) and any(
        b.index > u.index for u in crossed for b in backwards
    )


def _say(examination: Examination, arm: Arm | None, code: str, update: Event, step: Event) -> Verdict:
    assert arm is not None
    return say(
        code,
        WORDS[code],
        update.site,
        evidence=(
            Evidence("scale before the update", update.data.get("scale_before"), arm=arm.name, step=update.iteration),
            Evidence("scale after it", update.data.get("scale"), arm=arm.name, step=update.iteration),
            Evidence("line of the step that comes after it", step.site.line, arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, code),
    )
