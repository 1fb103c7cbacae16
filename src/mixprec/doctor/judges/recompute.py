"""MP089, MP165: what a checkpointed block computed in forward and in its recompute differs."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._crash import confidence_of_crash, crash_says, described, here
from mixprec.doctor.judges._reading import raised_alike
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """A cast that recompute asks for and forward did not make is the cast cache; another dtype is another region."""
    return _cache(examination) or _state(examination)


def _cache(examination: Examination) -> Verdict | None:
    found = crash_says(examination, r"encountered during backward,? but not found in storage")
    if found is None:
        return None
    arm, crash = found
    uncached = examination.arm("cast_cache_off")
    cured = uncached is not None and not raised_alike(arm, uncached)
    confidence, controls = confidence_of_crash(examination, crash)
    evidence = [described(crash, arm)]
    if cured:
        evidence.append(Evidence("the same script without the cast cache", "does not raise", arm="cast_cache_off"))
    return say(
        "MP165",
        "The recompute of a checkpointed block casts a weight that forward took from the autocast cache.",
        here(crash),
        evidence=evidence,
        confidence=Confidence.CONFIRMED if cured else confidence,
        ruled_out=controls,
    )


def _state(examination: Examination) -> Verdict | None:
    found = crash_says(examination, r"Recomputed values for the following tensors have different metadata")
    if found is None:
        return None
    arm, crash = found
    if not any(word in crash.message for word in ("float16", "bfloat16")):
        return None
    confidence, controls = confidence_of_crash(examination, crash)
    starts = [event.site for event in arm.events if event.kind == "backward"]
    sites = [region.site for region in arm.regions if region.entered]
    regions = [site for site in sites if not any(_same(site, start) for start in starts)]
    inner = next((frame for frame in reversed(crash.frames) if any(_same(frame, site) for site in regions)), None)
    return say(
        "MP089",
        "A checkpointed block is recomputed in another autocast state than it was computed in.",
        inner or next((frame for frame in reversed(regions)), here(crash)),
        evidence=(described(crash, arm),),
        confidence=confidence,
        ruled_out=controls,
    )


def _same(one: object, other: object) -> bool:
    return (getattr(one, "file", 0), getattr(one, "line", 0)) == (getattr(other, "file", 1), getattr(other, "line", 1))
