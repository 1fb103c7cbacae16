"""MP004, MP018, MP170: gradients that never went through this scaler's scale() are unscaled or stepped by it.

Whose fault that is depends on what was there instead: a plain backward, another scaler, or no backward at all.
"""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Event, Examination
from mixprec.doctor.judges._crash import crash_says, described
from mixprec.doctor.judges._protocol import between, enabled, last, on_ranks
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Confidence, Evidence, Verdict

WORDS = {
    "MP004": "The loss does not go through scaler.scale() before backward: the scaler divides plain gradients.",
    "MP018": "The loss is scaled by one scaler and the optimizer is stepped through another.",
    "MP170": "The step part runs before any backward of this run: the checkpoint was cut in an open window.",
}


def judge(examination: Examination) -> Verdict | None:
    """What came before the first unscale or step that found nothing scaled."""
    arm = observed(examination)
    if arm is None:
        return None
    for events in on_ranks(arm):
        foreign = next((e for e in events if e.kind == "scaler_step" and enabled(e) and e.data.get("foreign")), None)
        if foreign is not None:
            return _say(examination, arm, foreign, "MP018", foreign)
        mixed = next((e for e in events if e.kind == "scaler_step" and enabled(e) and e.data.get("mixed")), None)
        plain = _plain_before(events, mixed) if mixed is not None else None
        if mixed is not None and plain is not None:
            return _say(examination, arm, mixed, "MP004", plain)
        for event in events:
            if event.kind in ("unscale", "scaler_step") and enabled(event) and event.scaler is not None:
                found = _cause(events, event)
                if found is not None:
                    return _say(examination, arm, event, *found)
    return None


def _plain_before(events: tuple[Event, ...], step: Event) -> Event | None:
    """The backward of this optimizer's window whose loss no scaler had scaled, beside others that were."""
    before = [event for event in events if event.index < step.index]
    window = between(before, last(before, "scaler_step", optimizer=step.optimizer), None)
    return next((e for e in reversed(window) if e.kind == "backward" and not e.data.get("of_scale")), None)


def _cause(events: tuple[Event, ...], asked: Event) -> tuple[str, Event] | None:
    before = [event for event in events if event.index < asked.index]
    window = between(before, last(before, "update", "zero_grad") or _creation(before, asked), None)
    since_update = between(before, last(before, "update"), None)
    backwards = [event for event in since_update if event.kind == "backward"]
    others = [e for e in backwards if e.data.get("of_scale") and e.scaler not in (None, asked.scaler)]
    ever = any(event.kind == "scale" and event.scaler == asked.scaler for event in before)
    since_creation = between(before, _creation(before, asked), None)
    if not ever and not any(event.kind in ("backward", "scale") for event in since_creation):
        return "MP170", asked
    if others and not any(e.scaler == asked.scaler for e in backwards):
        return "MP018", asked
    plain = [event for event in backwards if not event.data.get("of_scale")]
    if plain and len(plain) == len(backwards) and asked.data.get("state") == "plain":
        return "MP004", plain[-1]
    return ("MP004", plain[-1]) if plain and not ever and window is not None else None


def _creation(events: list[Event], asked: Event) -> Event | None:
    mine = [event for event in events if event.kind == "scaler_created" and event.scaler == asked.scaler]
    return mine[-1] if mine else None


def _say(examination: Examination, arm: Arm, asked: Event, code: str, at: Event) -> Verdict:
    crash = crash_says(examination, r"_scale is None", r"No inf checks were recorded")
    evidence = [Evidence("state of the gradients", str(asked.data.get("state")), arm=arm.name, step=asked.iteration)]
    if crash is not None:
        evidence.insert(0, described(crash[1], arm))
    if asked.data.get("foreign"):
        other = next((s for s in arm.scalers if s.scaler in asked.data["carried"] and s.rank == asked.rank), None)
        if other is not None:
            evidence.append(Evidence("line of the scaler that the loss went through", other.site.line, arm=arm.name))
            evidence.append(Evidence("scale that it starts with", other.init_scale, arm=arm.name))
    step = next((s for s in arm.steps if s.optimizer == asked.optimizer and s.iteration >= asked.iteration), None)
    if step is not None and step.scale is not None:
        evidence.append(Evidence("what the gradients were divided by", step.scale, arm=arm.name, step=asked.iteration))
    seen = crash is not None or bool(asked.data.get("foreign"))
    confidence = Confidence.CONFIRMED if seen else confidence_of_protocol(examination, code)
    return say(code, WORDS[code], at.site, evidence=evidence, confidence=confidence)
