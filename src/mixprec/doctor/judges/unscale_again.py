"""MP007, MP025, MP142: an optimizer is unscaled a second time before update().

If the gradients of the first time are still there it is one window, unscaled at every micro-batch; if they were
cleared in between, an iteration ended early and took update() with it; if the script moved the weights in between,
it takes two half-steps (SAM).
"""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Crash, Event, Examination
from mixprec.doctor.judges._crash import crash_says, described
from mixprec.doctor.judges._protocol import between, enabled, last, on_ranks
from mixprec.doctor.judges._reading import event_run, observed
from mixprec.doctor.judges._say import confidence_of_protocol, lint_finding, say
from mixprec.records import Confidence, Evidence, Location, Verdict

WORDS = {
    "MP007": "unscale_ is called for every micro-batch of a window; it belongs before the step.",
    "MP025": "Both half-steps of one iteration are unscaled, and update() comes once: a scaler takes one per update.",
    "MP142": "An iteration left out step() by hand and update() with it: the optimizer stays marked as unscaled.",
}


def judge(examination: Examination) -> Verdict | None:
    """The second unscale_, and what lies between it and the first."""
    found = crash_says(examination, r"unscale_\(\) has already been called on this optimizer since the last update")
    return _raised(examination, *found) if found is not None else _mixed(examination)


def _raised(examination: Examination, arm: Arm, crash: Crash) -> Verdict | None:
    events = event_run(arm, crash.rank)
    second = last(events, "unscale")
    if second is None:
        return None
    firsts = [e for e in events if e.kind == "unscale" and e.optimizer == second.optimizer and e.index < second.index]
    if not firsts:
        return None
    span = between(events, firsts[-1], second)
    if not any(event.kind == "update" for event in events) and any(event.kind == "step" for event in span):
        return _never_updated(arm, crash, span)
    cleared = any(event.kind == "zero_grad" for event in span)
    if any(event.kind == "weights_moved" for event in span):
        code = "MP025"
    else:
        code = "MP142" if cleared and _comes_round(events, span) else "MP007"
    return say(
        code,
        WORDS[code],
        _left_out(examination, events, firsts[-1]) if code == "MP142" else second.site,
        evidence=(
            described(crash, arm),
            Evidence("gradients cleared between the two", cleared, arm=arm.name, step=second.iteration),
            Evidence("step or update between the two", any(e.kind in ("scaler_step", "update") for e in span)),
        ),
        confidence=Confidence.CONFIRMED,
    )


def _comes_round(events: tuple[Event, ...], span: list[Event]) -> bool:
    """Whether a backward between the two is one that the script had called before: another iteration has begun."""
    lines = {(e.site.file, e.site.line) for e in span if e.kind == "backward"}
    return any((e.site.file, e.site.line) in lines for e in events if e.kind == "backward" and e.index < span[0].index)


def _never_updated(arm: Arm, crash: Crash, span: list[Event]) -> Verdict:
    step = next(event for event in span if event.kind == "step")
    return say(
        "MP005",
        "scaler.update() is never called: the scaler still holds what it knows of the first step.",
        step.site,
        evidence=(described(crash, arm), Evidence("calls of update", 0, arm=arm.name)),
        confidence=Confidence.CONFIRMED,
    )


def _left_out(examination: Examination, events: tuple[Event, ...], first: Event) -> Location:
    """The test that ends the iteration early, where lint sees it; else the step that the other iterations make."""
    lint = lint_finding(examination, "MP142")
    if lint is not None:
        return lint.location
    steps = [e for e in events if e.kind in ("scaler_step", "update") and e.optimizer in (None, first.optimizer)]
    usual = [e for e in steps if e.index < first.index]
    return next((e for e in reversed(usual) if e.kind == "scaler_step"), usual[-1] if usual else first).site


def _mixed(examination: Examination) -> Verdict | None:
    """A backward adds scaled gradients to unscaled ones: silent where unscale_ is guarded."""
    arm = observed(examination)
    for events in on_ranks(arm) if arm is not None else ():
        for event in events:
            if event.kind != "unscale" or not event.data.get("explicit") or not enabled(event):
                continue
            for later in events:
                if later.index <= event.index:
                    continue
                if later.kind in ("zero_grad", "update", "scaler_step", "step"):
                    break
                if later.kind == "backward" and later.data.get("of_scale"):
                    return _say_mixed(examination, arm, event, later)
    return None


def _say_mixed(examination: Examination, arm: Arm | None, unscale: Event, backward: Event) -> Verdict | None:
    if arm is None or not _reaches(arm, unscale):
        return None
    return say(
        "MP007",
        "Gradients are unscaled inside the accumulation window, and later backward passes add scaled ones to them.",
        unscale.site,
        evidence=(
            Evidence("line of the backward that follows", backward.site.line, arm=arm.name, step=unscale.iteration),
        ),
        confidence=confidence_of_protocol(examination, "MP007"),
    )


def _reaches(arm: Arm, unscale: Event) -> bool:
    """Whether there is only one optimizer, so that the backward must be of its gradients."""
    return len({o.optimizer for o in arm.optimizers if o.rank == unscale.rank}) == 1
