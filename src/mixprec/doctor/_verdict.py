"""What the judges say, ranked, without what only follows from something else that was found.

Rows, not rules: a cause stands in one rank, and a consequence names what it follows from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from mixprec.doctor._arm import Arm, Examination
from mixprec.doctor.judges import all_judges
from mixprec.doctor.judges._crash import lint_names_the_crash
from mixprec.doctor.judges._located import ACCUSED_OP, culprit, fp32_fails, scaled_overflow
from mixprec.doctor.judges._lost import lint_names_what_is_lost
from mixprec.doctor.judges._reading import (
    computes_low,
    courses,
    failure,
    learns_less,
    observed,
    scalers_in_use,
    skips,
    sound,
)
from mixprec.formats import find_format
from mixprec.records import Confidence, Evidence, Severity, Verdict

__all__ = ["looked_at", "only_the_scale", "open_question", "rank", "verdicts"]

RANKS: tuple[tuple[str, ...], ...] = (
    ("MP137", "MP132", "MP013"),
    ("MP140", "MP038", "MP131", "MP136"),
    ("MP003", "MP004", "MP018", "MP170", "MP002", "MP005", "MP142", "MP006", "MP007", "MP008", "MP025", "MP024"),
    ("MP022", "MP087", "MP084", "MP028", "MP027", "MP009", "MP143", "MP144", "MP145", "MP146", "MP209"),
    ("MP161", "MP160", "MP026", "MP093", "MP139"),
    ("MP063", "MP174", "MP166", "MP169", "MP134"),
    ("MP044", "MP042", "MP043", "MP048", "MP047", "MP050", "MP052", "MP067", "MP141", "MP046", "MP045"),
    ("MP035", "MP036", "MP031", "MP032", "MP033", "MP034", "MP030", "MP040", "MP095"),
    ("MP130", "MP039"),
    ("MP016", "MP017", "MP014", "MP200", "MP015"),
    ("MP090", "MP081", "MP080", "MP168", "MP065", "MP069", "MP064", "MP068", "MP088", "MP061", "MP062", "MP066"),
    ("MP001", "MP060"),
    ("MP147", "MP019", "MP021", "MP020", "MP083"),
    ("MP029", "MP012", "MP135", "MP051", "MP133"),
)
"""Rows of causes, the first to be repaired first: what invalidates everything else, what breaks the protocol, what
breaks the numbers, what costs accuracy, what costs nothing but time."""

MOSTLY = 0.3
"""Share of skipped steps that no benign search of the scale explains."""

BREAKS_NUMBERS = frozenset(
    {
        "MP003",
        "MP006",
        "MP007",
        "MP008",
        "MP009",
        "MP018",
        "MP022",
        "MP025",
        "MP027",
        "MP028",
        "MP063",
        "MP131",
        "MP136",
        "MP137",
        "MP140",
        "MP174",
    }
)
"""Causes that make values infinite or NaN by themselves: what an op shows of it is their consequence."""

NUMBERS = frozenset(code for row in RANKS[6:9] for code in row) | {"MP134"}

RANGE = frozenset({"MP030", "MP031", "MP032", "MP033", "MP034", "MP035", "MP036", "MP040"})
"""What an activation beyond 65504 is called by its op; where it grew there step by step, the growth is the cause."""

FOLLOWS: dict[str, frozenset[str]] = {
    **dict.fromkeys(NUMBERS, BREAKS_NUMBERS | {"MP132"}),
    **dict.fromkeys(RANGE, BREAKS_NUMBERS | {"MP132", "MP039"}),
    "MP039": BREAKS_NUMBERS | {"MP130", "MP132"},
    "MP029": frozenset({"MP131"}),
    "MP132": frozenset({"MP137"}),
    "MP012": NUMBERS | BREAKS_NUMBERS | {"MP146", "MP084", "MP013", "MP139"},
    "MP131": frozenset({"MP013", "MP137"}),
    "MP009": frozenset({"MP013"}),
    "MP135": NUMBERS | BREAKS_NUMBERS | {"MP016", "MP038"},
    "MP038": BREAKS_NUMBERS - {"MP131"},
    "MP051": NUMBERS | BREAKS_NUMBERS | {"MP012"},
    "MP130": (NUMBERS - {"MP130", "MP039"}) | BREAKS_NUMBERS | {"MP002", "MP004", "MP132", "MP146"},
    "MP061": frozenset({"MP063", "MP084"}),
    "MP062": frozenset({"MP061", "MP063", "MP084"}),
    "MP060": frozenset({"MP001", "MP004", "MP018"}) | RANGE,
    "MP080": frozenset({"MP081", "MP090"}),
    "MP001": frozenset({"MP003"}),
    "MP146": frozenset({"MP143", "MP144", "MP145", "MP170", "MP004"}),
    "MP020": frozenset({"MP016", "MP017"}),
    "MP170": frozenset({"MP024"}),
    "MP004": frozenset({"MP024", "MP018"}),
    "MP143": frozenset({"MP087"}),
    "MP144": frozenset({"MP087"}),
}
"""A code, and the causes that explain it: it is not listed beside one of them."""


def verdicts(examination: Examination) -> tuple[Verdict, ...]:
    """Every verdict that holds, the cause to repair first at the head; empty where nothing is wrong."""
    found = [verdict for _, judge in all_judges() if (verdict := judge(examination)) is not None]
    if not any(_raised(verdict) for verdict in found) and (read := lint_names_the_crash(examination)) is not None:
        found = [read, *(verdict for verdict in found if verdict.code != read.code)]
    if not found and (read := lint_names_what_is_lost(examination)) is not None:
        found = [read]
    return tuple(_one_per_op(sorted(_causes_only(found), key=rank)))


def rank(verdict: Verdict) -> tuple[int, int, int]:
    """What ended the script first, then by row, errors before warnings."""
    raised = _raised(verdict)
    row = next((n for n, codes in enumerate(RANKS) if verdict.code in codes), 7)
    place = RANKS[row].index(verdict.code) if verdict.code in RANKS[row] else 0
    return (0 if raised else 1, row + (4 if verdict.confidence is Confidence.UNTESTED else 0), place)


def _raised(verdict: Verdict) -> bool:
    """Whether this is the cause of the exception that ended the script."""
    return any(one.what == "the script raised" for one in verdict.evidence)


def _causes_only(found: Iterable[Verdict]) -> list[Verdict]:
    found = list(found)
    codes = {verdict.code for verdict in found}
    return [verdict for verdict in found if not (FOLLOWS.get(verdict.code, frozenset()) & codes)]


def _one_per_op(ranked: Iterable[Verdict]) -> Iterator[Verdict]:
    """Judges that accuse the same op in the same place see one cause: the first of them names it."""
    accused: set[object] = set()
    for verdict in ranked:
        ops = {(one.value, one.arm, one.step, verdict.location) for one in verdict.evidence if one.what == ACCUSED_OP}
        if accused.isdisjoint(ops):
            yield verdict
        accused |= ops


def looked_at(examination: Examination) -> tuple[Evidence, ...]:
    """What a healthy run was found healthy by: skips, headroom, underflow, controls."""
    arm = observed(examination)
    if arm is None:
        return ()
    seen = [skips(steps) for steps in courses(arm)]
    attempts, skipped = sum(s.attempts for s in seen), sum(s.total for s in seen)
    more = "; the script goes on (--steps)" if arm.ended == "stopped" else ""
    facts: list[Evidence] = [Evidence("optimizer steps attempted", attempts, more, arm=arm.name)]
    if scalers_in_use(arm):
        facts.append(Evidence("steps skipped", skipped, f"of {attempts}", arm=arm.name))
        benign = sum(s.warm_up + s.probes for s in seen)
        facts.append(Evidence("of these at the start or right after a growth of the scale", benign, arm=arm.name))
    facts += _headroom(examination)
    facts += [
        Evidence("control", "healthy" if sound(a) else "fails" if failure(a) else "did not end", arm=a.name)
        for a in examination.arms[1:]
    ]
    return tuple(facts)


def _headroom(examination: Examination) -> list[Evidence]:
    arm = observed(examination)
    assert arm is not None
    if not computes_low(arm):
        return [Evidence("anything computed in 16 bits", False, arm=arm.name)]
    found = []
    low = [m.output_amax for m in arm.modules if "float16" in m.output_dtypes and m.output_amax]
    if low and math.isfinite(max(low)):
        bits = math.log2(find_format("float16").max / max(low))
        found.append(Evidence("headroom of the largest FP16 activation", round(bits, 1), "bits", arm=arm.name))
    tiny = [s.activation_tiny_share for s in arm.steps if s.activation_tiny_share is not None]
    if tiny:
        found.append(
            Evidence("activation gradients below 6.1e-5", round(sum(tiny) / len(tiny), 4), "share", arm=arm.name)
        )
    return found


def only_the_scale(examination: Examination) -> bool:
    """Whether the op at fault overflowed only because of the loss scale, which is what a skip is for."""
    fault = culprit(examination)
    return fault is not None and scaled_overflow(fault)


def open_question(examination: Examination) -> str | None:
    """The experiment that would decide, where the run failed and no judge can tell why; None otherwise."""
    arm = observed(examination)
    found = failure(arm)
    known = verdicts(examination)
    if arm is not None and found is None and not any(v.severity is not Severity.INFO for v in known):
        return _plateau(examination)
    if arm is not None and not known and (wasteful := _mostly_skipped(arm)) is not None:
        return wasteful
    serious = [v for v in known if v.severity is Severity.ERROR]
    if arm is None or found is None or serious or found.how == "skips":
        return None  # now and then a batch is too large for the scale: the scaler did what it is for
    if found.how == "scale" and only_the_scale(examination):
        return None
    if arm.ended == "timed_out" and not arm.steps:
        return "The script did not reach an optimizer step in time: run it with a longer --time."
    late = " (`--time` was too short for it)" if examination.seconds_left < arm.seconds * 1.3 else ""
    if computes_low(arm) and examination.arm("fp32") is None:
        return f"Run it in FP32 from the same seed{late}."
    if examination.arm("locate") is None:
        return f"Trace iteration {found.iteration} op by op{late}."
    fault = culprit(examination)
    if fault is not None and fp32_fails(examination):
        return (
            f"FP32 fails as well, so it is not the precision. {fault.op.op} in line {fault.op.location.line} is the "
            f"first to go wrong, in iteration {fault.iteration}: run that batch alone, and see what the op is given."
        )
    return f"Save the failing step, iteration {found.iteration}, and replay it with one module at a time in FP32."


def _mostly_skipped(arm: Arm) -> str | None:
    """What would tell why so many steps are skipped once the scale has found its place."""
    for steps in courses(arm):
        seen = skips(steps)
        later, skipped = seen.attempts - seen.warm_up, seen.probes + len(seen.others)
        if later >= 10 and skipped > MOSTLY * later:
            scale = min(step.scale for step in steps if step.scale is not None)
            return f"{skipped} of {later} steps are skipped: run it at the fixed loss scale {scale:g}, its lowest here."
    return None


def _plateau(examination: Examination) -> str | None:
    """What would tell why a training without a fault stays where it was while FP32 learns."""
    behind = learns_less(examination)
    if behind is None:
        return None
    first, last, exact = behind
    said = f"The loss goes from {first:.3g} to {last:.3g}, in FP32 to {exact:.3g}, and no cause was found."
    other = next((arm for arm in examination.arms if arm.changes("precision") in ("fp16", "bf16")), None)
    if other is None:
        return f"{said} Run it in the other 16-bit format: FP16 has three digits more, bfloat16 more range."
    return f"{said} Put one module at a time into FP32, and see which one makes it learn."
