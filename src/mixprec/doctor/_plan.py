"""Which arm comes next: the cheapest one among those whose answer would still change what is known.

A pure state machine: the state is the examination so far. It observes; asks for a control in FP32 and for the ops of
the iteration that failed, an arm that runs everything before it again and so says whether the script is reproducible;
then for what separates the causes that are left. Nothing is run for what is decided.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from mixprec.doctor._arm import Arm, ArmPlan, Examination, Intervention
from mixprec.doctor._verdict import RANKS, only_the_scale, verdicts
from mixprec.doctor.judges._reading import (
    CALM_SCALE,
    Failure,
    computes_low,
    courses,
    failure,
    learns_less,
    low_regions,
    observed,
    scalers_in_use,
    script_lines,
    skips,
    trains_half_weights,
)
from mixprec.doctor.judges.adam_eps import judge as suspects_eps
from mixprec.doctor.judges.divergence import diverges
from mixprec.doctor.judges.fused_momentum import judge as suspects_momentum
from mixprec.doctor.judges.not_reproducible import differs
from mixprec.records import Confidence, Severity

__all__ = ["next_arm"]

PROTOCOL = frozenset(code for row in RANKS[2:5] for code in row) | {"MP016", "MP017"}
"""Causes that the order of calls shows, whatever the numbers are."""

SLACK = 20
"""Steps that a control goes on after the place where the script failed."""


def next_arm(examination: Examination) -> ArmPlan | None:
    """The next arm to run, or None when no arm would change the verdict or the time is up."""
    arm = observed(examination)
    if arm is None:
        return ArmPlan("observe", steps=examination.wanted_steps, patience=examination.patience)
    if _decided(examination) or examination.seconds_left < 1.3 * arm.seconds:
        return None
    tried = {one.name for one in examination.arms}
    return next((plan for plan in _wanted(examination, arm) if plan.name not in tried), None)


def _decided(examination: Examination) -> bool:
    """Whether how the script uses autocast and scaler explains for certain what was seen: no control is needed."""
    arm = observed(examination)
    if arm is None:
        return False
    certain = [v for v in verdicts(examination) if v.confidence is Confidence.CONFIRMED]
    if arm.crash is not None:
        return any(one.what == "the script raised" for verdict in certain for one in verdict.evidence)
    return failure(arm) is None and any(v.code in PROTOCOL and v.severity is Severity.ERROR for v in certain)


def _wanted(examination: Examination, arm: Arm) -> Iterator[ArmPlan]:
    found = failure(arm)
    steps = _steps(examination, arm, found)
    if arm.crash is not None:
        yield from _after_crash(examination, arm)
        return
    if computes_low(arm):
        yield ArmPlan("fp32", _in_fp32(examination, arm), steps)
    yield ArmPlan("locate", trace={"iterations": _iterations(arm, found)})
    yield from _special(examination, arm, found, steps)
    if found is not None:
        yield from _after_failure(examination, arm, found, steps)
    elif learns_less(examination) and not verdicts(examination):
        dtype = "bf16" if low_regions(arm, "float16") else "fp16"
        yield ArmPlan(dtype, (Intervention("precision", dtype),), steps)


def _after_crash(examination: Examination, arm: Arm) -> Iterator[ArmPlan]:
    assert arm.crash is not None
    until = arm.crash.iteration + 3
    if "found in storage" in arm.crash.message:
        yield ArmPlan("cast_cache_off", (Intervention("cast_cache_off", True),), until)
    if computes_low(arm):
        yield ArmPlan("fp32", _in_fp32(examination, arm), until)
    if not verdicts(examination) or "mixed" in _asks_for_ops(examination):
        yield ArmPlan("locate", trace={"iterations": [arm.crash.iteration]})


def _asks_for_ops(examination: Examination) -> str:
    """Which ops a verdict on the exception still wants to see."""
    return "mixed" if any(verdict.code == "MP086" for verdict in verdicts(examination)) else ""


def _special(examination: Examination, arm: Arm, found: Failure | None, steps: int) -> Iterator[ArmPlan]:
    """Arms that only one cause asks for."""
    if suspects_eps(examination) is not None:
        yield ArmPlan("adam-eps", (Intervention("adam_eps", 1e-4),), steps)
    if found is not None and suspects_momentum(examination) is not None:
        yield ArmPlan("unfused", (Intervention("unfused", True),), steps)
    if any(event.kind == "empty_made" for event in arm.events) and (found is None or found.how in ("loss", "weights")):
        held, until = (math.nan, min(steps, SLACK)) if found is None else (0.0, steps)
        yield ArmPlan("fill-empty", (Intervention("fill_empty", held),), until)
    if arm.facts.get("compiled") or arm.facts.get("compile_site") or _traced_compiled(examination):
        yield ArmPlan("eager", (Intervention("eager", True),), steps)
    if any(diverges(arm, o.optimizer) for o in arm.optimizers if not o.rank) and _still_diverges(examination, arm):
        yield ArmPlan("learning-rate", (Intervention("learning_rate", 0.1),), steps)
        slower = examination.arm("learning-rate")
        if slower is not None and failure(slower) is not None:
            yield ArmPlan("learning-rate-2", (Intervention("learning_rate", 0.001),), steps)


def _traced_compiled(examination: Examination) -> bool:
    return any(one.facts.get("compiled") for one in examination.arms)


def _still_diverges(examination: Examination, arm: Arm) -> bool:
    """Whether precision is not what makes it diverge, as far as is known."""
    control = examination.arm("fp32")
    return control is None or any(diverges(control, o.optimizer) for o in arm.optimizers if not o.rank)


def _after_failure(examination: Examination, arm: Arm, found: Failure, steps: int) -> Iterator[ArmPlan]:
    located = examination.arm("locate")
    if located is not None and (differs(arm, located) or not located.ops):
        yield ArmPlan("repeat", (), min(steps, _attempts(arm, found) + 2))
    explained = any(verdict.confidence is Confidence.CONFIRMED for verdict in verdicts(examination))
    if explained or (found.how in ("skips", "scale") and only_the_scale(examination)):
        return
    if low_regions(arm, "float16"):
        yield ArmPlan("bf16", (Intervention("precision", "bf16"),), steps)
    if scalers_in_use(arm):
        yield ArmPlan("scale-1", (Intervention("loss_scale", 1.0),), steps)


BY_HAND = re.compile(r"\.(half|bfloat16)\(\)|\.(to|type)\([^)\n]*torch\.(half|float16|bfloat16)")


def _in_fp32(examination: Examination, arm: Arm) -> tuple[Intervention, ...]:
    """Both what autocast does and what the script converts by hand, where it does either."""
    by_hand = any(trains_half_weights(o) for o in arm.optimizers) or any(
        dtype in ("float16", "bfloat16") for module in arm.modules for dtype in module.parameter_dtypes
    )
    by_hand = by_hand or any(map(BY_HAND.search, script_lines(examination)))
    wanted: dict[str, Callable[[], bool]] = {
        "precision": lambda: bool(low_regions(arm)) or not by_hand,
        "explicit": lambda: by_hand or bool(arm.uncontrolled),
    }
    return tuple(Intervention(name, "fp32") for name, holds in wanted.items() if holds())


def _steps(examination: Examination, arm: Arm, found: Failure | None) -> int:
    """How many attempts per optimizer a control needs."""
    most = max((step.index + 1 for step in arm.steps), default=examination.wanted_steps)
    most = min(most, examination.wanted_steps)
    if found is None or found.how == "skips":  # which batches they belong to shows over the whole run
        return most
    return min(most, _attempts(arm, found) + SLACK)


def _attempts(arm: Arm, found: Failure) -> int:
    """Attempts of one optimizer until the failure."""
    return max((s.index + 1 for s in arm.steps if s.iteration <= found.iteration), default=1)


def _iterations(arm: Arm, found: Failure | None) -> list[int]:
    """The iterations to trace: where it failed; else one near the start, one at the end, the first evaluation and the
    one before it, at the end of an epoch, where sums over an epoch are largest.
    """
    last = max((step.iteration for step in arm.steps if step.finished), default=0)
    wanted = {min(2, last), last}
    evaluation = next(
        (e.iteration for e in arm.events if e.kind == "forward_begin" and not e.data.get("grad", True)), None
    )
    if evaluation is not None:
        wanted |= {min(evaluation, last), min(max(evaluation - 1, 0), last)}
    if found is not None:
        wanted = {found.iteration, *_lowest_failing_scale(arm)}
    return sorted(wanted)


def _lowest_failing_scale(arm: Arm) -> Iterator[int]:
    """The last skip of a start that went too far down: at that scale only the cause itself is left."""
    for steps in courses(arm):
        seen = skips(steps)
        if seen.warm_up and (seen.settled is None or seen.settled < CALM_SCALE):
            at = seen.warm_up - 1
            low = [n for n, step in enumerate(steps[: at + 1]) if step.scale is not None and step.scale >= 1.0]
            yield steps[low[-1] if low else at].iteration
        yield from (step.iteration for step in seen.others[:1])
